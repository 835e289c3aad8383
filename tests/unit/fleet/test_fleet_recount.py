"""The fleet computed again while it changes: nothing found where nothing is wrong, and what is wrong put right."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.fleet.fleet import Fleet
from berth.fleet.recount import recount
from tests.builders.fleet import make_claim, make_fleet, make_node, make_pool

NODES = [f"n{number}" for number in range(12)]


def some_fleet() -> Fleet:
    """Two racks of six nodes, with a claim on every other one."""
    nodes = [make_node(name, block="a", rack=str(number % 2)) for number, name in enumerate(NODES)]
    return make_fleet(nodes, claims=[make_claim(f"k{name}", name, 3) for name in NODES[::2]])


def expect_sound(fleet: Fleet) -> None:
    assert fleet.check() == []
    assert not any(recount(fleet))


changes: dict[str, Callable[[Fleet, str], object]] = {
    "claim": lambda fleet, name: fleet.claim([make_claim(f"new {name}", name, 2, role="Inference")]),
    "release": lambda fleet, name: fleet.release([f"k{name}"]),
    "remove": lambda fleet, name: fleet.remove_node(name),
    "move": lambda fleet, name: fleet.set_node(make_node(name, block="b", rack="9")),
    "same host": lambda fleet, name: fleet.set_node(make_node(name, rack=name, host="shared")),
    "cordon": lambda fleet, name: fleet.set_node(make_node(name, unschedulable=True)),
    "leave pool": lambda fleet, name: fleet.set_node(make_node(name, pool=None)),
    "discovered": lambda fleet, name: fleet.set_node(
        make_node(name, pool=None, labels={"nvidia.com/gpu.product": "NVIDIA-H200"})
    ),
}
stories = st.lists(
    st.lists(st.tuples(st.sampled_from(sorted(changes)), st.sampled_from([*NODES, "late"])), max_size=3), max_size=20
)


@settings(max_examples=150, deadline=None)
@given(stories, st.integers(1, 5))
def test_a_recount_agrees_with_a_fleet_that_changes_between_its_slices(
    story: list[list[tuple[str, str]]], size: int
) -> None:
    fleet = some_fleet()
    for found in recount(fleet, size):
        assert found == []
        for what, name in story.pop() if story else ():
            changes[what](fleet, name)
    expect_sound(fleet)


def lose_devices(fleet: Fleet) -> None:
    fleet.pools["p"].free_devices[1] -= 1


def lose_a_node(fleet: Fleet) -> None:
    fleet.pools["p"].remove("n1")


def lose_a_pool(fleet: Fleet) -> None:
    fleet._pools.clear()
    fleet._owner.clear()


def hang_elsewhere(fleet: Fleet) -> None:
    pool = fleet.pools["p"]
    pool.domain[2][pool.row["n1"]] = pool.domain[2][pool.row["n0"]]


@pytest.mark.parametrize(
    ("drift", "said"),
    [
        (lose_devices, "pool p: node n1: free_devices is 7, should be 8"),
        (lose_a_node, "pool p: node n1 exists only anew"),
        (lose_a_pool, "pool p exists only anew"),
        (hang_elsewhere, "pool p: level 3: a domain hangs elsewhere than its nodes"),
    ],
)
@pytest.mark.parametrize("size", [2, 100])
def test_what_has_drifted_is_named_and_put_right_with_what_changed_meanwhile(
    drift: Callable[[Fleet], None], said: str, size: int
) -> None:
    fleet = some_fleet()
    drift(fleet)
    version, pools = fleet.version, fleet.pools
    found = []
    for number, part in enumerate(recount(fleet, size)):
        found += part
        if number == 0:
            fleet.claim([make_claim("meanwhile", "n5", 4)])
    assert said in found
    assert fleet.version > version
    assert int(fleet.pools["p"].free_devices[fleet.pools["p"].row["n5"]]) == 4
    assert fleet.pools is pools
    expect_sound(fleet)
    fleet.release(["meanwhile"])
    fleet.remove_node("n1")
    expect_sound(fleet)


def test_an_undo_given_before_still_works_afterwards() -> None:
    fleet = some_fleet()
    undo = fleet.claim([make_claim("tried", "n1", 8)])
    lose_devices(fleet)
    assert any(list(recount(fleet)))
    undo()
    assert int(fleet.pools["p"].free_devices[fleet.pools["p"].row["n1"]]) == 8
    expect_sound(fleet)


def test_other_pools_meanwhile_end_a_recount_without_a_result() -> None:
    fleet = some_fleet()
    slices = recount(fleet, 2)
    next(slices)
    fleet.set_pools([make_pool(), make_pool("q", created=1)])
    assert not any(slices)
    assert set(fleet.pools) == {"p", "q"}
    expect_sound(fleet)
