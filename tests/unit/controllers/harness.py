"""The operator's training controllers on an API server in memory, looked at one reconcile at a time.

Everything is real but the API client: caches, observer, scheduler, placement, judge, writer, renderer. The server keeps
objects as JSON, owners of status fields as server-side apply does, uids, resourceVersions and preconditions; pods that
are bound end only when :meth:`Server.kubelets` says so. ``Server.log`` has every request that changes anything.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from berth.cluster import kinds
from berth.cluster.cache import Cache
from berth.cluster.errors import AlreadyExists, ClusterError, Conflict, NotFound, Unreachable
from berth.cluster.kinds import Kind
from berth.cluster.queue import WorkQueue
from berth.controllers.gangs import Settings
from berth.controllers.judge import Judge
from berth.controllers.observe import Caches, Observer
from berth.controllers.permissions import allows
from berth.controllers.scheduler import Scheduler
from berth.controllers.trainingjobs import TrainingJobs
from berth.controllers.writer import StatusWriter
from berth.fleet.fleet import Fleet
from berth.telemetry.metrics import Metrics
from tests.builders.fleet import GPU, catalogue
from tests.unit.cluster.fakes import FakeClock

Json = dict[str, Any]
Key = tuple[str, str, str]  # plural, namespace, name
JOB = ("research", "llm")


class Server:
    """The API server.

    ``refuse`` may answer any request with an error, ``admit`` the create of a body, in a dry run too, and ``mutate``
    changes it as admission does; ``trials`` has the bodies of dry runs. After ``dies_after`` requests none arrives.
    A request that the operator's roles do not allow fails the test.
    """

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.objects: dict[Key, Json] = {}
        self.owners: dict[Key, dict[str, set[str]]] = {}
        self.log: list[tuple[str, str, str]] = []
        self.refuse: Callable[[str, str, str], ClusterError | None] = lambda verb, plural, name: None
        self.admit: Callable[[Json], ClusterError | None] = lambda body: None
        self.mutate: Callable[[Json], object] = lambda body: None
        self.trials: list[Json] = []
        self.version = 100
        self.requests = 0
        self.dies_after: int | None = None
        self.dead = False
        self.transport = SimpleNamespace(clock=self.clock)

    def now(self) -> float:
        return self.clock.wall().timestamp()

    def put(self, kind: Kind[Any], body: Json) -> Json:
        """Store an object as its maker's tools would."""
        meta = body["metadata"]
        key = (kind.plural, meta.get("namespace", ""), meta["name"])
        self.version += 1
        known = self.objects.get(key)
        stamp = self.clock.wall().strftime("%Y-%m-%dT%H:%M:%SZ")
        own = {"uid": f"uid-{self.version}", "creationTimestamp": stamp, "generation": 1}
        kept = {name: known["metadata"][name] for name in own} if known else own
        self.objects[key] = {**body, "metadata": {**kept, **meta, "resourceVersion": str(self.version)}}
        return self.objects[key]

    def pods(self) -> dict[str, Json]:
        return {name: body for (plural, _, name), body in self.objects.items() if plural == "pods"}

    def status(self) -> Json:
        found: Json = self.objects["trainingjobs", *JOB].get("status", {})
        return found

    def edit(self, **spec: Any) -> None:
        """The user changes the job's spec."""
        job = copy.deepcopy(self.objects["trainingjobs", *JOB])
        job["spec"].update(spec)
        job["metadata"]["generation"] += 1
        self.put(kinds.TRAINING_JOBS, job)

    def change_pod(self, name: str, **status: Any) -> None:
        pod = copy.deepcopy(self.objects["pods", JOB[0], name])
        pod.setdefault("status", {}).update(status)
        self.put(kinds.PODS, pod)

    def bind(self) -> None:
        """kube-scheduler binds what is pinned, kubelets run it."""
        for name, pod in self.pods().items():
            if pod.get("status", {}).get("phase", "Pending") != "Pending":
                continue
            terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            pod["spec"]["nodeName"] = terms["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
            self.change_pod(name, phase="Running", conditions=[{"type": "Ready", "status": "True"}])

    def kubelets(self) -> None:
        """Pods that are being deleted end where their node still exists."""
        for name, pod in self.pods().items():
            gone = ("nodes", "", pod["spec"].get("nodeName", "")) not in self.objects
            if "deletionTimestamp" in pod["metadata"] and not gone:
                del self.objects["pods", JOB[0], name]

    async def create(self, kind: Kind[Any], body: Any, namespace: str = "", *, dry_run: bool = False, **_: Any) -> Any:
        name = body["metadata"]["name"]
        self._receive("create", kind, name, changes=False)
        if dry_run:
            self.trials.append(body)
        refusal = self.admit(body)
        if refusal is not None:
            raise refusal
        body = json.loads(json.dumps(body))
        self.mutate(body)
        if dry_run:
            return kind.decode(json.dumps(body).encode())
        if (kind.plural, namespace, name) in self.objects:
            raise AlreadyExists(409, "AlreadyExists", f"{kind.plural} {name} already exists")
        self.log.append(("create", kind.plural, name))
        return self._answer(kind, self.put(kind, body))

    async def get(self, kind: Kind[Any], name: str, namespace: str = "", **_: Any) -> Any:
        self._receive("get", kind, name, changes=False)
        return self._answer(kind, self._known(kind, namespace, name))

    async def find(self, kind: Kind[Any], name: str, namespace: str = "") -> Any:
        try:
            return await self.get(kind, name, namespace)
        except NotFound:
            return None

    async def delete(
        self,
        kind: Kind[Any],
        name: str,
        namespace: str = "",
        *,
        uid: str,
        resource_version: str = "",
        grace_seconds: int | None = None,
        **_: Any,
    ) -> bool:
        self._receive("delete", kind, name)
        try:
            found = copy.deepcopy(self._known(kind, namespace, name))
        except NotFound:
            return False
        if found["metadata"]["uid"] != uid:
            raise Conflict(409, "Conflict", "the uid in the precondition is another")
        if resource_version not in ("", found["metadata"]["resourceVersion"]):
            raise Conflict(409, "Conflict", "the resourceVersion in the precondition is another")
        ended = found.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if kind is not kinds.PODS or not found["spec"].get("nodeName") or grace_seconds == 0 or ended:
            del self.objects[kind.plural, namespace, name]
        elif "deletionTimestamp" not in found["metadata"]:
            stamp = self.clock.wall().strftime("%Y-%m-%dT%H:%M:%SZ")
            found["metadata"].update(deletionTimestamp=stamp, deletionGracePeriodSeconds=30)
            self.put(kind, found)
        return True

    async def apply(
        self, kind: Kind[Any], name: str, body: Json, namespace: str = "", *, manager: str, subresource: str = ""
    ) -> Any:
        self._receive("apply", kind, manager, subresource=subresource)
        found = copy.deepcopy(self._known(kind, namespace, name))
        if not subresource:
            found["metadata"].setdefault("labels", {}).update(body["metadata"]["labels"])
            return self._answer(kind, self.put(kind, {**found, "spec": body["spec"]}))
        if found["metadata"]["uid"] != body["metadata"]["uid"]:
            raise Conflict(409, "Conflict", "the uid is another")
        if body["metadata"].get("resourceVersion", "") not in ("", found["metadata"]["resourceVersion"]):
            raise Conflict(409, "Conflict", "the object has been modified")
        before = found.get("status", {})
        after, owners = dict(before), self.owners.setdefault((kind.plural, namespace, name), {})
        for each, value in json.loads(json.dumps(body["status"])).items():
            owners[each] = owners.get(each, set()) | {manager} if after.get(each) == value else {manager}
            after[each] = value
        for each in [each for each, of in owners.items() if manager in of and each not in body["status"]]:
            owners[each].discard(manager)
            if not owners[each]:
                del owners[each], after[each]
        return self._answer(kind, found if after == before else self.put(kind, {**found, "status": after}))

    def _known(self, kind: Kind[Any], namespace: str, name: str) -> Json:
        found = self.objects.get((kind.plural, namespace, name))
        if found is None:
            raise NotFound(404, "NotFound", f"{kind.plural} {name} not found")
        return found

    def _receive(self, verb: str, kind: Kind[Any], name: str, *, subresource: str = "", changes: bool = True) -> None:
        plural = f"{kind.plural}/{subresource}" if subresource else kind.plural
        asked = "patch" if verb == "apply" else verb
        assert allows(asked, kind.group, plural), f"the roles of the chart do not allow to {asked} {plural}"
        self.dead = self.dead or (self.dies_after is not None and self.requests >= self.dies_after)
        if self.dead:
            raise Unreachable("the operator is dead")
        self.requests += 1
        refusal = self.refuse(verb, plural, name)
        if refusal is not None:
            raise refusal
        if changes:
            self.log.append((verb, plural, name))

    def _answer(self, kind: Kind[Any], body: Json) -> Any:
        return kind.decode(json.dumps(body).encode())


@dataclass
class Told:
    """An event recorder that only remembers."""

    reasons: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    announced: list[str] = field(default_factory=list)

    def normal(self, _: Any, reason: str, note: str) -> None:
        self.reasons.append(reason)
        self.notes.append(note)

    warning = normal

    def supersede(self, _: Any, reason: str) -> None:
        self.announced.append(reason)


def show(server: Server, caches: Caches) -> None:
    """Watches bring everything that has happened."""
    for cache in caches.every():
        for known in list(cache):
            key = (cache.kind.plural, *known.metadata.key)
            if server.objects.get(key, {}).get("metadata", {}).get("uid") != known.metadata.uid:
                cache.remove(known)
        for (plural, _, _), body in list(server.objects.items()):
            if plural == cache.kind.plural:
                cache.observe(cache.kind.decode(json.dumps(body).encode()))


class Operator:
    """One life of the operator: what it keeps in memory is gone with it."""

    def __init__(self, server: Server, **settings: Any) -> None:
        self.server, self.told, self.metrics = server, Told(), Metrics()
        client: Any = server
        caches = (kinds.TRAINING_JOBS, kinds.PODS, kinds.NODES, kinds.ACCELERATOR_POOLS, kinds.PRIORITY_CLASSES)
        self.caches = Caches(*(Cache(client, kind) for kind in (*caches, kinds.NAMESPACES, kinds.SERVICES)))  # type: ignore[arg-type]
        self.fleet = Fleet(catalogue())
        self.observer = Observer(self.fleet, self.caches, wake=lambda key: None, changed=lambda: None)
        self.queue: WorkQueue[tuple[str, str]] = WorkQueue(server.clock)
        idle: dict[str, Any] = {"carry_out": lambda key: None, "tell": lambda key: None}
        self.scheduler = Scheduler(self.observer, self.metrics, clock=server.clock.now, wall=server.now, **idle)
        self.writer = StatusWriter(client, self.observer, self.queue, wall=server.now, clock=server.clock)
        how = Settings(**settings)
        self.judge = Judge(client, self.observer, self.queue, how, clock=server.clock.now)
        told: Any = self.told
        self.jobs = TrainingJobs(
            client, self.observer, self.scheduler, self.writer, self.judge, told, self.metrics, self.queue, how,
            wall=server.now,
        )  # fmt: skip
        self.see()
        self.observer.settle()

    def see(self) -> None:
        """Watches bring everything that has happened."""
        show(self.server, self.caches)

    async def look(self, times: int = 1) -> None:
        """Watches, a reconcile, a pass of the scheduling loop, and the reconcile of what it promised."""
        for _ in range(times):
            self.see()
            await self.jobs.reconcile(JOB)
            if self.scheduler.waiting and self.scheduler.decide() and self.observer.promises:
                await self.jobs.reconcile(JOB)

    async def see_made_again(self) -> None:
        """The user deletes the job, whose pods go with it, and makes it anew under its name."""
        job = self.server.objects.pop(("trainingjobs", *JOB))
        for pod in list(self.server.pods()):
            del self.server.objects["pods", JOB[0], pod]
        await self.look()
        self.server.owners.clear()
        meta = {"name": JOB[1], "namespace": JOB[0]}
        self.server.put(kinds.TRAINING_JOBS, {"metadata": meta, "spec": job["spec"]})
        await self.look(2)


def make_server(nodes: int = 4, **spec: Any) -> Server:
    """A server with H100 nodes ``n0``… and the job ``research/llm`` of two workers with eight accelerators each."""
    server = Server()
    for number in range(nodes):
        add_node(server, f"n{number}")
    server.put(kinds.NAMESPACES, {"metadata": {"name": JOB[0]}, "status": {"phase": "Active"}})
    body = {
        "workers": 2,
        "accelerators": {"perWorker": 8},
        "template": {"spec": {"containers": [{"name": "worker", "image": "i"}]}},
        **spec,
    }
    server.put(kinds.TRAINING_JOBS, {"metadata": {"name": JOB[1], "namespace": JOB[0]}, "spec": body})
    server.log.clear()
    return server


def add_node(server: Server, name: str, **spec: Any) -> None:
    """A ready node with eight H100s."""
    labels = {"kubernetes.io/hostname": name, "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    room = {GPU: "8", "cpu": "192", "memory": "2Ti", "pods": "110"}
    status = {"allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]}
    server.put(kinds.NODES, {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status})


async def expect_nothing_written(operator: Operator, looks: int = 4) -> None:
    before = list(operator.server.log)
    for _ in range(looks):
        await operator.server.clock.advance(700)
        await operator.look()
    assert operator.server.log == before
