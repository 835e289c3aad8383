"""How replicas started, and what their nodes held when they came: both are known only at that moment.

A start ends with the first readiness; a later one, after the replica was not ready for a while, is none. Whether it
found its weights the label on the node says, and a start that takes as long as one without weights says it better:
then they were not there, whatever the label said. Followed on every replica, so that a new leader knows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from berth.api.names import LABEL_MODEL_CACHE
from berth.cluster import wire
from berth.cluster.cache import Cache
from berth.controllers.services.facts import has_started, load_seconds, service_key, start_seconds
from berth.controllers.services.supply import Choice, Market, start_key
from berth.controllers.services.view import ServiceView
from berth.inference.records import Variant
from berth.render.service.weights import model_cache_label


def cache_labels(node: wire.Node | None) -> frozenset[str] | None:
    """The labels of ``node`` that say whose weights it holds; None where the node is not known."""
    return None if node is None else frozenset(k for k in node.metadata.labels if k.startswith(LABEL_MODEL_CACHE))


@dataclass(slots=True)
class _Start:
    """``held``: the labels at the binding, None unknown; ``cold``: it took as long as without weights.

    ``missed``: it was over when this process first saw the pod. ``seconds`` from creation to the first readiness.
    """

    held: frozenset[str] | None
    missed: bool = False
    cold: bool = False
    seconds: float | None = None


class Warmth:
    """Remembers of each replica how it started and what its node held when it came."""

    def __init__(self, pods: Cache[wire.Pod], nodes: Cache[wire.Node]) -> None:
        self._nodes = nodes
        self._starts: dict[str, _Start] = {}
        pods.subscribe(self._on_pod)

    def seconds(self, pod: wire.Pod) -> float | None:
        """How long ``pod`` took from its creation to its first readiness; None: not ready yet, or nobody saw it."""
        start = self._starts.get(pod.metadata.uid)
        return start.seconds if start is not None else None

    def over(self, pods: Iterable[wire.Pod]) -> set[str]:
        """The uids of those of ``pods`` whose first start is over."""
        return {pod.metadata.uid for pod in pods if has_started(pod) or self.seconds(pod) is not None}

    def cached(self, market: Market, view: ServiceView, choice: Choice, variant: Variant, pod: wire.Pod) -> bool | None:
        """Whether the start of ``pod``, which was seen, found its weights; None: it cannot be told."""
        uri = view.spec.model.uri if view.spec is not None else None
        start = self._starts.get(pod.metadata.uid)
        if uri is None:
            return False
        label = model_cache_label(uri)
        if start is None or start.held is None:
            now = cache_labels(self._nodes.get(pod.spec.node_name))
            return None if now is None or label in now else False
        if label not in start.held:
            return False
        seconds = load_seconds(pod, start.seconds) if start.seconds is not None else None
        priors = market.prior(choice, cached=True), market.prior(choice, cached=False)
        if seconds is not None and view.starts.looks_cold(start_key(view, variant, cached=True), seconds, *priors):
            start.cold = True
        return not start.cold

    def cold(self, pod: wire.Pod) -> bool:
        """Whether ``pod`` was told to find its weights and did not."""
        start = self._starts.get(pod.metadata.uid)
        return start is not None and start.cold

    def _on_pod(self, old: wire.Pod | None, new: wire.Pod | None) -> None:
        pod = new or old
        assert pod is not None
        uid = pod.metadata.uid
        if new is None:
            self._starts.pop(uid, None)
        elif uid not in self._starts and pod.spec.node_name and service_key(pod) is not None:
            missed = old is None and has_started(pod)
            held = None if missed else cache_labels(self._nodes.get(pod.spec.node_name))
            self._starts[uid] = _Start(held, missed)
        start = self._starts.get(uid)
        if new is not None and start is not None and not start.missed and start.seconds is None:
            start.seconds = start_seconds(new)
            start.missed = start.seconds is None and any(
                status.restart_count for status in new.status.container_statuses
            )
