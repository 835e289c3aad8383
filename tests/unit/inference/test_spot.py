"""What spot is worth, what is held against its loss, and that replacements come first."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.catalogue.load import load
from berth.inference.mix import cheapest_mix
from berth.inference.records import MixBounds, Offer, Variant
from berth.inference.retire import settle, staying
from berth.inference.service import Replica
from berth.inference.spot import (
    Outlook,
    Risk,
    SpotBook,
    Stand,
    batches,
    hedged,
    penalty,
    shape_of,
    spot_verdict,
    trusted,
)

AWS = next(prior for prior in load().serving.spot if prior.name == "AWS")
HOUR = 3600.0
ZONES = ("a", "b", "c")
CALM, WILD = Risk(0.01, 1.0, 1e6), Risk(2.0, 1.0, 1e4)


def variant(zone: str = "") -> Variant:
    return Variant(
        zone or "od", "A", "Spot" if zone else "OnDemand", "pool", 1, 0.3 if zone else 1.0, 1.0, zone
    )  # fmt: skip


VARIANTS = {each.name: each for each in (variant(), *map(variant, ZONES))}


def offers(rooms: dict[str, int]) -> list[Offer]:
    return [Offer(variant(), 100), *(Offer(variant(zone), room, 0, 180.0) for zone, room in rooms.items())]


def outlook(risks: dict[str, Risk], missing: float = 180.0, promise: float = 0.001) -> Outlook:
    return Outlook(risks, missing, penalty(promise, 1.0))


histories = st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 100), st.integers(0, 100)), max_size=30)


@given(histories)
def test_whatever_is_seen_the_risk_is_a_number(history):
    book, now = SpotBook(), 0.0
    for passed, held, reclaimed in history:
        now += passed
        book.observe(("pool", "a" if held % 2 else "b"), AWS, now, held, reclaimed)
    for place in book.stands:
        risk = book.risk(place, now)
        assert 0 < risk.batches_per_hour < math.inf
        assert risk.median_seconds > 0
        assert 0 <= risk.share <= 1
        assert 0 <= risk.together <= 1


@given(st.lists(st.floats(600, 1e5), min_size=1, max_size=20), st.integers(0, 19))
def test_a_batch_more_never_makes_a_place_look_safer(gaps, when):
    quiet, struck = Stand(AWS), Stand(AWS)
    now = 0.0
    for number, gap in enumerate(gaps):
        now += gap
        quiet.observe(now, 16, 0)
        struck.observe(now, 16, 16 if number == when % len(gaps) else 0)
    assert struck.risk(now).batches_per_hour >= quiet.risk(now).batches_per_hour - 1e-12


def test_the_hazard_falls_while_a_stand_lasts_and_rises_with_the_prior():
    stand = Stand(AWS)
    stand.observe(0.0, 16)
    hazards = [stand.risk(hours * HOUR).batches_per_hour for hours in (0, 1, 6, 24)]
    assert hazards == sorted(hazards, reverse=True)
    assert shape_of(1) < shape_of(8) < shape_of(50)


def test_losses_within_minutes_are_one_batch_and_zones_that_go_together_are_known_to():
    stand = Stand(AWS)
    stand.observe(0.0, 16)
    assert [stand.observe(HOUR + at, 16, 4) for at in (0.0, 60.0, 170.0, 900.0)] == [True, False, False, True]
    apart, jointly = SpotBook(), SpotBook()
    for round_ in range(10):
        for book, delay in ((apart, 5 * HOUR), (jointly, 60.0)):
            now = round_ * 24 * HOUR
            for zone in ("a", "b"):
                book.observe(("pool", zone), AWS, now, 16)
            book.observe(("pool", "a"), AWS, now + HOUR, 0, 16)
            book.observe(("pool", "b"), AWS, now + HOUR + delay, 0, 16)
    assert apart.together("pool") < 0.1 < 0.6 < jointly.together("pool")


def test_what_was_seen_of_spot_is_known_by_the_new_name_of_its_place():
    def seen(pool: str) -> SpotBook:
        book = SpotBook()
        for zone in ("a", "b"):
            book.observe((pool, zone), AWS, 0.0, 16)
            book.observe((pool, zone), AWS, HOUR, 8, 8)
        return book

    book, as_if = seen("pool"), seen("new")
    book.observe(("new", "a"), AWS, HOUR, 0)
    book.rename({("pool", zone): ("new", zone) for zone in ("a", "b")})
    assert [book.risk(("new", zone), 2 * HOUR) for zone in "ab"] == [
        as_if.risk(("new", zone), 2 * HOUR) for zone in "ab"
    ]
    assert book.risk(("pool", "a"), 2 * HOUR) is None
    assert book.together("pool") == SpotBook().together("pool")


@given(
    st.fixed_dictionaries({zone: st.integers(0, 16) for zone in ZONES}),
    st.lists(st.floats(0.001, 5.0), min_size=3, max_size=3),
    st.integers(1, 14),
    st.sampled_from([0.34, 0.5, 1.0]),
)
def test_no_mix_has_more_than_there_is_room_for_or_than_a_zone_may_have(rooms, hazards, work, share):
    risks = {zone: Risk(hazard, 1.0, 1e5, together=0.2) for zone, hazard in zip(ZONES, hazards, strict=True)}
    bounds = MixBounds(work, 1, 100, on_demand_floor=1, max_zone_loss=share)
    mix = hedged(cheapest_mix, outlook(risks))(offers(rooms), bounds, {})
    assert mix.replicas >= work
    assert mix.counts.get("od", 0) >= 1
    assert all(mix.counts.get(zone, 0) <= min(room, share * mix.replicas + 1e-9) for zone, room in rooms.items())


def test_danger_is_met_by_capacity_to_spare_then_by_leaving_the_zone():
    rooms, bounds = dict.fromkeys(ZONES, 16), MixBounds(10, 1, 100, on_demand_floor=1, max_zone_loss=0.34)
    calm = hedged(cheapest_mix, outlook(dict.fromkeys(ZONES, CALM)))(offers(rooms), bounds, {})
    wild = hedged(cheapest_mix, outlook(dict.fromkeys(ZONES, WILD)))(offers(rooms), bounds, {})
    assert calm.replicas == 10
    assert all(wild.replicas - wild.counts.get(zone, 0) >= 10 for zone in ZONES)
    one = hedged(cheapest_mix, outlook({"a": WILD}))(offers({"a": 16}), bounds, {})
    assert one.counts == {"od": 10}


def test_a_notice_as_long_as_a_cold_start_needs_nothing_to_spare():
    rooms, bounds = dict.fromkeys(ZONES, 16), MixBounds(10, 1, 100, on_demand_floor=1, max_zone_loss=0.34)
    mix = hedged(cheapest_mix, outlook(dict.fromkeys(ZONES, WILD), missing=0.0))(offers(rooms), bounds, {})
    assert mix.replicas == 10


def test_what_fades_by_the_minute_asks_no_new_question():
    book, asked = SpotBook(), []
    for now, reclaimed in ((0.0, 0), (HOUR, 4), (9 * HOUR, 2)):
        for zone in ZONES:
            book.observe(("pool", zone), AWS, now, 6, reclaimed if zone == "a" else 0)
    for now in (12 * HOUR, 12 * HOUR + 15):
        for zone in ZONES:
            book.observe(("pool", zone), AWS, now, 6)
        risks = {zone: risk for zone in ZONES if (risk := book.risk(("pool", zone), now)) is not None}
        asked.append(batches(offers(dict.fromkeys(ZONES, 6)), 8.0 + now / 1e6, outlook(risks)))
    assert asked[0] == asked[1]


def lost(counts: dict[str, int], work: float, at: Outlook) -> float:
    found = batches(offers(dict.fromkeys(ZONES, 16)), work, at)
    spare = sum(counts.values()) - work
    return sum(
        batch.missed(sum(gone * counts.get(name, 0) for name, gone in batch.takes.items()), spare) for batch in found
    )


def test_what_losses_cost_is_what_capacity_to_spare_does_not_cover():
    risks = {zone: Risk(1.0, 1.0, 1e5) for zone in ZONES}
    at = outlook(risks)
    price = at.loss(variant("a"))
    assert lost({"od": 4, "a": 3, "b": 3}, 10, at) == pytest.approx(6 * price)
    assert lost({"od": 5, "a": 3, "b": 3}, 10, at) == pytest.approx(4 * price)
    assert lost({"od": 10}, 10, at) == 0
    both = outlook({zone: replace(risk, together=1.0) for zone, risk in risks.items()})
    assert lost({"od": 7, "a": 3, "b": 3}, 10, both) == pytest.approx(3 * price)


@settings(max_examples=100, deadline=None)
@given(
    st.fixed_dictionaries({"od": st.integers(1, 6)} | {zone: st.integers(0, 4) for zone in ZONES}),
    st.floats(0.02, 2.0),
    st.integers(2, 10),
)
def test_what_runs_is_left_only_where_that_pays_for_the_starts(runs, hazard, work):
    bounds = MixBounds(work, 1, 100, on_demand_floor=1, max_zone_loss=0.5)
    at = outlook({zone: Risk(hazard, 1.0, 1e5, together=0.1) for zone in ZONES})
    total = sum(runs.values())
    if total < work or max(runs[zone] for zone in ZONES) > total / 2:
        return
    mix = hedged(cheapest_mix, at)(offers(dict.fromkeys(ZONES, 16)), bounds, runs)

    def cost(counts: Mapping[str, int]) -> float:
        started = sum(0.3 * max(0, counts.get(zone, 0) - runs[zone]) for zone in ZONES)
        price = sum(VARIANTS[name].usd_per_hour * count for name, count in counts.items())
        return price + started * 2 * 180 / HOUR + lost(dict(counts), work, at)

    assert cost(mix.counts) <= cost(runs) + 1e-4


def test_with_many_zones_the_gap_to_the_cheapest_mix_is_told_and_small():
    zones = [f"z{number:02}" for number in range(60)]
    risks = {zone: Risk(0.3 * HOUR / (1800 + 900 * number), 1.0, 1e5) for number, zone in enumerate(zones)}
    rooms = {zone: 1 + number % 7 for number, zone in enumerate(zones)}
    bounds = MixBounds(12.5, 1, 100, on_demand_floor=1, max_zone_loss=0.34)
    mix = hedged(cheapest_mix, outlook(risks))(offers(rooms), bounds, {})
    assert mix.short == 0
    assert mix.lower_bound <= mix.objective <= 1.1 * mix.lower_bound


@pytest.mark.parametrize(
    ("risk", "room"),
    [
        (None, 16),
        (Risk(1.0, 1.0, 540.0), 16),
        (Risk(1.0, 1.0, 539.0), 2),
        (Risk(0.1, 1.0, 1e5, settled=False), 2),
    ],
)
def test_a_zone_grows_again_when_a_start_there_is_likely_to_pay(risk, room):
    assert trusted(Offer(variant("a"), 16, 0, 180.0), risk, 2).room == room


def test_what_is_said_of_spot():
    risky, fine = Risk(1.0, 1.0, 10.0), Risk(0.1, 1.0, 1e5)
    assert spot_verdict(offers({}), {}).reason == "NoSpotPool"
    assert spot_verdict(offers({"a": 0}), {}).reason == "NoSpotRoom"
    assert spot_verdict(offers({"a": 4}), {"a": risky}).reason == "Recovering"
    some = spot_verdict(offers({"a": 4, "b": 4}), {"a": risky, "b": fine})
    assert (some.status, some.message) == (True, "not in a")


def test_replacements_are_ready_before_spot_that_was_given_notice_ends():
    cold, notice = 120.0, 120.0
    leaves = 1000.0 + notice
    spot = [Replica(f"s{i}", f"s{i}", "a", 0.0, zone="a", ready=True, leaving_at=leaves) for i in range(3)]
    steady = Replica("od0", "od0", "od", 0.0, ready=True)
    wanted = {"a": 3, "od": 1}
    bounds = MixBounds(4, 1, 100, on_demand_floor=1)
    started: float | None = None
    for now in (1000.0, 1060.0, leaves):
        ready = started is not None and now - started >= cold
        fresh = [Replica(f"n{i}", f"n{i}", "od", now, ready=ready) for i in range(wanted["od"] - 1)]
        alive = (steady, *fresh, *spot)
        goal = hedged(cheapest_mix, outlook({"a": WILD}))(offers({"a": 0}), bounds, staying(wanted, alive))
        counts = settle(goal.counts, wanted, alive, VARIANTS, 4.0, {"a": 3, "od": 100})
        if started is None:
            started = now
            assert counts == {"a": 3, "od": 4}
        assert sum(replica.ready for replica in alive) >= 4
        wanted = counts
