"""Zones that a search may leave out: only where it finds a mix as cheap without them."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.inference.mix import cheapest_mix
from berth.inference.records import Batch, MixBounds, Offer, Variant
from berth.inference.zones import needed_offers

ZONES = "abcdef"


def offer(zone: str, room: int = 5, usd: float = 0.4) -> Offer:
    return Offer(Variant(zone or "od", "A", "Spot" if zone else "OnDemand", "pool", 1, usd, 1.0, zone), room, 0, 120.0)


def batch(zone: str, usd: float = 0.5) -> Batch:
    return Batch({zone: 1.0}, 3.0, usd)


def names(offers: list[Offer], batches: list[Batch], there: dict[str, int], most: int) -> list[str]:
    return [each.variant.name for each in needed_offers(offers, batches, there, most)]


@pytest.mark.parametrize(
    ("offers", "dangers", "there", "most", "left"),
    [
        ([offer(zone) for zone in "abc"], {}, {}, 3, "abc"),
        ([offer(zone) for zone in "abc"], {}, {}, 2, "ab"),
        ([offer(zone) for zone in "abc"], {"a": 9.0}, {}, 2, "bc"),
        ([offer(zone) for zone in "abc"], {}, {"c": 1}, 2, "abc"),
        ([offer("a", 1), offer("b", 1), offer("c")], {}, {}, 2, "ac"),
        ([offer("a", 1), offer("b", 1), offer("c")], {"c": 9.0}, {}, 2, "abc"),
        ([offer("a", 1), offer("b", 1), offer("c")], {}, {}, 1, "a"),
        ([offer("a"), offer("b"), offer("c", usd=0.3)], {}, {}, 1, "ac"),
    ],
)
def test_a_zone_is_left_out_where_enough_others_do_as_well(offers, dangers, there, most, left):
    batches = [batch(each.variant.zone, dangers.get(each.variant.zone, 0.5)) for each in offers]
    assert names(offers, batches, there, most) == list(left)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0.05, 0.5, 2.0])), min_size=6, max_size=6),
    st.dictionaries(st.sampled_from("ab"), st.integers(0, 2)),
    st.sampled_from([0.34, 0.5, 1.0]),
    st.integers(1, 3),
)
def test_no_mix_over_all_zones_is_cheaper(made, current, share, work):
    offers = [offer("", 5, 1.0), *(offer(zone, room) for zone, (room, _) in zip(ZONES, made, strict=True))]
    dangers = tuple(
        Batch({zone: 1.0}, float(work), usd) for zone, (_, usd) in zip(ZONES, made, strict=True)
    )  # fmt: skip
    bounds = MixBounds(work, 1, 5, on_demand_floor=1, max_zone_loss=share, batches=dangers)
    mix = cheapest_mix(offers, bounds, current)
    best = min(
        cost
        for counts in product(range(1, 5), *(range(room + 1) for room, _ in made))
        if (cost := _cost(counts, offers, bounds, current)) is not None
    )
    assert mix.certificate == "Optimal"
    assert mix.objective == pytest.approx(best, rel=1e-4)


def _cost(counts: tuple[int, ...], offers: list[Offer], bounds: MixBounds, current: dict[str, int]) -> float | None:
    total = sum(counts)
    if not bounds.work <= total <= 5 or max(counts[1:]) > bounds.max_zone_loss * total + 1e-9:
        return None
    cost = 0.0
    for each, count in zip(offers, counts, strict=True):
        usd, started = each.variant.usd_per_hour, max(0, count - current.get(each.variant.name, 0))
        cost += usd * (count + started * 2 * 120 / 3600)
    return cost + sum(
        each.missed(count, total - bounds.work) for each, count in zip(bounds.batches, counts[1:], strict=True)
    )
