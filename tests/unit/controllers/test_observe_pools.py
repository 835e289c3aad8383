"""What a pool leaves to its nodes' labels is read before anything is decided, in whatever order caches fill."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from berth.cluster import kinds
from berth.controllers.observe import Observer
from berth.fleet.records import Growth
from tests.builders.fleet import ZONE
from tests.unit.controllers.harness import JOB, Operator, Server, add_node, make_server

SPEC = {
    "accelerator": "H100",
    "nodeSelector": {"matchLabels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}},
}


def two_zones() -> Server:
    """Three nodes in a zone, four in another, a pool that says only which nodes, and a gang that needs four."""
    server = make_server(nodes=7, workers=4)
    for number in range(7):
        change_node(server, f"n{number}", zone="a" if number < 3 else "b")
    server.put(kinds.ACCELERATOR_POOLS, {"metadata": {"name": "ib"}, "spec": SPEC})
    return server


def change_node(server: Server, name: str, *, zone: str = "", **allocatable: str) -> None:
    node = copy.deepcopy(server.objects["nodes", "", name])
    node["metadata"]["labels"] |= {ZONE: zone} if zone else {}
    node["status"]["allocatable"] |= allocatable
    server.put(kinds.NODES, node)


def filled(server: Server) -> Operator:
    """Caches that saw the pool before any node; nothing has been settled since."""
    operator = Operator(Server())
    operator.server = server
    for plural in ("acceleratorpools", "nodes", "namespaces", "trainingjobs"):
        cache = next(cache for cache in operator.caches.every() if cache.kind.plural == plural)
        for (kind, _, _), body in server.objects.items():
            if kind == plural:
                cache.observe(cache.kind.decode(json.dumps(body).encode()))
    return operator


def levels(operator: Operator) -> list[str]:
    return [level.name for level in operator.fleet.pools["ib"].levels]


def test_what_a_node_that_joins_would_hold_is_the_pool_s() -> None:
    server = make_server(nodes=0)
    growth = {"provisioner": "Karpenter", "nodePoolName": "h100", "acceleratorsPerNode": 8}
    shape = {"cpuPerNode": "190450m", "memoryPerNode": "2Ti"}
    server.put(kinds.ACCELERATOR_POOLS, {"metadata": {"name": "ib"}, "spec": {**SPEC, "growth": growth | shape}})
    operator = filled(server)
    operator.observer.settle()
    assert operator.fleet.pools["ib"].spec.growth == Growth("Karpenter", "h100", None, 8, 190_450, 2 << 40)


def test_a_new_leader_settles_on_the_levels_that_the_nodes_have() -> None:
    operator = filled(two_zones())
    assert levels(operator) == ["host"]
    operator.observer.settle()
    assert levels(operator) == ["zone", "host"]


async def test_the_first_decision_keeps_a_gang_within_its_zone() -> None:
    server = two_zones()
    operator = filled(server)
    await operator.jobs.reconcile(JOB)
    operator.scheduler.decide()
    (promise,) = operator.observer.promises.values()
    assert sorted(promise.placement.nodes) == ["n3", "n4", "n5", "n6"]


@pytest.mark.parametrize("follow", [Observer.follow_pools, Observer.settle])
async def test_rails_that_a_device_plugin_offers_later_are_the_pool_s(follow: Any) -> None:
    server = two_zones()
    for number in range(7):
        change_node(server, f"n{number}", **{"vpc.amazonaws.com/efa": "32"})
    operator = filled(server)
    follow(operator.observer)
    before = operator.fleet.pools["ib"].spec.fabric
    assert before is not None
    change_node(server, "n0", **{"vpc.amazonaws.com/efa": "16"})
    operator.see()
    assert operator.observer.pools_due
    follow(operator.observer)
    after = operator.fleet.pools["ib"].spec.fabric
    assert after is not None
    assert after.rails < before.rails


async def test_pools_that_say_everything_are_not_read_again_for_each_node() -> None:
    server = two_zones()
    full = {
        **SPEC,
        "capacityType": {"value": "OnDemand"},
        "fabric": {"kind": "InfiniBand", "gbps": 400},
        "topology": [{"name": "host", "nodeLabel": "kubernetes.io/hostname"}],
    }
    server.put(kinds.ACCELERATOR_POOLS, {"metadata": {"name": "ib", "generation": 2}, "spec": full})
    operator = filled(server)
    add_node(server, "n9")
    operator.see()
    assert not operator.observer.pools_due


def test_a_zone_label_that_holds_a_fault_domain_makes_no_level() -> None:
    server = two_zones()
    for number in range(7):
        change_node(server, f"n{number}", zone=str(number % 3))
    operator = filled(server)
    operator.observer.settle()
    assert levels(operator) == ["host"]
