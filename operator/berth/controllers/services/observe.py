"""The caches as services see them: a view per service, its Deployments, its pods."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from berth.api.common import ContractProblem
from berth.api.conditions import INTERNAL_ERROR
from berth.api.inferenceservice import parse_spec
from berth.api.names import LABEL_SERVICE_NAME, LABEL_VARIANT
from berth.cluster import wire
from berth.cluster.cache import Cache
from berth.cluster.store import Index
from berth.controllers.facts import defect_words
from berth.controllers.services.facts import bound_at, crashes, is_ready, replica, service_key
from berth.controllers.services.fetches import ended_at
from berth.controllers.services.ownership import orphaned
from berth.controllers.services.status import restore
from berth.controllers.services.troubles import takes_no_pod, waiting
from berth.controllers.services.view import ServiceKey, ServiceView
from berth.inference.calibrate import Capacities
from berth.inference.service import Replica, rules_of
from berth.render.service.plan import same_templates

_LOG: Final = logging.getLogger(__name__)

UNHEARD_SECONDS: Final = 60.0
"""Longer than the watch of nodes lags behind that of pods."""
FAILED_SECONDS: Final = 600.0
"""For so long an evicted pod says something of the next ones. Its object may stay for months."""


@dataclass(frozen=True, slots=True)
class ServiceCaches:
    """The kinds that services need beside those of training."""

    services: Cache[wire.InferenceService]
    deployments: Cache[wire.Deployment]

    def every(self) -> Iterator[Cache[Any]]:
        """Both."""
        yield from (self.services, self.deployments)


class ServiceObserver:
    """Keeps :attr:`views` in step with the caches; ``wake`` is called with the key of a service to be looked at."""

    def __init__(
        self,
        caches: ServiceCaches,
        pods: Cache[wire.Pod],
        nodes: Cache[wire.Node],
        *,
        leaving: Callable[[wire.Pod, wire.Node | None], float | None],
        wake: Callable[[ServiceKey], object],
        gone: Callable[[ServiceView], object],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.caches = caches
        self.views: dict[str, ServiceView] = {}
        self._nodes, self._leaving, self._wake, self._gone = nodes, leaving, wake, gone
        self._absorbing, self._wall = False, wall
        self._deleted_nodes: set[str] = set()
        self._on: Index[wire.Pod] = pods.index(lambda pod: pod.spec.node_name or None if service_key(pod) else None)
        self._pods: Index[wire.Pod] = pods.index(service_key)
        self._deployments: Index[wire.Deployment] = caches.deployments.index(_owner_key)
        caches.services.subscribe(self._on_service)
        caches.deployments.subscribe(self._on_deployment)
        pods.subscribe(self._on_pod)
        nodes.subscribe(self._on_node)

    def view(self, key: ServiceKey) -> ServiceView | None:
        """The service of that name."""
        known = self.caches.services.get(key[1], key[0])
        return self.views.get(known.metadata.uid) if known is not None else None

    def pods(self, view: ServiceView) -> list[wire.Pod]:
        """Its pods that have not ended, terminating ones too."""
        return [pod for pod in self._pods.get(view.key).values() if not pod.finished]

    def replicas(self, view: ServiceView, in_flight: Mapping[str, float]) -> tuple[Replica, ...]:
        """The same as the plan sees them; ``in_flight`` is the load by pod name, where it is known."""
        return tuple(
            replica(pod, self._nodes.get(pod.spec.node_name), self._leaving, in_flight.get(pod.metadata.name))
            for pod in sorted(self.pods(view), key=lambda pod: pod.metadata.name)
        )

    def deployments(self, view: ServiceView) -> dict[str, wire.Deployment]:
        """Its Deployments by variant, those being deleted left out; also one that has lost its owner."""
        found = self._deployments.get(view.key).values()
        return {
            deployment.metadata.labels[LABEL_VARIANT]: deployment
            for deployment in found
            if not deployment.metadata.deleting and _belongs(deployment.metadata, view)
        }

    def wanted(self, view: ServiceView) -> dict[str, int]:
        """Replicas that each Deployment asks for, as it is."""
        return {name: deployment.spec.replicas for name, deployment in self.deployments(view).items()}

    def bound(self, view: ServiceView) -> dict[str, int]:
        """Pods that have a node and are to stay, by variant."""
        return _by_variant(pod for pod in self.pods(view) if pod.spec.node_name and not pod.metadata.deleting)

    def coming(self, view: ServiceView, counts: Mapping[str, int]) -> dict[str, int]:
        """Of the replicas in ``counts`` those that there are or soon will be, by variant: none where no Deployment can
        be made, and no more than there are where the server takes no pod."""
        deployments = self.deployments(view)
        there = _by_variant(pod for pod in self.pods(view) if not pod.metadata.deleting)

        def most(name: str, count: int) -> int:
            if name not in deployments:
                return 0 if view.barred or name in view.refused else count
            return min(count, there.get(name, 0)) if takes_no_pod(deployments[name]) else count

        return {name: most(name, count) for name, count in counts.items()}

    def held(self, view: ServiceView) -> dict[str, int]:
        """Pods on a node that exists, by variant; the place of one that ends is the next one's."""
        return _by_variant(pod for pod in self.pods(view) if self._nodes.get(pod.spec.node_name) is not None)

    def unplaced(self, view: ServiceView, seconds: float) -> dict[str, int]:
        """Pods that have waited for a node for so long or longer, by variant."""
        before = self._wall() - seconds
        waiting = (pod for pod in self.pods(view) if not pod.spec.node_name and not pod.metadata.deleting)
        return _by_variant(pod for pod in waiting if pod.metadata.created <= before)

    def lost(self, view: ServiceView) -> list[wire.Pod]:
        """Pods on nodes that do not exist: nobody will ever say that they have ended.

        A node that was seen to go is gone at once. One that is not known may be too new to have been heard of, so that
        of it is concluded from how long the pod is there.
        """
        if not self._nodes.version:
            return []  # they are being listed, or listed anew after the server has forgotten them
        before = self._wall() - UNHEARD_SECONDS
        return [
            pod
            for pod in self.pods(view)
            if pod.spec.node_name
            and not pod.metadata.deleting
            and self._nodes.get(pod.spec.node_name) is None
            and (pod.spec.node_name in self._deleted_nodes or bound_at(pod) < before)
        ]

    def state(self, view: ServiceView) -> object:
        """A value that differs when anything differs that a plan goes by, but for demand and free room."""
        pods = tuple(sorted((pod.metadata.uid, pod.metadata.version) for pod in self.pods(view)))
        return (view.object.metadata.generation, tuple(sorted(self.wanted(view).items())), pods, view.nodes_changed)

    def crashing(self, view: ServiceView, most: int) -> frozenset[str]:
        """Variants whose servers ended ``most`` times or more while none of their pods is ready."""
        ended: dict[str, int] = {}
        fine: set[str] = set()
        since = self._wall() - FAILED_SECONDS
        for pod in self._pods.get(view.key).values():
            name = pod.metadata.labels.get(LABEL_VARIANT, "")
            if not pod.finished or ended_at(pod) >= since:
                ended[name] = ended.get(name, 0) + crashes(pod)
            if is_ready(pod):
                fine.add(name)
        return frozenset(name for name, count in ended.items() if count >= most and name not in fine)

    def absorb(self, answer: wire.InferenceService) -> None:
        """Take in the answer to a write of our own, which needs no look unless it shows an edit."""
        self._absorbing = True
        try:
            self.caches.services.put(answer)
        finally:
            self._absorbing = False

    def resume(self, over: Callable[[Iterable[wire.Pod]], set[str]]) -> None:
        """This process leads from now on: what the last leader has written is what is remembered.

        ``over`` tells of pods those whose start is over: the last leader has learned from them.
        """
        for view in self.views.values():
            view.restored, view.plan, view.plan_state = False, None, None
            self._read_status(view)
            view.seen_starts = over(self.pods(view))

    def reread(self) -> None:
        """Read every spec again, after the catalogue has changed."""
        for view in self.views.values():
            self._read_spec(view)
            self._wake(view.key)

    def _on_service(self, old: wire.InferenceService | None, new: wire.InferenceService | None) -> None:
        if new is None:
            assert old is not None
            view = self.views.pop(old.metadata.uid, None)
            if view is not None:
                self._gone(view)
            return
        view = self.views.get(new.metadata.uid)
        edited = view is None or view.object.metadata.generation != new.metadata.generation
        if view is None:
            view = self.views[new.metadata.uid] = ServiceView(new)
            self._read_spec(view)
        elif edited:
            before, view.object = view.spec, new
            self._read_spec(view)
            if before is None or view.spec is None or not same_templates(before, view.spec):
                view.template_changes = True
        view.object = new
        self._read_status(view)
        if edited or not self._absorbing:
            self._wake(view.key)

    def _read_spec(self, view: ServiceView) -> None:
        view.spec, view.problem = None, None
        try:
            view.spec = parse_spec(msgspec.json.decode(view.object.spec))
            view.rules = rules_of(view.spec)
        except (ContractProblem, msgspec.DecodeError, ValueError) as problem:
            view.problem = ("SpecInvalid", str(problem))
        except Exception as problem:  # a defect of ours on one object must not hide its status
            _LOG.exception("%s: its spec cannot be read", view.name)
            view.spec, view.problem = None, (INTERNAL_ERROR, defect_words(problem))

    def _read_status(self, view: ServiceView) -> None:
        raw = view.object.status
        view.persisted = msgspec.json.decode(raw) if raw else {}
        if view.restored:
            return
        try:
            view.memory, view.starts, learned = restore(view.persisted)
            view.startup_seconds, view.forecast_record = learned.startup_seconds, learned.forecast
            view.cpu, view.reference = dict(learned.cpu), learned.reference
            view.places = dict(learned.places)
            view.capacities = Capacities.restore(learned.capacities)
            view.template_changes = not learned.startup_seconds
        except (KeyError, TypeError, ValueError) as problem:
            _LOG.error("%s: its status cannot be read, so nothing is remembered: %s", view.name, problem)
        view.restored = True

    def _on_deployment(self, old: wire.Deployment | None, new: wire.Deployment | None) -> None:
        deployment = new or old
        assert deployment is not None
        key = _owner_key(deployment)
        if key is not None:
            self._wake(key)

    def _on_pod(self, old: wire.Pod | None, new: wire.Pod | None) -> None:
        pod = new or old
        assert pod is not None
        if new is None and not self._on.get(pod.spec.node_name):
            self._deleted_nodes.discard(pod.spec.node_name)
        key = service_key(pod)
        if key is not None and (old is None or new is None or _matters(old, new)):
            self._wake(key)

    def _on_node(self, old: wire.Node | None, new: wire.Node | None) -> None:
        """Notices are short: whoever runs on a node that shows something else looks at it at once."""
        node = new or old
        assert node is not None
        name = node.metadata.name
        if new is None and self._on.get(name):
            self._deleted_nodes.add(name)  # until its last pod is gone
        elif new is not None:
            self._deleted_nodes.discard(name)
        if old is not None and new is not None and _shown(old) == _shown(new):
            return
        keys = {service_key(pod) for pod in self._on.get(name).values()}
        for key in keys:
            view = self.view(key) if key is not None else None
            if view is not None:
                view.nodes_changed += 1
                self._wake(view.key)


def _by_variant(pods: Iterable[wire.Pod]) -> dict[str, int]:
    return dict(Counter(pod.metadata.labels.get(LABEL_VARIANT, "") for pod in pods))


def _shown(node: wire.Node) -> object:
    """What a node says of itself, but for heartbeats."""
    taints = frozenset((taint.key, taint.value, taint.effect) for taint in node.spec.taints)
    return (node.metadata.uid, taints, frozenset((entry.type, entry.status) for entry in node.status.conditions))


def _owner_key(deployment: wire.Deployment) -> ServiceKey | None:
    labels = deployment.metadata.labels
    name = labels.get(LABEL_SERVICE_NAME)
    return (deployment.metadata.namespace, name) if name and LABEL_VARIANT in labels else None


def _belongs(meta: wire.Meta, view: ServiceView) -> bool:
    return meta.owned_by(view.uid) or (orphaned(meta, view) and meta.name == meta.labels[LABEL_VARIANT])


def _matters(old: wire.Pod, new: wire.Pod) -> bool:
    """Whether the pod's readiness, binding, end or disruption is another one."""

    def facts(pod: wire.Pod) -> tuple[object, ...]:
        stated = {entry.type: entry.status for entry in pod.status.conditions}
        return (
            pod.spec.node_name, pod.status.phase, pod.metadata.deleting, stated.get("Ready"),
            stated.get("DisruptionTarget"), sum(status.restart_count for status in pod.status.container_statuses),
            waiting(pod),
        )  # fmt: skip

    return facts(old) != facts(new)
