"""What a node counts for: capacity, usability, taints, labels."""

from __future__ import annotations

import numpy as np
import pytest

from berth.fleet.pool import Unusable
from berth.values import Requirement, Taint, selects
from tests.builders.fleet import GIB, GPU, ZONE, make_claim, make_fleet, make_node, make_pool

DRAIN = Taint("example.com/drain", "", "NoSchedule")


def the_row(fleet, node="n"):
    pool = fleet.pool_of(node)
    return pool, pool.row[node]


def expect_reason(node, reason, *, others=()):
    pool, row = the_row(make_fleet([*others, node]))
    assert pool.why_unusable(row) is reason
    assert bool(pool.usable[row]) is (reason is Unusable.No)


def test_allocatable_is_room():
    pool, row = the_row(make_fleet([make_node("n", devices=8, cpu=96, memory=512, pods=30)]))
    assert (pool.total_devices[row], pool.free_devices[row], pool.free_cpu[row]) == (8, 8, 96_000)
    assert (pool.free_memory[row], pool.free_pods[row]) == (512 * GIB, 30)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({}, Unusable.No),
        ({"ready": False}, Unusable.NotReady),
        ({"unschedulable": True}, Unusable.Unschedulable),
        ({"devices": 0}, Unusable.NoDevices),
        ({"resource": "amd.com/gpu"}, Unusable.NoDevices),
        ({"labels": {"nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.replicas": "4"}},
         Unusable.SharedDevices),
        ({"labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-SHARED"}}, Unusable.SharedDevices),
        ({"ready": False, "unschedulable": True, "devices": 0}, Unusable.NotReady),
        ({"taints": [DRAIN]}, Unusable.No),
    ],
)  # fmt: skip
def test_why_a_node_is_left_out_of_gangs(facts, reason):
    expect_reason(make_node("n", **facts), reason)


def test_a_node_of_an_unknown_accelerator_is_left_out():
    pool, row = the_row(make_fleet([make_node("n")], pools=[make_pool(accelerator="H9000")]))
    assert pool.why_unusable(row) is Unusable.UnknownAccelerator


def test_a_node_that_comes_back_is_usable_with_what_is_held_on_it():
    fleet = make_fleet([make_node("n", ready=False)], claims=[make_claim("k", "n", 3)])
    fleet.set_node(make_node("n"))
    pool, row = the_row(fleet)
    assert pool.usable[row]
    assert pool.free_devices[row] == 5


@pytest.mark.parametrize(
    ("taints", "kept"),
    [
        ([], ()),
        ([Taint("a", "", "PreferNoSchedule")], ()),
        ([Taint(GPU, "present", "NoSchedule")], ()),
        ([Taint(GPU, "present", "NoExecute")], (Taint(GPU, "present", "NoExecute"),)),
        ([Taint("b"), Taint("a"), Taint("b")], (Taint("a"), Taint("b"))),
    ],
)
def test_which_taints_forbid(taints, kept):
    pool, row = the_row(make_fleet([make_node("n", taints=taints)]))
    assert pool.taint_classes[pool.taint_class[row]] == kept


def test_the_same_taints_are_one_class_and_a_class_out_of_use_is_used_again():
    fleet = make_fleet([make_node(f"n{i}", taints=[Taint("a"), Taint("b")]) for i in range(3)])
    pool = fleet.pools["p"]
    assert set(pool.taint_class.tolist()) == {1}
    for value in range(20):
        fleet.set_node(make_node("n0", taints=[Taint("since", str(value))]))
    assert len(pool.taint_classes) == 4
    assert fleet.check() == []
    assert pool.taint_classes[pool.taint_class[pool.row["n0"]]] == (Taint("since", "19"),)


def test_saying_the_same_again_changes_nothing():
    fleet = make_fleet([make_node("n")])
    pool, version, at = fleet.pools["p"], fleet.version, fleet.pools["p"].version
    assert fleet.set_node(make_node("n")) is False
    assert (fleet.version, pool.version) == (version, at)


def test_a_removed_node_leaves_a_hole_that_the_next_one_fills():
    fleet = make_fleet([make_node("a"), make_node("b")])
    pool = fleet.pools["p"]
    assert fleet.remove_node("a") is True
    assert fleet.remove_node("a") is False
    assert (pool.names, pool.nodes, pool.usable.tolist()) == (["", "b"], 1, [False, True])
    assert [int(domains[0]) for domains in pool.domain] == [-1] * len(pool.levels)
    fleet.set_node(make_node("c"))
    assert pool.names == ["c", "b"]
    assert fleet.check() == []


def test_nodes_keep_every_label_they_came_with():
    labels = {f"example.com/{i}": str(i) for i in range(60)}
    fleet = make_fleet([make_node(f"n{i}", labels={**labels, "own": str(i)}) for i in range(3)])
    assert fleet.nodes["n2"].labels == make_node("n2", labels={**labels, "own": "2"}).labels
    assert fleet.pools["p"].labels[2].get("own") == "2"


TERMS = [
    (),
    ((Requirement("own", "In", ("1", "3")),),),
    ((Requirement("own", "NotIn", ("1",)), Requirement(ZONE, "Exists")),),
    ((Requirement("absent", "DoesNotExist"),),),
    ((Requirement("own", "Gt", ("1",)),), (Requirement("own", "In", ("0",)),)),
    ((),),
]


@pytest.mark.parametrize("terms", TERMS)
def test_matching_rows_are_those_that_their_labels_select(terms):
    fleet = make_fleet([make_node(f"n{i}", labels={"own": str(i)}) for i in range(4)])
    pool = fleet.pools["p"]
    pool.matching(terms)
    fleet.set_node(make_node("n1", labels={"own": "7"}))
    fleet.remove_node("n2")
    fleet.set_node(make_node("n4"))
    wanted = [
        bool(name) and (not terms or any(selects(term, labels) for term in terms))
        for name, labels in zip(pool.names, pool.labels, strict=True)
    ]
    assert pool.matching(terms).tolist() == wanted


def test_columns_of_labels_do_not_grow_with_values_that_came_and_went():
    fleet = make_fleet([make_node("n")])
    pool = fleet.pools["p"]
    for number in range(500):
        fleet.set_node(make_node("n", labels={"own": str(number)}))
        assert pool.matching(((Requirement("own", "In", (str(number),)),),)).all()
    assert all(len(column._values) < 100 for column in pool._selection._columns.values())


def test_free_amounts_of_any_resource_follow_nodes_and_claims():
    fleet = make_fleet(
        [make_node("n", allocatable={"rdma/ib": 8})], claims=[make_claim("k", "n", amounts={"rdma/ib": 2})]
    )
    pool = fleet.pools["p"]
    assert pool.free_of("rdma/ib").tolist() == [6]
    fleet.claim([make_claim("l", "n", 0, amounts={"rdma/ib": 5})])
    fleet.set_node(make_node("m", allocatable={"rdma/ib": 4}))
    for number in range(20):
        fleet.set_node(make_node(f"more-{number}"))
    assert pool.free_of("rdma/ib")[:3].tolist() == [1, 4, 0]
    fleet.set_node(make_node("n", allocatable={"rdma/ib": 7}))
    fleet.remove_node("m")
    assert pool.free_of("rdma/ib")[:3].tolist() == [0, 0, 0]
    assert pool.free_of("cpu").tolist() == pool.free_cpu.tolist()
    assert np.array_equal(pool.free_of(GPU), pool.free_devices)


def test_absurd_amounts_do_not_overflow():
    huge = {"cpu": 10**30, "memory": 10**30, GPU: 10**30}
    fleet = make_fleet([make_node("n")], claims=[make_claim(f"k{i}", "n", amounts=huge) for i in range(50)])
    pool, row = the_row(fleet)
    assert pool.free_devices[row] < 0 > pool.free_memory[row]
    fleet.release([f"k{i}" for i in range(50)])
    assert (pool.free_devices[row], pool.free_cpu[row], pool.free_memory[row]) == (8, 192_000, 2048 * GIB)
    fleet.set_node(make_node("n", allocatable=huge))
    assert fleet.check() == []
