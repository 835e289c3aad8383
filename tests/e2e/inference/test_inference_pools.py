"""Whoever describes nodes under running services, or takes that back, moves nobody."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from berth.devcluster.process import wait_until
from tests.e2e.inference.conftest import PATIENCE, Services
from tests.e2e.inference.test_inference_capacity import NEW, images, roll

Json = dict[str, Any]
POOLS = "/apis/berth.dev/v1alpha1/acceleratorpools"


class Described:
    """The AcceleratorPools over the L4s."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.there: list[str] = []

    def declare(self, name: str, **spec: Any) -> None:
        own = {"nodeSelector": {"matchLabels": {"nvidia.com/gpu.product": "NVIDIA-L4"}}, "accelerator": "L4",
               "roles": ["Inference"], **spec}  # fmt: skip
        body = {"apiVersion": "berth.dev/v1alpha1", "kind": "AcceleratorPool", "metadata": {"name": name}, "spec": own}
        self._services.api.post(POOLS, body)
        self.there.append(name)

    def delete(self, name: str) -> None:
        self._services.api.delete(f"{POOLS}/{name}")
        self.there.remove(name)

    def expect(self, pools: set[str], *names: str) -> None:
        """The services say that they run on these."""

        def told() -> bool:
            status = [self._services.status(name) for name in names]
            return all({entry["pool"] for entry in each.get("variants", ())} == pools for each in status)

        assert wait_until(told, 2 * PATIENCE), [self._services.status(name).get("variants") for name in names]


@pytest.fixture
def described(services: Services) -> Iterator[Described]:
    found = Described(services)
    yield found
    for name in list(found.there):
        found.delete(name)


def running(services: Services, *names: str) -> Json:
    """What would be another one if anything had moved: Deployments, what they were last applied as, and pods."""
    return {
        name: (
            {key: (item["metadata"]["uid"], item["metadata"]["generation"], item["spec"]["replicas"])
             for key, item in services.deployments(name).items()},
            {pod["metadata"]["uid"]: pod["spec"].get("nodeName") for pod in services.pods(name)},
        )
        for name in names
    }  # fmt: skip


def test_nodes_that_are_told_by_another_name_keep_their_replicas(services: Services, described: Described) -> None:
    services.apply("chat", low=4, high=4, spot={"mode": "Mixed", "onDemandFloor": 2})
    services.apply("other", low=2, high=2)
    for name, count in (("chat", 4), ("other", 2)):
        services.traffic(name, 1.0)
        services.expect_ready(name, count)
    before = running(services, "chat", "other")
    discovered = {entry["pool"] for entry in services.status("chat")["variants"]}
    assert len(discovered) == 2, "spot and on demand apart"
    described.declare("mine")
    described.expect({"mine"}, "chat", "other")
    described.declare("ours")  # the younger of two has no node
    described.delete("mine")
    described.expect({"ours"}, "chat", "other")
    assert running(services, "chat", "other") == before
    services.serving.restart()
    described.delete("ours")
    described.expect(discovered, "chat")
    described.declare("mine")
    described.expect({"mine"}, "chat", "other")
    assert running(services, "chat", "other") == before


def test_the_next_change_rolls_the_deployment_that_there_is(services: Services, described: Described) -> None:
    services.apply("chat", low=3, high=3)
    services.traffic("chat", 1.0)
    services.expect_ready("chat", 3)
    (name,) = services.deployments("chat")
    described.declare("mine")
    described.expect({"mine"}, "chat")
    seen = roll(services, "chat")
    assert min(ready for _, ready, _ in seen) >= 2
    assert images(services, "chat") == {NEW}
    (after,) = services.deployments("chat").items()
    assert (after[0], after[1]["spec"]["template"]["metadata"]["labels"]["berth.dev/pool"]) == (name, "mine")


def test_a_pool_for_training_only_has_its_replicas_moved_others_first(services: Services, described: Described) -> None:
    services.apply("chat", low=2, high=2, accelerators={"types": ["L4", "L40S"], "perReplica": 1})
    services.traffic("chat", 1.0)
    services.expect_ready("chat", 2)
    assert {entry["accelerator"] for entry in services.status("chat")["variants"]} == {"L4"}
    described.declare("mine", roles=["Training"])
    ready: list[int] = []

    def moved() -> bool:
        ready.append(services.ready("chat"))
        counts = {item["spec"]["replicas"] for key, item in services.deployments("chat").items() if "-l4-" in key}
        return counts <= {0} and services.ready("chat") == 2

    assert wait_until(moved, 2 * PATIENCE), services.status("chat")
    assert min(ready) >= 2
