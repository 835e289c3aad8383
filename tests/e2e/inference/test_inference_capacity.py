"""Rollouts, full pools, and services and gangs that want the same devices."""

from __future__ import annotations

from typing import Any

import pytest

from berth.devcluster.process import wait_until
from tests.e2e.inference.conftest import PATIENCE, Services, template

Json = dict[str, Any]
STEADY: Json = {"forecast": {"method": "Persistence"}}
L40S: Json = {"types": ["L40S"], "perReplica": 1}
NEW = "registry.example/engine:2"


def images(services: Services, name: str) -> set[str]:
    return {pod["spec"]["containers"][0]["image"] for pod in services.pods(name)}


def rolling(deployment: Json) -> bool:
    """Whether some of its pods run the new template and some do not."""
    spec, status = deployment["spec"], deployment.get("status", {})
    updated = status.get("updatedReplicas", 0)
    return not spec.get("paused") and spec["replicas"] > 0 and 0 < updated < status.get("replicas", 0)


def roll(services: Services, name: str, seconds: float = 120) -> list[tuple[int, int, int]]:
    """Change the image and wait until all run it; (asked for, ready, Deployments rolling) at every look."""
    seen: list[tuple[int, int, int]] = []
    services.patch(name, template=template(NEW))

    def done() -> bool:
        live = services.deployments(name)
        seen.append((services.wanted(name), services.ready(name), sum(map(rolling, live.values()))))
        return images(services, name) == {NEW} and not any(item["spec"].get("paused") for item in live.values())

    assert wait_until(done, seconds), f"{images(services, name)} {seen[-5:]}"
    return seen


def test_a_rollout_during_a_peak_goes_variant_by_variant_and_leaves_the_count(services: Services) -> None:
    services.apply("chat", high=9, scaling=STEADY, spot={"mode": "Mixed", "onDemandFloor": 3})
    services.traffic("chat", 100.0)
    services.expect_ready("chat", 9)
    assert len([item for item in services.deployments("chat").values() if item["spec"]["replicas"]]) > 1
    seen = roll(services, "chat")
    assert {asked for asked, _, _ in seen} == {9}, "a rollout moved the count"
    assert min(ready for _, ready, _ in seen) >= 8
    assert max(at_once for _, _, at_once in seen) <= 1, "two variants rolled at once"


def test_a_rollout_on_a_full_pool_ends(services: Services) -> None:
    services.apply("chat", low=8, high=8, accelerators=L40S)
    services.expect_ready("chat", 8)
    seen = roll(services, "chat")
    assert {asked for asked, _, _ in seen} == {8}
    assert min(ready for _, ready, _ in seen) >= 7


def test_a_version_that_never_becomes_ready_stops_at_the_first_variant(services: Services) -> None:
    services.apply("chat", low=6, spot={"mode": "Mixed", "onDemandFloor": 2})
    services.expect_ready("chat", 6)
    services.patch("chat", template=template(NEW, sim_ready="false"))
    assert wait_until(lambda: NEW in images(services, "chat"), PATIENCE)
    services.expect("chat", lambda _: any(item["spec"].get("paused") for item in services.deployments("chat").values()))
    broken = [pod for pod in services.pods("chat") if pod["spec"]["containers"][0]["image"] == NEW]
    assert len({pod["metadata"]["labels"]["berth.dev/variant"] for pod in broken}) == 1
    assert services.ready("chat") >= 5
    services.patch("chat", template={"metadata": {"annotations": {"berth.dev/sim-ready": None}}})
    assert wait_until(lambda: images(services, "chat") == {NEW} and services.ready("chat") == 6, 2 * PATIENCE)


@pytest.fixture
def urgent(services: Services) -> Any:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    name = f"urgent-{services.namespace}"
    services.api.post(path, {"metadata": {"name": name}, "value": 900000, "preemptionPolicy": "Never"})
    yield name
    services.api.delete(f"{path}/{name}")


def test_the_more_important_service_gets_the_last_devices(services: Services, urgent: str) -> None:
    """Both are found to be short at once, by an operator that has just started."""
    services.apply("plain", high=6, accelerators=L40S, scaling=STEADY)
    services.apply("vital", high=6, accelerators=L40S, scaling=STEADY, priorityClassName=urgent)
    for name in ("plain", "vital"):
        services.traffic(name, 2.0)
        services.expect_ready(name, 1)
    services.serving.operators.pop().stop()
    for name in ("plain", "vital"):
        services.traffic(name, 100.0)
    query = f'count(vllm:num_requests_waiting{{namespace="{services.namespace}"}} > 30)'
    assert wait_until(
        lambda: [entry["value"][1] for entry in services.serving.prometheus.query(query)] == ["2"], PATIENCE
    )
    services.serving.start("operator-again")
    services.expect_ready("vital", 6)
    services.expect_ready("plain", 2)
    limited = services.expect_condition("plain", "CapacityAvailable", "False", "CapacityLimited")
    assert "Capacity" in limited["message"]
    services.expect_event("plain", "CapacityLimited")
    services.delete("vital")
    services.expect_ready("plain", 6, 2 * PATIENCE)


def test_a_gang_and_a_service_share_a_pool_and_oversell_no_node(services: Services) -> None:
    pool = {
        "apiVersion": "berth.dev/v1alpha1",
        "kind": "AcceleratorPool",
        "metadata": {"name": "shared"},
        "spec": {
            "nodeSelector": {"matchLabels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}},
            "accelerator": "H100",
            "roles": ["Training", "Inference"],
        },
    }
    job = {
        "apiVersion": "berth.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "gang"},
        "spec": {
            "workers": 3,
            "accelerators": {"perWorker": 8, "types": ["H100"]},
            "template": {"spec": {"containers": [{"name": "worker", "image": "registry.example/train:1"}]}},
        },
    }
    jobs = f"/apis/berth.dev/v1alpha1/namespaces/{services.namespace}/trainingjobs"
    services.api.post("/apis/berth.dev/v1alpha1/acceleratorpools", pool)
    try:
        services.apply("chat", high=30, accelerators={"types": ["H100"], "perReplica": 1}, scaling=STEADY)
        services.expect_ready("chat", 1)
        services.traffic("chat", 100.0)
        services.api.post(jobs, job)

        def placed() -> bool:
            status = services.api.get(f"{jobs}/gang").get("status", {})
            return status.get("phase") == "Running" or "apacity" in status.get("message", "")

        assert wait_until(placed, PATIENCE), services.api.get(f"{jobs}/gang").get("status")
        services.expect("chat", lambda status: status.get("readyReplicas", 0) >= 8)
        services.traffic("chat", 0.0)
        assert wait_until(
            lambda: services.api.get(f"{jobs}/gang").get("status", {}).get("phase") == "Running", 2 * PATIENCE
        ), services.api.get(f"{jobs}/gang").get("status")
        services.traffic("chat", 100.0)
        services.expect("chat", lambda status: status.get("readyReplicas", 0) == 8)
        services.expect_condition("chat", "CapacityAvailable", "False")
    finally:
        services.api.delete(jobs, propagationPolicy="Background")
        services.api.delete("/apis/berth.dev/v1alpha1/acceleratorpools/shared")
