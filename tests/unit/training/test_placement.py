"""Where gangs go, by behaviour. Numbers in brackets are rows of the regression list in the research on training."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from berth.fleet.fleet import Fleet
from berth.fleet.records import Fabric, NodeFacts, PoolSpec
from berth.training.placement import place, usable_rows
from berth.training.records import GangRequest, Placement, Refusal
from berth.values import Requirement, Taint, Toleration
from tests.builders.fleet import (
    GIB,
    GPU,
    LEVELS,
    RACK,
    TREE,
    make_claim,
    make_fleet,
    make_node,
    make_pool,
    make_tree,
    some_levels,
)


def gang(workers: int, devices: int = 8, **wishes: Any) -> GangRequest:
    return GangRequest(workers=workers, accelerators_per_worker=devices, **wishes)


def expect_placed(fleet: Fleet, request: GangRequest, **options: Any) -> Placement:
    """Placed, proven, whole, and in what is free."""
    placement = place(fleet, request, **options)
    assert isinstance(placement, Placement), placement
    assert placement.certificate == "Optimal"
    assert len(placement.nodes) == request.workers
    pool = fleet.pools[placement.pool]
    for node, workers in Counter(placement.nodes).items():
        assert workers * request.accelerators_per_worker <= pool.free_devices[pool.row[node]]
    return placement


def expect_refused(fleet: Fleet, request: GangRequest, reason: str, **options: Any) -> Refusal:
    refusal = place(fleet, request, **options)
    assert isinstance(refusal, Refusal), refusal
    assert (refusal.reason, refusal.proven) == (reason, True)
    return refusal


def racks(fleet: Fleet, placement: Placement) -> dict[str, int]:
    """Workers by rack."""
    return dict(Counter(fleet.nodes[node].labels[RACK] for node in placement.nodes))


THREE_RACKS = make_tree({"b": {"r1": 19, "r2": 10, "r3": 10}})


def test_the_two_racks_that_hold_the_gang_exactly_are_taken_and_the_large_one_is_left() -> None:
    fleet = make_fleet(THREE_RACKS)
    placement = expect_placed(fleet, gang(20, preferred_level="rack"))
    assert racks(fleet, placement) == {"r2": 10, "r3": 10}
    assert placement.domains == {"zone": 1, "block": 1, "rack": 2, "host": 20}
    assert placement.lower_bound == {"rack": 2, "host": 20}
    assert placement.leftover == 0


@pytest.mark.parametrize(
    ("workers", "devices", "taken", "leftover"),
    [
        (10, 8, {"r2": 10}, 0),
        (11, 8, {"r1": 11}, 8),
        (19, 8, {"r1": 19}, 0),
        (21, 8, {"r1": 19, "r2": 2}, 8),
        (39, 8, {"r1": 19, "r2": 10, "r3": 10}, 0),
        (80, 1, {"r2": 80}, 0),
        (81, 1, {"r1": 81}, 71),
        (38, 4, {"r1": 38}, 0),
    ],
)
def test_fewest_racks_then_least_left_behind(workers: int, devices: int, taken: dict[str, int], leftover: int) -> None:
    fleet = make_fleet(THREE_RACKS)
    placement = expect_placed(fleet, gang(workers, devices, preferred_level="rack"))
    assert (racks(fleet, placement), placement.leftover) == (taken, leftover)


def test_required_and_preferred_level_hold_together() -> None:
    fleet = make_fleet(make_tree({"b1": {"r1": 4, "r2": 4}, "b2": {"r3": 8, "r4": 1}}))
    assert racks(fleet, expect_placed(fleet, gang(8, preferred_level="rack"))) == {"r3": 8}
    fleet.claim([make_claim("k", "p-b2-r3-0000")])
    within = expect_placed(fleet, gang(8, required_level="block", preferred_level="rack"))
    assert within.domains["block"] == 1
    expect_refused(fleet, gang(9, required_level="block"), "NoCapacity")
    assert expect_placed(fleet, gang(9, preferred_level="block")).domains["block"] == 2


def test_a_gang_never_crosses_a_site() -> None:
    nodes = [make_node(f"{zone}-{i}", zone=zone, block="b", rack="r") for zone in ("z1", "z2") for i in range(4)]
    fleet = make_fleet(nodes)
    assert expect_placed(fleet, gang(4)).domains["zone"] == 1
    expect_refused(fleet, gang(5), "TooLarge")


def test_fewer_hosts_below_the_fewest_racks() -> None:
    fleet = make_fleet(make_tree({"b": {"r1": 4, "r2": 4}}))
    fleet.claim(make_claim(f"k{i}", f"p-b-r1-{i:04d}", 4) for i in range(4))
    placement = expect_placed(fleet, gang(16, 1, preferred_level="rack"))
    assert placement.domains == {"zone": 1, "block": 1, "rack": 1, "host": 2}
    assert racks(fleet, placement) == {"r2": 16}


def test_without_a_preferred_level_the_outermost_one_counts_first() -> None:
    fleet = make_fleet(make_tree({"b1": {"r1": 6}, "b2": {"r2": 3, "r3": 3, "r4": 2}}))
    assert expect_placed(fleet, gang(6)).lower_bound == {"block": 1, "rack": 1, "host": 6}
    assert expect_placed(fleet, gang(8)).domains["block"] == 1


def test_a_worker_of_a_part_takes_the_host_with_least_left() -> None:
    fleet = make_fleet(make_tree({"b": {"r1": 3}}))
    fleet.claim([make_claim("a", "p-b-r1-0000", 4), make_claim("b", "p-b-r1-0001", 6)])
    assert expect_placed(fleet, gang(1, 2)).nodes == ("p-b-r1-0001",)
    assert expect_placed(fleet, gang(1, 4)).nodes == ("p-b-r1-0000",)


def slices_of(placement: Placement, size: int) -> list[tuple[str, ...]]:
    return [placement.nodes[at : at + size] for at in range(0, len(placement.nodes), size)]


def test_a_slice_never_leaves_its_nvlink_domain_and_its_ranks_are_consecutive() -> None:
    sizes = {"c1": 5, "c2": 8, "c3": 3}
    nodes = [
        make_node(f"{clique}-{i}", block="b", rack="r", clique=clique, devices=4)
        for clique, hosts in sizes.items()
        for i in range(hosts)
    ]
    fleet = make_fleet(nodes, pools=[make_pool(levels=LEVELS)])
    placement = expect_placed(fleet, gang(12, 4, slice_workers=4))
    for part in slices_of(placement, 4):
        assert len({node.split("-")[0] for node in part}) == 1, placement.nodes
    refusal = expect_refused(fleet, gang(15, 4, slice_workers=5, preferred_level="nvlink"), "TooLarge")
    assert "NVLink groups of 5" in refusal.message


def test_without_an_nvlink_level_a_slice_stays_on_one_host() -> None:
    fleet = make_fleet(make_tree({"b": {"r1": 3}}))
    fleet.claim([make_claim("a", "p-b-r1-0000", 2)])
    placement = expect_placed(fleet, gang(8, 2, slice_workers=4))
    assert set(placement.nodes) == {"p-b-r1-0001", "p-b-r1-0002"}
    expect_refused(fleet, gang(12, 2, slice_workers=4), "NoCapacity")


def test_ranks_go_host_by_host_and_rack_by_rack() -> None:
    fleet = make_fleet(make_tree({"b1": {"r10": 2, "r9": 2}, "b2": {"r1": 3}}))
    placement = expect_placed(fleet, gang(14, 4))
    for level in (RACK, "topology.berth.dev/block", "kubernetes.io/hostname"):
        domains = [fleet.nodes[node].labels[level] for node in placement.nodes]
        changes = sum(before != after for before, after in pairwise(domains))
        assert changes == len(set(domains)) - 1, domains
    assert placement.nodes[0] == "p-b1-r9-0000"


UNUSABLE: dict[str, dict[str, Any]] = {
    "cordoned": {"unschedulable": True},
    "not ready": {"ready": False},
    "tainted (12)": {"taints": [Taint("example.com/broken")]},
    "time-sliced (42)": {"labels": {"nvidia.com/gpu.product": "NVIDIA-H100-SHARED", "nvidia.com/gpu.replicas": "4"}},
    "too little CPU": {"cpu": 4},
    "too little memory": {"memory": 16},
    "no pods left": {"pods": 0},
    "too few devices": {"devices": 4},
}


@pytest.mark.parametrize("kind", UNUSABLE)
def test_nodes_that_cannot_take_a_worker_are_left_alone(kind: str) -> None:
    bad = [make_node(f"a{i}", block="b", rack="r", **UNUSABLE[kind]) for i in range(2)]
    good = [make_node(f"z{i}", block="b", rack="r") for i in range(2)]
    fleet = make_fleet([*bad, *good])
    request = gang(2, per_worker={"cpu": 8000, "memory": 64 * GIB})
    assert set(expect_placed(fleet, request).nodes) == {"z0", "z1"}
    assert isinstance(place(fleet, replace(request, workers=3)), Refusal)


def test_room_that_is_claimed_is_gone_whether_its_pod_exists_or_not() -> None:
    """Nothing is sold twice (15), moves that are only decided count (10), what is terminating counts until gone (7)."""
    fleet = make_fleet(make_tree({"b": {"r1": 2}}))
    first = expect_placed(fleet, gang(1))
    fleet.claim([make_claim("job/1/0", first.nodes[0])])
    second = expect_placed(fleet, gang(1))
    assert second.nodes != first.nodes
    fleet.claim([make_claim("pod-of-somebody", second.nodes[0], 1, role=None)])
    expect_refused(fleet, gang(1), "NoCapacity")


def test_other_resources_of_a_worker_are_counted() -> None:
    nodes = [make_node(f"n{i}", block="b", rack="r", allocatable={"rdma/hca": i}) for i in range(3)]
    fleet = make_fleet(nodes)
    assert expect_placed(fleet, gang(1, 1, per_worker={"rdma/hca": 2})).nodes == ("n2",)
    assert set(expect_placed(fleet, gang(2, 1, per_worker={"rdma/hca": 1})).nodes) <= {"n1", "n2"}


def test_tolerations_and_node_terms_open_and_close_nodes() -> None:
    fleet = make_fleet(
        [
            make_node("plain", block="b", rack="r"),
            make_node("tainted", block="b", rack="r", taints=[Taint("team", "a")]),
            make_node("labelled", block="b", rack="r", labels={"disk": "fast"}),
        ]
    )
    tolerant = gang(1, tolerations=(Toleration("team", "Equal", "a"),))
    assert len(expect_placed(fleet, replace(tolerant, workers=3)).nodes) == 3
    fast = gang(1, node_terms=((Requirement("disk", "In", ("fast",)),), (Requirement("disk", "In", ("slow",)),)))
    assert expect_placed(fleet, fast).nodes == ("labelled",)


def test_a_node_of_the_other_role_is_left_to_it() -> None:
    fleet = make_fleet(make_tree({"b": {"r1": 2}}), pools=[make_pool(roles=("Training", "Inference"))])
    fleet.claim([make_claim("service", "p-b-r1-0000", 1, role="Inference")])
    assert set(expect_placed(fleet, gang(2, 4)).nodes) == {"p-b-r1-0001"}
    expect_refused(fleet, gang(3, 4), "NoCapacity")


def test_excluded_nodes_are_not_used_and_penalised_ones_last_among_equals() -> None:
    """A replacement does not go back to the node that failed (11)."""
    fleet = make_fleet(make_tree({"b": {"r1": 3, "r2": 3}}))
    broken = frozenset({"p-b-r1-0000"})
    assert broken.isdisjoint(expect_placed(fleet, gang(5, excluded_nodes=broken)).nodes)
    assert set(expect_placed(fleet, gang(3, penalised_nodes=broken)).nodes) == {f"p-b-r2-{i:04d}" for i in range(3)}
    assert broken <= set(expect_placed(fleet, gang(6, penalised_nodes=broken)).nodes)
    expect_refused(fleet, gang(6, excluded_nodes=broken), "TooLarge")


def test_fewer_domains_come_before_health() -> None:
    fleet = make_fleet(make_tree({"b": {"r1": 3, "r2": 2, "r3": 2}}))
    suspects = frozenset({"p-b-r1-0000", "p-b-r1-0001"})
    request = gang(3, preferred_level="rack", penalised_nodes=suspects)
    assert racks(fleet, expect_placed(fleet, request)) == {"r1": 3}


def test_rows_held_for_another_gang_are_barred() -> None:
    fleet = make_fleet(make_tree({"b": {"r1": 2, "r2": 2}}))
    held = {"p": np.array([node.startswith("p-b-r1") for node in fleet.pools["p"].names])}
    assert set(expect_placed(fleet, gang(2), held=held).nodes) == {"p-b-r2-0000", "p-b-r2-0001"}
    expect_refused(fleet, gang(3), "NoCapacity", held=held)


def two_pools(**of_second: Any) -> tuple[list[NodeFacts], list[PoolSpec]]:
    nodes = make_tree({"b": {"r1": 2}}) + make_tree({"b": {"r1": 2}}, pool="q")
    return nodes, [make_pool("p"), make_pool("q", **of_second)]


@pytest.mark.parametrize(
    ("types", "pool"), [(("H100", "H200"), "p"), (("H200", "H100"), "q"), (("H200",), "q"), (("H100",), "p")]
)
def test_the_accelerator_that_is_preferred_comes_first(types: tuple[str, ...], pool: str) -> None:
    nodes, pools = two_pools(accelerator="H200")
    assert expect_placed(make_fleet(nodes, pools=pools), gang(2, types=types)).pool == pool


def test_the_next_accelerator_is_taken_when_the_preferred_one_has_no_room() -> None:
    nodes, pools = two_pools(accelerator="H200")
    fleet = make_fleet(nodes, pools=pools, claims=[make_claim("k", "p-b-r1-0000")])
    assert expect_placed(fleet, gang(2, types=("H100", "H200"))).pool == "q"


def test_among_equal_pools_fewer_domains_then_less_left_then_the_cheaper_then_the_name() -> None:
    nodes, pools = two_pools(usd="1.5")
    assert expect_placed(make_fleet(nodes, pools=pools), gang(2)).pool == "q"
    assert expect_placed(make_fleet(nodes, pools=[make_pool("p"), make_pool("q")]), gang(2)).pool == "p"
    more_left = [*nodes, make_node("q-extra", pool="q", block="b", rack="r1")]
    assert expect_placed(make_fleet(more_left, pools=pools), gang(2)).pool == "p"
    split = [replace(node, labels={**node.labels, RACK: node.name}) if node.name[0] == "q" else node for node in nodes]
    assert expect_placed(make_fleet(split, pools=pools), gang(2, preferred_level="rack")).pool == "p"


def test_a_pool_without_the_preferred_level_comes_after_those_that_have_it() -> None:
    nodes, _ = two_pools()
    pools = [make_pool("p", levels=some_levels("zone"), usd="1"), make_pool("q", usd="9")]
    assert expect_placed(make_fleet(nodes, pools=pools), gang(2, preferred_level="rack")).pool == "q"


INFINIBAND = Fabric("InfiniBand", 400, 8)


@pytest.mark.parametrize(
    ("wish", "met"),
    [
        ({"fabric_kinds": ("InfiniBand",)}, True),
        ({"fabric_kinds": ("Ethernet", "InfiniBand")}, True),
        ({"fabric_kinds": ("RoCE",)}, False),
        ({"min_gbps": 400}, True),
        ({"min_gbps": 401}, False),
        ({"min_rails": 8}, True),
        ({"min_rails": 9}, False),
        ({"fabric_kinds": ("InfiniBand",), "min_gbps": 400, "min_rails": 8}, True),
    ],
)
def test_fabric(wish: dict[str, Any], met: bool) -> None:
    nodes, _ = two_pools()
    fleet = make_fleet(nodes, pools=[make_pool("p"), make_pool("q", fabric=INFINIBAND)])
    if met:
        assert expect_placed(fleet, gang(2, **wish)).pool == "q"
    else:
        expect_refused(fleet, gang(2, **wish), "FabricUnsatisfied")


@pytest.mark.parametrize(
    ("workers", "memory", "fits"),
    [(2, 1_280_000_000_000, True), (2, 1_280_000_000_001, False), (1, 840 * 10**9, False)],
)
def test_the_gang_holds_its_model(workers: int, memory: int, fits: bool) -> None:
    fleet = make_fleet(make_tree({"b": {"r1": 4}}))
    request = gang(workers, memory_bytes=memory)
    if fits:
        expect_placed(fleet, request)
    else:
        assert "spec.model needs" in expect_refused(fleet, request, "MemoryUnsatisfied").message


def test_only_pools_for_training_take_gangs() -> None:
    fleet = make_fleet(make_tree({"b": {"r1": 2}}), pools=[make_pool(roles=("Inference",))])
    expect_refused(fleet, gang(1), "NoPool")


@pytest.mark.parametrize("wish", ["required_level", "preferred_level"])
def test_a_level_that_no_pool_has_is_refused_with_those_there_are(wish: str) -> None:
    """A constraint is never dropped in silence (31)."""
    refusal = expect_refused(make_fleet(THREE_RACKS), gang(1, **{wish: "superpod"}), "UnknownLevel")
    assert "'superpod'" in refusal.message
    assert "zone, block, rack, host" in refusal.message


def test_a_pool_without_the_required_level_is_no_candidate() -> None:
    nodes, _ = two_pools()
    pools = [make_pool("p", levels=some_levels("zone")), make_pool("q")]
    assert expect_placed(make_fleet(nodes, pools=pools), gang(2, required_level="rack")).pool == "q"


def test_several_nodes_with_one_host_label_are_one_host() -> None:
    nodes = [make_node(f"n{i}", block="b", rack="r", host="chassis") for i in range(2)]
    placement = expect_placed(make_fleet(nodes), gang(3, 4))
    assert placement.domains["host"] == 1
    assert Counter(placement.nodes) == {"n0": 2, "n1": 1}


def test_nodes_without_a_level_are_near_nobody_there() -> None:
    nodes = [make_node(f"n{i}", block="b", rack="r" if i < 2 else None) for i in range(4)]
    assert expect_placed(make_fleet(nodes), gang(4, preferred_level="rack")).domains["rack"] == 3


@pytest.mark.parametrize("seed", range(12))
def test_the_order_in_which_nodes_were_seen_does_not_matter(seed: int) -> None:
    rng = random.Random(seed)
    shape = {f"b{b}": {f"r{b}{r}": rng.randint(1, 6) for r in range(rng.randint(1, 5))} for b in range(3)}
    nodes = make_tree(shape)
    claims = [make_claim(f"k{node.name}", node.name, rng.randint(1, 8)) for node in nodes if rng.random() < 0.5]
    suspects = frozenset(node.name for node in nodes if rng.random() < 0.1)
    requests = [
        gang(workers, devices, preferred_level=level, slice_workers=size, penalised_nodes=suspects)
        for workers, devices in ((2, 8), (6, 4), (12, 2), (20, 1))
        for level in (None, "rack", "host")
        for size in (1, 2)
    ]
    answers = []
    for _ in range(3):
        rng.shuffle(nodes)
        fleet = make_fleet(nodes, claims=claims, pools=[make_pool(levels=TREE)])
        gone = make_node("gone", block="b0", rack="r00")
        fleet.set_node(gone)
        fleet.remove_node(gone.name)
        answers.append([place(fleet, request) for request in requests])
    assert answers[0] == answers[1] == answers[2]


def test_rows_that_a_gang_could_use_if_they_were_empty() -> None:
    nodes = [*make_tree({"b1": {"r1": 3}, "b2": {"r2": 1}}), make_node("cordoned", block="b1", unschedulable=True)]
    fleet = make_fleet(nodes, claims=[make_claim("k", "p-b1-r1-0000", role="Inference")])
    rows = usable_rows(fleet, gang(2, required_level="block"))
    assert {fleet.pools["p"].names[row] for row in np.flatnonzero(rows["p"])} == {f"p-b1-r1-{i:04d}" for i in range(3)}
    assert usable_rows(fleet, gang(4, required_level="block")) == {}
    assert usable_rows(fleet, gang(1, types=("MI300X",))) == {}


def test_devices_are_counted_by_the_resource_of_the_pool() -> None:
    nodes = [make_node(f"n{i}", block="b", rack="r", resource="amd.com/gpu") for i in range(2)]
    fleet = make_fleet(nodes, pools=[make_pool(accelerator="MI300X")])
    assert len(expect_placed(fleet, gang(2, types=("MI300X",))).nodes) == 2
    fleet.claim([make_claim("k", "n0", 8, resource="amd.com/gpu")])
    expect_refused(fleet, gang(2), "NoCapacity")
    assert GPU not in fleet.nodes["n0"].allocatable
