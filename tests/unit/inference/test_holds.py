"""What holds a service's capacity for a while: that it ends, and that people are told when."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from berth.inference.fallback import Footing
from berth.inference.holds import MISS_HOLDS_SECONDS, MISS_OVER_SECONDS, not_later
from berth.inference.service import Memory, Rules, Sight, SpotRules, ZeroRules
from tests.builders.services import make_offer, make_sight
from tests.unit.inference.cases import NOW, PATIENT, SPOT, plan

AT_ONCE = Rules(down_after=0.0)


def watched(sight: Sight, misses: list[tuple[float, bool | None]], memory: Memory = PATIENT) -> list[int]:
    """Replicas after looks at these times, each with what the SLO was seen to be."""
    found = []
    for at, met in misses:
        made = plan(replace(sight, now=NOW + at, slo_met=met), AT_ONCE, memory)
        memory, sight = made.memory, replace(sight, wanted=made.counts)
        found.append(made.replicas)
    return found


@pytest.mark.parametrize(
    ("misses", "expected"),
    [
        ([(0, False), (MISS_HOLDS_SECONDS - 1, False)], [8, 8]),
        ([(0, False), (MISS_HOLDS_SECONDS, False)], [8, 4]),
        ([(0, False), (10, True)], [8, 4]),
        ([(0, False), (MISS_OVER_SECONDS - 1, None), (MISS_HOLDS_SECONDS, False)], [8, 4, 2]),
        ([(0, False), (MISS_OVER_SECONDS, None), (MISS_HOLDS_SECONDS, False)], [8, 4, 4]),
    ],
    ids=[
        "a miss holds",
        "but not for ever",
        "nor when it is over",
        "a miss that comes and goes is one",
        "another is not",
    ],
)
def test_a_missed_slo_holds_what_there_is_for_so_long(
    misses: list[tuple[float, bool | None]], expected: list[int]
) -> None:
    assert watched(make_sight(2.0, 8), misses) == expected


@pytest.mark.parametrize(
    ("misses", "expected"),
    [
        ([(0, False), (99, False), (100, False)], [16, 16, 8]),
        ([(0, None), (99, False), (100, False)], [8, 8, 4]),
        ([(0, True), (MISS_OVER_SECONDS, True), (MISS_OVER_SECONDS + 1, False)], [8, 4, 4]),
    ],
    ids=["it goes on", "and is not forgotten before it is looked at", "it is over"],
)
def test_a_miss_that_began_before_a_restart_is_the_same(
    misses: list[tuple[float, bool | None]], expected: list[int]
) -> None:
    restored = replace(PATIENT, missed_since=NOW + 100 - MISS_HOLDS_SECONDS)
    assert watched(make_sight(2.0, 16), misses, restored) == expected


def test_a_miss_that_holds_no_longer_is_said() -> None:
    made = plan(make_sight(2.0, 8, slo_met=False), memory=Memory(missed_since=NOW - 7200, missed_last=NOW - 15))
    assert "holds them no longer" in made.conditions["SloMet"].message


@pytest.mark.parametrize(
    ("rules", "memory", "fields", "told"),
    [
        (Rules(), Memory(lower_since=NOW - 100), {}, "no less is carried until 1970-01-01T02:50:00Z (DownAfter)"),
        (
            Rules(),
            replace(PATIENT, last_up=NOW - 100),
            {"cold_start_seconds": 200.0},
            "no less is carried until 1970-01-01T02:48:20Z (ColdStart)",
        ),
        (Rules(), PATIENT, {"slo_met": False}, "nothing is taken away until 1970-01-01T03:16:40Z (SloMissed)"),
        (
            Rules(),
            PATIENT,
            {"reason": "gateway: no answer"},
            "nothing is taken away until 1970-01-01T03:16:40Z (DemandUnknown)",
        ),
        (Rules(down_after=0.0), Memory(), {}, ""),
    ],
)
def test_what_waits_says_until_when(rules: Rules, memory: Memory, fields: dict[str, object], told: str) -> None:
    message = plan(make_sight(2.0, 8, **fields), rules, memory).message
    assert message.endswith(f"; {told}") if told else "until" not in message


def test_a_move_while_less_would_be_enough_says_when_the_decrease_may_come() -> None:
    offers = (make_offer("od"), make_offer("spot-a", usd=0.3))
    sight = make_sight(2.0, {"od": 4}, offers=offers)
    made = plan(sight, Rules(spot=SPOT), Memory(lower_since=NOW - 100))
    assert made.decision is not None
    assert (made.decision.bound_by, made.decision.next_possible) == ("DownAfter", NOW + 200)


@pytest.mark.parametrize(
    ("work", "capacity", "expected"),
    [(1.0, 4.0, 3), (3.9, 4.0, 3), (1.0, 0.5, 4), (0.0, 4.0, 2)],
    ids=["large", "large and full", "small", "none at work"],
)
def test_a_warm_replica_is_a_whole_one_of_those_that_serve(work: float, capacity: float, expected: int) -> None:
    sight = make_sight(work, 1, offers=(make_offer("od", capacity=capacity),))
    assert plan(sight, Rules(warm_replicas=2)).replicas == expected


def test_warm_replicas_are_there_while_a_service_is_awake_and_sleep_with_it() -> None:
    rules = Rules(warm_replicas=2, zero=ZeroRules(idle_after=600, max_wake=60))
    sight, memory, seen = make_sight(1.0, 3, at_zero=True, cold_start_seconds=40.0), Memory(), []
    for at, work in ((0, 1.0), (15, 0.0), (600, 0.0), (615, 0.0), (630, 0.0), (7200, 0.0), (7215, 1.0), (7230, 1.0)):
        found = make_sight(work, sight.wanted, now=NOW + at, at_zero=True, cold_start_seconds=40.0)
        made = plan(found, rules, memory)
        memory, sight = made.memory, replace(found, wanted=made.counts)
        seen.append(made.replicas)
        assert made.conditions["CapacityAvailable"].status is True, "what sleeps lacks nothing"
    assert seen == [3, 3, 2, 0, 0, 0, 3, 3]
    assert [entry.reason for entry in memory.decisions][:2] == ["Waking", "Idle"]


@pytest.mark.parametrize(
    ("rules", "work", "says"),
    [
        (Rules(min_replicas=4), 1.0, "2 of at least 4 replicas find no place (Capacity)"),
        (Rules(min_replicas=3), 1.0, "1 of at least 3 replicas finds no place (Capacity)"),
        (Rules(min_replicas=3), 4.0, "2 of work finds no place (Capacity)"),
        (Rules(min_replicas=2), 1.0, ""),
    ],
)
def test_a_floor_that_finds_no_place_is_told_as_work_is(rules: Rules, work: float, says: str) -> None:
    made = plan(make_sight(work, 2, offers=(make_offer("od", 2),)), rules)
    verdict = made.conditions["CapacityAvailable"]
    assert verdict.message.startswith(says)
    assert (verdict.status, verdict.reason) == ((False, "CapacityLimited") if says else (True, "Sufficient"))
    assert [event.reason for event in made.events if event.reason == "CapacityLimited"] == ["CapacityLimited"] * bool(
        says
    )


@pytest.mark.parametrize(
    ("offers", "saved"),
    [
        ((make_offer("od", 0), make_offer("spot-a", usd=0.3)), 2.0),
        ((make_offer("spot-a", usd=0.3),), None),
        ((make_offer("od"),), 2.0),
    ],
    ids=["the price on demand is known", "spot only", "on demand"],
)
def test_what_it_would_cost_on_demand_is_told_where_it_is_known(
    offers: tuple[object, ...], saved: float | None
) -> None:
    made = plan(make_sight(2.0, 0, offers=offers), Rules(spot=SpotRules(allowed=True)))
    assert made.on_demand_only_usd_per_hour == (None if saved is None else pytest.approx(saved))


def test_what_has_begun_later_than_now_begins_now() -> None:
    names = ("lower_since", "unknown_since", "idle_since", "last_up", "last_down", "missed_since", "missed_last")
    clocks: dict[str, Any] = dict.fromkeys(names, 4000.0)
    ahead = Memory(**clocks, footing=Footing(1.0, 1.0, fell=4000.0, returned=300.0))
    found = not_later(ahead, 400.0)
    assert [getattr(found, name) for name in names] == [400.0] * len(names)
    assert found.footing == Footing(1.0, 1.0, fell=400.0, returned=300.0)
    assert not_later(Memory(last_up=300.0), 400.0) == Memory(last_up=300.0)
