"""How much work a service must be able to carry, and whether it may get smaller.

Floors hold whatever the signals say; not knowing never makes a service smaller; an idle service rests at zero only
where somebody counts what waits for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from berth.inference import manual
from berth.inference.records import DemandState
from berth.inference.service import Memory, Mode, Rules, Sight, Verdict
from berth.values import format_duration, percent

NOTHING: Final = 0.05
"""Of the smallest replica; what is foreseen below it is as good as nothing."""


@dataclass(frozen=True, slots=True)
class Need:
    """``work`` to be carried by at least ``floor`` and at most ``ceiling`` replicas.

    ``now`` is the part of ``work`` that is there already. ``frozen``: nothing may be taken away. ``text`` states the
    inputs, ``reason`` what the need comes from in one word.
    """

    work: float
    floor: int
    ceiling: int
    reason: str
    text: str
    now: float = 0.0
    frozen: bool = False
    waking: bool = False
    zero_refused: str = ""


def needed(rules: Rules, memory: Memory, sight: Sight, carried: float) -> tuple[Need, Memory]:
    """The need, and the memory with its clocks set. ``carried``: the work that the replicas asked for carry."""
    memory = manual.remember(rules, _clocks(memory, sight), sight)
    if memory.held is None:
        memory = replace(memory, held=sum(sight.wanted.values()), held_work=carried, held_capacity=carried)
    total = sum(sight.wanted.values())
    if rules.mode is Mode.MANUAL:
        return _manual(rules, memory, sight, carried), memory
    if sight.seen.state is DemandState.UNKNOWN:
        return _unknown(rules, memory, sight, total), memory
    refused = _zero_refused(rules, sight)
    if sight.seen.state is DemandState.IDLE and rules.zero is not None and not refused:
        rest = _rests(rules, memory, sight, total)
        if rest is not None:
            return rest, memory
    return _measured(rules, sight, total, refused), memory


def _manual(rules: Rules, memory: Memory, sight: Sight, carried: float) -> Need:
    """What is held carries as much as it does: the cheapest mix of so many replicas may be of smaller ones."""
    count, work, total, text = manual.asked(rules, memory), 0.0, sum(sight.wanted.values()), manual.words(rules, memory)
    if manual.moves(memory, sight):
        may_stay = total - sum(sight.wanted.get(offer.variant.name, 0) for offer in sight.offers if offer.closed)
        floor = max(rules.manual_replicas, min(count, may_stay))
        return Need(min(carried, memory.held_capacity), floor, max(count, total), "Manual", text)
    if manual.holds(rules, memory) and total:
        work = carried * min(1.0, count / total)
    return Need(work, count, count, "Manual", text)


def _clocks(memory: Memory, sight: Sight) -> Memory:
    state = sight.seen.state
    unknown = _since(memory.unknown_since, sight.now) if sight.seen.lost else None
    idle = _since(memory.idle_since, sight.now) if state is DemandState.IDLE else None
    if state is DemandState.UNKNOWN:
        idle = memory.idle_since  # not knowing neither starts the idle clock nor resets it
    if (unknown, idle) == (memory.unknown_since, memory.idle_since):
        return memory
    return replace(memory, unknown_since=unknown, idle_since=idle)


def _since(began: float | None, now: float) -> float:
    return now if began is None else began


def _unknown(rules: Rules, memory: Memory, sight: Sight, total: int) -> Need:
    """What the last plan aimed at stays; replicas asked for beside ones that leave are not counted into it again."""
    passed = sight.now - _since(memory.unknown_since, sight.now)
    asleep = not total and rules.zero is not None and bool(memory.decisions) and memory.decisions[0].after == 0
    least = rules.unknown_replicas if passed >= rules.hold_for else 0
    floor = min(max(memory.held or 0, least, 0 if asleep else rules.min_replicas), rules.max_replicas)
    text = f"demand has been unknown for {format_duration(passed)}" + (
        f" ({sight.seen.reason})" if sight.seen.reason else ""
    )
    work = memory.held_work
    return Need(work, floor, rules.max_replicas, "DemandUnknown", text, now=work, frozen=True)


def partly_until(rules: Rules, memory: Memory, sight: Sight) -> float | None:
    """Where some signal is lost, how long what the others say may make a service larger but not smaller."""
    until = _since(memory.unknown_since, sight.now) + rules.hold_for
    return until if sight.seen.lost and sight.now < until else None


def _rests(rules: Rules, memory: Memory, sight: Sight, total: int) -> Need | None:
    """At zero already, or idle for long enough with nothing foreseen within the horizon."""
    assert rules.zero is not None
    smallest = min((entry.variant.capacity for entry in sight.offers if entry.variant.capacity > 0), default=1.0)
    if (sight.foreseen.work or 0.0) > 0.0 and sight.foreseen.point > NOTHING * smallest:
        return None
    if not total:
        return Need(0.0, 0, 0, "Idle", "nothing waits and nothing is foreseen")
    began = idle_from(memory, sight)
    horizon = sight.foreseen.horizon_seconds
    if began is None or sight.now - began < max(rules.zero.idle_after, horizon):
        return None  # who sleeps sooner than it could wake would begin to start for what comes in between
    text = f"no demand for {format_duration(sight.now - began)}, idleAfter is {format_duration(rules.zero.idle_after)}"
    if horizon > rules.zero.idle_after:
        text += f" and waking takes {format_duration(horizon)}"
    return Need(0.0, 0, 0, "Idle", text)


def idle_from(memory: Memory, sight: Sight) -> float | None:
    """When the idle clock began: not before some replica was first ready to serve. None: it has not begun."""
    ready = [replica.ready_since for replica in sight.replicas if replica.ready and replica.ready_since is not None]
    if memory.idle_since is None or not ready:
        return None
    return max(memory.idle_since, min(ready))


def _zero_refused(rules: Rules, sight: Sight) -> str:
    if rules.zero is None:
        return ""
    if not sight.seen.at_zero:
        return "no signal counts demand at zero replicas; add one that a gateway or a queue counts"
    if not sight.cold_start_seconds:
        return "no cold start has been measured yet"
    if sight.cold_start_seconds > rules.zero.max_wake:
        return (
            f"a cold start takes {format_duration(sight.cold_start_seconds)}, longer than scaleToZero.maxWake, "
            f"{format_duration(rules.zero.max_wake)}"
        )
    return ""


def _measured(rules: Rules, sight: Sight, total: int, refused: str) -> Need:
    now, ahead = sight.seen.work or 0.0, sight.foreseen.work or 0.0
    work = max(now, ahead)
    text = f"demand is {now:.3g}"
    if sight.foreseen.work is not None:
        text += (
            f" and {ahead:.3g} is to be ready in {format_duration(sight.foreseen.horizon_seconds)}"
            f" ({sight.foreseen.basis or f'quantile {percent(sight.foreseen.quantile)}'})"
        )
    if rules.warm_replicas:
        text += f", with {rules.warm_replicas} kept warm"
    if sight.carries:
        text += f"; {sight.carries}"
    reason = "Demand" if now >= ahead else "Forecast"
    waking = total == 0 and (work > 0 or rules.warm_replicas > 0)
    return Need(
        work, rules.min_replicas, rules.max_replicas, reason, text,
        now=max(now, sight.foreseen.point), waking=waking, zero_refused=refused,
    )  # fmt: skip


def metrics_verdict(rules: Rules, memory: Memory, sight: Sight) -> Verdict:
    """The condition MetricsAvailable."""
    if not sight.seen.lost:
        return Verdict(True, sight.seen.state.value, sight.seen.doubt)
    left = rules.hold_for - (sight.now - _since(memory.unknown_since, sight.now))
    say = sight.seen.reason or "no signal has a sample that is new enough"
    if sight.seen.state is not DemandState.UNKNOWN:
        more = f"nothing is taken away for {format_duration(left)}" if left > 0 else "the other signals decide"
        return Verdict(False, "SignalsLost", f"{say}; {more}")
    if left > 0:
        return Verdict(False, "Holding", f"{say}; the replicas there are stay for {format_duration(left)}")
    return Verdict(False, "HoldExpired", f"{say}; at least onUnknown.replicas, {rules.unknown_replicas}, are kept")
