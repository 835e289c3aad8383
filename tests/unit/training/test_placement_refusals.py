"""Refusals are proofs, and what they say would help does help."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import combinations

import pytest

from berth.fleet.fleet import Fleet
from berth.fleet.records import NodeFacts
from berth.training.explain import RunningGang, explain
from berth.training.placement import place
from berth.training.records import Change, ChangeKind, GangRequest, Placement, Refusal
from tests.builders.fleet import (
    BLOCK,
    CLIQUE,
    HOST,
    LEVELS,
    RACK,
    TREE,
    ZONE,
    make_claim,
    make_fleet,
    make_node,
    make_pool,
    make_tree,
)


def gang(workers: int, devices: int = 8, required: str | None = None, slice_workers: int = 1) -> GangRequest:
    return GangRequest(workers, devices, required_level=required, slice_workers=slice_workers)


def expect_explained(fleet: Fleet, request: GangRequest, running: list[RunningGang] | None = None) -> Refusal:
    refusal = place(fleet, request)
    assert isinstance(refusal, Refusal), refusal
    explained = explain(fleet, request, refusal, running or [])
    assert (explained.reason, explained.proven) == (refusal.reason, refusal.proven)
    assert explained.message.startswith(refusal.message)
    return explained


def change(refusal: Refusal, kind: ChangeKind) -> Change | None:
    return next((each for each in refusal.changes if each.kind == kind), None)


BUSY = [make_claim(f"a{i}", f"p-b1-r1-{i:04d}") for i in range(4)]
RUNNING = [RunningGang("ns/a", tuple(f"a{i}" for i in range(4)))]


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (
            gang(5, required="block"),
            "Waiting for capacity: 5 workers of 8 devices need 5 free nodes in one block of p; the best block, b2, has"
            " 3. It would fit with 2 more free nodes in block b2 of p, with topology.required loosened to zone, with 3"
            " workers, or after ns/a ends",
        ),
        (
            gang(6),
            "Waiting for capacity: 6 workers of 8 devices need 6 free nodes in one zone of p; the best zone, z1, has 5"
            ". It would fit with 1 more free node in zone z1 of p, with 5 workers, or after ns/a ends",
        ),
        (
            gang(14, 4, required="block"),
            "14 workers of 4 devices would not fit in one block of p even if it were empty; the largest, block b1 of p,"
            " would hold 12. It would fit with 4 more free nodes in block b2 of p, or with 6 workers",
        ),
        (
            gang(40),
            "40 workers of 8 devices would not fit in one zone of p even if it were empty; the largest, zone z1 of p,"
            " would hold 9. It would fit with 35 more free nodes in zone z1 of p, or with 5 workers",
        ),
        (
            gang(20, 1, required="rack", slice_workers=4),
            "Waiting for capacity: 20 workers of 1 device in NVLink groups of 4 need room for 20 in one rack of p; the"
            " best rack, r1, has room for 16. It would fit with 1 more free node in rack r1 of p, with"
            " topology.required loosened to block, with 16 workers, or after ns/a ends",
        ),
    ],
)
def test_one_sentence_says_what_is_missing_and_what_would_help(request_: GangRequest, message: str) -> None:
    fleet = make_fleet(make_tree({"b1": {"r1": 6}, "b2": {"r2": 2, "r3": 1}}), claims=BUSY)
    if request_.slice_workers > 1:
        fleet = make_fleet(make_tree({"b1": {"r1": 6, "r0": 1}, "b2": {"r2": 2, "r3": 1}}), claims=BUSY)
    assert expect_explained(fleet, request_, RUNNING).message == message


def test_the_fewest_gangs_that_have_to_end_are_named() -> None:
    fleet = make_fleet(make_tree({"b1": {"r1": 8}}))
    sizes = {"small": 1, "middle": 2, "large": 3}
    running, node = [], 0
    for name, size in sizes.items():
        keys = tuple(f"{name}/{i}" for i in range(size))
        fleet.claim(make_claim(key, f"p-b1-r1-{node + at:04d}") for at, key in enumerate(keys))
        running.append(RunningGang(f"ns/{name}", keys))
        node += size
    expected = {
        3: ("ns/small",),
        4: ("ns/middle",),
        5: ("ns/large",),
        6: ("ns/large", "ns/small"),
        7: ("ns/large", "ns/middle"),
        8: ("ns/large", "ns/middle", "ns/small"),
    }
    for workers, jobs in expected.items():
        named = change(expect_explained(fleet, gang(workers), running), "AfterJobs")
        assert named == Change("AfterJobs", len(jobs), pool="p", jobs=jobs)


def test_among_equals_the_least_important_and_youngest_gang_is_named() -> None:
    fleet = make_fleet(make_tree({"b1": {"r1": 3}}))
    fleet.claim(make_claim(name, f"p-b1-r1-{at:04d}") for at, name in enumerate(("old", "young", "high")))
    running = [
        RunningGang("ns/old", ("old",), priority=0, started=1.0),
        RunningGang("ns/young", ("young",), priority=0, started=2.0),
        RunningGang("ns/high", ("high",), priority=9, started=3.0),
    ]
    ending = change(expect_explained(fleet, gang(1), running), "AfterJobs")
    assert ending is not None
    assert ending.jobs == ("ns/young",)


def test_gangs_that_share_nodes_are_ended_together() -> None:
    fleet = make_fleet(make_tree({"b1": {"r1": 1}}))
    fleet.claim(make_claim(name, "p-b1-r1-0000", 4) for name in ("a", "b"))
    explained = expect_explained(fleet, gang(1), [RunningGang("ns/a", ("a",)), RunningGang("ns/b", ("b",))])
    ending = change(explained, "AfterJobs")
    assert ending is not None
    assert ending.jobs == ("ns/a", "ns/b")


def test_fewer_workers_are_offered_only_where_they_hold_the_model() -> None:
    fleet = make_fleet(make_tree({"b1": {"r1": 4}}), claims=[make_claim("k", "p-b1-r1-0000")])
    request = replace(gang(4), memory_bytes=3 * 8 * 80 * 10**9)
    assert change(expect_explained(fleet, request), "FewerWorkers") == Change("FewerWorkers", 1, pool="p")
    assert (
        change(expect_explained(fleet, replace(request, memory_bytes=request.memory_bytes + 1)), "FewerWorkers") is None
    )


@pytest.mark.parametrize("reason", ["NoPool", "FabricUnsatisfied", "UnknownLevel"])
def test_what_no_room_can_mend_is_left_as_it_is(reason: str) -> None:
    fleet = make_fleet(make_tree({"b1": {"r1": 1}}))
    request = {
        "NoPool": replace(gang(1), types=("H200",)),
        "FabricUnsatisfied": replace(gang(1), min_rails=4),
        "UnknownLevel": gang(1, required="superpod"),
    }[reason]
    refusal = place(fleet, request)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == reason
    assert explain(fleet, request, refusal, RUNNING) == refusal


def random_fleet(rng: random.Random, *, cliques: bool) -> tuple[Fleet, list[RunningGang]]:
    """A small fleet, partly used by gangs of which some share nodes."""
    nodes = [
        make_node(
            f"n{number}",
            zone=f"z{rng.randrange(2)}",
            block=f"b{rng.randrange(2)}",
            rack=f"r{rng.randrange(2)}",
            clique=f"c{rng.randrange(2)}" if cliques else None,
            devices=4,
        )
        for number in range(rng.randint(2, 10))
    ]
    fleet = make_fleet(nodes, pools=[make_pool(levels=LEVELS if cliques else TREE)])
    pool, running = fleet.pools["p"], []
    for number in range(rng.randint(0, 4)):
        keys = tuple(f"{number}/{rank}" for rank in range(rng.randint(1, 3)))
        devices = rng.choice((1, 2, 4))
        held = []
        for key in keys:
            free = [node.name for node in nodes if pool.free_devices[pool.row[node.name]] >= devices]
            if free:
                fleet.claim([make_claim(key, rng.choice(free), devices)])
                held.append(key)
        running.append(RunningGang(f"ns/g{number}", tuple(held)))
    return fleet, running


def fits(fleet: Fleet, request: GangRequest) -> bool:
    return isinstance(place(fleet, request), Placement)


def free_workers(fleet: Fleet, request: GangRequest) -> int:
    """The largest gang of any one domain, counted node by node."""
    pool = fleet.pools["p"]
    labels = {None: (ZONE,), "block": (ZONE, BLOCK), "rack": (ZONE, BLOCK, RACK)}[request.required_level]
    by_domain: Counter[tuple[str, ...]] = Counter()
    by_clique: Counter[tuple[str, ...]] = Counter()
    for name, facts in fleet.nodes.items():
        workers = int(pool.free_devices[pool.row[name]]) // request.accelerators_per_worker
        path = tuple(facts.labels[label] for label in (ZONE, BLOCK, RACK))
        if pool.nvlink_level is None:
            by_clique[(*path, name)] += workers
        else:
            by_clique[(*path, facts.labels[CLIQUE])] += workers
    for path, workers in by_clique.items():
        by_domain[path[: len(labels)]] += workers // request.slice_workers * request.slice_workers
    return max(by_domain.values())


@pytest.mark.parametrize("cliques", [False, True])
@pytest.mark.parametrize("size", [1, 2])
def test_refusals_are_proofs_and_every_change_they_name_is_enough_and_the_least(cliques: bool, size: int) -> None:
    rng = random.Random(f"{cliques} {size}")
    seen: Counter[str] = Counter()
    for _ in range(150):
        fleet, running = random_fleet(rng, cliques=cliques)
        request = gang(size * rng.randint(1, 10), rng.choice((1, 2, 4)), rng.choice((None, "block", "rack")), size)
        most = free_workers(fleet, request)
        assert fits(fleet, request) == (most >= request.workers)
        if most >= request.workers:
            continue
        explained = expect_explained(fleet, request, running)
        for each in explained.changes:
            seen[each.kind] += 1
            expect_enough_and_least(fleet, request, each, running)
            if each.kind == "AfterJobs" and "maybe fewer" not in explained.message:
                assert not ends_suffice(fleet, request, running, len(each.jobs) - 1)
    assert set(seen) == {"MoreNodes", "LooserLevel", "FewerWorkers", "AfterJobs"}


def expect_enough_and_least(fleet: Fleet, request: GangRequest, named: Change, running: list[RunningGang]) -> None:
    match named.kind:
        case "FewerWorkers":
            fewer = replace(request, workers=request.workers - named.amount)
            assert fits(fleet, fewer)
            assert not fits(fleet, replace(fewer, workers=fewer.workers + request.slice_workers))
        case "LooserLevel":
            assert fits(fleet, replace(request, required_level=named.level or None))
            between = {"rack": {"zone": "block"}}.get(request.required_level or "", {}).get(named.level)
            assert between is None or not fits(fleet, replace(request, required_level=between))
        case "AfterJobs":
            expect_jobs(fleet, request, named, running)
        case "MoreNodes":
            expect_nodes(fleet, request, named)


def expect_jobs(fleet: Fleet, request: GangRequest, named: Change, running: list[RunningGang]) -> None:
    among = [gang_ for gang_ in running if gang_.name in named.jobs]
    assert ends_suffice(fleet, request, among, len(named.jobs))
    assert not ends_suffice(fleet, request, among, len(named.jobs) - 1)


def ends_suffice(fleet: Fleet, request: GangRequest, running: list[RunningGang], count: int) -> bool:
    """Whether the gang fits after the end of some ``count`` of ``running``."""
    for ending in combinations(running, count):
        with fleet.trial():
            fleet.release(key for gang_ in ending for key in gang_.keys)
            if fits(fleet, request):
                return True
    return False


def expect_nodes(fleet: Fleet, request: GangRequest, named: Change) -> None:
    """As many new nodes as named, in one rack or NVLink domain of their own in the best place, are enough."""

    def enough(count: int) -> bool:
        for facts in list(fleet.nodes.values()):
            new = [_like(facts, f"new{number}") for number in range(count)]
            for node in new:
                fleet.set_node(node)
            fit = fits(fleet, request)
            for node in new:
                fleet.remove_node(node.name)
            if fit:
                return True
        return False

    assert enough(named.amount)
    assert named.amount == 1 or not enough(named.amount - 1)


def _like(facts: NodeFacts, name: str) -> NodeFacts:
    labels = {**facts.labels, CLIQUE: "new", HOST: name}
    return replace(facts, name=name, uid=name, labels=labels)
