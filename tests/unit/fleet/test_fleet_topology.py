"""The tree that labels describe, regular or not."""

from __future__ import annotations

import pytest

from berth.fleet.pool import Unusable
from berth.fleet.records import Level
from tests.builders.fleet import BLOCK, HOST, LEVELS, make_fleet, make_node, make_pool, make_tree, some_levels


def paths(fleet, level):
    """By node, the path of names to its domain at the level of that name."""
    pool = fleet.pools["p"]
    index = [entry.name for entry in pool.levels].index(level)
    return {name: "/".join(pool.tree.path(index, int(pool.domain[index][row]))) for name, row in pool.row.items()}


def expect_unusable(fleet, **reasons):
    pool = fleet.pools["p"]
    assert {name: pool.why_unusable(row).name for name, row in pool.row.items() if not pool.usable[row]} == reasons
    assert fleet.check() == []


def test_a_domain_is_the_path_from_the_top():
    fleet = make_fleet(make_tree({"a": {"1": 1, "2": 1}, "b": {"1": 2}}))
    assert sorted(paths(fleet, "rack").values()) == ["z1/a/1", "z1/a/2", "z1/b/1", "z1/b/1"]
    pool = fleet.pools["p"]
    assert [len(names) for names in pool.domain_names] == [1, 2, 3, 4]
    assert pool.parent[0].tolist() == [-1]
    assert pool.domain_names[2] == ["1", "2", "1"]
    assert pool.parent[2].tolist() == [0, 0, 1]


@pytest.mark.parametrize("depth", range(1, 8))
def test_trees_of_any_depth(depth):
    levels = (*(Level(f"l{i}", f"example.com/l{i}") for i in range(depth - 1)), Level("host", HOST))
    nodes = [
        make_node(f"n{n}", labels={f"example.com/l{i}": str(n >> (depth - i)) for i in range(depth - 1)})
        for n in range(16)
    ]
    fleet = make_fleet(nodes, pools=[make_pool(levels=levels)])
    pool = fleet.pools["p"]
    assert len(pool.domain) == len(pool.parent) == len(pool.domain_names) == depth
    assert len(pool.domain_names[-1]) == 16
    assert fleet.check() == []


def test_roles_of_levels():
    pool = make_fleet(pools=[make_pool(levels=LEVELS)]).pools["p"]
    assert (pool.site_level, pool.nvlink_level) == (0, 3)
    pool = make_fleet(pools=[make_pool(levels=some_levels("rack"))]).pools["p"]
    assert (pool.site_level, pool.nvlink_level) == (None, None)


def test_a_node_without_a_label_is_near_nobody_there_and_below():
    same = {"rack": "r", "zone": "z1"}
    fleet = make_fleet([make_node("a", block="b", **same), make_node("b", **same), make_node("c", **same)])
    assert paths(fleet, "zone") == {"a": "z1", "b": "z1", "c": "z1"}
    assert paths(fleet, "block") == {"a": "z1/b", "b": "z1/b", "c": "z1/c"}
    pool = fleet.pools["p"]
    assert len(set(pool.domain[1].tolist())) == len(set(pool.domain[2].tolist())) == 3
    assert pool.tree.missing(1).tolist() == [1, 2]
    assert pool.tree.missing(2).tolist() == []


def test_a_node_is_its_own_host_whether_labelled_or_not():
    fleet = make_fleet([make_node("a", host=None), make_node("b", block="x", rack="y")])
    assert fleet.pools["p"].tree.missing(3).tolist() == []
    expect_unusable(fleet)


def test_a_label_that_comes_late_moves_the_node_and_its_old_domain_goes():
    fleet = make_fleet([make_node("a", block="x", rack="1"), make_node("b", rack="1")])
    fleet.set_node(make_node("b", block="x", rack="1"))
    assert paths(fleet, "rack") == {"a": "z1/x/1", "b": "z1/x/1"}
    assert fleet.pools["p"].domain_names[1] == ["x", ""]
    fleet.set_node(make_node("c", block="y", rack="1"))
    assert fleet.pools["p"].domain_names[1] == ["x", "y"]
    assert fleet.check() == []


def test_one_host_in_two_domains_is_refused_until_the_labels_agree():
    fleet = make_fleet([make_node(name, block=name, rack="r", host="h") for name in "ab"])
    expect_unusable(fleet, a="HostInTwoDomains", b="HostInTwoDomains")
    fleet.set_node(make_node("c", block="c", rack="r", host="h"))
    expect_unusable(fleet, a="HostInTwoDomains", b="HostInTwoDomains", c="HostInTwoDomains")
    fleet.remove_node("c")
    fleet.set_node(make_node("b", block="a", rack="r", host="h"))
    expect_unusable(fleet)
    fleet.set_node(make_node("b", block="b", rack="r", host="h"))
    fleet.set_node(make_node("a", block="a", rack="r", host="own"))
    expect_unusable(fleet)
    fleet.set_node(make_node("d", block="d", rack="r", host="own"))
    expect_unusable(fleet, a="HostInTwoDomains", d="HostInTwoDomains")
    fleet.remove_node("d")
    expect_unusable(fleet)


def test_a_weightier_reason_is_told_first():
    fleet = make_fleet([make_node("a", block="a", host="h"), make_node("b", block="b", host="h", ready=False)])
    expect_unusable(fleet, a="HostInTwoDomains", b="NotReady")


def test_a_host_name_that_two_pools_have_is_no_contradiction():
    nodes = [make_node("a", pool="p", host="h"), make_node("b", pool="q", host="h")]
    fleet = make_fleet(nodes, pools=[make_pool("p"), make_pool("q")])
    assert [pool.reason.tolist() for pool in fleet.pools.values()] == [[Unusable.No], [Unusable.No]]


def test_other_levels_make_another_tree_of_the_same_nodes():
    fleet = make_fleet([make_node("a", block="x", rack="1"), make_node("b", block="y", rack="1")])
    fleet.set_pools([make_pool(levels=(Level("cell", BLOCK), Level("host", HOST)))])
    assert paths(fleet, "cell") == {"a": "x", "b": "y"}
    assert fleet.check() == []
