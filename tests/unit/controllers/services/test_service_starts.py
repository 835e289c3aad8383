"""What starts teach: only the first readiness of a replica that was seen to start, and what a probe has ended too."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from berth.cluster.cache import Cache
from berth.cluster.kinds import NODES, PODS
from berth.controllers.services.loop import ServiceLoop
from berth.controllers.services.supply import start_key
from berth.inference.coldstart import STEPS
from berth.inference.records import Variant
from berth.telemetry.metrics import Metrics
from berth.telemetry.sources import NO_SOURCE
from tests.builders.fleet import make_fleet, make_node, make_pool
from tests.unit.cluster.fakes import FakeClock
from tests.unit.controllers.services.views import make_view, make_wire_node

Json = dict[str, Any]
BEGIN = 1_700_000_000
POOLS = {"quick": "L4", "slow": "L40S"}


class Shop:
    """One service on two pools; its pods are what a test says they are."""

    def __init__(self, **spec: Any) -> None:
        client: Any = SimpleNamespace(transport=SimpleNamespace(clock=FakeClock()))
        self.now, self.version = BEGIN + 86_400.0, 1
        self.pods, self.nodes = Cache(client, PODS), Cache(client, NODES)
        pools = [make_pool(name, accelerator=each, roles=("Inference",)) for name, each in POOLS.items()]
        fleet = make_fleet([make_node(f"{name}-0", pool=name, devices=4) for name in POOLS], pools=pools)
        for name in POOLS:
            self.nodes.observe(make_wire_node(f"{name}-0"))
        self.loop = ServiceLoop(
            client, fleet, self.pods, self.nodes, SimpleNamespace(), Metrics(), NO_SOURCE,  # type: ignore[arg-type]
            priority=lambda name: 0, wall=lambda: self.now,
        )  # fmt: skip
        own = {"accelerators": {"types": ["L4", "L40S"], "perReplica": 1}, **spec}
        self.loop.caches.services.observe(make_view(**own).object)
        (self.view,) = self.loop.observer.views.values()
        self.decide()

    def decide(self) -> None:
        self.loop.planner.decide(self.view)

    def variant(self, pool: str = "quick") -> Variant:
        choice = self.loop.planner._market.choice(self.view)
        return next(variant for variant in choice.variants.values() if variant.pool == pool)

    def pod(
        self, name: str = "p", pool: str = "quick", *, ready: float | None = None, unready: float | None = None,
        run: tuple[float, float] | None = None, patience: int = 0, restarts: int = 0, started: bool = False,
    ) -> None:  # fmt: skip
        """A pod made at the beginning as it is now; times are seconds since then. ``run``: of the server's last one."""
        self.version += 1
        variant = self.variant(pool).name
        labels = {"berth.dev/service-name": "chat", "berth.dev/variant": variant, "pod-template-hash": "h"}
        owner = {"kind": "ReplicaSet", "name": f"{variant}-h", "uid": "u", "controller": True}
        meta = {"name": name, "namespace": "serving", "uid": f"uid-of-{name}", "labels": labels,
                "ownerReferences": [owner], "creationTimestamp": stamp(0),
                "resourceVersion": str(self.version)}  # fmt: skip
        since = ready if ready is not None else unready if unready is not None else 1
        conditions = [{"type": "Ready", "status": str(ready is not None), "lastTransitionTime": stamp(since)}]
        server: Json = {"name": "server"}
        state: Json = {"name": "server", "restartCount": restarts, "started": started or ready is not None}
        if patience:
            server["startupProbe"] = {"periodSeconds": 5, "failureThreshold": patience // 5}
        if run is not None:
            ended = {"exitCode": 137, "startedAt": stamp(run[0]), "finishedAt": stamp(run[1])}
            state["lastState"] = {"terminated": ended}
        body = {
            "metadata": meta,
            "spec": {"nodeName": f"{pool}-0", "containers": [server]},
            "status": {"phase": "Running", "conditions": conditions, "containerStatuses": [state]},
        }
        self.pods.observe(PODS.decode(json.dumps(body).encode()))

    def learned(self, pool: str = "quick") -> list[float]:
        return self.view.starts.samples.get(start_key(self.view, self.variant(pool), cached=False), [])


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(BEGIN + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_the_first_readiness_is_the_start_and_later_ones_are_none() -> None:
    shop = Shop()
    shop.pod()
    shop.pod(ready=90)
    shop.pod(unready=500, started=True)
    shop.pod(ready=700)
    shop.decide()
    shop.decide()
    assert shop.learned() == [90.0]


@pytest.mark.parametrize(("ready", "learned"), [(104, [104.0]), (106, []), (6_000, [])])
def test_a_start_that_ended_in_the_future_teaches_nothing_also_later(ready: float, learned: list[float]) -> None:
    shop = Shop()
    shop.pod()
    shop.pod(ready=ready)
    shop.now = BEGIN + 100.0
    budget = shop.view.startup_seconds
    shop.decide()
    shop.now = BEGIN + 86_400.0
    shop.decide()
    assert shop.learned() == learned
    assert shop.view.startup_seconds == budget


@pytest.mark.parametrize(
    "first",
    [{"ready": 90}, {"unready": 500, "started": True}, {"restarts": 1}],
    ids=["ready already", "not ready for a while", "restarted"],
)
def test_a_pod_that_was_not_seen_to_start_teaches_nothing(first: Json) -> None:
    shop = Shop()
    shop.pod(**first)
    shop.pod(ready=700, restarts=first.get("restarts", 0))
    shop.decide()
    assert shop.learned() == []


def test_a_new_leader_takes_what_the_last_one_wrote_and_learns_none_of_it_twice() -> None:
    shop = Shop()
    shop.pod()
    shop.pod(ready=90)
    own = shop.view.startup_seconds
    learned = {"startupSeconds": 2700, "coldStarts": [{"model": "llama-3-8b", "accelerator": "L4", "nodeClass": "quick",
               "cached": False, "seconds": [90]}]}  # fmt: skip
    body = shop.view.object
    shop.loop.caches.services.observe(with_status(body, {"learned": learned}))
    assert shop.view.startup_seconds == own
    for task in shop.loop.tasks():
        task.close()
    shop.decide()
    assert shop.learned() == [90.0]
    assert shop.view.startup_seconds == 2700


def with_status(known: Any, status: Json) -> Any:
    return replace(known, metadata=replace(known.metadata, resource_version="9"), status=Raw(json.dumps(status)))


@pytest.mark.parametrize(
    ("pod", "steps"),
    [
        ({"run": (2, 2), "restarts": 1}, 1),
        ({"run": (2, -5), "restarts": 1}, 1),
        ({"run": (2, -30), "restarts": 1}, 0),
        ({"run": (2, 2), "restarts": 1, "unready": 400}, 0),
        ({"run": (2, 2), "restarts": 1, "patience": 30}, 0),
    ],
    ids=["ended", "the first probe fails at once", "ends by itself", "had been ready", "a template of before"],
)
def test_a_start_that_its_probe_ended_makes_the_budget_one_step_longer(pod: Json, steps: int) -> None:
    shop = Shop()
    before = shop.view.startup_seconds
    began, late = pod.pop("run")
    patience = pod.pop("patience", before)
    for _ in range(2):
        shop.pod(run=(began, began + patience + late), patience=patience, **pod)
        shop.decide()
    assert STEPS.index(shop.view.startup_seconds) == STEPS.index(before) + steps


def test_a_start_that_hangs_for_ever_ends_at_the_last_step() -> None:
    shop = Shop()
    for number in range(2 * len(STEPS)):
        patience = shop.view.startup_seconds
        shop.pod(f"p{number}", run=(2, 2 + patience), patience=patience, restarts=1)
        shop.decide()
    assert shop.view.startup_seconds == STEPS[-1]


@pytest.mark.parametrize("spec", [{}, {"coldStart": {"estimate": "30s"}}], ids=["learned", "stated"])
def test_the_budget_covers_the_slowest_variant_that_may_be_used(spec: Json) -> None:
    shop = Shop(**spec)
    shop.pod(pool="slow")
    shop.pod(pool="slow", ready=1700)
    shop.decide()
    assert shop.view.startup_seconds == 1800


def test_the_horizon_is_that_of_variants_in_use() -> None:
    shop = Shop()
    shop.view.starts.samples[start_key(shop.view, shop.variant("slow"), cached=False)] = [1700.0] * 48
    planned = shop.loop.planner
    choice = planned._market.choice(shop.view)
    names = {pool: shop.variant(pool).name for pool in POOLS}
    quick, _ = planned._horizon(shop.view, choice, {names["quick"]: 2, names["slow"]: 0})
    both, _ = planned._horizon(shop.view, choice, {names["quick"]: 2, names["slow"]: 1})
    assert quick < 1000 < both


def test_the_horizon_that_is_told_is_the_one_that_was_planned_with() -> None:
    shop = Shop()
    shop.view.starts.samples[start_key(shop.view, shop.variant("slow"), cached=False)] = [1700.0] * 48
    assert shop.view.plan is not None
    shop.view.plan = dataclasses.replace(shop.view.plan, counts={shop.variant(pool).name: 1 for pool in POOLS})
    shop.decide()
    choice = shop.loop.planner._market.choice(shop.view)
    status = shop.loop.services._status(shop.view, shop.view.plan, choice, None)
    assert status["demand"]["horizonSeconds"] == 1700 + shop.loop.planner.period
