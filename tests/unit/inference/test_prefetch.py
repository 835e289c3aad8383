"""Weights go to nodes ahead of replicas: as many as what is coming needs, the nodes that come first, a few at once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.inference.prefetch import (
    CacheNode,
    CachePlace,
    coming,
    has_disk,
    in_turns,
    stand_ins,
    to_fetch,
    uncovered,
    verdict,
)
from tests.builders.services import make_offer


def place(name: str, *nodes: CacheNode, count: int = 0, usd: float = 1.0, capacity: float = 1.0) -> CachePlace:
    return CachePlace(make_offer(name, usd=usd, capacity=capacity).variant, count, nodes)


def node(name: str, slots: int = 4, **state: Any) -> CacheNode:
    return CacheNode(name, slots, **state)


@pytest.mark.parametrize(
    ("work", "limits", "expected"),
    [
        (0.0, {"most": 9}, {}),
        (3.0, {"most": 9}, {"od": 3}),
        (3.2, {"most": 9}, {"od": 4}),
        (6.0, {"most": 9}, {"od": 4, "dear": 1}),
        (6.0, {"most": 2}, {"od": 2}),
        (0.0, {"least": 1, "most": 9}, {"od": 1}),
        (99.0, {"most": 99}, {"od": 4, "dear": 4}),
    ],
    ids=["nothing", "whole replicas", "rounded up", "the next cheapest", "the maximum", "one that wakes", "full"],
)
def test_what_is_coming_goes_to_the_cheapest_work_first(
    work: float, limits: dict[str, int], expected: dict[str, int]
) -> None:
    places = [place("dear", node("b"), usd=4.0, capacity=2.0), place("od", node("a"))]
    assert coming(places, work, **limits) == expected


def test_each_zone_of_spot_has_stand_ins_elsewhere() -> None:
    places = [
        place("spot-a", node("a"), count=3, usd=0.3),
        place("spot-b", node("b", slots=1), count=1, usd=0.3),
        place("od", node("c"), usd=1.0),
    ]
    assert stand_ins(places) == {"spot-b": 1, "od": 2, "spot-a": 1}


def test_without_spot_nobody_stands_in() -> None:
    assert stand_ins([place("od", node("a"), count=3)]) == {}


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([node("a"), node("b")], ["a"]),
        ([node("a", 2), node("b", 2), node("c", 2)], ["a", "b"]),
        ([node("a"), node("b", holds=True)], []),
        ([node("a"), node("b", fetching=True)], []),
        ([node("a", barred=True), node("b")], ["b"]),
        ([node("a", 1), node("b", 2, holds=True)], ["a"]),
        ([node("a", 0), node("b")], ["b"]),
    ],
    ids=["the first", "several", "held", "under way", "one that failed", "what is missing", "a full one"],
)
def test_nodes_are_fetched_to_until_what_comes_is_covered(nodes: list[CacheNode], expected: list[str]) -> None:
    assert to_fetch([place("od", *nodes)], {"od": 3}) == [("od", name) for name in expected]


def test_a_node_of_two_variants_fetches_once() -> None:
    shared = node("a")
    assert to_fetch([place("od", shared), place("od2", shared)], {"od": 1, "od2": 1}) == [("od", "a")]


nodes = st.builds(CacheNode, st.uuids().map(str), st.integers(0, 8), st.booleans(), st.booleans(), st.booleans())


@given(st.lists(nodes, max_size=8), st.integers(0, 40))
def test_fetching_covers_what_can_be_covered_and_no_node_in_vain(found: list[CacheNode], count: int) -> None:
    fetched = [name for _, name in to_fetch([place("od", *found)], {"od": count})]
    known = {each.name: each for each in found}
    missing = uncovered(place("od", *found), count)
    slots = [known[name].slots for name in fetched]
    possible = sum(each.slots for each in found if not (each.holds or each.fetching or each.barred))
    assert sum(slots) >= min(missing, possible)
    assert not fetched or sum(slots[:-1]) < missing
    assert not any(known[name].holds or known[name].barred for name in fetched)


def test_services_take_turns() -> None:
    wanted = [["a1", "a2", "a3"], [], ["c1"]]
    assert in_turns(wanted, 3) == ["a1", "c1", "a2"]
    assert in_turns(wanted, 0) == []


@pytest.mark.parametrize(
    ("allocatable", "held", "expected"), [(None, 10**15, True), (100, 0, True), (100, 60, True), (100, 61, False)]
)
def test_weights_leave_the_kubelet_some_disk(allocatable: int | None, held: int, expected: bool) -> None:
    assert has_disk(allocatable, held, 20) is expected


@pytest.mark.parametrize(
    ("found", "problem", "reason"),
    [
        (node("a", holds=True), "", "Sufficient"),
        (node("a", holds=True), "disk broke", "Sufficient"),
        (node("a"), "", "Fetching"),
        (node("a", fetching=True), "disk broke", "Fetching"),
        (node("a", barred=True), "disk broke", "FetchFailed"),
        (node("a", barred=True), "", "NoCacheRoom"),
        (node("a", 0), "", "NoCacheRoom"),
    ],
)
def test_the_condition_says_whether_what_comes_finds_its_weights(found: CacheNode, problem: str, reason: str) -> None:
    told = verdict([place("od", found)], {"od": 2}, problem)
    assert (told.status, told.reason) == (reason == "Sufficient", reason)
    assert told.message
