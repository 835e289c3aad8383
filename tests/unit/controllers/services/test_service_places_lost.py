"""Replicas whose place is gone are no supply, and those who run on a node that shows something else look at once."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from berth.api.common import rfc3339
from berth.cluster import wire
from berth.cluster.cache import Cache
from berth.cluster.kinds import DEPLOYMENTS, INFERENCE_SERVICES, NODES, PODS
from berth.controllers.services.facts import CRASHES
from berth.controllers.services.observe import FAILED_SECONDS, UNHEARD_SECONDS, ServiceCaches, ServiceObserver
from berth.controllers.services.plans import pod_facts
from berth.controllers.services.supply import Market
from berth.controllers.services.view import ServiceKey
from berth.fleet.fleet import Fleet
from berth.inference.room import Rooms
from tests.builders.fleet import make_claim, make_fleet, make_node, make_pool
from tests.unit.controllers.harness import Server
from tests.unit.controllers.services.views import make_view, make_wire_node

KEY = ("serving", "chat")
TAINT = {"key": "aws-node-termination-handler/spot-itn", "effect": "NoSchedule"}


class Watched:
    """An observer with one service and one of its pods, on node ``n``."""

    def __init__(self) -> None:
        server: Any = Server()
        self.woken: list[ServiceKey] = []
        self.now = 0.0
        self.pods, self.nodes = Cache(server, PODS), Cache(server, NODES)
        caches = ServiceCaches(Cache(server, INFERENCE_SERVICES), Cache(server, DEPLOYMENTS))
        self.observer = ServiceObserver(
            caches, self.pods, self.nodes,
            leaving=lambda pod, node: None, wake=self.woken.append, gone=lambda view: None,
            wall=lambda: self.now,
        )  # fmt: skip
        caches.services.observe(make_view().object)
        found = self.observer.view(KEY)
        assert found is not None
        self.view = found
        self.nodes.version = 1
        self.nodes.observe(make_wire_node())
        self.pods.observe(pod("p"))
        self.woken.clear()


def pod(name: str, node: str = "n", created: float | None = None, **status: Any) -> wire.Pod:
    labels = {"berth.dev/service-name": "chat", "berth.dev/variant": "v", "pod-template-hash": "h"}
    owner = {"kind": "ReplicaSet", "name": "v-h", "uid": "u", "controller": True}
    meta: dict[str, Any] = {"name": name, "namespace": "serving", "uid": f"uid-of-{name}", "labels": labels}
    meta["ownerReferences"] = [owner]
    if created is not None:
        meta["creationTimestamp"] = rfc3339(created)
    found: wire.Pod = PODS.decode(json.dumps({"metadata": meta, "spec": {"nodeName": node}, "status": status}).encode())
    return found


@pytest.mark.parametrize(
    ("shown", "looks"),
    [
        ({"taints": [TAINT]}, True),
        ({"conditions": [{"type": "Ready", "status": "False"}]}, True),
        ({}, False),
        ({"name": "another", "taints": [TAINT]}, False),
    ],
    ids=["a taint", "a condition", "a heartbeat", "another node"],
)
def test_a_notice_on_a_node_is_looked_at_by_whoever_runs_there(shown: dict[str, Any], looks: bool) -> None:
    watched = Watched()
    before = watched.observer.state(watched.view)
    watched.nodes.observe(make_wire_node(**shown))
    assert (KEY in watched.woken) is looks
    assert (watched.observer.state(watched.view) != before) is looks


@pytest.mark.parametrize(("edited", "looks"), [(False, False), (True, True)])
def test_an_edit_that_the_answer_to_a_write_shows_first_is_looked_at(edited: bool, looks: bool) -> None:
    watched = Watched()
    before = watched.view.object.metadata
    meta = msgspec.structs.replace(before, generation=before.generation + edited, resource_version="7")
    watched.observer.absorb(msgspec.structs.replace(watched.view.object, metadata=meta))
    assert (KEY in watched.woken) is looks


def test_pods_of_a_deleted_node_are_lost_until_it_is_there_again() -> None:
    watched = Watched()
    assert watched.observer.lost(watched.view) == []
    assert watched.observer.held(watched.view) == {"v": 1}
    watched.nodes.remove(make_wire_node())
    assert [entry.metadata.name for entry in watched.observer.lost(watched.view)] == ["p"]
    assert watched.observer.held(watched.view) == {}
    watched.nodes.observe(make_wire_node())
    assert watched.observer.lost(watched.view) == []


def test_while_nodes_are_listed_anew_nothing_is_lost() -> None:
    watched = Watched()
    watched.nodes._forget_versions()
    watched.now = 2 * UNHEARD_SECONDS
    assert watched.observer.lost(watched.view) == []


@pytest.mark.parametrize(("after", "lost"), [(UNHEARD_SECONDS - 1, []), (UNHEARD_SECONDS + 1, ["early"])])
def test_a_node_that_nobody_hears_of_is_gone_though_nobody_saw_it_go(after: float, lost: list[str]) -> None:
    watched = Watched()
    watched.pods.observe(pod("early", "new"))
    watched.now = after
    assert [entry.metadata.name for entry in watched.observer.lost(watched.view)] == lost
    watched.nodes.observe(make_wire_node("new"))
    assert watched.observer.lost(watched.view) == []


NOW = 1_700_000_000.0
READY = [{"type": "Ready", "status": "True"}]


def ended(*counts: int, **status: Any) -> list[wire.Pod]:
    """Pods whose servers have ended so often."""
    servers = [[{"name": "server", "restartCount": count}] for count in counts]
    return [pod(f"e{server[0]['restartCount']}", containerStatuses=server, **status) for server in servers]


def evicted(count: int, seconds_ago: float) -> list[wire.Pod]:
    return [pod(f"gone-{number}", created=NOW - seconds_ago, phase="Failed") for number in range(count)]


@pytest.mark.parametrize(
    ("pods", "stops"),
    [
        (ended(2, 1), True),
        (ended(0, 2), False),
        ([*ended(3), pod("ready", conditions=READY)], False),
        ([*ended(3), *ended(5, conditions=READY)], False),
        (evicted(CRASHES, 0.0), True),
        (evicted(CRASHES, FAILED_SECONDS + 1), False),
    ],
    ids=["crashing", "too few", "one serves", "one serves that has crashed", "evicted", "evicted long ago"],
)
def test_no_more_are_started_of_what_ends_again_and_again_and_never_serves(pods: list[wire.Pod], stops: bool) -> None:
    watched = Watched()
    watched.now = NOW
    watched.pods.remove(pod("p"))
    for each in pods:
        watched.pods.observe(each)
    assert watched.observer.crashing(watched.view, CRASHES) == ({"v"} if stops else set())


def l4s() -> Fleet:
    pools = [make_pool("l4", accelerator="L4", roles=("Inference",))]
    return make_fleet([make_node("l4-0", pool="l4", devices=4)], pools=pools)


@pytest.mark.parametrize(
    ("wanted", "standing", "taken", "room"),
    [(3, 3, 3, 4), (3, 1, 1, 4), (3, 1, 4, 1), (3, 5, 4, 3), (0, 0, 0, 4)],
    ids=["all have a node", "room for the rest", "none for the rest", "others end", "none yet"],
)
def test_what_has_neither_a_node_nor_room_is_no_supply(wanted: int, standing: int, taken: int, room: int) -> None:
    fleet, view = l4s(), make_view(accelerators={"types": ["L4"], "perReplica": 1})
    shop = Market(fleet, Rooms(fleet), pod_facts(fleet))
    choice = shop.choice(view)
    (name,) = choice.variants
    fleet.claim([make_claim(f"c{i}", "l4-0", 1, role="Inference") for i in range(taken)])
    (offer,) = shop.offers(view, choice, {name: wanted}, lambda _: False, {name: standing})
    assert offer.room == room


def test_what_an_annotation_says_of_the_model_counts_from_then_on() -> None:
    fleet, view = l4s(), make_view()
    shop = Market(fleet, Rooms(fleet), pod_facts(fleet))
    assert not shop.choice(view).request.compiled_for
    meta = msgspec.structs.replace(view.object.metadata, annotations={"berth.dev/compiled-for": "Trainium2"})
    view.object = msgspec.structs.replace(view.object, metadata=meta)
    assert shop.choice(view).request.compiled_for == {"Trainium2"}
