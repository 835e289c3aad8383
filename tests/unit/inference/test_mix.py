"""The cheapest mix: against brute force, by both solvers, and what is said where nothing fits."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.inference.exact import GaveUp, enumerate_mix
from berth.inference.integer import solve_mix
from berth.inference.mix import Switching, cheapest_mix
from berth.inference.program import Column, Program, Row, Soft, roundings
from berth.inference.records import Batch, MixBounds, Offer, Variant

CLOSE = 1e-4


def offer(name: str = "od", usd: float = 1.0, capacity: float = 1.0, room: int = 10, **more: object) -> Offer:
    kind, zone = ("Spot", name[-1]) if name.startswith("spot") else ("OnDemand", "")
    return Offer(Variant(name, name, kind, "pool", 1, usd, capacity, zone), room, **more)


def bounds(work: float, least: int = 1, most: int = 100, **more: object) -> MixBounds:
    return MixBounds(work, least, most, **more)


def counts(*args: object, **more: object) -> dict[str, int]:
    return dict(cheapest_mix(*args, **more).counts)


def test_the_cheaper_variant_for_the_work_is_taken():
    assert counts([offer("big", 6.88, 4.0), offer("small", 1.86, 1.0)], bounds(0.8)) == {"small": 1}
    assert counts([offer("big", 6.88, 4.0), offer("small", 1.86, 1.0)], bounds(3.9)) == {"big": 1}
    assert counts([offer("big", 6.88, 4.0), offer("small", 1.86, 1.0)], bounds(4.9)) == {"big": 1, "small": 1}


def test_spot_keeps_the_floor_the_share_and_survives_a_zone():
    offers = [offer("od", 1.0), offer("spot-a", 0.3), offer("spot-b", 0.3), offer("spot-c", 0.3)]
    allowed = bounds(6, survive=6, on_demand_floor=1)
    found = counts(offers, allowed)
    assert found["od"] >= 1
    assert all(sum(found.values()) - found.get(zone, 0) >= 6 for zone in ("spot-a", "spot-b", "spot-c"))
    assert cheapest_mix(offers, replace(allowed, spot_allowed=False)).counts == {"od": 6}
    halves = counts(offers, bounds(6, max_spot_share=0.5))
    assert halves["od"] == 3
    third = counts(offers, bounds(9, max_zone_loss=0.34))
    assert max(third.get(zone, 0) for zone in ("spot-a", "spot-b", "spot-c")) <= 0.34 * sum(third.values())
    assert counts([*offers], bounds(2, on_demand_allowed=False)).keys() <= {"spot-a", "spot-b", "spot-c"}


def test_room_and_growth_are_limits_and_growth_comes_last():
    offers = [offer("near", 1.0, room=2, growth=5, cold_start_seconds=60, growth_seconds=300), offer("dear", 1.05)]
    found = cheapest_mix(offers, bounds(4), {"near": 2})
    assert found.counts == {"near": 2, "dear": 2}
    assert cheapest_mix(offers[:1], bounds(4), {"near": 2}).counts == {"near": 4}


def test_a_saving_below_the_cost_of_the_move_moves_nothing():
    offers = [offer("held", 1.05, cold_start_seconds=180), offer("other", 1.0, cold_start_seconds=180)]
    assert counts(offers, bounds(3), {"held": 3}) == {"held": 3}
    assert counts(offers, bounds(3), {"held": 3}, Switching(period_seconds=86_400)) == {"other": 3}
    assert counts(offers, bounds(3)) == {"other": 3}


@pytest.mark.parametrize(
    ("offers", "current", "chosen"),
    [
        ([offer("b", 1.0), offer("a", 1.0)], {}, "a"),
        ([offer("b", 1.0), offer("a", 1.0)], {"b": 2}, "b"),
        ([offer("b", 2.0, 2.0), offer("a", 1.0, 1.0, rank=1)], {"a": 2}, "b"),
        ([offer("a", 1.0, preference=4.0), offer("b", 2.0)], {}, "b"),
    ],
)
def test_ties_go_by_rank_then_to_what_exists_then_by_name(offers, current: dict[str, int], chosen: str):
    found = cheapest_mix(offers, bounds(2), current)
    assert set(found.counts) == {chosen}
    assert cheapest_mix(offers[::-1], bounds(2), current) == found


@pytest.mark.parametrize(
    ("offers", "allowed", "found", "short", "says"),
    [
        ([offer(room=3)], bounds(5), {"od": 3}, 2.0, "Capacity"),
        ([offer()], bounds(5, most=2), {"od": 2}, 3.0, "MaxReplicas"),
        ([offer(room=0)], bounds(5), {}, 5.0, "Capacity"),
        ([], bounds(5), {}, 5.0, "Capacity"),
        ([offer("small", 1, 1), offer("big", 9, 4)], bounds(9, most=2), {"big": 2}, 1.0, "MaxReplicas"),
        ([offer("od", room=1), offer("spot-a", 0.3)], bounds(4, max_spot_share=0.5), {"od": 1, "spot-a": 1}, 2.0,
         "MaxSpotShare"),
        ([offer("od", room=1), offer("spot-a", 0.3)], bounds(4, max_zone_loss=0.6), {"od": 1, "spot-a": 1}, 2.0,
         "MaxZoneLoss"),
        ([offer("od", room=1), offer("spot-a", 0.3)], bounds(4, on_demand_floor=2), {"od": 1, "spot-a": 3}, 0.0,
         "OnDemandFloor"),
        ([offer("spot-a", 0.3)], bounds(4, survive=4), {"spot-a": 4}, 0.0, "ZoneSurvival"),
        ([offer("spot-a", 0.3)], bounds(4, max_zone_loss=0.34), {"spot-a": 4}, 0.0, "MaxZoneLoss"),
        ([offer(room=2)], bounds(0, least=4), {"od": 2}, 0.0, "Capacity"),
    ],
)  # fmt: skip
def test_where_nothing_fits_the_most_is_carried_and_what_binds_is_named(offers, allowed, found, short, says):
    mix = cheapest_mix(offers, allowed)
    assert (dict(mix.counts), mix.short, mix.bound_by) == (found, pytest.approx(short), says)


def test_what_is_kept_stays_whatever_the_other_bounds_say():
    offers = [offer("od"), offer("spot-a", 0.3)]
    assert counts(offers, bounds(1, keep={"od": 3})) == {"od": 3}
    assert counts(offers, bounds(1, most=2, spot_allowed=False, keep={"spot-a": 3}))["spot-a"] == 3


def test_the_objective_adds_the_starts_to_the_price():
    mix = cheapest_mix([offer(usd=2.0, cold_start_seconds=360)], bounds(3), {"od": 1}, Switching(3600, overlap=0.5))
    assert mix.usd_per_hour == 6.0
    assert mix.objective == pytest.approx(6.0 + 2 * 2.0 * 1.5 * 0.1)
    assert (mix.certificate, mix.lower_bound) == ("Optimal", mix.objective)


def test_thousands_of_replicas_are_no_harder():
    offers = [offer("od", 1.0, 1.0, 10_000), offer("big", 6.3, 6.4, 10_000), offer("spot-a", 0.31, 1.0, 10_000),
              offer("spot-b", 0.3, 1.0, 10_000), offer("spot-c", 2.1, 6.4, 10_000)]  # fmt: skip
    mix = cheapest_mix(offers, bounds(9_000.5, most=10_000, survive=8_000, max_zone_loss=0.34, on_demand_floor=7))
    assert mix.short == 0
    assert mix.objective <= mix.lower_bound * (1 + 1e-3)


def test_many_variants_of_few_sizes_are_proven():
    offers = [offer(f"v{number:02}", 1 + number / 50, 1 + number % 3, 3) for number in range(20)]
    mix = cheapest_mix(offers, bounds(31.5))
    assert mix.certificate == "Optimal"
    capacity = {entry.variant.name: entry.variant.capacity for entry in offers}
    assert sum(capacity[name] * count for name, count in mix.counts.items()) >= 31.5


def test_a_search_that_takes_too_long_says_so_and_the_solver_goes_on():
    columns = tuple(Column(str(n), 0, 50, ((50, 1.0 + n / 10),)) for n in range(4))
    program = Program(columns, (Row("Work", (1.0, 1.0937, 1.19, 1.31), 60.3),))
    with pytest.raises(GaveUp) as caught:
        enumerate_mix(program, most_nodes=1)
    proven = solve_mix(program)
    assert proven
    assert caught.value.bound <= proven.cost


def test_a_budget_that_is_used_up_is_told_with_the_gap():
    sizes = [(number, 0.4 + 0.37 * number * (number % 5 + 1)) for number in range(12)]
    offers = [
        offer(f"{'spot-' if zone else ''}{number}{zone}", size * (0.9 + number % 4 / 9) * (0.4 if zone else 1), size, 9)
        for number, size in sizes
        for zone in ("", "a", "b", "c")
    ]
    allowed = bounds(71.3, survive=57.1, on_demand_floor=2)
    mix = cheapest_mix(offers, allowed)
    assert mix.certificate == "Bounded"
    assert 0.8 * mix.objective < mix.lower_bound < mix.objective
    assert keeps(offers, tuple(mix.counts.get(entry.variant.name, 0) for entry in offers), allowed)
    assert cheapest_mix(offers[::-1], allowed) == mix


AMOUNTS = st.sampled_from([0.25, 0.4, 1.0, 1.3, 2.6])
OFFERS = st.lists(
    st.builds(
        offer,
        st.sampled_from(["od", "big", "spot-a", "spot-b"]),
        st.floats(0.1, 3).map(lambda usd: round(usd, 2)),
        AMOUNTS,
        st.integers(0, 3),
        growth=st.integers(0, 1),
        cold_start_seconds=st.sampled_from([0.0, 120.0]),
        growth_seconds=st.sampled_from([0.0, 300.0]),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda entry: entry.variant.name,
)
CURRENT = st.dictionaries(st.sampled_from(["od", "big", "spot-a", "spot-b"]), st.integers(0, 3))
BATCHES = st.lists(
    st.builds(
        lambda zone, share, work, usd, twice: Batch({f"spot-{zone}": share}, work, usd, twice),
        st.sampled_from("ab"), st.sampled_from([0.25, 1.0]), st.floats(0, 6), st.floats(0, 3), st.sampled_from([0, 0.2])
    ),
    max_size=2,
).map(tuple)  # fmt: skip
BOUNDS = st.builds(
    MixBounds,
    st.floats(0, 6),
    st.integers(1, 3),
    st.integers(3, 8),
    survive=st.sampled_from([0.0, 1.0, 2.5]),
    on_demand_floor=st.integers(0, 2),
    max_spot_share=st.sampled_from([1.0, 0.8, 0.5]),
    max_zone_loss=st.sampled_from([1.0, 0.5, 0.34]),
    spot_allowed=st.booleans(),
    batches=BATCHES,
).map(lambda made: replace(made, batches=tuple(replace(b, work=min(b.work, made.work)) for b in made.batches)))


def keeps(offers: list[Offer], chosen: tuple[int, ...], allowed: MixBounds) -> bool:
    pairs = list(zip(offers, chosen, strict=True))
    total, carried = sum(chosen), sum(o.variant.capacity * n for o, n in pairs)
    spot = sum(n for o, n in pairs if o.variant.spot)
    lost = [sum(o.variant.capacity * n for o, n in pairs if o.variant.zone == zone) for zone in ("a", "b", "c")]
    return (
        carried >= allowed.work - 1e-9
        and allowed.min_replicas <= total <= allowed.max_replicas
        and total - spot >= allowed.on_demand_floor
        and spot <= allowed.max_spot_share * total + 1e-9
        and all(one <= allowed.max_zone_loss * carried + 1e-9 for one in lost)
        and all(carried - one >= allowed.survive - 1e-9 for one in lost)
        and (allowed.spot_allowed or not spot)
    )


def price(
    offers: list[Offer], chosen: tuple[int, ...], current: dict[str, int], batches: tuple[Batch, ...] = ()
) -> float:
    carried = sum(entry.variant.capacity * count for entry, count in zip(offers, chosen, strict=True))
    total = 0.0
    for batch in batches:
        lost = sum(
            batch.takes.get(entry.variant.name, 0.0) * count for entry, count in zip(offers, chosen, strict=True)
        )
        total += batch.missed(lost, carried - batch.work)
    for entry, count in zip(offers, chosen, strict=True):
        has, usd = current.get(entry.variant.name, 0), entry.variant.usd_per_hour
        total += usd * count + 2 * usd / 3600 * entry.cold_start_seconds * max(0, count - has)
        total += 2 * usd / 3600 * entry.growth_seconds * max(0, count - max(entry.room, has))
    return total


@settings(max_examples=250, deadline=None)
@given(OFFERS, BOUNDS, CURRENT)
def test_no_other_mix_is_cheaper(offers: list[Offer], allowed: MixBounds, current: dict[str, int]):
    mix = cheapest_mix(offers, allowed, current)
    chosen = tuple(mix.counts.get(entry.variant.name, 0) for entry in offers)
    assert all(count <= entry.room + entry.growth for entry, count in zip(offers, chosen, strict=True))
    others = [
        price(offers, other, current, allowed.batches)
        for other in product(*(range(entry.room + entry.growth + 1) for entry in offers))
        if keeps(offers, other, allowed)
    ]
    if others:
        assert keeps(offers, chosen, allowed)
        assert mix.objective == pytest.approx(min(others), rel=CLOSE, abs=CLOSE)
        assert (mix.short, mix.certificate, mix.bound_by) == (0.0, "Optimal", "")
    else:
        assert mix.bound_by
        assert sum(chosen) <= allowed.max_replicas


COLUMNS = st.lists(
    st.builds(
        lambda low, parts, slope: Column(
            "", low, low + sum(parts), tuple((part, slope * (1 + i)) for i, part in enumerate(parts))
        ),
        st.integers(0, 2), st.lists(st.integers(1, 9), min_size=1, max_size=3), st.floats(0.1, 5),
    ),
    min_size=1, max_size=8,
)  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(COLUMNS, st.data())
def test_both_solvers_agree(columns: list[Column], data: st.DataObject):
    entries = st.lists(st.sampled_from([-1.0, -0.4, 0.0, 0.25, 1.0, 2.6]), min_size=len(columns), max_size=len(columns))
    bound = st.floats(-20, 20).map(lambda value: round(value, 3))  # the library is exact to a millionth
    rows = data.draw(st.lists(st.builds(lambda a, b: Row("", tuple(a), b), entries, bound), min_size=1, max_size=6))
    softs = data.draw(st.lists(st.builds(lambda a, b, p: Soft(tuple(a), b, p), entries, bound, st.floats(0, 4))))
    program = Program(tuple(columns), tuple(rows), softs=tuple(softs))
    try:
        exact = enumerate_mix(program)
    except GaveUp:
        return
    solved = solve_mix(program, 100_000)
    assert solved is not False
    assert (exact is None) == (solved is None)
    if exact is not None:
        assert program.feasible(exact.counts)
        assert exact.cost == pytest.approx(solved.cost, rel=CLOSE, abs=CLOSE)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.one_of(st.just(0.0), st.floats(0.05, 9)), min_size=1, max_size=4),
    st.floats(0.01, 30),
    st.lists(st.integers(0, 40), min_size=4, max_size=4),
)
def test_a_rounding_cuts_off_no_whole_numbers(sizes: list[float], least: float, numbers: list[int]):
    row, chosen = Row("", tuple(sizes), least), numbers[: len(sizes)]
    assert not row.holds(chosen) or all(cut.holds(chosen) for cut in roundings([row]))


def test_a_rounding_knows_that_a_large_replica_is_whole():
    assert roundings([Row("Work", (4.0, 1.0), 5.0)]) == [Row("Work", (1.0, 1.0), 2.0)]
    assert roundings([Row("Work", (4.0, -1.0), 5.0)]) == []


@settings(max_examples=100, deadline=None)
@given(COLUMNS, st.data())
def test_where_the_budget_ends_no_exchange_of_one_or_two_replicas_saves_anything(
    columns: list[Column], data: st.DataObject
):
    entries = st.lists(st.sampled_from([-0.4, 0.0, 0.25, 1.0, 2.6]), min_size=len(columns), max_size=len(columns))
    rows = data.draw(
        st.lists(st.builds(lambda a, b: Row("", tuple(a), b), entries, st.floats(-5, 20)), min_size=1, max_size=4)
    )
    softs = st.builds(lambda a, b, p: Soft(tuple(a), b, p), entries, st.floats(-5, 20), st.floats(0, 4))
    program = Program(tuple(columns), tuple(rows), softs=tuple(data.draw(st.lists(softs, max_size=3))))
    try:
        enumerate_mix(program, most_nodes=1)
    except GaveUp as gave_up:
        if (best := gave_up.best) is None:
            return
    else:
        return
    assert program.feasible(best.counts)
    ends = range(len(columns))
    bundles = [*combinations_with_replacement(ends, 1), *combinations_with_replacement(ends, 2)]
    for gone, come in product(bundles, bundles):
        counts = [count - gone.count(i) + come.count(i) for i, count in enumerate(best.counts)]
        if all(c.low <= n <= c.high for c, n in zip(columns, counts, strict=True)) and program.feasible(counts):
            assert program.cost(counts) >= best.cost - CLOSE
