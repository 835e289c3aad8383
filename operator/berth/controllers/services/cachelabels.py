"""The labels by which nodes say whose weights they hold: few writes, only on change, and nothing else of the node.

They are applied by a manager of their own, so that taking one back leaves alone what somebody else has put there. A
node that is made anew comes without them, which is as it should be: its disk is new too.
"""

from __future__ import annotations

from typing import Final

from berth.api.names import CACHE_MANAGER, LABEL_VARIANT
from berth.cluster import wire
from berth.cluster.cache import Cache
from berth.cluster.client import ApiClient
from berth.cluster.errors import Conflict, NotFound
from berth.cluster.kinds import NODES
from berth.controllers.services.facts import TEMPLATE_LABEL
from berth.controllers.services.observe import ServiceObserver
from berth.controllers.services.rollout import rolled
from berth.controllers.services.view import ServiceView
from berth.controllers.services.warmth import cache_labels
from berth.values import EPHEMERAL_STORAGE, parse_resource

HELD: Final = "true"
"""Of a Deployment's pods: the end of their ReplicaSet's name."""
MOST_WRITES: Final = 20
"""In one round; the rest comes in the next ones. It is only ever reached by a fleet that has no labels yet."""


def under_disk_pressure(node: wire.Node) -> bool:
    """Whether its kubelet is short of disk, deletes images and refuses pods."""
    return wire.holds(node.status.conditions, "DiskPressure")


def local_storage(node: wire.Node) -> int | None:
    """Bytes that pods and images may have of its disk; None where it does not say."""
    text = node.status.allocatable.get(EPHEMERAL_STORAGE)
    return parse_resource(EPHEMERAL_STORAGE, text) if text is not None else None


def current_replicas(observer: ServiceObserver, view: ServiceView) -> set[str]:
    """The uids of pods that run what the spec asks for now, and so hold the weights that it names.

    Those of a Deployment of ours that has rolled out and is to roll no further; pods of others may carry its labels.
    """
    if view.persisted.get("observedGeneration") != view.object.metadata.generation:
        return set()
    sets = {
        name: f"{deployment.metadata.name}-"
        for name, deployment in observer.deployments(view).items()
        if name not in view.refused and not deployment.spec.paused and rolled(deployment)
    }
    return {
        pod.metadata.uid
        for pod in observer.pods(view)
        if not pod.metadata.deleting and _of(pod, sets.get(pod.metadata.labels.get(LABEL_VARIANT, ""), ""))
    }


def _of(pod: wire.Pod, prefix: str) -> bool:
    """Whether its ReplicaSet is one of the Deployment that names them with ``prefix``."""
    owner = pod.metadata.controller()
    template = pod.metadata.labels.get(TEMPLATE_LABEL, "")
    return bool(prefix) and owner is not None and owner.name == prefix + template


class CacheLabels:
    """What a round finds out about nodes, and the writes that follow from it."""

    def __init__(self, client: ApiClient, nodes: Cache[wire.Node]) -> None:
        self._client, self._nodes = client, nodes
        self._changes: dict[str, dict[str, bool]] = {}  # node -> label -> whether it holds
        self._pressed: list[wire.Node] = []
        self._disproved: set[str] = set()  # pods whose slow start has been taken in
        self._seen: set[str] = set()

    def begin(self) -> None:
        """A new round."""
        self._changes, self._seen = {}, set()
        self._pressed = [node for node in self._nodes if under_disk_pressure(node)]

    def ready(self, pod: wire.Pod, node: wire.Node, label: str, *, cold: bool) -> None:
        """``pod`` has loaded its weights on ``node``. ``cold``: it did not find them there, although ``label`` said so.

        Then the label goes until somebody else is ready there: what was lost once may be lost again.
        """
        uid = pod.metadata.uid
        self._seen.add(uid)
        if not cold:
            self._changes.setdefault(node.metadata.name, {}).setdefault(label, True)
        elif uid not in self._disproved:
            self._disproved.add(uid)
            self._changes.setdefault(node.metadata.name, {})[label] = False

    def under_pressure(self, label: str, users: set[str]) -> None:
        """The weights are an image, which a kubelet short of disk deletes where no pod is among its ``users``."""
        for node in self._pressed:
            if node.metadata.name not in users:
                self._changes.setdefault(node.metadata.name, {})[label] = False

    async def put(self, node: wire.Node, label: str) -> None:
        """``node`` holds the weights. Raises: ClusterError."""
        await self._apply(node, {label: True})

    async def write(self) -> None:
        """Write what differs. Raises: ClusterError."""
        self._disproved &= self._seen
        left = MOST_WRITES
        for name, changes in self._changes.items():
            node = self._nodes.get(name)
            if node is not None and left and await self._apply(node, changes):
                left -= 1

    async def _apply(self, node: wire.Node, changes: dict[str, bool]) -> bool:
        """Whether anything was written. The uid keeps an apply from making a node that is gone."""
        before = cache_labels(node) or frozenset()
        after = (before | {label for label, holds in changes.items() if holds}) - {
            label for label, holds in changes.items() if not holds
        }
        if after == before:
            return False
        meta = {"name": node.metadata.name, "uid": node.metadata.uid, "labels": dict.fromkeys(sorted(after), HELD)}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": meta}
        try:
            self._nodes.put(await self._client.apply(NODES, node.metadata.name, body, manager=CACHE_MANAGER))
        except (Conflict, NotFound):
            return False  # it is gone, or another one by now
        return True
