"""Weights on nodes, a round at a time: who is labelled, where weights are fetched to, what becomes of fetches."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from berth.cluster.cache import Cache
from berth.cluster.errors import ApiError, Forbidden
from berth.cluster.kinds import DEPLOYMENTS, INFERENCE_SERVICES, NODES, PODS, Kind
from berth.controllers.services.cachelabels import MOST_WRITES
from berth.controllers.services.demand import DemandBook
from berth.controllers.services.observe import ServiceCaches, ServiceObserver
from berth.controllers.services.planner import ServicePlanner
from berth.controllers.services.plans import pod_facts
from berth.controllers.services.prefetch import BIND_SECONDS, RETRY_SECONDS, Prefetcher
from berth.controllers.services.reserve import Reservations
from berth.controllers.services.spotting import SpotWatch
from berth.controllers.services.supply import Market, start_key
from berth.controllers.services.view import ServiceKey
from berth.controllers.services.warmth import Warmth
from berth.inference.coldstart import ENOUGH
from berth.inference.room import Rooms
from berth.inference.target import Target
from berth.render.service.weights import model_cache_label
from berth.telemetry.metrics import Metrics
from berth.telemetry.sources import NO_SOURCE
from tests.builders.fleet import make_fleet, make_node, make_pool
from tests.builders.services import MODEL
from tests.unit.controllers.harness import Server
from tests.unit.controllers.services.views import make_view

Json = dict[str, Any]
FOLDER = {"name": "berth-model-cache", "hostPath": {"path": "/nvme"}}
LABEL = model_cache_label(str(MODEL["uri"]))
PREFIX = "berth.dev/model-cache-"
BEGIN = 1_796_119_200.0  # the fake clock's
DISK_PRESSURE = [{"type": "DiskPressure", "status": "True"}]


class Cluster(Server):
    """An API server that also applies labels of nodes."""

    async def apply(
        self, kind: Kind[Any], name: str, body: Json, namespace: str = "", *, manager: str, subresource: str = ""
    ) -> Any:
        if kind is not NODES:
            return await super().apply(kind, name, body, namespace, manager=manager, subresource=subresource)
        self._receive("apply", kind, name)
        found = copy.deepcopy(self._known(kind, "", name))
        assert body["metadata"]["uid"] == found["metadata"]["uid"]
        assert manager == "berth-cache"
        assert body.keys() == {"apiVersion", "kind", "metadata"}
        others = {key: value for key, value in found["metadata"]["labels"].items() if not key.startswith(PREFIX)}
        found["metadata"]["labels"] = others | body["metadata"]["labels"]
        return self._answer(kind, self.put(kind, found))


class World:
    """The service ``chat`` on nodes of four L4s each, and the piece under test."""

    def __init__(self, nodes: int = 3, *, most: int = 2, conditions: list[Json] | None = None, **spec: Any) -> None:
        self.server: Any = Cluster()
        names = [f"n{number}" for number in range(nodes)]
        fleet = make_fleet(
            [make_node(name, pool="l4", devices=4) for name in names],
            pools=[make_pool("l4", accelerator="L4", roles=("Inference",))],
        )
        self.pods, self.nodes = Cache(self.server, PODS), Cache(self.server, NODES)
        for name in names:
            self.node(name, conditions=conditions or [])
        caches = ServiceCaches(Cache(self.server, INFERENCE_SERVICES), Cache(self.server, DEPLOYMENTS))
        self.woken: list[ServiceKey] = []
        observer = ServiceObserver(
            caches, self.pods, self.nodes, leaving=lambda *_: None, wake=lambda _: None, gone=lambda _: None
        )
        rooms, facts, self.demand = Rooms(fleet), pod_facts(fleet), DemandBook(NO_SOURCE, fleet)
        self.warmth, self.market = Warmth(self.pods, self.nodes), Market(fleet, rooms, facts)
        self.planner = ServicePlanner(
            observer, self.market, self.demand, Reservations(fleet, rooms), facts,
            SpotWatch(fleet, self.nodes, rooms), self.warmth, Metrics(),
            priority=lambda _: 0, carry_out=lambda _: None, wall=self.server.now,
        )  # fmt: skip
        self.prefetcher = Prefetcher(
            self.server, fleet, rooms, facts, observer, self.planner, self.demand, self.warmth, self.pods, self.nodes,
            Metrics(), most=most, changed=self.woken.append, wall=self.server.now,
        )  # fmt: skip
        own = {"coldStart": {"modelCache": "NVMe"}, "template": {"spec": {"volumes": [FOLDER]}}}
        kinds = {"accelerators": {"types": ["L4"], "perReplica": 1}}
        caches.services.observe(make_view(**{**own, **kinds, **spec}).object)
        (self.view,) = observer.views.values()
        self.view.persisted = {"observedGeneration": self.view.object.metadata.generation}
        self.planner.decide(self.view)
        (self.variant,) = self.market.choice(self.view).variants.values()
        self.caches = caches
        self.deployment()

    def deployment(self, *, replicas: int = 1, updated: int = 1) -> None:
        """That of the variant, of whose pods ``updated`` run what is asked for."""
        owner = {"kind": "InferenceService", "name": "chat", "uid": self.view.uid, "controller": True}
        labels = {"berth.dev/service-name": "chat", "berth.dev/variant": self.variant.name}
        meta = {"name": self.variant.name, "namespace": "serving", "labels": labels, "ownerReferences": [owner]}
        body = {
            "metadata": meta,
            "status": {"observedGeneration": 99, "replicas": replicas, "updatedReplicas": updated},
        }
        self.caches.deployments.observe(self.server._answer(DEPLOYMENTS, self.server.put(DEPLOYMENTS, body)))

    def node(self, name: str, *, conditions: list[Json] | None = None, **labels: str) -> None:
        body = {"metadata": {"name": name, "labels": labels}, "status": {"conditions": conditions or []}}
        self.nodes.observe(self.server._answer(NODES, self.server.put(NODES, body)))

    def expects(self, work: float) -> None:
        """So much is to be ready at the horizon."""
        self.demand.of(self.view).target = Target(work, work)

    def replica(self, name: str, node: str, *, ready_after: float | None = None, of: str = "") -> None:
        owner = {"kind": "ReplicaSet", "name": f"{of or self.variant.name}-h", "uid": "u", "controller": True}
        labels = {"berth.dev/service-name": "chat", "berth.dev/variant": self.variant.name, "pod-template-hash": "h"}
        conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(0)}]
        if ready_after is not None:
            conditions.append({"type": "Ready", "status": "True", "lastTransitionTime": stamp(ready_after)})
        meta = {"name": name, "namespace": "serving", "uid": name, "labels": labels, "ownerReferences": [owner],
                "creationTimestamp": stamp(0)}  # fmt: skip
        body = {"metadata": meta, "spec": {"nodeName": node}, "status": {"phase": "Running", "conditions": conditions}}
        self.pods.observe(self.server._answer(PODS, self.server.put(PODS, body)))

    async def round(self) -> None:
        """One look, before and after which watches bring what has happened."""
        self.watch()
        await self.prefetcher.round()
        self.watch()

    def watch(self) -> None:
        there = self.server.pods()
        for pod in list(self.pods):
            if pod.metadata.name not in there:
                self.pods.remove(pod)
        for body in there.values():
            self.pods.observe(self.server._answer(PODS, body))

    def fetches(self) -> dict[str, str]:
        """Fetching pods: their node, and their names."""
        found = {}
        for name, body in self.server.pods().items():
            if "berth.dev/prefetch-for" in body["metadata"]["labels"]:
                terms = body["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
                found[terms["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]] = name
        return found

    def ends(self, node: str, phase: str, **status: Any) -> None:
        """The fetch to ``node`` was bound there and has ended."""
        pod = copy.deepcopy(self.server.objects["pods", "serving", self.fetches()[node]])
        pod["spec"]["nodeName"] = node
        self.server.put(PODS, {**pod, "status": {"phase": phase, **status}})

    def labelled(self) -> set[str]:
        return {node.metadata.name for node in self.nodes if LABEL in node.metadata.labels}

    @property
    def told(self) -> tuple[bool | None, str]:
        verdict = self.prefetcher.verdict(self.view)
        assert verdict is not None
        return verdict.status, verdict.reason

    def writes(self) -> list[tuple[str, str, str]]:
        return [entry for entry in self.server.log if entry[1] == "nodes"]


def stamp(seconds: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(BEGIN + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def test_nodes_of_ready_replicas_are_labelled_once() -> None:
    world = World()
    world.replica("a", "n1", ready_after=90)
    world.replica("b", "n2")
    for _ in range(3):
        await world.round()
    assert world.labelled() == {"n1"}
    assert world.writes() == [("apply", "nodes", "n1")]


async def test_only_replicas_that_run_what_is_asked_for_show_where_its_weights_are() -> None:
    world = World()
    world.replica("foreign", "n0", ready_after=90, of="somebody-s")
    world.replica("a", "n1", ready_after=90)
    world.deployment(replicas=2, updated=1)
    await world.round()
    assert world.labelled() == set(), "it may have loaded those that the spec named before"
    world.deployment(replicas=2, updated=2)
    world.view.persisted = {"observedGeneration": 0}
    await world.round()
    assert world.labelled() == set(), "the spec has changed and was not carried out yet"
    world.view.persisted = {"observedGeneration": world.view.object.metadata.generation}
    await world.round()
    assert world.labelled() == {"n1"}


async def test_a_fleet_without_labels_gets_them_by_and_by() -> None:
    world = World(nodes=MOST_WRITES + 2)
    for number in range(MOST_WRITES + 2):
        world.replica(f"r{number}", f"n{number}", ready_after=90)
    await world.round()
    assert len(world.labelled()) == MOST_WRITES
    await world.round()
    assert len(world.labelled()) == MOST_WRITES + 2


async def test_weights_go_where_replicas_will_come_a_few_at_once() -> None:
    world = World(most=2)
    world.expects(12.0)
    await world.round()
    assert len(world.fetches()) == 2
    assert world.told == (False, "Fetching")
    await world.round()
    assert len(world.fetches()) == 2


async def test_a_fetch_that_ends_well_labels_its_node_and_goes() -> None:
    world = World(most=1)
    world.expects(3.0)
    await world.round()
    (node,) = world.fetches()
    world.ends(node, "Succeeded")
    await world.round()
    assert world.labelled() == {node}
    assert world.fetches() == {}
    assert world.told == (True, "Sufficient")
    assert world.woken[-1] == world.view.key


async def test_a_fetch_that_fails_stays_to_be_read_and_another_node_is_tried() -> None:
    world = World(nodes=2, most=1)
    world.expects(3.0)
    await world.round()
    (first,) = world.fetches()
    world.ends(first, "Failed", reason="DeadlineExceeded")
    await world.round()
    assert len(world.fetches()) == 2
    (second,) = world.fetches().keys() - {first}
    world.ends(second, "Failed", message="no space left on device")
    await world.round()
    assert world.told == (False, "FetchFailed")
    await world.server.clock.advance(RETRY_SECONDS)
    await world.round()
    assert world.told == (False, "Fetching"), "tried again after a while"


async def test_a_fetch_that_finds_no_room_gives_way_to_another_node() -> None:
    world = World(nodes=2, most=1)
    world.expects(3.0)
    await world.round()
    (first,) = world.fetches()
    await world.server.clock.advance(BIND_SECONDS)
    await world.round()
    assert world.fetches().keys() == {"n0", "n1"} - {first}


async def test_a_service_that_sleeps_finds_its_weights_when_it_wakes() -> None:
    world = World()
    assert world.view.plan is not None
    world.view.plan = replace(world.view.plan, counts={})
    await world.round()
    assert len(world.fetches()) == 1


async def test_a_fetch_of_other_weights_labels_nothing() -> None:
    world = World(most=1)
    world.expects(3.0)
    await world.round()
    (node,) = world.fetches()
    world.ends(node, "Succeeded")
    assert world.view.spec is not None
    other = world.view.spec.model.model_copy(update={"uri": "hf://meta/another"})
    world.view.spec = world.view.spec.model_copy(update={"model": other})
    await world.round()
    assert world.writes() == []


async def test_pods_that_only_look_like_fetches_are_left_alone() -> None:
    world = World()
    meta = {"name": "mine", "namespace": "serving", "labels": {"berth.dev/prefetch-for": "chat"}}
    world.server.put(PODS, {"metadata": meta, "spec": {"nodeName": "n1"}, "status": {"phase": "Succeeded"}})
    await world.round()
    assert world.server.pods().keys() == {"mine"}
    assert world.labelled() == set()


WORDS = "no PriorityClass with name berth-prefetch was found"
BY_HOOK = ApiError(500, "InternalError", f"failed calling webhook: {WORDS}")


@pytest.mark.parametrize("refusal", [Forbidden(403, "Forbidden", WORDS), BY_HOOK], ids=["admission", "a webhook"])
async def test_what_the_server_refuses_is_told_and_not_tried_every_time(refusal: ApiError) -> None:
    world = World()
    world.expects(3.0)
    world.server.admit = lambda body: refusal
    await world.round()
    requests = world.server.requests
    await world.round()
    assert world.told == (False, "FetchRefused")
    assert world.server.requests == requests
    found = world.prefetcher.verdict(world.view)
    assert found is not None
    assert WORDS in found.message


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"template": {}}, "NotKept"),
        ({"model": {**MODEL, "uri": "s3://models/llama"}}, "NotKept"),
        (
            {"runtime": {"engine": "Custom"}, "template": {"spec": {
                "volumes": [FOLDER], "containers": [{"name": "server", "image": "example.com/own:1"}]}}},
            "NoFetcher",
        ),
    ],
    ids=["a volume that ends with its pod", "streamed", "an engine of one's own"],
)  # fmt: skip
async def test_where_nothing_can_be_fetched_the_condition_says_why(spec: Json, reason: str) -> None:
    world = World(**spec)
    world.expects(3.0)
    await world.round()
    assert world.told == (False, reason)
    assert world.fetches() == {}


async def test_a_service_that_keeps_no_weights_is_left_alone() -> None:
    world = World(coldStart={"modelCache": "None"})
    world.expects(9.0)
    world.replica("a", "n1", ready_after=90)
    await world.round()
    assert world.prefetcher.verdict(world.view) is None
    assert (world.fetches(), world.labelled()) == ({}, set())


async def test_a_node_short_of_disk_gets_nothing_and_has_lost_its_images() -> None:
    world = World(nodes=1, conditions=DISK_PRESSURE, model={**MODEL, "uri": "oci://registry.example/llama:1"})
    label = model_cache_label("oci://registry.example/llama:1")
    world.node("n0", conditions=DISK_PRESSURE, **{label: "true", "team": "a"})
    world.expects(3.0)
    await world.round()
    (node,) = world.nodes
    assert node.metadata.labels == {"team": "a"}
    assert world.told == (False, "NoCacheRoom")


async def test_images_that_are_in_use_survive_a_full_disk() -> None:
    world = World(nodes=1, conditions=DISK_PRESSURE, model={**MODEL, "uri": "oci://registry.example/llama:1"})
    world.node("n0", conditions=DISK_PRESSURE, **{model_cache_label("oci://registry.example/llama:1"): "true"})
    world.replica("a", "n0")
    await world.round()
    assert world.writes() == []


async def test_starts_are_learned_by_what_the_node_held_when_they_came() -> None:
    world = World()
    world.node("n1", **{LABEL: "true"})
    for name, node in (("cold", "n0"), ("warm", "n1")):
        world.replica(name, node)
        world.replica(name, node, ready_after=30)
    await world.server.clock.advance(30)
    await world.round()
    world.planner.decide(world.view)
    counts = [world.view.starts.count(start_key(world.view, world.variant, cached=cached)) for cached in (False, True)]
    assert counts == [1, 1]


async def test_a_start_that_was_seen_too_late_teaches_nothing_of_a_node_with_weights() -> None:
    world = World()
    world.node("n1", **{LABEL: "true"})
    world.replica("old", "n1", ready_after=30)
    world.planner.decide(world.view)
    assert not world.view.starts.samples


async def test_a_label_that_a_slow_start_disproves_goes_once() -> None:
    world = World()
    for _ in range(ENOUGH):
        for cached, seconds in ((False, 100.0), (True, 20.0)):
            world.view.starts.observe(start_key(world.view, world.variant, cached=cached), seconds)
    world.node("n1", **{LABEL: "true"})
    world.replica("slow", "n1")
    world.replica("slow", "n1", ready_after=150)
    await world.server.clock.advance(150)
    world.planner.decide(world.view)
    await world.round()
    assert world.labelled() == set()
    world.replica("next", "n1")
    world.replica("next", "n1", ready_after=100)
    for _ in range(2):
        await world.round()
    assert world.labelled() == {"n1"}
