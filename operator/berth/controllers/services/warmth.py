"""What nodes held when replicas came to them: whether a start found its weights, which is known only at that moment.

The label on a node says so, and a start that takes as long as one without weights says it better: then they were not
there, whatever the label said. Followed on every replica, so that a new leader knows.
"""

from __future__ import annotations

from dataclasses import dataclass

from berth.api.names import LABEL_MODEL_CACHE
from berth.cluster import wire
from berth.cluster.cache import Cache
from berth.controllers.services.facts import is_ready, load_seconds, service_key
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

    ``missed``: it was over when this process first saw the pod.
    """

    held: frozenset[str] | None
    missed: bool = False
    cold: bool = False


class Warmth:
    """Remembers of each replica what its node held when it came."""

    def __init__(self, pods: Cache[wire.Pod], nodes: Cache[wire.Node]) -> None:
        self._nodes = nodes
        self._starts: dict[str, _Start] = {}
        pods.subscribe(self._on_pod)

    def cached(self, market: Market, view: ServiceView, choice: Choice, variant: Variant, pod: wire.Pod) -> bool | None:
        """Whether the start of ``pod``, which is over, found its weights; None: nothing is to be learned from it.

        Because it cannot be told, or because an earlier process has learned it: what it knew is in ``view.starts``.
        """
        uri = view.spec.model.uri if view.spec is not None else None
        start = self._starts.get(pod.metadata.uid)
        if start is not None and start.missed and view.persisted.get("learned", {}).get("coldStarts"):
            return None
        if uri is None:
            return False
        label = model_cache_label(uri)
        if start is None or start.held is None:
            now = cache_labels(self._nodes.get(pod.spec.node_name))
            return None if now is None or label in now else False
        if label not in start.held:
            return False
        seconds = load_seconds(pod)
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
            missed = old is None and is_ready(pod)
            held = None if missed else cache_labels(self._nodes.get(pod.spec.node_name))
            self._starts[uid] = _Start(held, missed)
