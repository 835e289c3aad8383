"""Spot nodes are taken back, a zone at a time, with notice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from berth.devcluster.api import MERGE
from berth.devcluster.process import wait_until
from tests.e2e.inference.conftest import PATIENCE, Services

Json = dict[str, Any]
NOTICE = {"key": "aws-node-termination-handler/spot-itn", "value": "true", "effect": "NoSchedule"}


def restored(services: Services) -> Iterator[dict[str, Json]]:
    """The spot nodes by name; they are there again, without notices, afterwards."""
    nodes = {
        node["metadata"]["name"]: node
        for node in services.api.list("/api/v1/nodes", labelSelector="karpenter.sh/capacity-type=spot")
    }
    yield nodes
    for name, node in nodes.items():
        if services.api.exists(f"/api/v1/nodes/{name}"):
            taints = node["spec"].get("taints", [])
            services.api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": taints}}, MERGE)
        else:
            for pod in services.api.list("/api/v1/pods", fieldSelector=f"spec.nodeName={name}"):  # nobody ends them
                meta = pod["metadata"]
                path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
                services.api.delete(path, gracePeriodSeconds="0")
            meta = {key: node["metadata"][key] for key in ("name", "labels", "annotations")}
            services.api.post("/api/v1/nodes", {**node, "metadata": meta})


@pytest.fixture
def spot_nodes(services: Services) -> Iterator[dict[str, Json]]:
    """As :func:`restored`, before an operator that has seen none lost."""
    services.serving.restart()
    yield from restored(services)


def give_notice(services: Services, node: Json) -> None:
    taints = [*node["spec"].get("taints", []), NOTICE]
    services.api.patch(f"/api/v1/nodes/{node['metadata']['name']}", {"spec": {"taints": taints}}, MERGE)


def zone_of(node: Json) -> str:
    return str(node["metadata"]["labels"]["topology.kubernetes.io/zone"])


def on_spot(services: Services, nodes: dict[str, Json]) -> dict[str, int]:
    """Replicas of ``chat`` on spot by zone."""
    counts: dict[str, int] = {}
    for name in services.nodes("chat"):
        if name in nodes:
            counts[zone_of(nodes[name])] = counts.get(zone_of(nodes[name]), 0) + 1
    return counts


def test_a_zone_s_replacements_are_ready_before_its_replicas_go(
    services: Services, spot_nodes: dict[str, Json]
) -> None:
    services.apply("chat", low=8, spot={"mode": "Mixed", "onDemandFloor": 2})
    services.expect_ready("chat", 8)
    before = on_spot(services, spot_nodes)
    assert before, "nothing runs on the cheaper spot nodes"
    zone = max(before, key=lambda name: before[name])
    doomed = {name for name, node in spot_nodes.items() if zone_of(node) == zone}
    least = [8]
    for name in doomed:
        give_notice(services, spot_nodes[name])

    def moved() -> bool:
        least.append(services.ready("chat"))
        return not doomed & set(services.nodes("chat")) and services.ready("chat") == 8

    assert wait_until(moved, PATIENCE), services.nodes("chat")
    assert min(least) >= 8, "a replica went before its replacement was ready"
    assert "replacements start first" in services.expect_event("chat", "SpotReclaimed")
    for name in doomed:
        services.api.delete(f"/api/v1/nodes/{name}")
    services.expect_ready("chat", 8)
    cost = services.status("chat")["cost"]
    assert float(cost["usdPerHour"]) <= float(cost["onDemandOnlyUsdPerHour"])


def test_without_any_spot_left_all_is_on_demand(services: Services, spot_nodes: dict[str, Json]) -> None:
    services.apply("chat", low=6, spot={"mode": "Mixed", "onDemandFloor": 1})
    services.expect_ready("chat", 6)
    for node in spot_nodes.values():
        give_notice(services, node)
    assert wait_until(lambda: not on_spot(services, spot_nodes), PATIENCE)
    services.expect_ready("chat", 6)


def test_nodes_that_vanish_without_notice_are_replaced(services: Services, spot_nodes: dict[str, Json]) -> None:
    services.apply("chat", low=6, spot={"mode": "Mixed", "onDemandFloor": 1})
    services.expect_ready("chat", 6)
    zone = next(iter(on_spot(services, spot_nodes)))
    for name, node in spot_nodes.items():
        if zone_of(node) == zone:
            services.api.delete(f"/api/v1/nodes/{name}")
    gone = {name for name in spot_nodes if not services.api.exists(f"/api/v1/nodes/{name}")}
    assert wait_until(lambda: services.ready("chat") == 6 and not gone & set(services.nodes("chat")), PATIENCE)
