"""Decisions about one service: how fast it grows, when it may shrink, what is replaced, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from berth.inference.service import DECISIONS_KEPT, Memory, Mode, Phase, Plan, Rules, Sight, SpotRules, Step, ZeroRules
from tests.builders.services import make_offer, make_replica, make_replicas, make_sight
from tests.unit.inference.cases import NOW, PATIENT, SPOT, case, plan


def after(sight: Sight, made: Plan, seconds: float = 15.0, **fields: Any) -> Sight:
    """The same some time after ``made`` was carried out; replicas start unless ``fields`` says otherwise."""
    return replace(sight, now=sight.now + seconds, wanted=made.counts, **fields)


@pytest.mark.parametrize(
    ("rules", "sight", "expected"),
    [
        pytest.param(Rules(), make_sight(16.0, 2), 16, id="the whole deficit in one jump"),
        pytest.param(Rules(), make_sight(1.0, 2, foreseen=9.0), 9, id="what is foreseen too"),
        pytest.param(Rules(min_replicas=4), make_sight(1.0, 0), 4, id="the floor"),
        pytest.param(Rules(min_replicas=4), make_sight(None, 0), 4, id="the floor though nothing is known"),
        pytest.param(Rules(max_replicas=6), make_sight(16.0, 2), 6, id="the ceiling"),
        pytest.param(Rules(max_up=Step(amount=3)), make_sight(16.0, 2), 5, id="maxUp"),
        pytest.param(Rules(max_up=Step(share=1.0)), make_sight(16.0, 4), 8, id="maxUp in percent"),
        pytest.param(Rules(max_up=Step(amount=1)), make_sight(16.0, 0), 16, id="but not from zero"),
        pytest.param(Rules(warm_replicas=2), make_sight(3.0, 3), 5, id="warm replicas"),
        pytest.param(Rules(mode=Mode.MANUAL, manual_replicas=7), make_sight(1.0, 2), 7, id="Manual"),
    ],
)
def test_growth(rules: Rules, sight: Sight, expected: int) -> None:
    assert plan(sight, rules).replicas == expected


def test_pending_replicas_count_so_that_no_deficit_is_met_twice() -> None:
    sight = make_sight(4.0, 2)
    for _ in range(4):
        made = plan(sight)
        assert made.replicas == 4
        sight = after(sight, made)


def test_pending_replicas_of_one_variant_are_supply_for_the_others() -> None:
    offers = (make_offer("od", cold_start_seconds=60.0), make_offer("other", usd=1.01, cold_start_seconds=60.0))
    sight = make_sight(4.0, {"od": 2, "other": 2}, replicas=make_replicas(2), offers=offers)
    assert plan(sight).counts == {"od": 2, "other": 2}


@pytest.mark.parametrize(
    ("rules", "memory", "fields", "expected", "bound"),
    [
        pytest.param(Rules(), PATIENT, {}, 5, "MaxDown", id="half at once"),
        pytest.param(Rules(max_down=Step(amount=1)), PATIENT, {}, 9, "MaxDown", id="maxDown"),
        pytest.param(Rules(max_down=Step(share=1.0)), PATIENT, {}, 2, "", id="down to the need"),
        pytest.param(Rules(), Memory(), {}, 10, None, id="less is enough only since now"),
        pytest.param(Rules(down_after=300), Memory(lower_since=NOW - 299), {}, 10, None, id="downAfter"),
        pytest.param(Rules(down_after=300), Memory(lower_since=NOW - 300), {}, 5, "MaxDown", id="downAfter is over"),
        pytest.param(Rules(), replace(PATIENT, last_up=NOW - 100), {"cold_start_seconds": 120.0}, 10, None, id="start"),
        pytest.param(Rules(), replace(PATIENT, last_up=NOW - 130), {"cold_start_seconds": 120.0}, 5, "MaxDown",
                     id="start is over"),
        pytest.param(Rules(), PATIENT, {"slo_met": False}, 10, None, id="the SLO is missed"),
        pytest.param(Rules(), PATIENT, {"slo_met": True}, 5, "MaxDown", id="the SLO is met"),
        pytest.param(Rules(), PATIENT, {"reason": "gateway: no answer"}, 10, None, id="a part is not known"),
        pytest.param(Rules(), replace(PATIENT, unknown_since=0.0), {"reason": "gateway: no answer"}, 5, "MaxDown",
                     id="a part has been unknown for long"),
        pytest.param(Rules(min_replicas=8), PATIENT, {}, 8, "", id="the floor"),
    ],
)  # fmt: skip
def test_shrinking(rules: Rules, memory: Memory, fields: dict[str, Any], expected: int, bound: str | None) -> None:
    made = plan(make_sight(2.0, 10, **fields), rules, memory)
    assert made.replicas == expected
    assert (made.decision.bound_by if made.decision else None) == bound


def test_a_decrease_starts_the_wait_for_the_next_one_again() -> None:
    sight = make_sight(1.0, 8)
    made = plan(sight, memory=PATIENT)
    assert made.replicas == 4
    again = plan(after(sight, made, replicas=make_replicas(4)), memory=made.memory)
    assert again.replicas == 4
    later = plan(after(sight, made, 330.0, replicas=make_replicas(4)), memory=again.memory)
    assert later.replicas == 2


def test_not_ready_replicas_go_before_any_that_serve() -> None:
    pods = (*make_replicas(2), make_replica("new", ready=False))
    made = plan(make_sight(1.5, 3, replicas=pods), memory=PATIENT)
    assert made.victims == {"od": ("new",)}


def test_a_hold_while_nothing_is_known_never_shrinks() -> None:
    known = plan(make_sight(6.0, 6))
    sight = make_sight(None, 6, now=NOW + 15)
    for seconds in (15, 600, 86_400):
        made = plan(replace(sight, now=NOW + seconds), Rules(unknown_replicas=2), known.memory)
        assert made.counts == {"od": 6}


def test_a_notice_while_nothing_is_known_is_met_with_one_replacement() -> None:
    memory = plan(make_sight(2.0, 2)).memory
    pods = (make_replica("a"), make_replica("b", leaving_at=NOW + 120))
    sight = make_sight(None, 2, replicas=pods)
    for _ in range(4):
        made = plan(sight, memory=memory)
        assert made.replicas == 3
        sight, memory = after(sight, made), made.memory


def test_what_a_notice_takes_is_replaced_beyond_max_up_and_drained_when_the_new_ones_serve() -> None:
    pods = (*make_replicas(1), *(make_replica(f"gone-{i}", leaving_at=NOW + 120, spot=True) for i in range(3)))
    sight = make_sight(4.0, 4, replicas=pods)
    made = plan(sight, Rules(max_up=Step(amount=3)))
    assert made.replicas == 7
    assert made.decision is not None
    assert made.decision.reason == "SpotReclaimed"
    assert {event.reason for event in made.events} == {"ScaledUp", "SpotReclaimed"}
    fresh = tuple(make_replica(f"new-{i}") for i in range(3))
    drained = plan(after(sight, made, replicas=pods + fresh), memory=made.memory)
    assert drained.replicas == 4
    assert drained.victims == {"od": ("gone-0", "gone-1", "gone-2")}


def test_a_cheaper_variant_takes_over_only_when_it_serves() -> None:
    offers = (make_offer("dear", usd=3.0), make_offer("od"))
    sight = make_sight(2.0, {"dear": 2}, offers=offers)
    first = plan(sight, Rules(max_down=Step(share=1.0)), PATIENT)
    assert first.counts == {"dear": 2, "od": 2}
    waits = after(sight, first, 600.0)
    assert plan(waits, memory=first.memory).counts == {"dear": 2, "od": 2}
    served = replace(waits, replicas=(*make_replicas(2, "dear"), *make_replicas(2)))
    assert plan(served, Rules(max_down=Step(share=1.0)), replace(first.memory, lower_since=0.0)).counts == {
        "dear": 0,
        "od": 2,
    }


def test_a_return_to_spot_waits_for_nothing_but_its_replacement() -> None:
    rooms = {"od": 20, "spot-a": 10, "spot-b": 10}
    usual = Rules(spot=replace(SPOT, max_zone_loss=0.6))
    rules, memory, sight = case(4.0, {"od": 4}, "od od od od", rooms, rules=usual)
    made = plan(sight, rules, memory)
    assert made.counts == {"od": 4, "spot-a": 2, "spot-b": 2}
    starts = after(sight, made)
    assert plan(starts, rules, made.memory).counts == made.counts
    served = replace(starts, replicas=(*sight.replicas, *make_replicas(2, "spot-a"), *make_replicas(2, "spot-b")))
    back = plan(served, rules, made.memory)
    assert back.counts == {"od": 0, "spot-a": 2, "spot-b": 2}


def test_a_fall_to_on_demand_and_the_return_are_told_once_each() -> None:
    rules = Rules(spot=replace(SPOT, max_zone_loss=1.0))
    _, memory, with_spot = case(4.0, {}, "", {"od": 9, "spot-a": 9}, rules=rules)
    without = replace(with_spot, offers=(make_offer("od", 9), make_offer("spot-a", 0, usd=0.3)))
    told = []
    for number, sight in enumerate((with_spot, without, without, with_spot, with_spot)):
        made = plan(replace(sight, now=NOW + 15 * number), rules, memory)
        memory = made.memory
        told.append([event.reason for event in made.events if event.reason.endswith(("OnDemand", "ToSpot"))])
    assert told == [[], ["FellBackToOnDemand"], [], ["ReturnedToSpot"], []]


def test_a_decrease_waits_also_while_replicas_move() -> None:
    _, memory, sight = case(8.0, {"od": 8}, "od " * 8, {"od": 20, "spot-a": 20})
    memory = plan(sight, Rules(), memory).memory
    less = replace(sight, seen=replace(sight.seen, work=2.0))
    spot = Rules(spot=replace(SPOT, max_zone_loss=1.0))
    made = plan(less, spot, memory)
    assert made.counts == {"od": 8, "spot-a": 8}
    served = after(less, made, replicas=(*sight.replicas, *make_replicas(8, "spot-a")))
    moved = plan(served, spot, made.memory)
    assert moved.counts == {"od": 0, "spot-a": 8}
    assert plan(after(served, moved, 600.0), spot, moved.memory).replicas == 4


def test_where_a_variant_is_full_of_what_leaves_another_stands_in() -> None:
    usual = Rules(spot=replace(SPOT, max_zone_loss=1.0))
    rooms = {"od": 5, "spot-a": 2}
    rules, memory, sight = case(2.0, {"spot-a": 2}, "spot-a! spot-a!", rooms, rules=usual)
    assert plan(sight, rules, memory).counts == {"od": 2, "spot-a": 2}


@pytest.mark.parametrize("work", [1.0, 8.0])
def test_waking_goes_straight_to_what_waits(work: float) -> None:
    rules = Rules(zero=ZeroRules(), max_up=Step(amount=1))
    made = plan(make_sight(work, 0, at_zero=True, cold_start_seconds=30.0), rules)
    assert made.replicas == int(work)
    assert made.decision is not None
    assert made.decision.reason == "Waking"
    assert [event.reason for event in made.events] == ["Woken"]


def test_an_idle_service_goes_to_sleep_at_once_and_says_so() -> None:
    sight = make_sight(0.0, 6, at_zero=True, cold_start_seconds=30.0)
    made = plan(sight, Rules(zero=ZeroRules()), Memory(idle_since=0.0))
    assert made.replicas == 0
    assert [event.reason for event in made.events] == ["Idled"]
    assert made.phase is Phase.IDLE
    assert made.conditions["Ready"].status


def test_zero_refused_is_said() -> None:
    made = plan(make_sight(0.0, 1), Rules(zero=ZeroRules()), Memory(idle_since=0.0))
    assert made.replicas == 1
    assert "it stays awake: no signal counts demand at zero" in made.message


def test_a_variant_that_never_gets_ready_gets_no_more_and_the_next_takes_its_place() -> None:
    offers = (make_offer("od"), make_offer("other", usd=2.0))
    pods = make_replicas(1, ready=False)
    made = plan(make_sight(4.0, 1, replicas=pods, offers=offers, crashing=frozenset({"od"})))
    assert made.counts == {"od": 1, "other": 3}
    alone = plan(make_sight(4.0, 1, replicas=pods, crashing=frozenset({"od"})))
    assert alone.counts == {"od": 1}
    assert alone.phase is Phase.FAILED
    assert "see their logs" in alone.message


def test_advisory_says_and_changes_nothing() -> None:
    made = plan(make_sight(9.0, 2), Rules(mode=Mode.ADVISORY))
    assert made.counts == {"od": 2}
    assert made.decision is None
    assert made.advice is not None
    assert (made.advice.before, made.advice.after) == (2, 9)
    assert "from 2 to 9" in made.message
    assert not made.memory.decisions
    assert not made.victims


def test_manual_follows_at_once_in_both_directions_and_asks_no_metrics() -> None:
    made = plan(make_sight(None, 9), Rules(mode=Mode.MANUAL, manual_replicas=2))
    assert made.replicas == 2
    assert "MetricsAvailable" not in made.conditions
    stopped = plan(make_sight(None, 2), Rules(mode=Mode.MANUAL, manual_replicas=0))
    assert (stopped.replicas, stopped.phase) == (0, Phase.IDLE)


def test_a_plan_that_finds_no_place_says_what_is_missing() -> None:
    made = plan(make_sight(9.0, 2, offers=(make_offer(room=3),)))
    assert made.replicas == 3
    verdict = made.conditions["CapacityAvailable"]
    assert (verdict.status, verdict.reason) == (False, "CapacityLimited")
    assert verdict.message == "6 of work finds no place (Capacity): add nodes, types or maxReplicas"
    assert made.phase is Phase.DEGRADED
    assert "CapacityLimited" in {event.reason for event in made.events}


def test_a_service_without_any_room_waits_for_it_and_does_not_pass_for_idle() -> None:
    made = plan(make_sight(None, 0, offers=(make_offer(room=0),)), Rules(min_replicas=1))
    assert made.phase is Phase.PENDING
    assert made.message.startswith("1 of at least 1 replica finds no place (Capacity)")


def test_one_replica_is_told_in_the_singular() -> None:
    made = plan(make_sight(1.0, 1), Rules(mode=Mode.MANUAL, manual_replicas=1))
    assert made.message == "1 of 1 replica is ready; scaling.mode is Manual and spec.replicas is 1"


def test_fewer_ready_replicas_than_manual_asks_for_are_no_ready_service() -> None:
    made = plan(make_sight(None, 4, replicas=make_replicas(2)), Rules(mode=Mode.MANUAL, manual_replicas=4))
    assert made.phase is Phase.DEGRADED
    assert made.message.startswith("2 of 4 replicas are ready")
    assert not made.conditions["Ready"].status


def test_a_variant_that_is_full_leaves_the_rest_to_the_next_cheapest() -> None:
    offers = (make_offer("od", room=2), make_offer("other", usd=2.0))
    assert plan(make_sight(5.0, 2, offers=offers)).counts == {"od": 2, "other": 3}


@pytest.mark.parametrize(
    ("spot", "check"),
    [
        (SPOT, lambda c: sum(c.values()) - max(c.get(z, 0) for z in ("spot-a", "spot-b")) >= 4),
        (replace(SPOT, on_demand_floor=2), lambda c: c["od"] >= 2),
        (replace(SPOT, max_share=0.5), lambda c: c["od"] * 2 >= sum(c.values())),
        (replace(SPOT, max_zone_loss=0.25), lambda c: max(c.values()) >= c.get("spot-a", 0) * 1
         and all(c.get(z, 0) <= 0.25 * sum(c.values()) for z in ("spot-a", "spot-b"))),
        (replace(SPOT, only=True), lambda c: "od" not in c),
        (SpotRules(), lambda c: c == {"od": 4}),
    ],
    ids=["any one zone may go", "on-demand floor", "share", "zone loss", "only", "never"],
)  # fmt: skip
def test_the_users_bounds_on_spot_hold(spot: SpotRules, check: Any) -> None:
    offers = (make_offer("od"), make_offer("spot-a", usd=0.3), make_offer("spot-b", usd=0.3))
    counts = plan(make_sight(4.0, 0, offers=offers), Rules(spot=spot)).counts
    assert check(counts), counts


def test_the_last_ten_decisions_are_kept_newest_first() -> None:
    memory, sight = Memory(), make_sight(1.0, 0)
    for step in range(1, 15):
        made = plan(replace(sight, seen=replace(sight.seen, work=float(step))), memory=memory)
        memory, sight = made.memory, after(sight, made, 100.0)
    assert [decision.after for decision in memory.decisions] == list(range(14, 14 - DECISIONS_KEPT, -1))


@pytest.mark.parametrize(
    ("work", "foreseen", "reason"), [(4.0, 1.0, "Demand"), (1.0, 4.0, "Forecast"), (0.0, 0.0, "MinReplicas")]
)
def test_looks_that_change_nothing_overwrite_no_reason(work: float, foreseen: float, reason: str) -> None:
    """dynamo#8575: the reason was stuck at no_change."""
    rules = Rules(min_replicas=2)
    sight = make_sight(work, 1, foreseen=foreseen)
    first = made = plan(sight, rules)
    assert [decision.reason for decision in first.memory.decisions] == [reason]
    for look in range(20):
        sight = after(sight, made)
        other = replace(sight, seen=replace(sight.seen, work=work - look % 2 * min(work, 1e-3)))
        made = plan(other, rules, made.memory)
        assert made.memory.decisions == first.memory.decisions
        assert (made.decision, made.events) == (None, ())


def test_a_minute_of_load_starts_replicas_once_however_slowly_they_come() -> None:
    """inference-sim#1109: four more were started while the first were on their way."""
    cold, memory, wanted, growths = 180.0, Memory(), {"od": 1}, []
    for at in range(0, 240, 15):
        there = sum(cold * part <= at for part in (0.5, 0.75, 1.0, 1.25))
        pods = (
            *make_replicas(1 + there),
            *(make_replica(f"new-{n}", ready=False) for n in range(wanted["od"] - 1 - there)),
        )
        sight = make_sight(5.0 if at < 60 else 1.0, wanted, now=NOW + at, replicas=pods, foreseen=1.0,
                           cold_start_seconds=cold)  # fmt: skip
        made = plan(sight, Rules(), memory)
        growths.append(made.replicas - wanted["od"])
        memory, wanted = made.memory, dict(made.counts)
    assert [growth for growth in growths if growth > 0] == [4]
    assert growths[0] == 4


def test_a_decision_that_is_not_carried_out_yet_is_not_made_again() -> None:
    sight = make_sight(4.0, 2)
    first = plan(sight)
    again = plan(replace(sight, now=NOW + 5), memory=first.memory)
    assert again.counts == first.counts
    assert again.decision is None
    assert again.memory.decisions == first.memory.decisions
    assert plan(replace(sight, now=NOW + 120), memory=first.memory).decision is not None


def test_a_decision_has_its_inputs_its_bound_and_when_the_next_may_come() -> None:
    made = plan(make_sight(2.0, 10, foreseen=3.0), memory=PATIENT)
    assert made.decision is not None
    assert made.decision.message == "Demand is 2 and 3 is to be ready in 2m (quantile 90%); 5 replicas carry 5 of work"
    assert made.decision.bound_by == "MaxDown"
    assert made.decision.next_possible == NOW + Rules().down_after


@pytest.mark.parametrize(
    ("sight", "expected"),
    [
        (make_sight(2.0, 2), True),
        (make_sight(2.0, 2, replicas=()), False),
        (make_sight(None, 6, replicas=make_replicas(2)), True),
    ],
    ids=["ready", "none is", "a sticky hold asks no more of readiness than the user does"],
)
def test_ready_means_that_the_users_floor_is(sight: Sight, expected: bool) -> None:
    assert plan(sight, Rules(min_replicas=2)).conditions["Ready"].status is expected


@pytest.mark.parametrize(
    "sight",
    [
        make_sight(None, 40),
        make_sight(4.0, 40, reason="lost"),
        make_sight(4.0, 40, slo_met=False),
        make_sight(4.0, 40),
    ],
    ids=["unknown", "partly", "a missed SLO", "a decrease that would have to wait"],
)
def test_a_ceiling_that_the_user_lowers_holds_whatever_is_measured(sight: Sight) -> None:
    made = plan(sight, Rules(max_replicas=10), Memory(held=40, held_work=40.0, held_capacity=40.0))
    assert made.counts == {"od": 10}


def test_a_count_that_the_user_states_misses_no_metrics() -> None:
    made = plan(make_sight(None, 2), Rules(mode=Mode.MANUAL, manual_replicas=2))
    assert made.events == ()


def test_a_clock_that_was_ahead_and_is_set_back_keeps_no_replica_for_longer_than_the_waits() -> None:
    ahead = plan(make_sight(4.0, 4, now=NOW + 3600.0), memory=Memory(last_up=NOW + 3600.0, lower_since=NOW + 3600.0))
    rules, sight = Rules(down_after=300.0), make_sight(1.0, 4, cold_start_seconds=60.0)
    first = plan(sight, rules, ahead.memory)
    assert first.replicas == 4
    assert plan(replace(sight, now=NOW + 300.0), rules, first.memory).replicas < 4


@pytest.mark.parametrize("ready", range(5))
def test_replicas_that_load_takes_out_of_readiness_are_joined_by_no_others(ready: int) -> None:
    pods = (*make_replicas(ready), *(make_replica(f"busy-{n}", ready=False, ever_ready=True) for n in range(4 - ready)))
    sight = make_sight(4.0, 4, replicas=pods)
    made = plan(sight)
    assert made.replicas == 4
    assert plan(after(sight, made), memory=made.memory).replicas == 4


@pytest.mark.parametrize("wanted", [1, 3])
def test_without_demand_nothing_grows(wanted: int) -> None:
    assert plan(make_sight(0.0, wanted, foreseen=0.0)).replicas <= wanted
