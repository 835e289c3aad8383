"""One service on one pool of L4s with what carries out its plans, and an API server that keeps Deployments and pods."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from berth.cluster import wire
from berth.cluster.cache import Cache
from berth.cluster.errors import Conflict
from berth.cluster.kinds import DEPLOYMENTS, INFERENCE_SERVICES, NODES, PODS, Kind
from berth.controllers.services.deployments import ServiceDeployments
from berth.controllers.services.observe import ServiceCaches, ServiceObserver
from berth.controllers.services.rollout import NO_SPACE, Space
from berth.controllers.services.upkeep import Mends
from berth.inference.service import Memory, Phase, Plan
from tests.builders.fleet import make_fleet, make_node, make_pool
from tests.builders.services import make_variant
from tests.unit.cluster.fakes import FakeClock
from tests.unit.controllers.services.views import make_view

Json = dict[str, Any]
NAME = "chat-l4-od-x"
START = 1.7e9


class Server:
    """Applies without regard to managers, and refuses what names another uid or version."""

    def __init__(self) -> None:
        self.transport = SimpleNamespace(clock=FakeClock())
        self.objects: dict[tuple[str, str], Json] = {}
        self.applied: list[Json] = []
        self.patched: list[tuple[str, Any]] = []
        self.managers: list[Json] = []
        self.finds = 0

    def put(self, kind: Kind[Any], name: str, body: Mapping[str, Any]) -> Any:
        old = self.objects.get((kind.kind, name), {})
        wanted = body.get("metadata", {})
        meta = {**old.get("metadata", {"uid": f"uid-of-{name}", "generation": 0}), **wanted}
        meta["resourceVersion"] = str(int(meta.get("resourceVersion", 0)) + 1)
        parts = {key: {**old.get(key, {}), **body.get(key, {})} for key in ("spec", "status")}
        if parts["spec"] != old.get("spec"):
            meta["generation"] += 1
        self.objects[kind.kind, name] = {"metadata": meta, **parts}
        return self.read(kind, name)

    def read(self, kind: Kind[Any], name: str) -> Any:
        return kind.decode(json.dumps(self.objects[kind.kind, name]).encode())

    async def apply(self, kind: Kind[Any], name: str, body: Json, namespace: str, *, manager: str) -> Any:
        old = self.objects.get((kind.kind, name), {}).get("metadata", {})
        for field in ("uid", "resourceVersion"):
            if body["metadata"].get(field, old.get(field)) != old.get(field):
                raise Conflict(409, "Conflict", f"another {field}")
        self.applied.append(body)
        return self.put(kind, name, body)

    async def find(self, kind: Kind[Any], name: str, namespace: str) -> Any:
        self.finds += 1
        own = self.objects[kind.kind, name]["metadata"]
        meta = {"name": name, "generation": own["generation"], "managedFields": self.managers}
        return kind.decode(json.dumps({"metadata": meta}).encode())

    async def patch(self, kind: Kind[Any], name: str, body: Json, namespace: str) -> None:
        meta = body["metadata"]
        self.patched.append((name, meta["annotations"]["controller.kubernetes.io/pod-deletion-cost"]))
        old = self.objects[kind.kind, name]["metadata"]["labels"]
        labels = {key: value for key, value in {**old, **meta["labels"]}.items() if value is not None}
        self.put(kind, name, {"metadata": {"labels": labels}})


class Rolling:
    """The service ``chat`` with one variant, whose Deployment is at a time given by ``now``.

    With a ``client`` it is on the server of that.
    """

    def __init__(self, client: Any = None, namespace: str = "serving", **spec: Any) -> None:
        self.server, self.now, self.namespace = Server(), START, namespace
        server: Any = client or self.server
        self.mends = Mends()
        self.pods, nodes = Cache(server, PODS), Cache(server, NODES)
        self.caches = ServiceCaches(Cache(server, INFERENCE_SERVICES), Cache(server, DEPLOYMENTS))
        self.observer = ServiceObserver(
            self.caches, self.pods, nodes, leaving=lambda pod, node: None, wake=lambda key: None,
            gone=lambda view: None,
        )  # fmt: skip
        self.fleet = make_fleet(
            [make_node("n", pool="l4", devices=4)], pools=[make_pool("l4", accelerator="L4", roles=("Inference",))]
        )
        self.deployments = ServiceDeployments(
            server, self.observer, self.fleet, self.mends, clock=lambda: self.now, wall=lambda: self.now
        )
        self.variant = make_variant()
        self.respec(**spec)

    def respec(self, **spec: Any) -> None:
        """The user's spec, anew."""
        made = make_view(**spec).object
        meta = {"name": "chat", "namespace": self.namespace, "uid": made.metadata.uid,
                "generation": int(self.now) % 10**6, "resourceVersion": str(int(self.now))}  # fmt: skip
        body = {"metadata": meta, "spec": json.loads(bytes(made.spec))}
        self.caches.services.observe(INFERENCE_SERVICES.decode(json.dumps(body).encode()))
        self.view = self.observer.views[made.metadata.uid]

    def plan(self, count: int, *victims: str) -> Plan:
        """What the service's latest plan is from now on."""
        self.view.plan = Plan({NAME: count}, Memory(), Phase.READY, "", {}, victims={NAME: victims})
        return self.view.plan

    @property
    def known(self) -> wire.Deployment:
        """The Deployment as the cache has it."""
        return self.observer.deployments(self.view)[NAME]

    async def found(self, count: int, free: int = 0) -> None:
        """The Deployment comes to be and gets ready."""
        await self.deployments.found(self.view, self.variant, count, Space(free))
        if self.server.objects:
            self.settle()

    async def look(self, plan: Plan, space: Space = NO_SPACE) -> None:
        """The Deployment is brought to ``plan``."""
        await self.deployments.follow(self.view, self.known, NAME, self.variant, plan, waits=False, space=space)

    def settle(self, **status: int) -> None:
        """The Deployment's controller has done what is asked for, unless ``status`` says otherwise."""
        count = self.known.spec.replicas
        whole = {"observedGeneration": self.known.metadata.generation, "replicas": count, "updatedReplicas": count,
                 "readyReplicas": count, **status}  # fmt: skip
        self.caches.deployments.put(self.server.put(DEPLOYMENTS, NAME, {"status": whole}))

    def scaled_by_others(self, count: int) -> None:
        """Somebody else sets the count."""
        self.edited(replicas=count)

    def edited(self, **spec: Any) -> None:
        """Somebody else sets fields of the spec."""
        self.caches.deployments.put(self.server.put(DEPLOYMENTS, NAME, {"spec": spec}))

    def pod(self, name: str, *, node: str = "n", age: float = 0.0, marked: bool = False) -> None:
        """A pod of the variant."""
        labels = {"berth.dev/service-name": "chat", "berth.dev/variant": NAME, "pod-template-hash": "h"}
        labels |= {"berth.dev/first-to-go": "true"} if marked else {}
        owner = {"kind": "ReplicaSet", "name": f"{NAME}-h", "uid": "u", "controller": True}
        created = wire_time(self.now - age)
        meta = {"name": name, "namespace": "serving", "labels": labels, "ownerReferences": [owner],
                "creationTimestamp": created}  # fmt: skip
        self.pods.observe(self.server.put(PODS, name, {"metadata": meta, "spec": {"nodeName": node}}))

    def strategy(self) -> tuple[Any, Any]:
        """Surge and unavailability that the Deployment has."""
        rolling = self.server.objects["Deployment", NAME]["spec"]["strategy"]["rollingUpdate"]
        return rolling["maxSurge"], rolling["maxUnavailable"]


def wire_time(seconds: float) -> str:
    """RFC 3339."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
