"""The plan of one service: from need to counts per variant, with the reason for each change.

Growth closes the whole deficit at once, for a replica that is pending counts as supply and so no deficit is met twice.
Shrinking waits until less was enough for a while, never falls within a cold start of the last growth, and takes a
replica only when the others are proven to carry the work.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from berth.inference import manual
from berth.inference.fallback import step
from berth.inference.holds import Hold, fixed, not_later, remember_miss, waits
from berth.inference.lastresort import kept, last_resort
from berth.inference.leaving import leaving_reason
from berth.inference.need import Need, needed
from berth.inference.program import TINY
from berth.inference.records import Mix, MixBounds, Offer, Variant, carried
from berth.inference.retire import settle, staying, victims
from berth.inference.service import (
    DECISIONS_KEPT,
    Decision,
    Memory,
    Mode,
    Plan,
    Replica,
    Rules,
    Sight,
)
from berth.inference.spot import Cheapest
from berth.inference.words import capitalised, conditions, events, phase, shortage, turned
from berth.values import plural

LOOK_SECONDS = 15.0
DRAIN_SECONDS = 60.0
"""What replicas about to be taken have for their last answers at least, where the others carry the work."""
_SOME_WORK = 1e-3
"""Any at all: what one replica carries."""
SAME_SECONDS = 60.0
"""A decision that was just made and is not carried out yet is no second one."""


def decide(rules: Rules, memory: Memory, sight: Sight, cheapest: Cheapest) -> Plan:
    """What shall be, given what is. Pure: equal arguments give equal plans."""
    cheapest, memory = last_resort(cheapest), not_later(memory, sight.now)
    variants = {offer.variant.name: offer.variant for offer in sight.offers}
    stays = staying(sight.wanted, sight.replicas)
    have = sum(sight.wanted.values())
    need, memory = needed(rules, remember_miss(memory, sight), sight, carried(sight.wanted, variants))
    offers = [_limited(offer, stays, sight) for offer in sight.offers]
    need = _with_warm(rules, need, sight, offers, cheapest)
    free = cheapest(offers, _bounds(rules, need, sight, {}, need.floor, need.ceiling), stays)
    way = _directed(rules, memory, sight, need, free, offers, stays, cheapest, variants)
    mix, memory = way.mix, way.memory
    aim = carried(mix.counts, variants)
    memory = replace(memory, aimed=mix.replicas)
    if manual.moves(memory, sight):
        memory = replace(memory, unset_keeps=mix.replicas)
    shrinks = aim < memory.held_capacity
    if not need.frozen:
        memory = replace(memory, held=mix.replicas, held_work=min(need.work, aim), held_capacity=aim)
    rooms = {offer.variant.name: offer.room + offer.growth for offer in sight.offers}
    safe = min(max(need.work, way.kept), aim)
    least = min(need.floor, mix.replicas)
    short = bool(shortage(mix, need))
    counts = settle(
        mix.counts, sight.wanted, sight.replicas, variants, safe, rooms, least,
        short=short, urgent=urgent(sight.replicas, sight.now),
    )  # fmt: skip
    counts = {name: count for name, count in counts.items() if count or sight.wanted.get(name)}
    decision = _decision(sight, need, counts, way, rules, variants)
    advice = None
    if rules.mode is Mode.ADVISORY:
        counts, advice, decision = dict(sight.wanted), decision, None
        memory = replace(memory, held=None, aimed=None)  # nothing was done, so what there is stays what counts
    if decision is not None and _repeats(memory, decision):
        decision = None
    after = sum(counts.values())
    if decision is not None:
        memory = _remember(memory, decision, have, after, shrinks=shrinks)
    firm = carried({name: count for name, count in mix.counts.items() if not variants[name].spot}, variants)
    footing, turn = step(memory.footing, firm, aim - firm, sight.now)
    if rules.mode is not Mode.ADVISORY:
        memory = replace(memory, footing=footing)
    state, message = phase(rules, sight, need, mix, counts)
    if advice is not None:
        message = f"Advisory, from {advice.before} to {advice.after} replicas would be: {advice.message}"
    elif need.zero_refused:
        message = f"{message}; it stays awake: {need.zero_refused}"
    if advice is None and after and (text := way.held):
        message = f"{message}; {text}"
    if text := kept(sight, counts):
        message = f"{message}; {text}"
    return Plan(
        counts=counts,
        memory=memory,
        phase=state,
        message=message,
        conditions=conditions(rules, memory, sight, mix, need),
        decision=decision,
        advice=advice,
        victims={
            name: victims(sight.replicas, name, count)
            for name, count in counts.items()
            if count < sight.wanted.get(name, 0)
        },
        events=events(rules, memory, sight, need, mix, decision, have, after)
        + (() if advice or turn is None else turned(turn, footing)),
        usd_per_hour=_price(counts, variants),
        on_demand_only_usd_per_hour=_on_demand_price(counts, variants),
        next_look=sight.now + LOOK_SECONDS,
    )


def urgent(replicas: Sequence[Replica], now: float) -> bool:
    """Whether the first that a notice takes needs what is left to it for its last answers, see :func:`settle`."""
    ends = min((replica.leaving_at for replica in replicas if replica.leaving_at is not None), default=math.inf)
    return ends - now <= DRAIN_SECONDS + LOOK_SECONDS


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


def _with_warm(rules: Rules, need: Need, sight: Sight, offers: Sequence[Offer], cheapest: Cheapest) -> Need:
    """``need`` with the warm replicas beside it: each as large as the largest that the need alone would take.

    What there is does not enter, so that what was started for it does not change it.
    """
    if not rules.warm_replicas or need.frozen or need.reason in ("Manual", "Idle"):
        return need
    least = replace(need, work=max(need.work, _SOME_WORK))
    alone = cheapest(offers, _bounds(rules, least, sight, {}, need.floor, need.ceiling), {})
    sizes = {offer.variant.name: offer.variant.capacity for offer in offers}
    each = max((sizes[name] for name in alone.counts), default=1.0)
    return replace(need, work=need.work + rules.warm_replicas * each)


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


@dataclass(frozen=True, slots=True)
class _Way:
    """The mix on the way to the cheapest one: ``hold`` is what keeps it from there, ``kept`` the work carried on."""

    mix: Mix
    memory: Memory
    hold: Hold | None = None
    kept: float = 0.0

    @property
    def bound_by(self) -> str:
        """In one word, what kept the plan from going further."""
        return self.mix.bound_by or (self.hold.reason if self.hold is not None else "")

    @property
    def held(self) -> str:
        """What may not be done yet, and until when; empty where nothing waits for a time."""
        if self.hold is None:
            return ""
        return self.hold.sentence("no less is carried" if self.kept else "nothing is taken away")


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
) -> _Way:
    """The mix with the limits on how fast and when a service may change.

    Only carrying less has to wait: a move to other variants takes nothing away, for what it replaces stays until the
    replacement serves.
    """
    rooms = {offer.variant.name: offer.room + offer.growth for offer in offers}
    known = {name: min(count, rooms[name]) for name, count in stays.items() if name in variants}
    aimed = min(memory.held_capacity, carried(known, variants))
    lower = carried(free.counts, variants) < aimed - TINY * max(1.0, aimed)
    since = sight.now if memory.lower_since is None else memory.lower_since
    memory = replace(memory, lower_since=since if lower else None)
    if rules.mode is Mode.MANUAL or need.reason == "Idle":
        return _Way(free, memory)
    replicas = min(memory.held or 0, sum(stays.values()))
    if any(free.counts.get(name, 0) < count for name, count in known.items()):
        hold = fixed(rules, memory, sight, need)
        if hold is not None:
            return _fixed(rules, memory, sight, need, hold, known, offers, stays, cheapest, aimed)
    if lower and (hold := waits(rules, memory, sight)) is not None:
        more = replace(need, work=max(need.work, aimed))
        mix = cheapest(offers, _bounds(rules, more, sight, {}, need.floor, need.ceiling), stays)
        if carried(mix.counts, variants) <= carried(free.counts, variants):  # what there is may not, or cannot, stay
            return _Way(free, memory)
        return _Way(_asked_less(mix, need.work, variants), memory, hold, aimed)
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
        return _Way(free, memory)
    return _Way(cheapest(offers, _bounds(rules, need, sight, {}, floor, ceiling), stays), memory, Hold(bound))


def _fixed(
    rules: Rules,
    memory: Memory,
    sight: Sight,
    need: Need,
    hold: Hold,
    known: Mapping[str, int],
    offers: Sequence[Offer],
    stays: Mapping[str, int],
    cheapest: Cheapest,
    aimed: float,
) -> _Way:
    """Every replica stays where it is, but for those on closed offers, which others may replace: no less is carried."""
    most = rules.max_replicas
    if sum(known.values()) > most:  # the user has lowered it, and that is no measurement
        return _Way(cheapest(offers, _bounds(rules, need, sight, {}, most, most), stays), memory, Hold("MaxReplicas"))
    closed = {offer.variant.name for offer in offers if offer.closed and known.get(offer.variant.name)}
    least = aimed if closed else 0.0
    keep = {name: count for name, count in known.items() if name not in closed}
    more = replace(need, work=max(need.work, least))
    mix = cheapest(offers, _bounds(rules, more, sight, keep, need.floor, need.ceiling), stays)
    return _Way(mix, memory, hold, least)


def _asked_less(mix: Mix, work: float, variants: Mapping[str, Variant]) -> Mix:
    """``mix`` as an answer to ``work``, where it was asked for more."""
    short = max(0.0, work - carried(mix.counts, variants))
    return mix if short > TINY * max(1.0, work) else replace(mix, short=0.0, bound_by="")


def _decision(
    sight: Sight,
    need: Need,
    counts: Mapping[str, int],
    way: _Way,
    rules: Rules,
    variants: Mapping[str, Variant],
) -> Decision | None:
    before, after = sum(sight.wanted.values()), sum(counts.values())
    if {name: count for name, count in counts.items() if count} == {n: c for n, c in sight.wanted.items() if c}:
        return None
    reason = need.reason if after != before else "Rebalanced"
    if need.waking and after:
        reason = "Waking"
    noticed = leaving_reason(sight.replicas)
    if noticed and after >= sum(staying(sight.wanted, sight.replicas).values()) and after:
        reason = noticed
    elif (after > before and need.work == 0) or (after == need.floor and after > before and need.work < after - 1):
        reason = "MinReplicas" if rules.mode is not Mode.MANUAL else "Manual"
    carry = "carries" if after == 1 else "carry"
    text = f"{need.text}; {plural(after, 'replica')} {carry} {carried(counts, variants):.3g} of work"
    possible = sight.now + rules.down_after if after < before else sight.now
    if way.hold is not None and way.hold.until is not None:
        possible = max(possible, way.hold.until)
    return Decision(sight.now, before, after, reason, capitalised(text), way.bound_by, possible)


def _repeats(memory: Memory, decision: Decision) -> bool:
    last = memory.decisions[0] if memory.decisions else None
    if last is None or abs(decision.time - last.time) >= SAME_SECONDS:
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


def _price(counts: Mapping[str, int], variants: Mapping[str, Variant]) -> float:
    return sum(variants[name].usd_per_hour * count for name, count in counts.items() if name in variants)


def _on_demand_price(counts: Mapping[str, int], variants: Mapping[str, Variant]) -> float | None:
    """What the same replicas would cost without spot: each at the on-demand price of its accelerator.

    None where the price of one is not known.
    """
    price: dict[tuple[str, int], float] = {}
    for variant in variants.values():
        if not variant.spot:
            key = (variant.accelerator, variant.devices)
            price[key] = min(price.get(key, math.inf), variant.usd_per_hour)
    total = 0.0
    for name, count in counts.items():
        mine = variants.get(name)
        if mine is None or not count:
            continue
        firm = price.get((mine.accelerator, mine.devices))
        if firm is None:
            return None
        total += firm * count
    return total
