"""The plan of one service: from need to counts per variant, with the reason for each change.

Growth closes the whole deficit at once, for a replica that is pending counts as supply and so no deficit is met twice.
Shrinking waits until less was enough for a while, never falls within a cold start of the last growth, and takes a
replica only when the others are proven to carry the work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from berth.inference.fallback import Footing, Turn, step
from berth.inference.need import Need, holds_partly, metrics_verdict, needed
from berth.inference.program import TINY
from berth.inference.records import DemandState, Mix, MixBounds, Offer, Variant, carried
from berth.inference.retire import settle, staying, victims
from berth.inference.service import (
    DECISIONS_KEPT,
    Decision,
    Event,
    Memory,
    Mode,
    Phase,
    Plan,
    Rules,
    Sight,
    Verdict,
)
from berth.values import format_duration, plural

Cheapest = Callable[[Sequence[Offer], MixBounds, Mapping[str, int]], Mix]
"""Finds the cheapest mix within bounds, given the counts there are."""

LOOK_SECONDS = 15.0
SAME_SECONDS = 60.0
"""A decision that was just made and is not carried out yet is no second one."""


def decide(rules: Rules, memory: Memory, sight: Sight, cheapest: Cheapest) -> Plan:
    """What shall be, given what is. Pure: equal arguments give equal plans."""
    variants = {offer.variant.name: offer.variant for offer in sight.offers}
    stays = staying(sight.wanted, sight.replicas)
    have = sum(sight.wanted.values())
    need, memory = needed(rules, memory, sight, carried(sight.wanted, variants))
    offers = [_limited(offer, stays, sight) for offer in sight.offers]
    free = cheapest(offers, _bounds(rules, need, sight, {}, need.floor, need.ceiling), stays)
    mix, memory, held_by, kept = _directed(rules, memory, sight, need, free, offers, stays, cheapest, variants)
    aim = carried(mix.counts, variants)
    shrinks = aim < memory.held_capacity
    if not need.frozen:
        memory = replace(memory, held=mix.replicas, held_work=min(need.work, aim), held_capacity=aim)
    rooms = {offer.variant.name: offer.room + offer.growth for offer in sight.offers}
    safe = 0.0 if rules.mode is Mode.MANUAL else min(max(need.work, kept), aim)
    least = min(need.floor, mix.replicas)
    short = mix.short > 0 or mix.replicas < need.floor
    counts = settle(mix.counts, sight.wanted, sight.replicas, variants, safe, rooms, least, short=short)
    counts = {name: count for name, count in counts.items() if count or sight.wanted.get(name)}
    decision = _decision(sight, need, counts, mix.bound_by or held_by, rules, memory, variants)
    advice = None
    if rules.mode is Mode.ADVISORY:
        counts, advice, decision = dict(sight.wanted), decision, None
        memory = replace(memory, held=None)  # nothing was done, so what there is stays what counts
    if decision is not None and _repeats(memory, decision):
        decision = None
    after = sum(counts.values())
    if decision is not None:
        memory = _remember(memory, decision, have, after, shrinks=shrinks)
    firm = carried({name: count for name, count in mix.counts.items() if not variants[name].spot}, variants)
    footing, turn = step(memory.footing, firm, aim - firm, sight.now)
    if rules.mode is not Mode.ADVISORY:
        memory = replace(memory, footing=footing)
    phase, message = _phase(rules, sight, need, mix, counts)
    if advice is not None:
        message = f"Advisory, from {advice.before} to {advice.after} replicas would be: {advice.message}"
    elif need.zero_refused:
        message = f"{message}; it stays awake: {need.zero_refused}"
    return Plan(
        counts=counts,
        memory=memory,
        phase=phase,
        message=message,
        conditions=_conditions(rules, memory, sight, mix, need),
        decision=decision,
        advice=advice,
        victims={
            name: victims(sight.replicas, name, count)
            for name, count in counts.items()
            if count < sight.wanted.get(name, 0)
        },
        events=_events(sight, need, mix, decision, have, after)
        + (() if advice or turn is None else _turned(turn, footing)),
        usd_per_hour=_price(counts, variants),
        on_demand_only_usd_per_hour=_on_demand_price(counts, variants),
        next_look=sight.now + LOOK_SECONDS,
    )


def _limited(offer: Offer, stays: Mapping[str, int], sight: Sight) -> Offer:
    """``offer`` with the room there is for replicas that stay: those about to be taken hold theirs until they are gone.

    A variant whose replicas never become ready gets no more of them.
    """
    name = offer.variant.name
    there = stays.get(name, 0)
    room = max(0, offer.room - (sight.wanted.get(name, 0) - there))
    if name in sight.crashing:
        return replace(offer, room=min(room, there), growth=0)
    return offer if room == offer.room else replace(offer, room=room)


def _bounds(rules: Rules, need: Need, sight: Sight, keep: Mapping[str, int], floor: int, ceiling: int) -> MixBounds:
    spot = rules.spot
    survive = need.now if spot.allowed and spot.max_zone_loss is None and not need.frozen else 0.0
    return MixBounds(
        work=need.work,
        min_replicas=floor,
        max_replicas=ceiling,
        survive=min(survive, need.work),
        on_demand_floor=min(spot.on_demand_floor, ceiling),
        max_spot_share=spot.max_share,
        max_zone_loss=1.0 if spot.max_zone_loss is None else spot.max_zone_loss,
        spot_allowed=spot.allowed,
        on_demand_allowed=not spot.only,
        keep=keep,
    )


def _directed(
    rules: Rules,
    memory: Memory,
    sight: Sight,
    need: Need,
    free: Mix,
    offers: Sequence[Offer],
    stays: Mapping[str, int],
    cheapest: Cheapest,
    variants: Mapping[str, Variant],
) -> tuple[Mix, Memory, str, float]:
    """The mix with the limits on how fast and when a service may change; which of them held it back.

    Last, the work that is carried on though less would be enough. Only carrying less has to wait: a move to other
    variants takes nothing away, for what it replaces stays until the replacement serves.
    """
    rooms = {offer.variant.name: offer.room + offer.growth for offer in offers}
    known = {name: min(count, rooms[name]) for name, count in stays.items() if name in variants}
    aimed = min(memory.held_capacity, carried(known, variants))
    lower = carried(free.counts, variants) < aimed - TINY * max(1.0, aimed)
    since = sight.now if memory.lower_since is None else memory.lower_since
    memory = replace(memory, lower_since=since if lower else None)
    if rules.mode is Mode.MANUAL or need.reason == "Idle":
        return free, memory, "", 0.0
    replicas = min(memory.held or 0, sum(stays.values()))
    if any(free.counts.get(name, 0) < count for name, count in known.items()):
        held = _fixed(rules, memory, sight, need)
        if held:
            ceiling = max(need.ceiling, sum(known.values()))
            return cheapest(offers, _bounds(rules, need, sight, known, need.floor, ceiling), stays), memory, held, 0.0
    if lower and (held := _waits(rules, memory, sight)):
        more = replace(need, work=max(need.work, aimed))
        mix = cheapest(offers, _bounds(rules, more, sight, {}, need.floor, max(need.ceiling, replicas)), stays)
        if carried(mix.counts, variants) <= carried(free.counts, variants):  # what there is may not, or cannot, stay
            return free, memory, "", 0.0
        return _asked_less(mix, need.work, variants), memory, held, aimed
    floor, ceiling, bound = need.floor, need.ceiling, ""
    if lower:
        least = replicas - rules.max_down.of(replicas)
        if free.replicas < least:
            floor, bound = max(floor, least), "MaxDown"
    if rules.max_up is not None and not need.waking:
        there = sum(sight.wanted.values())  # what replaces replicas that leave is no growth
        most = max(there + rules.max_up.of(there), need.floor)
        if free.replicas > most:
            ceiling, bound = min(ceiling, most), "MaxUp"
    if not bound:
        return free, memory, "", 0.0
    return cheapest(offers, _bounds(rules, need, sight, {}, floor, ceiling), stays), memory, bound, 0.0


def _fixed(rules: Rules, memory: Memory, sight: Sight, need: Need) -> str:
    """In one word, why every replica has to stay where it is; empty when nothing says so."""
    if need.frozen or holds_partly(rules, memory, sight):
        return "DemandUnknown"
    return "SloMissed" if sight.slo_met is False else ""


def _waits(rules: Rules, memory: Memory, sight: Sight) -> str:
    """In one word, why no less may be carried yet; empty when nothing says so."""
    if memory.last_up is not None and sight.now - memory.last_up < sight.cold_start_seconds:
        return "ColdStart"
    lower = memory.lower_since if memory.lower_since is not None else sight.now
    return "DownAfter" if sight.now - lower < rules.down_after else ""


def _asked_less(mix: Mix, work: float, variants: Mapping[str, Variant]) -> Mix:
    """``mix`` as an answer to ``work``, where it was asked for more."""
    short = max(0.0, work - carried(mix.counts, variants))
    return mix if short > TINY * max(1.0, work) else replace(mix, short=0.0, bound_by="")


def _decision(
    sight: Sight,
    need: Need,
    counts: Mapping[str, int],
    bound_by: str,
    rules: Rules,
    memory: Memory,
    variants: Mapping[str, Variant],
) -> Decision | None:
    before, after = sum(sight.wanted.values()), sum(counts.values())
    if {name: count for name, count in counts.items() if count} == {n: c for n, c in sight.wanted.items() if c}:
        return None
    reason = need.reason if after != before else "Rebalanced"
    if need.waking and after:
        reason = "Waking"
    noticed = any(replica.leaving_at is not None for replica in sight.replicas)
    if noticed and after >= sum(staying(sight.wanted, sight.replicas).values()) and after:
        reason = "SpotReclaimed"
    elif (after > before and need.work == 0) or (after == need.floor and after > before and need.work < after - 1):
        reason = "MinReplicas" if rules.mode is not Mode.MANUAL else "Manual"
    text = f"{need.text}; {plural(after, 'replica')} carry {carried(counts, variants):.3g}"
    possible = sight.now + rules.down_after if after < before else sight.now
    return Decision(sight.now, before, after, reason, text[:1].upper() + text[1:], bound_by, possible)


def _repeats(memory: Memory, decision: Decision) -> bool:
    last = memory.decisions[0] if memory.decisions else None
    if last is None or decision.time - last.time >= SAME_SECONDS:
        return False
    return (last.before, last.after, last.reason) == (decision.before, decision.after, decision.reason)


def _remember(memory: Memory, decision: Decision, before: int, after: int, *, shrinks: bool) -> Memory:
    return replace(
        memory,
        decisions=(decision, *memory.decisions)[:DECISIONS_KEPT],
        last_up=decision.time if after > before else memory.last_up,
        last_down=decision.time if after < before else memory.last_down,
        lower_since=None if after < before and shrinks else memory.lower_since,
    )


def _phase(rules: Rules, sight: Sight, need: Need, mix: Mix, counts: Mapping[str, int]) -> tuple[Phase, str]:
    total = sum(counts.values())
    ready = sum(replica.ready and not replica.terminating for replica in sight.replicas)
    if not sight.offers and not total:
        return Phase.PENDING, sight.excluded or "No pool has an accelerator that can serve the model"
    if total == 0:
        asleep = "spec.replicas is 0" if rules.mode is Mode.MANUAL else need.text
        return Phase.IDLE, f"No replica: {asleep}"
    if sight.crashing and not ready:
        names = ", ".join(sorted(sight.crashing))
        return Phase.FAILED, f"Replicas of {names} end before they are ready; see their logs. No more are started"
    if not ready:
        return Phase.STARTING, f"{plural(total, 'replica')} start; {need.text}"
    if mix.short > 0:
        return Phase.DEGRADED, _shortage(mix)
    if ready < min(rules.min_replicas, total) or sight.slo_met is False:
        why = "the SLO is missed" if sight.slo_met is False else f"{ready} of {total} replicas are ready"
        return Phase.DEGRADED, f"{why[:1].upper()}{why[1:]}; {need.text}"
    return Phase.READY, f"{ready} of {total} replicas are ready; {need.text}"


def _shortage(mix: Mix) -> str:
    return f"{mix.short:.3g} of work finds no place ({mix.bound_by or 'Capacity'}): add nodes, types or maxReplicas"


def _conditions(rules: Rules, memory: Memory, sight: Sight, mix: Mix, need: Need) -> dict[str, Verdict]:
    ready = sum(replica.ready and not replica.terminating for replica in sight.replicas)
    wants = max(1, min(need.floor, rules.min_replicas) if need.frozen else need.floor) if need.work or need.floor else 0
    verdicts = {
        "Ready": Verdict(True, "ReplicasReady" if ready else "Idle")
        if ready >= wants
        else Verdict(False, "ReplicasNotReady", f"{ready} of at least {wants} replicas are ready"),
        "CapacityAvailable": Verdict(True, "Sufficient")
        if mix.short <= 0
        else Verdict(False, "CapacityLimited", _shortage(mix)),
    }
    if rules.mode is not Mode.MANUAL:
        verdicts["MetricsAvailable"] = metrics_verdict(rules, memory, sight)
    if sight.slo_met is not None:
        verdicts["SloMet"] = (
            Verdict(True, "Met")
            if sight.slo_met
            else Verdict(False, "Missed", "the measured percentile is over the SLO")
        )
    return verdicts


def _events(
    sight: Sight, need: Need, mix: Mix, decision: Decision | None, before: int, after: int
) -> tuple[Event, ...]:
    events: list[Event] = []
    if decision is not None and after != before:
        name = "ScaledUp" if after > before else "ScaledDown"
        if before == 0:
            name = "Woken" if need.waking else name
        if after == 0 and need.reason == "Idle":
            name = "Idled"
        events.append(Event(name, f"From {before} to {after}: {decision.message}"))
    if decision is not None and decision.reason == "SpotReclaimed" and after >= before:
        gone = sum(replica.leaving_at is not None for replica in sight.replicas)
        soonest = min(replica.leaving_at for replica in sight.replicas if replica.leaving_at is not None)
        left = format_duration(max(0.0, soonest - sight.now))
        events.append(Event("SpotReclaimed", f"{gone} spot replicas end in {left}; replacements start first", True))
    if mix.short > 0:
        events.append(Event("CapacityLimited", _shortage(mix), True))
    if sight.seen.state is DemandState.UNKNOWN:
        events.append(Event("MetricsLost", need.text[:1].upper() + need.text[1:], True))
    return tuple(events)


def _turned(turn: Turn, footing: Footing) -> tuple[Event, ...]:
    fell = turn == "FellBackToOnDemand"
    says = "Spot is taken back or gone" if fell else "Spot has been stable"
    text = f"{says}: {footing.on_demand:.3g} of work is to be on demand and {footing.spot:.3g} on spot"
    return (Event(turn, text, warning=fell),)


def _price(counts: Mapping[str, int], variants: Mapping[str, Variant]) -> float:
    return sum(variants[name].usd_per_hour * count for name, count in counts.items() if name in variants)


def _on_demand_price(counts: Mapping[str, int], variants: Mapping[str, Variant]) -> float:
    """What the same replicas would cost without spot: each at the on-demand price of its accelerator, where known."""
    price: dict[tuple[str, int], float] = {}
    for variant in variants.values():
        if not variant.spot:
            key = (variant.accelerator, variant.devices)
            price[key] = min(price.get(key, math.inf), variant.usd_per_hour)
    return sum(
        price.get((variants[name].accelerator, variants[name].devices), variants[name].usd_per_hour) * count
        for name, count in counts.items()
        if name in variants
    )
