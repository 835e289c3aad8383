"""scaling.mode Manual: spec.replicas counts once somebody has set it, and its default ends nothing that serves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.inference.service import Memory, Mode, Plan, Rules, Sight
from tests.builders.services import make_offer, make_replica, make_replicas, make_sight
from tests.unit.inference.cases import plan

AUTO = Rules(manual_replicas=1)


def manual(replicas: int) -> Rules:
    return Rules(mode=Mode.MANUAL, manual_replicas=replicas)


def auto(sight: Sight, rules: Rules = AUTO) -> Memory:
    return plan(sight, rules).memory


def reasons(made: Plan) -> set[str]:
    return {event.reason for event in made.events}


@pytest.mark.parametrize(
    ("there", "before", "stated", "expected"),
    [
        pytest.param(12, 1, 1, 12, id="the default takes nothing away"),
        pytest.param(12, 0, 0, 12, id="nor does a 0 that had no meaning"),
        pytest.param(12, 1, 3, 3, id="a number set with the mode counts"),
        pytest.param(12, 1, 0, 0, id="so does a stop set with the mode"),
        pytest.param(2, 5, 5, 5, id="nothing keeps it from more"),
        pytest.param(0, 1, 1, 1, id="nor from waking"),
    ],
)
def test_the_mode_alone_takes_no_replica_away(there: int, before: int, stated: int, expected: int) -> None:
    rules = Rules(manual_replicas=before)
    memory = auto(make_sight(float(there), there), rules) if there else Memory(unset=before, aimed=0)
    assert plan(make_sight(float(there), there), manual(stated), memory).replicas == expected


def test_what_is_held_is_told_until_the_number_is_set() -> None:
    sight = make_sight(12.0, 12)
    held = plan(sight, manual(1), auto(sight))
    assert "holding 12 replicas until spec.replicas is set" in held.message
    assert "kubectl scale --replicas=12" in held.message
    assert "ReplicasHeld" in reasons(held)
    settled = plan(sight, manual(4), held.memory)
    assert settled.replicas == 4
    assert "ReplicasHeld" not in reasons(settled)
    assert plan(sight, manual(1), settled.memory).replicas == 1  # it has been set before


def test_a_service_made_in_manual_has_what_it_says_at_once() -> None:
    assert plan(make_sight(12.0, 12), manual(2)).replicas == 2


def test_back_in_auto_the_number_has_no_meaning_again() -> None:
    sight = make_sight(12.0, 12)
    chosen = plan(sight, manual(5), auto(sight))
    again = plan(sight, Rules(manual_replicas=5), chosen.memory)
    assert plan(sight, manual(5), again.memory).replicas == 12


@pytest.mark.parametrize("wanted", [12, 3])
def test_a_restart_forgets_neither_the_number_nor_what_is_held(wanted: int) -> None:
    """What Deployments ask for meanwhile does not change what is held."""
    assert plan(make_sight(12.0, wanted), manual(1), Memory(unset=1, unset_keeps=12)).replicas == 12


def test_advice_that_was_not_taken_is_not_held() -> None:
    sight = make_sight(2.0, 12)
    memory = auto(sight, replace(AUTO, mode=Mode.ADVISORY))
    assert plan(sight, manual(1), memory).replicas == 12


def test_replicas_beside_their_replacements_do_not_count_twice() -> None:
    offers = (make_offer("od", usd=2.0), make_offer("new", usd=1.0))
    pods = (*make_replicas(6), *make_replicas(6, "new", ready=False))
    moves = plan(make_sight(6.0, 6, offers=offers), AUTO)
    sight = make_sight(6.0, moves.counts, replicas=pods, offers=offers)
    made = plan(sight, manual(1), moves.memory)
    assert made.counts == {"od": 6, "new": 6}  # the move goes on, and none that serves goes before the new ones do
    ready = replace(sight, replicas=(*make_replicas(6), *make_replicas(6, "new")))
    assert plan(ready, manual(1), made.memory).counts == {"od": 0, "new": 6}


def test_what_is_held_carries_as_much_as_before() -> None:
    """The cheapest mix of two replicas alone would be of two small ones."""
    offers = (make_offer("od", usd=4.0, capacity=4.0), make_offer("small", usd=1.5, capacity=1.0))
    sight = make_sight(5.0, {"od": 1, "small": 1}, offers=offers)
    assert plan(sight, manual(1), auto(sight)).counts == {"od": 1, "small": 1}


def test_what_is_held_on_closed_offers_is_held_as_work_and_not_as_so_many_large_replicas() -> None:
    """Nine small replicas that one large one replaces are not nine large ones, before or after the move."""
    large, small = make_offer("large", usd=10.0, capacity=10.0), make_offer("od", room=9)
    sight = make_sight(9.0, 9, offers=(large, replace(small, closed=True)))
    moves = plan(sight, manual(1), auto(make_sight(9.0, 9, offers=(small,))))
    assert moves.counts == {"large": 1, "od": 9}
    pods = (*make_replicas(9), make_replica("new", "large", ready=False))
    begun = replace(sight, wanted=moves.counts, replicas=pods)
    starts = plan(begun, manual(1), moves.memory)
    assert starts.counts == {"large": 1, "od": 9}
    ready = replace(begun, replicas=(*make_replicas(9), make_replica("new", "large")))
    moved = plan(ready, manual(1), starts.memory)
    assert moved.counts == {"large": 1, "od": 0}
    done = make_sight(9.0, {"large": 1}, replicas=(make_replica("new", "large"),), offers=(large,))
    assert plan(done, manual(1), moved.memory).counts == {"large": 1}


def test_what_leaves_is_replaced_while_replicas_are_held() -> None:
    pods = (*make_replicas(2), make_replica("going", leaving_at=10_060.0))
    sight = make_sight(3.0, 3, replicas=pods)
    made = plan(sight, manual(1), Memory(unset=1, unset_keeps=3))
    assert made.counts == {"od": 4}


@given(
    there=st.integers(0, 20),
    before=st.integers(0, 20),
    steps=st.lists(st.tuples(st.sampled_from(Mode), st.integers(0, 3)), max_size=6),
)
def test_no_edit_of_the_mode_alone_takes_a_replica_away(there: int, before: int, steps: list[tuple[Mode, int]]) -> None:
    sight = make_sight(float(there), there)
    memory, number = auto(sight, Rules(manual_replicas=before)), before
    for mode, added in steps:
        rules = Rules(mode=mode, manual_replicas=number + added)
        made = plan(sight, rules, memory)
        least = number + added if added and mode is Mode.MANUAL else min(sum(sight.wanted.values()), 20)
        assert made.replicas >= least
        sight, memory, number = carried_out(sight, made), made.memory, number + added


def carried_out(sight: Sight, made: Plan) -> Sight:
    pods: Any = tuple(pod for name, count in made.counts.items() for pod in make_replicas(count, name))
    return replace(sight, wanted=made.counts, replicas=pods)
