"""Where replicas fit: free devices of the variant's place, none where training is, none that others were promised."""

from __future__ import annotations

import pytest

from berth.fleet.fleet import Fleet
from berth.inference.access import Access
from berth.inference.room import Rooms
from berth.values import Taint, Toleration
from tests.builders.fleet import GPU, make_claim, make_fleet, make_node, make_pool
from tests.builders.services import make_variant

BOTH = ("Training", "Inference")
NEEDS = {GPU: 2, "cpu": 1000}
VARIANT = make_variant("H100", pool="p")


def some(*nodes: object, **more: object) -> Fleet:
    return make_fleet(nodes, pools=[make_pool(roles=BOTH)], **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fleet", "expected"),
    [
        (some(make_node("a"), make_node("b")), 8),
        (some(make_node("a", cpu=3), make_node("b")), 7),
        (some(make_node("a", pods=1)), 1),
        (some(make_node("a"), claims=[make_claim("x", "a", 3, role="Inference")]), 2),
        (some(make_node("a"), claims=[make_claim("x", "a", 1)]), 0),
        (some(make_node("a"), claims=[make_claim("x", "a", 0, cpu=1, daemon=True)]), 4),
        (some(make_node("a", unschedulable=True), make_node("b", ready=False)), 0),
        (some(make_node("a", labels={"karpenter.sh/capacity-type": "spot"})), 0),
        (some(make_node("a", taints=[Taint("team", "x", "NoSchedule")])), 0),
        (some(), 0),
        (make_fleet([make_node("a")], pools=[]), 0),
    ],
    ids=["devices", "cpu", "pods", "other replicas", "training closes the node", "daemons do not", "unusable",
         "another capacity type", "a taint", "no node", "no such pool"],
)  # fmt: skip
def test_free(fleet: Fleet, expected: int) -> None:
    assert Rooms(fleet).free(VARIANT, NEEDS) == expected


def test_tolerated_taints_close_nothing() -> None:
    fleet = some(make_node("a", taints=[Taint("team", "x", "NoSchedule")]))
    assert Rooms(fleet).free(VARIANT, NEEDS, Access((Toleration("team", "Exists"),))) == 4


def test_a_spot_variant_has_the_room_of_its_zone() -> None:
    spot = {"karpenter.sh/capacity-type": "spot"}
    fleet = some(*(make_node(name, zone=zone, labels=spot) for name, zone in (("a", "z1"), ("b", "z1"), ("c", "z2"))))
    rooms = Rooms(fleet)
    free = {zone: rooms.free(make_variant("H100", pool="p", capacity_type="Spot", zone=zone), NEEDS) for zone in
            ("z1", "z2", "z3")}  # fmt: skip
    assert free == {"z1": 8, "z2": 4, "z3": 0}


def test_answers_follow_what_is_claimed_and_what_nodes_there_are() -> None:
    fleet = some(make_node("a"))
    rooms = Rooms(fleet)
    assert rooms.free(VARIANT, NEEDS) == 4
    fleet.claim([make_claim("x", "a", 2, role="Inference")])
    assert rooms.free(VARIANT, NEEDS) == 3
    fleet.release(["x"])
    fleet.set_node(make_node("b"))
    assert rooms.free(VARIANT, NEEDS) == 8
    fleet.set_node(make_node("b", unschedulable=True))
    assert rooms.free(VARIANT, NEEDS) == 4


def test_nodes_are_filled_one_after_the_other_the_fullest_first() -> None:
    fleet = some(make_node("a"), make_node("b"), make_node("c"), claims=[make_claim("x", "c", 4, role="Inference")])
    rooms = Rooms(fleet)
    assert rooms.nodes(VARIANT, NEEDS, 3) == ["c", "c", "a"]
    assert rooms.nodes(VARIANT, NEEDS, 99) == ["c"] * 2 + ["a"] * 4 + ["b"] * 4
    assert rooms.nodes(VARIANT, NEEDS, 0) == []
