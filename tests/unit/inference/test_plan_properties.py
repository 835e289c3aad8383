"""What holds of every plan, whatever there is and whatever is asked for."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from berth.inference.retire import leaving
from berth.inference.service import Memory, Phase, Plan, Rules, Sight, SpotRules, Step, ZeroRules
from tests.builders.services import make_offer, make_replica, make_sight
from tests.unit.inference.cases import NAMES, NOW, PATIENT, SPOT, case, plan

counts = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 5))


@st.composite
def sights(draw: st.DrawFn) -> tuple[Rules, Memory, Sight]:
    wanted = {name: count for name, count in draw(counts).items() if count}
    pods = tuple(
        make_replica(
            f"{name}-{i}", name, ready=draw(st.booleans()), leaving_at=draw(st.sampled_from([None, None, NOW + 60])),
        )
        for name, count in wanted.items() for i in range(draw(st.integers(0, count)))
    )  # fmt: skip
    offers = tuple(
        make_offer(name, wanted.get(name, 0) + draw(st.integers(0, 4)), usd=usd, capacity=draw(st.sampled_from([1, 2])))
        for name, usd in zip(NAMES, (1.0, 0.3, 0.35), strict=True)
    )  # fmt: skip
    sight = make_sight(
        draw(st.none() | st.floats(0, 12)), wanted, foreseen=draw(st.none() | st.floats(0, 12)), replicas=pods,
        offers=offers, at_zero=draw(st.booleans()), cold_start_seconds=30.0,
        slo_met=draw(st.sampled_from([None, False])),
        crashing=frozenset(draw(st.sets(st.sampled_from(NAMES), max_size=1))),
    )  # fmt: skip
    least = draw(st.integers(1, 4))
    rules = Rules(
        min_replicas=least, max_replicas=least + draw(st.integers(0, 12)),
        zero=draw(st.sampled_from([None, ZeroRules()])),
        spot=SpotRules(allowed=draw(st.booleans()), on_demand_floor=draw(st.integers(0, 2))),
        warm_replicas=draw(st.sampled_from([0, 0, 1, 2])),
    )  # fmt: skip
    memory = draw(st.sampled_from([Memory(), PATIENT, Memory(idle_since=0.0), Memory(unknown_since=0.0)]))
    return rules, memory, sight


@settings(max_examples=150, deadline=None)
@given(sights())
@example(
    case(0.0, {"od": 4}, "od od! od! od!", {"od": 4}, rules=Rules(min_replicas=4), crashing=frozenset({"od"}))
)  # what leaves a variant that crashes is replaced by nothing
@example(
    case(
        None,
        {"spot-a": 1},
        "",
        {"od": 2, "spot-a": 1},
        rules=Rules(min_replicas=2, max_replicas=2, spot=SpotRules(on_demand_floor=2)),
    )
)  # what has to stay leaves no room for all of the on-demand floor
def test_any_plan_keeps_the_floor_stays_within_room_and_takes_nothing_that_is_needed(
    drawn: tuple[Rules, Memory, Sight],
) -> None:
    rules, memory, sight = drawn
    made = plan(sight, rules, memory)
    assert made == plan(sight, rules, memory)
    rooms = {offer.variant.name: offer.room for offer in sight.offers}
    assert all(0 <= count <= max(rooms[name], sight.wanted.get(name, 0)) for name, count in made.counts.items())
    usable = sum(
        min(room, sight.wanted.get(name, 0)) if name in sight.crashing else room
        for name, room in rooms.items() if name == "od" or rules.spot.allowed
    )  # fmt: skip
    if made.phase is not Phase.IDLE:
        assert made.replicas >= min(rules.min_replicas, usable)


def lost(name: str, sight: Sight, made: Plan) -> int:
    """Replicas that ``made`` gives up to a notice: their nodes go too, and so does the room that they had."""
    before, after = sight.wanted.get(name, 0), made.counts.get(name, 0)
    return max(0, leaving(before, sight.replicas, name) - leaving(after, sight.replicas, name))


@settings(max_examples=150, deadline=None)
@given(sights())
@example(case(2.0, {"od": 1, "spot-a": 2}, "spot-a! spot-a-", {"od": 1, "spot-a": 2}, memory=PATIENT))
@example(
    case(0.0, {"od": 1, "spot-a": 3}, "spot-a- spot-a- spot-a od-!", {"od": 1, "spot-a": 3}, memory=PATIENT)
)  # a move goes on while a decrease would have to wait
@example(
    case(0.0, {"od": 2, "spot-a": 1}, "spot-a-!", {"od": 2, "spot-a": 1}, rules=Rules(max_replicas=1, spot=SPOT))
)  # one that leaves holds the room that a plan would use
@example(
    case(0.0, {"od": 1, "spot-a": 2}, "spot-a spot-a-!", {"od": 1, "spot-a": 2}, capacity={"od": 2})
)  # less must be carried from now on, whatever would have to wait
@example(
    case(
        7.0,
        {"spot-a": 3, "spot-b": 3},
        "spot-b",
        {"od": 1, "spot-a": 6, "spot-b": 3},
        rules=Rules(max_replicas=1, spot=SPOT),
        capacity={"spot-a": 2, "spot-b": 2},
    )
)  # replicas kept until a move is done are no more to aim at
def test_a_plan_repeated_on_its_own_result_changes_nothing(drawn: tuple[Rules, Memory, Sight]) -> None:
    rules, memory, sight = drawn
    rules = replace(rules, max_down=Step(share=1.0))
    made = plan(sight, rules, memory)
    offers = tuple(replace(offer, room=offer.room - lost(offer.variant.name, sight, made)) for offer in sight.offers)
    for there in (sight.offers, offers):  # the nodes under notice are still there, or gone
        again = plan(replace(sight, wanted=made.counts, offers=there), rules, made.memory)
        assert {n: c for n, c in again.counts.items() if c} == {n: c for n, c in made.counts.items() if c}
