"""Which pool has a node: AcceleratorPools by age, and discovery for the rest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from berth.fleet.discovery import pool_names
from berth.fleet.records import Fabric
from tests.builders.fleet import BLOCK, CLIQUE, RACK, catalogue, make_claim, make_fleet, make_node, make_pool

H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
H200 = {"nvidia.com/gpu.product": "NVIDIA-H200"}
INFINIBAND = {"fabric.berth.dev/kind": "InfiniBand", "fabric.berth.dev/gbps": "400", "fabric.berth.dev/rails": "8"}
SPOT = {"karpenter.sh/capacity-type": "spot"}
ON_DEMAND = {"karpenter.sh/capacity-type": "on-demand"}


def owners(fleet):
    assert fleet.check() == []
    return {node: pool.spec.name if (pool := fleet.pool_of(node)) else None for node in sorted(fleet.nodes)}


def unclaimed(name, *labels, **node):
    merged = {key: value for part in labels for key, value in part.items()}
    return make_node(name, pool=None, labels=merged, **node)


@pytest.mark.parametrize(
    ("first", "second", "owner"),
    [
        (make_pool("old", selects="x", created=1), make_pool("new", selects="x", created=2), "old"),
        (make_pool("new", selects="x", created=2), make_pool("old", selects="x", created=1), "old"),
        (make_pool("b", selects="x", created=1), make_pool("a", selects="x", created=1), "a"),
    ],
)
def test_a_node_belongs_to_the_older_pool_then_to_the_first_by_name(first, second, owner):
    fleet = make_fleet([make_node("n", pool="x")], pools=[first, second])
    assert owners(fleet) == {"n": owner}
    assert sum(pool.nodes for pool in fleet.pools.values()) == 1


def test_an_older_pool_takes_nodes_with_what_is_held_on_them():
    young, old = make_pool("young", selects="x", created=2), make_pool("old", selects="x", created=1)
    fleet = make_fleet([make_node("n", pool="x")], pools=[young], claims=[make_claim("k", "n", 3)])
    assert fleet.set_pools([young, old]) is True
    assert owners(fleet) == {"n": "old"}
    assert fleet.pools["old"].free_devices.tolist() == [5]
    fleet.set_pools([young])
    assert owners(fleet) == {"n": "young"}
    assert fleet.pools["young"].free_devices[fleet.pools["young"].row["n"]] == 5


def test_pools_that_stay_keep_their_rows():
    fleet = make_fleet([make_node("n")], pools=[make_pool()])
    pool = fleet.pools["p"]
    assert fleet.set_pools([make_pool()]) is False
    fleet.set_pools([make_pool(usd="3.50", roles=("Training", "Inference")), make_pool("q")])
    assert fleet.pools["p"] is pool
    assert str(pool.usd_per_accelerator_hour) == "3.50"
    fleet.set_pools([make_pool(accelerator="H200")])
    assert fleet.pools["p"] is not pool
    assert owners(fleet) == {"n": "p"}


def test_a_version_of_a_pool_made_anew_is_none_of_its_earlier_ones():
    fleet = make_fleet([make_node("n")])
    seen = fleet.pools["p"].version
    fleet.set_pools([make_pool(accelerator="H200")])
    assert fleet.pools["p"].version > seen


def test_both_pools_are_new_to_a_reader_when_they_share_a_node_or_no_longer():
    pools = [make_pool("p", created=1), make_pool("q", created=2, selects={"also": "q"})]
    fleet = make_fleet([make_node("n")], pools=pools)

    def seen():
        return [fleet.pools[name].version for name in "pq"]

    for act in (
        lambda: fleet.set_node(make_node("n", labels={"also": "q"})),
        lambda: fleet.set_pools([pools[0], make_pool("q", created=3, selects={"also": "q"})]),
        lambda: fleet.remove_node("n"),
    ):
        before = seen()
        act()
        assert all(new > old for new, old in zip(seen(), before, strict=True))


def test_a_pool_without_nodes_is_there_and_a_node_without_a_pool_too():
    fleet = make_fleet([make_node("cpu-only", pool=None, devices=0)])
    assert owners(fleet) == {"cpu-only": None}
    assert fleet.pools["p"].nodes == 0


def test_another_catalogue_is_applied_to_the_same_fleet():
    fleet = make_fleet([unclaimed("a", H100), make_node("b")], claims=[make_claim("k", "b", 3)])
    known = catalogue()
    other = {name: entry for name, entry in known.accelerators.items() if name != "H100"}
    fleet.set_catalogue(replace(known, accelerators=other))
    assert owners(fleet) == {"a": None, "b": "p"}
    assert fleet.pools["p"].accelerator is None
    fleet.set_catalogue(known)
    assert owners(fleet) == {"a": "h100", "b": "p"}
    assert fleet.pools["p"].free_devices.tolist() == [5]


DISCOVERED = {
    "by accelerator": ([H100], "h100"),
    "by fabric": ([H100, INFINIBAND], "h100-infiniband"),
    "by capacity type": ([H200, INFINIBAND, SPOT], "h200-infiniband-spot"),
    "on demand is the usual": ([H100, ON_DEMAND], "h100"),
    "a fabric that the catalogue does not know is none": ([H100, {"fabric.berth.dev/kind": "Pigeons"}], "h100"),
    "shared devices as well": ([{"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-SHARED"}], "h100"),
    "no known product": ([{"nvidia.com/gpu.product": "Voodoo-2"}], None),
}


@pytest.mark.parametrize(("labels", "pool"), DISCOVERED.values(), ids=DISCOVERED)
def test_discovered_pools_are_named_after_what_they_are(labels, pool):
    assert owners(make_fleet([unclaimed("n", *labels)])) == {"n": pool}


def test_a_discovered_pool_is_specified_by_its_nodes():
    node = unclaimed("n", H100, INFINIBAND, SPOT, block="b", rack="r")
    spec = make_fleet([node]).pools["h100-infiniband-spot"].spec
    assert (spec.discovered, spec.accelerator, spec.capacity_type) == (True, "H100", "Spot")
    assert "Training" in spec.roles
    assert spec.fabric == Fabric("InfiniBand", 400, 8)
    assert [level.name for level in spec.levels] == ["zone", "block", "rack", "host"]


def test_a_discovered_pool_promises_the_fabric_that_all_its_nodes_have():
    slower = {**INFINIBAND, "fabric.berth.dev/gbps": "200"}
    fleet = make_fleet([unclaimed("a", H100, INFINIBAND), unclaimed("b", H100, slower)])
    assert fleet.pools["h100-infiniband"].spec.fabric == Fabric("InfiniBand", 200, 8)
    fleet.remove_node("b")
    assert fleet.pools["h100-infiniband"].spec.fabric == Fabric("InfiniBand", 400, 8)


def test_a_discovered_pool_says_how_it_is_paid_for_only_where_its_nodes_agree():
    fleet = make_fleet([unclaimed("a", H100, ON_DEMAND)])
    assert fleet.pools["h100"].spec.capacity_type == "OnDemand"
    fleet.set_node(unclaimed("b", H100))
    assert fleet.pools["h100"].spec.capacity_type is None


def test_levels_are_those_that_occur_and_follow_the_nodes():
    fleet = make_fleet([unclaimed("a", H100, zone=None)])
    names = lambda: [level.name for level in fleet.pools["h100"].levels]  # noqa: E731
    assert names() == ["host"]
    fleet.set_node(unclaimed("b", H100, {RACK: "r", CLIQUE: "c.1"}))
    assert names() == ["zone", "rack", "nvlink", "host"]
    fleet.set_node(unclaimed("b", H100, {BLOCK: "x"}))
    assert names() == ["zone", "block", "host"]
    fleet.remove_node("b")
    assert names() == ["host"]
    assert fleet.check() == []


def test_a_discovered_pool_goes_with_its_last_node():
    fleet = make_fleet([unclaimed("a", H100)], pools=[])
    fleet.set_node(unclaimed("a", H200))
    assert list(fleet.pools) == ["h200"]
    fleet.remove_node("a")
    assert not fleet.pools


def test_the_order_in_which_nodes_come_does_not_matter():
    nodes = [
        unclaimed("a", H100), unclaimed("b", H100, ON_DEMAND, {RACK: "r"}), unclaimed("c", H200, SPOT),
        unclaimed("d", H100, INFINIBAND), unclaimed("e", H100, {BLOCK: "x"}),
    ]  # fmt: skip
    one, other = make_fleet(nodes), make_fleet(reversed(nodes))
    assert {name: pool.spec for name, pool in one.pools.items()} == {n: pool.spec for n, pool in other.pools.items()}
    assert owners(one) == owners(other)


def test_an_acceleratorpool_takes_nodes_from_discovery_and_its_name_too():
    fleet = make_fleet([unclaimed("a", H100), unclaimed("b", H100, {"team": "x"})], pools=[])
    assert owners(fleet) == {"a": "h100", "b": "h100"}
    fleet.set_pools([make_pool("h100", selects={"team": "x"})])
    assert owners(fleet) == {"a": "h100-discovered", "b": "h100"}
    fleet.set_pools([])
    assert owners(fleet) == {"a": "h100", "b": "h100"}


def test_no_two_kinds_of_pool_share_a_name():
    known = catalogue()
    twin = replace(known.accelerators["H100"], name="h100")
    names = pool_names(replace(known, accelerators={**known.accelerators, "h100": twin}))
    assert len(set(names.values())) == len(names)
    assert names["H200", "", None] == "h200"
    assert names["H100", "", None] != "h100" != names["h100", "", None]
