"""What a pool's status can say."""

from __future__ import annotations

import pytest

from berth.values import Taint
from tests.builders.fleet import make_claim, make_fleet, make_node, make_pool, make_tree

SHARED = {"nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.replicas": "4"}


def report_of(nodes=(), claims=(), name="p", pools=None):
    return make_fleet(nodes, pools=pools, claims=claims).report(name)


def expect_verdict(verdict, met, reason, *words):
    assert (verdict.met, verdict.reason) == (met, reason)
    for word in words:
        assert word in verdict.message


def test_counts_of_nodes_and_accelerators():
    report = report_of(
        make_tree({"a": {"r": 4}}),
        [
            make_claim("t", "p-a-r-0000", 8, role="Training"),
            make_claim("i", "p-a-r-0001", 2, role="Inference"),
            make_claim("n", "p-a-r-0001", 1, role=None),
        ],
    )
    assert (report.nodes, report.usable_nodes, report.accelerators, report.free) == (4, 4, 32, 21)
    assert report.used_by == {"Training": 8, "Inference": 2}
    assert report.used_by_others == 1
    assert report.whole_nodes_free == 2


def test_free_leaves_out_what_no_gang_can_use_now():
    nodes = [
        make_node("a"), make_node("b", ready=False), make_node("c", unschedulable=True), make_node("d", devices=0),
        make_node("e", devices=32, labels=SHARED), make_node("f", taints=[Taint("dedicated", "x")]),
    ]  # fmt: skip
    report = report_of(nodes)
    assert (report.nodes, report.usable_nodes, report.accelerators, report.free) == (6, 2, 32, 16)
    assert report.unusable == {"NotReady": 1, "Unschedulable": 1, "SharedDevices": 1, "NoDevices": 1}
    assert report.tainted == 1


def test_largest_gang_counts_whole_free_nodes_in_one_domain():
    nodes = [*make_tree({"a": {"r1": 3, "r2": 2}, "b": {"r1": 4}}), make_node("lonely")]
    report = report_of(nodes, [make_claim("k", "p-b-r1-0000", 1), make_claim("l", "p-b-r1-0001", 1)])
    assert report.largest_gang == {"zone": 8, "block": 5, "rack": 3}
    assert report_of().largest_gang == {"zone": 0, "block": 0, "rack": 0}


@pytest.mark.parametrize(
    ("held", "share"),
    [
        ({}, 0.0),
        ({"a": 8}, 0.0),
        ({"a": 8, "b": 8}, 0.0),
        ({"a": 4, "b": 4}, 1.0),
        ({"a": 4}, 4 / 12),
        ({"a": 7}, 1 / 9),
    ],
)
def test_fragmentation_is_the_share_of_free_accelerators_on_nodes_in_use(held, share):
    report = report_of([make_node("a"), make_node("b")], [make_claim(n, n, devices) for n, devices in held.items()])
    assert report.fragmentation == pytest.approx(share)


def test_nodes_on_which_more_is_claimed_than_there_is_are_named():
    claims = [make_claim("k", "a", 8), make_claim("l", "a", 1), make_claim("m", "b", 0, cpu=500)]
    report = report_of([make_node(name) for name in "abc"], claims)
    assert report.oversold == ("a", "b")
    assert report.free == 16


def test_ready_when_nodes_match():
    expect_verdict(report_of([make_node("a")]).ready, True, "NodesMatched", "1 node")
    report = report_of([make_node("a"), make_node("b", ready=False)])
    expect_verdict(report.ready, True, "NodesMatched", "2 nodes", "1 NotReady")


def test_not_ready_without_nodes():
    expect_verdict(report_of().ready, False, "NoNodes")
    expect_verdict(report_of().topology, None, "NoNodes")


def test_not_ready_with_an_accelerator_that_nobody_knows():
    report = report_of([make_node("a")], pools=[make_pool(accelerator="H10O")])
    expect_verdict(report.ready, False, "UnknownAccelerator", "H10O", "did you mean H100?")
    assert (report.nodes, report.accelerators, report.free) == (1, 0, 0)


def test_pools_that_select_the_same_nodes_both_say_so():
    pools = [make_pool("new", selects="x", created=2), make_pool("old", selects="x", created=1), make_pool("p")]
    fleet = make_fleet([make_node("a", pool="x"), make_node("b", pool="x"), make_node("c")], pools=pools)
    expect_verdict(fleet.report("old").ready, False, "NodesShared", "Shares 2 nodes with new (a, b)", "2 of them")
    expect_verdict(fleet.report("new").ready, False, "NodesShared", "Shares 2 nodes with old (a, b)", "0 of them")
    expect_verdict(fleet.report("p").ready, True, "NodesMatched")
    assert (fleet.report("old").nodes, fleet.report("new").nodes) == (2, 0)


def test_both_roles_are_flagged():
    report = report_of([make_node("a")], pools=[make_pool(roles=("Training", "Inference"))])
    assert report.mixed_roles
    expect_verdict(report.ready, True, "NodesMatched", "both roles")
    assert not report_of([make_node("a")]).mixed_roles


def test_topology_is_complete_when_every_node_has_every_label():
    expect_verdict(report_of(make_tree({"a": {"r": 2}})).topology, True, "LabelsFound")


def test_topology_says_which_label_how_many_nodes_lack():
    nodes = [*make_tree({"a": {"r": 2}}), *(make_node(f"x{i}", block="a") for i in range(5)), make_node("y")]
    report = report_of(nodes)
    assert report.incomplete == {"block": 1, "rack": 6}
    expect_verdict(
        report.topology, False, "LabelsMissing",
        "6 of 8 nodes lack topology.berth.dev/rack (x0, x1, x2, …)", "1 of 8 nodes lack topology.berth.dev/block (y)",
    )  # fmt: skip


def test_topology_says_which_nodes_contradict_each_other():
    nodes = [make_node(name, block=name, rack="r", host="h") for name in "ab"]
    expect_verdict(report_of(nodes).topology, False, "HostInTwoDomains", "a, b")


def test_a_discovered_pool_is_reported_as_such():
    node = make_node("n", pool=None, labels={"nvidia.com/gpu.product": "NVIDIA-H200"})
    report = report_of([node], name="h200")
    assert report.discovered
    expect_verdict(report.ready, True, "NodesMatched")


def test_there_is_no_report_of_an_unknown_pool():
    with pytest.raises(KeyError):
        report_of(name="nobody")


def test_where_cpu_is_the_accelerator_cores_are_counted():
    claims = [make_claim("d", "a", 0, cpu=1, daemon=True), make_claim("i", "b", 0, cpu=16, role="Inference")]
    nodes = [make_node(name, devices=0, cpu=64) for name in "ab"]
    report = report_of(nodes, claims, pools=[make_pool(accelerator="CPU", roles=("Inference",))])
    assert (report.accelerators, report.free, report.used_by["Inference"]) == (128, 111, 16)
    assert report.whole_nodes_free == 1
