"""Room is the room of the nodes that the pods of a service can go to, by taints and by labels; elsewhere is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.fleet.fleet import Fleet
from berth.fleet.records import Growth, NodeFacts
from berth.inference.access import ANYWHERE, SELECTOR, Access
from berth.inference.room import Rooms
from berth.values import Requirement, Requirements, Taint, Toleration
from tests.builders.fleet import GPU, POOL, ZONE, make_claim, make_fleet, make_node, make_pool
from tests.builders.services import make_variant

VARIANT = make_variant("H100", pool="p")
KARPENTER = "karpenter.sh/capacity-type"
NVME, SSD = (Requirement("disk", "In", ("nvme",)),), (Requirement("disk", "In", ("ssd",)),)

some_labels = st.dictionaries(st.sampled_from(["disk", "gen"]), st.sampled_from(["ssd", "nvme", "1", "2", "3"]))
some_taints = st.sets(
    st.builds(Taint, st.sampled_from(["team", "slow"]), st.sampled_from(["a", "b"]),
              st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])), max_size=2
)  # fmt: skip
some_requirements = st.builds(
    lambda key, operator, values: Requirement(
        key, operator, tuple(values[:1] if operator in ("Gt", "Lt") else values if "n" in operator.lower() else ())
    ),
    st.sampled_from(["disk", "gen"]),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
    st.lists(st.sampled_from(["ssd", "nvme", "1", "2", "3"]), min_size=1, max_size=2),
)
some_terms = st.lists(st.lists(some_requirements, min_size=1, max_size=2).map(tuple), max_size=2).map(tuple)
some_tolerations = st.lists(
    st.one_of(
        st.builds(lambda key, effect: Toleration(key, "Exists", "", effect), st.sampled_from(["team", "slow", ""]),
                  st.sampled_from(["", "NoSchedule", "NoExecute"])),
        st.builds(lambda key, value: Toleration(key, "Equal", value, ""), st.sampled_from(["team", "slow"]),
                  st.sampled_from(["a", "b"])),
    ), max_size=2,
).map(tuple)  # fmt: skip
some_access = st.builds(Access, some_tolerations, some_terms)
some_nodes = st.builds(
    lambda labels, taints, devices, unschedulable: {
        "labels": labels, "taints": sorted(taints, key=repr), "devices": devices, "unschedulable": unschedulable
    },
    some_labels, some_taints, st.integers(1, 8), st.sampled_from([False, False, False, True]),
)  # fmt: skip


def meets(labels: Mapping[str, str], asked: Requirement) -> bool:
    """As the API describes node selector requirements."""
    value = labels.get(asked.key)
    match asked.operator:
        case "Exists" | "DoesNotExist":
            return (value is not None) == (asked.operator == "Exists")
        case "In" | "NotIn":
            return (value in asked.values) == (asked.operator == "In")
    if value is None or not value.isdigit() or not asked.values[0].isdigit():
        return False
    return int(value) > int(asked.values[0]) if asked.operator == "Gt" else int(value) < int(asked.values[0])


def admits(node: NodeFacts, access: Access) -> bool:
    """Whether the scheduler would let a pod onto ``node``, one by one."""
    for taint in node.taints:
        covered = any(
            entry.key in ("", taint.key)
            and entry.effect in ("", taint.effect)
            and (entry.operator == "Exists" or entry.value == taint.value)
            for entry in access.tolerations
        )
        if taint.effect != "PreferNoSchedule" and not covered:
            return False
    return not access.terms or any(all(meets(node.labels, asked) for asked in term) for term in access.terms)


def by_hand(nodes: Mapping[str, NodeFacts], taken: Counter[str], needs: int, access: Access) -> dict[str, int]:
    return {
        name: (node.allocatable[GPU] - taken[name]) // needs
        for name, node in nodes.items()
        if not node.unschedulable and admits(node, access)
    }


@given(
    st.lists(some_nodes, min_size=1, max_size=5),
    st.lists(some_access, min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 4), some_nodes), max_size=3),
    st.lists(st.integers(0, 4), max_size=3),
    st.integers(1, 3),
)
def test_room_is_that_of_the_nodes_that_would_take_the_pod_whatever_was_asked_before(
    shapes: list[Any], asked: list[Access], changes: list[tuple[int, Any]], claims: list[int], needs: int
) -> None:
    nodes = {f"n{number}": make_node(f"n{number}", **shape) for number, shape in enumerate(shapes)}
    fleet = make_fleet(nodes.values(), pools=[make_pool(roles=("Inference",))])
    rooms, taken = Rooms(fleet), Counter[str]()

    def expect_room() -> None:
        for access in asked:
            fits = {name: count for name, count in by_hand(nodes, taken, needs, access).items() if count}
            assert rooms.free(VARIANT, {GPU: needs}, access) == sum(fits.values())
            assert Counter(rooms.nodes(VARIANT, {GPU: needs}, 99, access)) == fits

    expect_room()
    for number, name in enumerate(f"n{row % len(nodes)}" for row in claims):
        if taken[name] < nodes[name].allocatable[GPU]:
            fleet.claim([make_claim(f"c{number}", name, 1, role="Inference")])
            taken[name] += 1
        expect_room()
    for row, shape in changes:
        name = f"n{row % len(nodes)}"
        nodes[name] = make_node(name, **{**shape, "devices": nodes[name].allocatable[GPU]})
        fleet.set_node(nodes[name])
        expect_room()


def growing(*nodes: NodeFacts, **more: Any) -> Fleet:
    pool = replace(make_pool(roles=("Inference",), **more), growth=Growth("Karpenter", "p", 10, 8))
    return make_fleet(nodes, pools=[pool])


@pytest.mark.parametrize(
    ("terms", "each"),
    [((), 2), ((NVME,), 4), ((SSD,), 2), ((NVME, SSD), 2), (((Requirement("disk", "In", ("tape",)),),), 2)],
    ids=["any", "the larger", "the smaller", "either", "another that may join"],
)
def test_nodes_that_join_are_like_those_that_the_template_asks_for(terms: tuple[Requirements, ...], each: int) -> None:
    fleet = growing(
        make_node("a", devices=4, labels={"disk": "nvme"}), make_node("b", devices=2, labels={"disk": "ssd"})
    )
    access = Access((), terms)
    assert Rooms(fleet).per_node(VARIANT, {GPU: 1}, access) == each
    assert Rooms(fleet).growth(VARIANT, {GPU: 1}, access) == 8 * each


SPOT = make_variant("H100", pool="p", capacity_type="Spot", zone="z1")


@pytest.mark.parametrize(
    ("variant", "term", "words"),
    [
        (VARIANT, Requirement(POOL, "In", ("q", "r")), f"asks for {POOL} In q, r, which none of its nodes ever meets"),
        (VARIANT, Requirement(POOL, "NotIn", ("p",)), "they have p there"),
        (VARIANT, Requirement(POOL, "In", ("p",)), ""),
        (VARIANT, Requirement(ZONE, "In", ("z2",)), ""),
        (SPOT, Requirement(ZONE, "In", ("z2",)), "they have z1 there"),
        (SPOT, Requirement(ZONE, "In", ("z2", "z1")), ""),
        (SPOT, Requirement(KARPENTER, "In", ("on-demand",)), "they are Spot"),
        (VARIANT, Requirement(KARPENTER, "In", ("spot",)), "they are OnDemand"),
        (VARIANT, Requirement(KARPENTER, "In", ("spot", "on-demand")), ""),
        (VARIANT, Requirement(KARPENTER, "In", ("a kind of its own",)), ""),
    ],
)
def test_no_node_is_awaited_that_could_never_be_what_the_template_asks_for(
    variant: Any, term: Requirement, words: str
) -> None:
    rooms = Rooms(growing(make_node("a"), make_node("b", labels={KARPENTER: "spot"})))
    access = Access((), ((term,),))
    said = rooms.misfit(variant, {GPU: 1}, access)
    assert words in said
    assert bool(said) == bool(words)
    assert bool(rooms.growth(variant, {GPU: 1}, access)) != bool(words)
    rooms.grow("me", variant, {GPU: 1}, 8, access)
    assert (rooms.growth(variant, {GPU: 1}) < 8 * 8) != bool(words), "and others may have it"
    either = Access((), ((term,), (Requirement("disk", "Exists"),)))
    assert not rooms.misfit(variant, {GPU: 1}, either), "one of two terms is enough"


def test_a_stated_capacity_type_is_not_read_off_labels() -> None:
    fleet = growing(make_node("a", labels={KARPENTER: "spot"}))
    fleet.set_pools([replace(fleet.pools["p"].spec, capacity_type="OnDemand")])
    access = Access((), ((Requirement(KARPENTER, "In", ("spot",)),),))
    assert Rooms(fleet).misfit(VARIANT, {GPU: 1}, access) == ""


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ((NVME,), f"1 of its 3 nodes meets {SELECTOR}"),
        ((NVME, SSD), f"2 of its 3 nodes meet {SELECTOR}"),
        ((), ""),
        (((Requirement("disk", "DoesNotExist"),), NVME, SSD), ""),
        (((Requirement("disk", "In", ("tape",)),),), ""),
    ],
    ids=["one", "two", "no terms", "all", "none: told as a misfit"],
)
def test_how_much_of_a_place_is_left_is_told(terms: tuple[Requirements, ...], words: str) -> None:
    nodes = [make_node("a", labels={"disk": "nvme"}), make_node("b", labels={"disk": "ssd"}), make_node("c")]
    assert Rooms(make_fleet(nodes)).outside(VARIANT, Access((), terms)) == words


def test_answers_about_a_pool_that_is_gone_are_forgotten() -> None:
    fleet = make_fleet([make_node("a", labels={"disk": "nvme"})], pools=[make_pool(roles=("Inference",))])
    rooms, access = Rooms(fleet), Access((), (NVME,))
    assert rooms.free(VARIANT, {GPU: 1}, access) == 8
    rooms.forget("p")
    fleet.set_pools([])
    assert rooms.free(VARIANT, {GPU: 1}, access) == rooms.free(VARIANT, {GPU: 1}, ANYWHERE) == 0
