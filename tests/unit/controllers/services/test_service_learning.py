"""A service whose replicas carry another amount than estimated comes to the replicas that it needs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from berth.cluster.cache import Cache
from berth.cluster.kinds import DEPLOYMENTS, NODES, PODS
from berth.controllers.services.loop import ServiceLoop
from berth.controllers.services.view import ServiceView
from berth.telemetry.metrics import Metrics
from berth.telemetry.readings import Reading, ServiceQuery, Telling
from tests.builders.fleet import make_fleet, make_node
from tests.unit.cluster.fakes import FakeClock
from tests.unit.controllers.services.views import make_view

PERIOD = 60.0
PRODUCT, PRODUCTS = "nvidia.com/gpu.product", ("NVIDIA-L40S", "NVIDIA-L4")
ON_L40S: Any = {"accelerators": {"types": ["L40S"]}}
ON_L4: Any = {"accelerators": {"types": ["L4"]}}


class Running:
    """One service that has ``demand`` requests in flight, on replicas that keep its promise up to ``holds`` each.

    Its Deployment and pods follow every plan at once.
    """

    def __init__(self, demand: float, holds: float, **spec: Any) -> None:
        self.demand, self.holds, self.now, self.silent = demand, holds, 1.7e9, False
        client: Any = SimpleNamespace(transport=SimpleNamespace(clock=FakeClock()))
        self.pods, recorder = Cache(client, PODS), SimpleNamespace()
        nodes = [(product, f"{product[7:].lower()}-{i}") for product in PRODUCTS for i in range(8)]
        fleet = make_fleet(
            [make_node(name, pool=None, devices=8, labels={PRODUCT: product}) for product, name in nodes], pools=()
        )
        self.loop = ServiceLoop(
            client, fleet, self.pods, Cache(client, NODES), recorder, Metrics(), self,  # type: ignore[arg-type]
            priority=lambda name: 0, period=PERIOD, wall=lambda: self.now,
        )  # fmt: skip
        self.generation = 0
        self.edit(**spec or {"scaling": {"forecast": {"method": "Persistence"}}, **ON_L40S})
        self.view: ServiceView = next(iter(self.loop.observer.views.values()))

    def edit(self, **spec: Any) -> None:
        """The user applies ``spec``."""
        self.generation += 1
        made = make_view(**spec).object
        meta = msgspec.structs.replace(
            made.metadata, generation=self.generation, resource_version=str(int(self.now) + self.generation)
        )
        self.loop.caches.services.observe(msgspec.structs.replace(made, metadata=meta))

    async def poll(
        self, services: Sequence[ServiceQuery], percentile: Mapping[Any, int]
    ) -> Mapping[tuple[str, str], Telling]:
        """Demand is spread evenly; no time is kept beyond what a replica holds."""
        if self.silent:
            return {}
        pods = services[0].pods
        each = self.demand / max(len(pods), 1)
        seconds = {"ttft": 0.1 if each <= self.holds else 60.0}
        readings = {"engine": Reading("Value", self.demand, self.now)}
        return {services[0].key: Telling(readings, dict.fromkeys(pods, each), dict.fromkeys(pods, 0.0), seconds)}

    async def history(self, *_: object) -> list[tuple[float, float | None]]:
        """None."""
        return []

    async def carried_out(self) -> bool:
        """Whether the service was sent to its reconciler since this was asked last."""
        sent = bool(self.loop.queue.depth)
        while self.loop.queue.depth:
            self.loop.queue.done(await self.loop.queue.get())
        return sent

    async def rounds(self, count: int) -> None:
        for _ in range(count):
            self.now += PERIOD
            await self.loop.planner.ask()
            await self.loop.planner.decide_all()
            assert self.view.plan is not None
            for name, replicas in self.view.plan.counts.items():
                self.follow(name, replicas)

    def follow(self, variant: str, replicas: int) -> None:
        labels = {"berth.dev/service-name": "chat", "berth.dev/variant": variant}
        owner = {"uid": self.view.uid, "kind": "InferenceService", "name": "chat", "controller": True}
        version = str(int(self.now))
        meta = {"name": variant, "namespace": "serving", "uid": f"d-{variant}", "resourceVersion": version,
                "labels": labels, "ownerReferences": [owner]}  # fmt: skip
        deployment = {"metadata": meta, "spec": {"replicas": replicas}}
        self.loop.caches.deployments.put(DEPLOYMENTS.decode(json.dumps(deployment).encode()))
        ready = [{"type": "Ready", "status": "True", "lastTransitionTime": "2023-11-14T22:13:20Z"}]
        replica_set = {"kind": "ReplicaSet", "name": f"{variant}-h", "uid": "u", "controller": True}
        labels |= {"pod-template-hash": "h"}
        for number in range(16):
            name = f"{variant}-{number}"
            meta = {"name": name, "namespace": "serving", "uid": name, "resourceVersion": version, "labels": labels,
                    "creationTimestamp": "2023-11-14T22:13:00Z",
                    "ownerReferences": [replica_set]}  # fmt: skip
            body = {"metadata": meta, "spec": {"nodeName": f"l40s-{number % 8}"}, "status": {"conditions": ready}}
            pod = PODS.decode(json.dumps(body).encode())
            self.pods.put(pod) if number < replicas else self.pods.remove(pod)


@pytest.mark.parametrize(("share", "fewest", "most"), [(0.5, 8, 10), (1.0, 4, 4)])
async def test_replicas_follow_what_they_are_found_to_carry(share: float, fewest: int, most: int) -> None:
    estimate = await estimated()
    running = Running(demand=3.9 * estimate, holds=share * estimate)
    await running.rounds(10)
    assert running.view.plan is not None
    assert running.view.plan.replicas == 4
    await running.rounds(200)
    assert fewest <= running.view.plan.replicas <= most
    assert "requests in flight, measured in" in running.view.plan.message


async def test_other_devices_are_as_many_as_the_demand_takes_of_them() -> None:
    running = Running(7.5 * await estimated(**ON_L4), holds=1e9, **ON_L4)
    await running.rounds(90)
    assert running.view.plan is not None
    assert running.view.plan.replicas >= 8
    running.edit(**ON_L40S)
    new = running.loop.planner._market.choice(running.view).variants
    (former,) = running.view.former.values()
    assert former.capacity < 0.5
    for _ in range(20):
        await running.rounds(1)
        demand = running.loop.planner._demand.of(running.view).seen.work or 0.0
        assert sum(n for name, n in running.view.plan.counts.items() if name in new) <= math.ceil(demand) + 1 < 5


async def test_a_condition_that_is_another_one_is_carried_out_at_once() -> None:
    running = Running(demand=1.0, holds=10.0)
    await running.rounds(3)
    running.view.persisted, running.view.looked = {"phase": "Ready"}, running.now
    await running.carried_out()
    await running.rounds(1)
    assert not await running.carried_out(), "nothing has changed"
    running.silent = True
    await running.rounds(1)
    assert await running.carried_out()


async def estimated(**spec: Any) -> float:
    """What a replica is estimated to carry."""
    running = Running(1.0, 1.0, **spec)
    found = running.loop.planner._market.choice(running.view).found.reference_capacity
    assert found is not None
    return found.in_flight
