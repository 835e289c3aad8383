"""Services, pods and nodes that come and go leave nothing behind."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from types import FunctionType, MethodType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from berth.cluster import wire
from berth.cluster.cache import Cache
from berth.cluster.errors import NotFound
from berth.cluster.kinds import INFERENCE_SERVICES, NODES, PODS, Kind
from berth.controllers.services.loop import ServiceLoop
from berth.telemetry.metrics import Metrics
from berth.telemetry.sources import NO_SOURCE
from tests.builders.fleet import make_fleet, make_node, make_pool
from tests.unit.cluster.fakes import FakeClock
from tests.unit.controllers.services.views import make_view, make_wire_node

Json = dict[str, Any]
TAINT = {"key": "aws-node-termination-handler/spot-itn", "effect": "NoSchedule"}
SPEC: Json = {"accelerators": {"types": ["L4"], "perReplica": 1}, "coldStart": {"modelCache": "NVMe"}}

BOUNDED = ("Notices._seen", "Packer._values", "WorkQueue.")
"""Two have a limit of their own; the queue is worked off by nobody here."""


class Server:
    """Takes and merges everything."""

    def __init__(self) -> None:
        self.transport = SimpleNamespace(clock=FakeClock())
        self.version = 100
        self.spec: Json = {}
        self.objects: dict[tuple[str, str], Json] = {}

    async def create(self, kind: Kind[Any], body: Json, namespace: str, **_: Any) -> Any:
        return kind.decode(json.dumps(body).encode())

    async def find(self, kind: Kind[Any], name: str, namespace: str) -> None:
        return None

    async def apply(self, kind: Kind[Any], name: str, body: Json, namespace: str, **_: Any) -> Any:
        self.version += 1
        own = {"uid": f"uid-of-{name}", "name": name, "namespace": namespace, "generation": 1}
        old = self.objects.get((kind.kind, name), {"metadata": own, "spec": self.spec})
        meta = {**old["metadata"], **body["metadata"], "resourceVersion": str(self.version)}
        body = {**old, **body, "metadata": meta, "spec": {**old["spec"], **body.get("spec", {})}}
        self.objects[kind.kind, name] = body
        return kind.decode(json.dumps(body).encode())


class World:
    """A fleet of one pool whose nodes come and go, with whatever runs services on it."""

    def __init__(self) -> None:
        self.server: Any = Server()
        self.pods, self.nodes = Cache(self.server, PODS), Cache(self.server, NODES)
        self.fleet = make_fleet([], pools=[make_pool("l4", accelerator="L4", roles=("Inference",))])
        recorder: Any = SimpleNamespace(normal=lambda *_: None, warning=lambda *_: None)
        self.loop = ServiceLoop(
            self.server, self.fleet, self.pods, self.nodes, recorder, Metrics(), NO_SOURCE,
            priority=lambda name: 0, prefetches=1,
        )  # fmt: skip

    async def one(self, number: int) -> None:
        """A service is made, served on a node that a notice takes, and deleted with all that it had."""
        name, node = f"s{number}", f"n{number}"
        self.fleet.set_node(make_node(node, pool="l4", devices=2))
        self.nodes.observe(make_wire_node(node))
        made = make_view(name, **SPEC).object
        self.server.spec = json.loads(bytes(made.spec))
        self.server.objects.clear()
        known = decode(INFERENCE_SERVICES, name, {"spec": self.server.spec}, uid=made.metadata.uid)
        self.loop.caches.services.observe(known)
        (view,) = self.loop.observer.views.values()
        await self.loop.planner.ask()
        await self.loop.planner.decide_all()
        await self.loop.services.reconcile(view.key)
        (variant,) = self.loop.observer.deployments(view)
        labels = {"berth.dev/service-name": name, "berth.dev/variant": variant, "pod-template-hash": "h"}
        owner = {"kind": "ReplicaSet", "name": f"{variant}-h", "uid": "u", "controller": True}
        for conditions in ([], [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:01:00Z"}]):
            self.server.version += 1
            body = {"spec": {"nodeName": node}, "status": {"conditions": conditions}}
            pod = decode(
                PODS, name, body, labels=labels, ownerReferences=[owner], resourceVersion=str(self.server.version)
            )
            self.pods.observe(pod)
        self.nodes.observe(make_wire_node(node, taints=[TAINT]))
        await self.loop.planner.decide_all()
        assert self.loop.prefetcher is not None
        await self.loop.prefetcher.round()
        await self.loop.services.reconcile(view.key)
        self.nodes.remove(make_wire_node(node))
        self.fleet.remove_node(node)
        await self.loop.planner.decide_all()
        self.loop.caches.services.remove(self.loop.caches.services.get(name, "serving"))  # type: ignore[arg-type]
        for deployment in list(self.loop.caches.deployments):
            self.loop.caches.deployments.remove(deployment)
        self.pods.remove(pod)
        await self.loop.planner.decide_all()
        await self.loop.prefetcher.round()

    async def hasty(self, number: int) -> None:
        """A service is deleted while its source is asked, and one while it is looked at."""
        for moment in ("poll", "apply"):
            name = f"{moment}-{number}"
            made = make_view(name, **SPEC).object
            self.server.spec = json.loads(bytes(made.spec))
            self.server.objects.clear()
            self.loop.caches.services.observe(decode(INFERENCE_SERVICES, name, {"spec": self.server.spec}))
            (view,) = self.loop.observer.views.values()
            where = self.loop._demand._source if moment == "poll" else self.server
            with patch.object(where, moment, self._deleting(name, getattr(where, moment))):
                await self.loop.planner.ask()
                await self.loop.planner.decide_all()
                with suppress(NotFound):
                    await self.loop.services.reconcile(view.key)
            assert not self.loop.observer.views
            for deployment in list(self.loop.caches.deployments):
                self.loop.caches.deployments.remove(deployment)

    def _deleting(self, name: str, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def then(*arguments: Any, **more: Any) -> Any:
            known = self.loop.caches.services.get(name, "serving")
            if known is not None:
                self.loop.caches.services.remove(known)
            if INFERENCE_SERVICES in arguments:
                raise NotFound(404, "NotFound", "it has gone")
            return await call(*arguments, **more)

        return then


def decode(kind: Kind[Any], name: str, body: Json, **meta: Any) -> Any:
    own = {"name": name, "namespace": "serving", "uid": f"uid-of-{name}", "generation": 1,
           "creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "1"}  # fmt: skip
    return kind.decode(json.dumps({**body, "metadata": {**own, **meta}}).encode())


def held(root: object) -> dict[str, int]:
    """By owner and attribute, how many entries the collections hold that ``root`` leads to."""
    found: dict[str, int] = {}
    seen: set[int] = set()
    todo = [("loop", root)]
    while todo:
        path, thing = todo.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, dict | set | list):
            found[path] = found.get(path, 0) + len(thing)
        todo += [(name or path, inner) for name, inner in _within(thing)]
    return found


def _within(thing: object) -> Iterator[tuple[str, object]]:
    if isinstance(thing, dict):
        yield from (("", inner) for inner in thing.values())
    elif isinstance(thing, list | tuple):
        yield from (("", inner) for inner in thing)
    elif isinstance(thing, MethodType):
        yield "", thing.__self__
    elif isinstance(thing, FunctionType):
        cells = thing.__closure__ or ()
        yield from ((f"{thing.__qualname__} {name}", cell.cell_contents)
                    for name, cell in zip(thing.__code__.co_freevars, cells, strict=True))  # fmt: skip
    elif type(thing).__module__.startswith("berth.") and not isinstance(thing, wire.Wire):
        slots = [slot for each in type(thing).__mro__ for slot in getattr(each, "__slots__", ())]
        for name in (*getattr(thing, "__dict__", ()), *slots):
            yield f"{type(thing).__name__}.{name}", getattr(thing, name, None)


@pytest.mark.parametrize("life", [World.one, World.hasty])
async def test_what_comes_and_goes_leaves_nothing(life: Callable[[World, int], Awaitable[None]]) -> None:
    world = World()
    for number in range(5):
        await life(world, number)
    before = held(world.loop)
    for number in range(5, 55):
        await life(world, number)
    grown = {path for path, size in held(world.loop).items() if size > before.get(path, 0) + 20}
    assert {path for path in grown if not path.startswith(BOUNDED)} == set()


async def test_a_service_whose_deletion_somebody_holds_up_holds_no_room() -> None:
    world = World()
    world.fleet.set_node(make_node("n0", pool="l4", devices=2))
    spec = {"spec": json.loads(bytes(make_view("s", **SPEC).object.spec))}
    for version, fields in (("1", {}), ("2", {"deletionTimestamp": "2026-01-01T00:10:00Z"})):
        world.loop.caches.services.observe(decode(INFERENCE_SERVICES, "s", spec, resourceVersion=version, **fields))
        (view,) = world.loop.observer.views.values()
        for _ in range(2):
            await world.loop.planner.ask()
            await world.loop.planner.decide_all()
            world.loop.planner.refresh(view)
        assert bool(world.fleet.claims) is not view.deleting
