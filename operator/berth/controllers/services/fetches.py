"""Pods that fetch weights, as plain facts: whose they are, where to, when and why they ended."""

from __future__ import annotations

from collections.abc import Iterator

from berth.api.names import INFERENCE_SERVICE, LABEL_PREFETCH_FOR
from berth.cluster import wire
from berth.controllers.facts import shorten
from berth.controllers.services.view import ServiceKey


def fetched_for(pod: wire.Pod) -> ServiceKey | None:
    """(namespace, service) that ``pod`` fetches for; None for every other pod, whatever its labels say."""
    name, owner = pod.metadata.labels.get(LABEL_PREFETCH_FOR), pod.metadata.controller()
    ours = owner is not None and (owner.kind, owner.name) == (INFERENCE_SERVICE.kind, name)
    return (pod.metadata.namespace, name) if name and ours else None


def ended_at(pod: wire.Pod) -> float:
    """When its last container ended, in unix seconds; its creation where none says so."""
    ends = [end.finished_at.timestamp() for _, end in _ends(pod) if end.finished_at is not None]
    return max(ends, default=pod.metadata.created)


def failure(pod: wire.Pod) -> str:
    """Why it failed, in a line; empty where it has not."""
    if pod.status.phase != "Failed":
        return ""
    words = [pod.status.reason, pod.status.message]
    for name, end in _ends(pod):
        if end.exit_code:
            words += [f"{name} ended with {end.exit_code}", end.message.strip()[-200:]]
    where = f"pod {pod.metadata.name} on {pod.spec.node_name or 'no node'} failed"
    return shorten(": ".join(word for word in (where, *words) if word))


def _ends(pod: wire.Pod) -> Iterator[tuple[str, wire.StateTerminated]]:
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        if status.state.terminated is not None:
            yield status.name, status.state.terminated
