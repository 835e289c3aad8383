"""How much is needed: floors whatever is measured, holding while nothing is, and when a service may sleep."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.api.inferenceservice import InferenceServiceSpec
from berth.inference.need import Need, idle_from, metrics_verdict, needed
from berth.inference.service import Decision, Foreseen, Memory, Mode, Rules, ZeroRules, rules_of
from tests.builders.services import make_offer, make_replica, make_sight

NOW = 10_000.0
ZERO = ZeroRules(idle_after=600, max_wake=60)


def need(rules: Rules, sight: Any, memory: Memory | None = None, carried: float = 0.0) -> Need:
    return needed(rules, memory or Memory(), sight, carried)[0]


def asleep() -> Memory:
    return Memory((Decision(NOW - 100, 1, 0, "Idle", ""),), held=0)


@pytest.mark.parametrize(
    ("work", "foreseen", "expected", "reason"),
    [
        (3.0, None, 3.0, "Demand"),
        (3.0, 5.0, 5.0, "Forecast"),
        (6.0, 5.0, 6.0, "Demand"),
        (0.0, None, 0.0, "Demand"),
    ],
)
def test_the_larger_of_now_and_ahead_is_needed(
    work: float, foreseen: float | None, expected: float, reason: str
) -> None:
    found = need(Rules(), make_sight(work, 2, foreseen=foreseen))
    assert (found.work, found.reason) == (expected, reason)


@pytest.mark.parametrize(
    ("ahead", "said"),
    [
        (Foreseen(3.0, 3.0, 0.995, 120.0), "3 is to be ready in 2m (quantile 99.5%)"),
        (Foreseen(2.0, 2.0, 0.0, 120.0, "as there is now"), "2 is to be ready in 2m (as there is now)"),
    ],
)
def test_what_is_to_be_ready_is_a_quantile_only_where_there_is_one(ahead: Foreseen, said: str) -> None:
    assert said in need(Rules(), replace(make_sight(2.0, 2), foreseen=ahead)).text


@given(
    work=st.none() | st.floats(0, 100),
    foreseen=st.none() | st.floats(0, 100),
    wanted=st.integers(0, 30),
    least=st.integers(1, 10),
    since=st.none() | st.floats(0, NOW),
)
def test_the_floor_holds_for_any_sight(
    work: float | None, foreseen: float | None, wanted: int, least: int, since: float | None
) -> None:
    found = need(Rules(min_replicas=least), make_sight(work, wanted, foreseen=foreseen), Memory(unknown_since=since))
    assert least <= found.floor <= found.ceiling


def test_missing_is_not_zero() -> None:
    found = need(Rules(zero=ZERO), make_sight(None, 5), Memory(held=5, held_work=4.2))
    assert (found.floor, found.work, found.frozen) == (5, 4.2, True)


@pytest.mark.parametrize(
    ("for_seconds", "held", "expected"),
    [(0, 5, 5), (1799, 5, 5), (1800, 5, 8), (1800, 12, 12), (90_000, 12, 12)],
)
def test_an_unknown_demand_holds_what_there_was_and_then_at_least_the_stated_count(
    for_seconds: float, held: int, expected: int
) -> None:
    rules = Rules(hold_for=1800, unknown_replicas=8)
    memory = Memory(unknown_since=NOW - for_seconds, held=held, held_work=float(held))
    assert need(rules, make_sight(None, held), memory).floor == expected


def test_replicas_asked_for_beside_leaving_ones_are_not_held_as_if_they_were_more() -> None:
    pods = (make_replica("a"), make_replica("b", leaving_at=NOW + 60))
    found = need(Rules(), make_sight(None, 3, replicas=pods), Memory(held=2, held_work=2.0))
    assert (found.floor, found.work) == (2, 2.0)


@pytest.mark.parametrize("stated", ["unknown", "idle"])
def test_clocks_start_once_and_stop_when_it_is_over(stated: str) -> None:
    work, name = (None, "unknown_since") if stated == "unknown" else (0.0, "idle_since")
    first = needed(Rules(), Memory(), make_sight(work, 1, now=0.0), 1.0)[1]
    later = needed(Rules(), first, make_sight(work, 1, now=100.0), 1.0)[1]
    assert getattr(later, name) == 0.0
    assert getattr(needed(Rules(), later, make_sight(2.0, 1, now=200.0), 1.0)[1], name) is None


def test_not_knowing_neither_starts_the_idle_clock_nor_resets_it() -> None:
    assert needed(Rules(), Memory(), make_sight(None, 1), 1.0)[1].idle_since is None
    assert needed(Rules(), Memory(idle_since=5.0), make_sight(None, 1), 1.0)[1].idle_since == 5.0


@pytest.mark.parametrize(
    ("idle_since", "pods", "expected"),
    [
        (None, (make_replica(ready_since=0.0),), None),
        (100.0, (), None),
        (100.0, (make_replica(ready=False),), None),
        (100.0, (make_replica(ready_since=50.0),), 100.0),
        (100.0, (make_replica(ready_since=700.0),), 700.0),
        (100.0, (make_replica("a", ready_since=700.0), make_replica("b", ready_since=300.0)), 300.0),
    ],
)
def test_the_idle_clock_begins_with_the_first_readiness(
    idle_since: float | None, pods: Any, expected: float | None
) -> None:
    assert idle_from(Memory(idle_since=idle_since), make_sight(0.0, 1, replicas=pods)) == expected


def awake(**fields: Any) -> Any:
    own = {"at_zero": True, "cold_start_seconds": 40.0, "replicas": (make_replica(ready_since=NOW - 700),)}
    ahead = fields.pop("ahead", None)
    sight = make_sight(0.0, 1, **{**own, **fields})
    return sight if ahead is None else replace(sight, foreseen=ahead)


@pytest.mark.parametrize(
    ("sight", "idle_for", "rests"),
    [
        (awake(), 700, True),
        (awake(), 500, False),
        (awake(replicas=(make_replica(ready_since=NOW - 500),)), 700, False),
        (awake(replicas=(make_replica(ready=False),)), 700, False),
        (awake(foreseen=2.0), 700, False),
        (awake(foreseen=0.01), 700, True),
        (awake(foreseen=0.03, offers=(make_offer(capacity=0.004),)), 700, False),
        (awake(ahead=Foreseen(0.0, 0.0, 0.99, 701.0)), 700, False),
        (awake(ahead=Foreseen(0.0, 0.0, 0.99, 700.0)), 700, True),
    ],
)
def test_a_service_sleeps_when_idle_long_enough_with_nothing_ahead(sight: Any, idle_for: float, rests: bool) -> None:
    found = need(Rules(zero=ZERO), sight, Memory(idle_since=NOW - idle_for))
    assert (found.floor, found.ceiling) == ((0, 0) if rests else (1, Rules().max_replicas))


def test_who_sleeps_later_than_asked_is_told_why() -> None:
    sight = awake(ahead=Foreseen(0.0, 0.0, 0.99, 650.0))
    said = need(Rules(zero=ZERO), sight, Memory(idle_since=NOW - 700)).text
    assert said == "no demand for 11m40s, idleAfter is 10m and waking takes 10m50s"


@pytest.mark.parametrize(
    ("zero", "steps", "expected"),
    [({}, {}, 600), ({}, {"downAfter": "1h"}, 3600), ({"idleAfter": "2h"}, {"downAfter": "1h"}, 7200)],
)
def test_idle_takes_no_less_than_getting_smaller(zero: Any, steps: Any, expected: float) -> None:
    scaling = {"scaleToZero": {"enabled": True, **zero}, "steps": steps}
    spec = InferenceServiceSpec.model_validate({"model": {"parameters": "8B"}, "scaling": scaling})
    found = rules_of(spec).zero
    assert found is not None
    assert found.idle_after == expected


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"at_zero": False}, "no signal counts demand at zero"),
        ({"cold_start_seconds": 0.0}, "no cold start"),
        ({"cold_start_seconds": 188.0}, "longer than scaleToZero.maxWake"),
    ],
)
def test_zero_is_refused_with_the_reason(fields: dict[str, Any], why: str) -> None:
    found = need(Rules(zero=ZERO), awake(**fields), Memory(idle_since=0.0))
    assert found.floor == 1
    assert why in found.zero_refused


def test_asleep_stays_asleep_while_nothing_is_known_and_wakes_to_the_stated_count_after_the_hold() -> None:
    rules = Rules(zero=ZERO, min_replicas=2, unknown_replicas=3, hold_for=1800)
    assert need(rules, make_sight(None, 0), asleep()).floor == 0
    assert need(rules, make_sight(None, 0), Memory(asleep().decisions, unknown_since=0.0, held=0)).floor == 3


def test_a_new_service_starts_at_its_floor_though_nothing_is_known() -> None:
    assert need(Rules(zero=ZERO, min_replicas=2), make_sight(None, 0)).floor == 2


def test_waiting_demand_wakes() -> None:
    found = need(Rules(zero=ZERO), make_sight(7.0, 0, at_zero=True, cold_start_seconds=40.0), asleep())
    assert found.waking
    assert found.work == 7.0


def test_manual_is_exactly_the_users_count() -> None:
    found = need(Rules(mode=Mode.MANUAL, manual_replicas=3), make_sight(None, 9))
    assert (found.floor, found.ceiling, found.frozen) == (3, 3, False)


@pytest.mark.parametrize(
    ("sight", "since", "expected"),
    [
        (make_sight(1.0, 1), None, (True, "Value")),
        (make_sight(0.0, 1), None, (True, "Idle")),
        (make_sight(None, 1), NOW - 60, (False, "Holding")),
        (make_sight(None, 1), NOW - 1800, (False, "HoldExpired")),
        (make_sight(1.0, 1, reason="gateway: no answer"), NOW, (False, "SignalsLost")),
    ],
)
def test_the_condition_says_what_is_known(sight: Any, since: float | None, expected: tuple[bool, str]) -> None:
    verdict = metrics_verdict(Rules(), Memory(unknown_since=since), sight)
    assert (verdict.status, verdict.reason) == expected
    assert sight.seen.reason in verdict.message


def test_a_doubt_about_the_load_is_told_where_metrics_are() -> None:
    sight = make_sight(2.0, 1)
    found = metrics_verdict(Rules(), Memory(), replace(sight, seen=replace(sight.seen, doubt="nothing came in")))
    assert (found.status, found.reason, found.message) == (True, "Value", "nothing came in")
