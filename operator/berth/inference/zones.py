"""Zones of spot that no mix needs, for enough others do as well.

With as many zones as a large provider has, most are alike, and a search would try them one for the other. A zone does
as well as another where the same variants cost the same in it, none is there yet, no more is expected to be lost, and
there is as much room. So where there are as many zones before it as a mix can have replicas on spot, one of those is
empty, and what would be in this one may be there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from berth.inference.records import Batch, Offer


@dataclass(frozen=True, slots=True)
class _Zone:
    """``kind``: what its offers have to have in common with another's; ``dangers`` and ``rooms`` of each of them."""

    name: str
    kind: tuple[object, ...]
    dangers: tuple[float, ...]
    rooms: tuple[int, ...]

    def as_good_as(self, other: _Zone) -> bool:
        return (
            self.kind == other.kind
            and all(mine <= its for mine, its in zip(self.dangers, other.dangers, strict=True))
            and all(mine >= its for mine, its in zip(self.rooms, other.rooms, strict=True))
        )


def needed_offers(
    offers: Sequence[Offer], batches: Iterable[Batch], there: Mapping[str, int], most: int
) -> list[Offer]:
    """``offers`` without those of zones that no mix of up to ``most`` replicas on spot needs.

    ``there``: counts by variant that exist or are kept; their zones stay.
    """
    zones: dict[str, list[Offer]] = {}
    for offer in offers:
        if offer.variant.spot:
            zones.setdefault(offer.variant.zone, []).append(offer)
    if len(zones) <= most:
        return list(offers)
    by_variant = {name: batch for batch in batches for name in batch.takes}
    fresh = {name: own for name, own in zones.items() if not any(there.get(each.variant.name) for each in own)}
    kept: list[_Zone] = []
    for zone in sorted(
        (_zone(name, own, by_variant, most) for name, own in fresh.items()),
        key=lambda zone: (zone.dangers, [-room for room in zone.rooms], zone.name),
    ):
        if sum(other.as_good_as(zone) for other in kept) < most:
            kept.append(zone)
    left = {zone.name for zone in kept} | (zones.keys() - fresh.keys())
    return [offer for offer in offers if not offer.variant.spot or offer.variant.zone in left]


def _zone(name: str, offers: Sequence[Offer], batches: Mapping[str, Batch], most: int) -> _Zone:
    kind: list[object] = []
    dangers: list[float] = []
    rooms: list[int] = []
    for offer in sorted(offers, key=lambda offer: (offer.variant.pool, offer.variant.accelerator)):
        variant, batch = offer.variant, batches.get(offer.variant.name)
        kind.append(
            (variant.pool, variant.accelerator, variant.capacity, variant.usd_per_hour, offer.preference, offer.rank,
             offer.cold_start_seconds, offer.growth_seconds, len(batch.takes) if batch is not None else 0)
        )  # fmt: skip
        dangers += (0.0, 0.0, 0.0) if batch is None else (batch.usd_per_hour, batch.takes[variant.name], batch.twice)
        rooms += (min(offer.room, most), min(offer.room + offer.growth, most))
    return _Zone(name, tuple(kind), tuple(dangers), tuple(rooms))
