"""Replicas of variants that may be used no more: they serve until others carry the work.

An overlay of the catalogue, a list of types or an SLO may leave a running service with nothing that may carry it, by
intent or by a slip of the pen. Ending what serves helps neither. So what there is stays on offer after all others, as
far as those do not carry the work, and is never asked for anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from berth.inference.program import TINY
from berth.inference.records import Mix, MixBounds, Offer
from berth.inference.service import Sight
from berth.inference.spot import Cheapest
from berth.values import plural


def last_resort(cheapest: Cheapest) -> Cheapest:
    """``cheapest`` that takes closed offers only for what the others do not carry.

    The open ones are asked alone first. What they would be they are, at least, in the mix of all; the rules on spot
    bind them and no closed offer.
    """

    def choose(offers: Sequence[Offer], bounds: MixBounds, current: Mapping[str, int]) -> Mix:
        closed = [offer for offer in offers if offer.closed]
        if not closed:
            return cheapest(offers, bounds, current)
        own = [offer for offer in offers if not offer.closed]
        mix = cheapest(own, bounds, current)
        if mix.short <= TINY * max(1.0, bounds.work) and mix.replicas >= bounds.min_replicas:
            return mix
        every = [
            *(replace(offer, room=mix.counts.get(offer.variant.name, 0), growth=0) for offer in own),
            *(replace(offer, variant=replace(offer.variant, capacity_type="OnDemand", zone="")) for offer in closed),
        ]
        return cheapest(every, _bare(bounds, mix), current)

    return choose


def _bare(bounds: MixBounds, keep: Mix) -> MixBounds:
    """Only the work and the counts of ``bounds``; ``keep`` stays."""
    counts = {name: count for name, count in keep.counts.items() if count}
    return MixBounds(bounds.work, bounds.min_replicas, bounds.max_replicas, keep=counts)


def kept(sight: Sight, counts: Mapping[str, int]) -> str:
    """What is told of replicas on closed offers among ``counts``; empty where there are none."""
    there = {offer.variant.name: offer.variant for offer in sight.offers if offer.closed}
    number = sum(counts.get(name, 0) for name in there)
    if not number:
        return ""
    where = ", ".join(sorted({variant.accelerator for name, variant in there.items() if counts.get(name)}))
    stay = "stays" if number == 1 else "stay"
    return f"{plural(number, 'replica')} on {where}, which may be used no more, {stay} until others carry the work"
