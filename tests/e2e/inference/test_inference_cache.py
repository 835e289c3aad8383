"""Weights are on the node before the replica is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from berth.devcluster.api import MERGE
from berth.devcluster.process import wait_until
from berth.render.service.weights import model_cache_label
from tests.e2e.inference.conftest import PATIENCE, Services, template
from tests.e2e.inference.test_inference_spot import give_notice, zone_of

Json = dict[str, Any]
LABEL = model_cache_label("hf://example/phi")
FOLDER: Json = {"name": "berth-model-cache", "hostPath": {"path": "/nvme/models", "type": "DirectoryOrCreate"}}


@pytest.fixture
def spot_zones(services: Services) -> Iterator[dict[str, list[Json]]]:
    """The spot nodes by zone. The operator has seen none lost, before and after; no notice and no label is left."""
    services.serving.restart()
    nodes = services.api.list("/api/v1/nodes", labelSelector="karpenter.sh/capacity-type=spot")
    yield {zone: [node for node in nodes if zone_of(node) == zone] for zone in sorted(map(zone_of, nodes))}
    for node in nodes:
        taints = {"spec": {"taints": node["spec"].get("taints", [])}}
        services.api.patch(f"/api/v1/nodes/{node['metadata']['name']}", taints, MERGE)
    for name in holders(services):
        services.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {LABEL: None}}}, MERGE)
    services.serving.restart()


def kept() -> Json:
    """A template whose cache stays on the node."""
    made = template()
    return {**made, "spec": {**made["spec"], "volumes": [FOLDER]}}


def holders(services: Services) -> set[str]:
    """Nodes that are said to hold the weights."""
    return {node["metadata"]["name"] for node in services.api.list("/api/v1/nodes", labelSelector=LABEL)}


def fetches(services: Services) -> list[Json]:
    """Pods that fetch weights."""
    path = f"/api/v1/namespaces/{services.namespace}/pods"
    found: list[Json] = services.api.get(path, labelSelector="berth.dev/prefetch-for=chat")["items"]
    return found


def expect_holders(services: Services, *nodes: str) -> None:
    assert wait_until(lambda: holders(services) == set(nodes), PATIENCE), holders(services)


def running(services: Services) -> bool:
    return any(pod["status"]["phase"] == "Running" for pod in fetches(services))


def test_weights_go_ahead_to_where_a_lost_zone_s_stand_in_comes(
    services: Services, spot_zones: dict[str, list[Json]]
) -> None:
    zone, *others = spot_zones
    for node in (node for other in others for node in spot_zones[other]):
        give_notice(services, node)
    cold = {"estimate": "1s", "modelCache": "NVMe"}
    spot = {"mode": "Mixed", "maxZoneLoss": "100%"}
    services.apply("chat", high=1, coldStart=cold, spot=spot, template=kept())
    services.expect_ready("chat", 1)
    (first,) = services.nodes("chat")
    assert first in {node["metadata"]["name"] for node in spot_zones[zone]}
    expect_holders(services, first)

    assert wait_until(lambda: running(services), PATIENCE), fetches(services)
    (pod,) = fetches(services)
    second = pod["spec"]["nodeName"]
    services.expect_condition("chat", "Prefetched", "False", "Fetching")
    path = f"/api/v1/namespaces/{services.namespace}/pods/{pod['metadata']['name']}"
    services.api.patch(path, {"metadata": {"annotations": {"berth.dev/sim-exit": "0"}}}, MERGE)
    expect_holders(services, first, second)
    assert wait_until(lambda: not fetches(services), PATIENCE)
    services.expect_condition("chat", "Prefetched", "True", "Sufficient")

    for node in spot_zones[zone]:
        give_notice(services, node)
    assert wait_until(lambda: services.nodes("chat") == [second] and services.ready("chat") == 1, PATIENCE), (
        services.nodes("chat"), second,
    )  # fmt: skip
