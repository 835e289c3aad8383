"""Pods and Deployments of services become plain values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from berth.api.names import LABEL_CAPACITY_TYPE, LABEL_SERVICE_NAME, LABEL_VARIANT, SERVER_CONTAINER
from berth.cluster import wire
from berth.inference.service import Replica

ZONE_LABEL: Final = "topology.kubernetes.io/zone"
TEMPLATE_LABEL: Final = "pod-template-hash"
CRASHES: Final = 3
"""A variant whose pods have ended so often without any ever being ready gets no more of them."""

ROUNDING_SECONDS: Final = 1
"""Times of the API server are whole seconds."""

Leaving = Callable[[wire.Pod, wire.Node | None], float | None]
"""When a pod is about to be taken away with its node, in unix seconds; None while nothing says so."""


def service_key(pod: wire.Pod) -> tuple[str, str] | None:
    """(namespace, service) of a replica; None for every other pod.

    Labels alone make no replica: a Deployment copied by hand has them too. Ours is named as its variant, and the
    Deployment controller names a ReplicaSet by its Deployment and the hash of its template.
    """
    labels, owner = pod.metadata.labels, pod.metadata.controller()
    name, variant = labels.get(LABEL_SERVICE_NAME), labels.get(LABEL_VARIANT)
    if not name or not variant or owner is None or owner.kind != "ReplicaSet":
        return None
    return (pod.metadata.namespace, name) if owner.name == f"{variant}-{labels.get(TEMPLATE_LABEL, '')}" else None


def replica(pod: wire.Pod, node: wire.Node | None, leaving: Leaving, in_flight: float | None = None) -> Replica:
    """One live pod as the plan sees it."""
    ready = is_ready(pod)
    started = any(status.started for status in pod.status.container_statuses)
    return Replica(
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        variant=pod.metadata.labels.get(LABEL_VARIANT, ""),
        created=pod.metadata.created,
        node=pod.spec.node_name,
        zone=node.metadata.labels.get(ZONE_LABEL, "") if node is not None else "",
        ready=ready,
        ever_ready=ready or started,
        ready_since=ready_since(pod),
        in_flight=in_flight,
        terminating=pod.metadata.deleting,
        leaving_at=leaving(pod, node),
        spot=pod.metadata.labels.get(LABEL_CAPACITY_TYPE) == "Spot",
    )


def is_ready(pod: wire.Pod) -> bool:
    """Whether it serves."""
    return wire.holds(pod.status.conditions, "Ready")


def ready_since(pod: wire.Pod) -> float | None:
    """Since when it serves, in unix seconds; None where it does not, or does not say."""
    stated = wire.condition(pod.status.conditions, "Ready")
    since = stated.last_transition_time if stated is not None and stated.status == "True" else None
    return since.timestamp() if since is not None else None


def bound_at(pod: wire.Pod) -> float:
    """When it got its node, in unix seconds; its creation where that is not stated."""
    bound = wire.condition(pod.status.conditions, "PodScheduled")
    since = bound.last_transition_time if bound is not None else None
    return since.timestamp() if since is not None else pod.metadata.created


def has_started(pod: wire.Pod) -> bool:
    """Whether its start is over, well or not, so that whoever sees it only now has missed it."""
    return is_ready(pod) or any(status.started or status.restart_count for status in pod.status.container_statuses)


def load_seconds(pod: wire.Pod, whole: float) -> float | None:
    """Of a start of ``whole`` seconds what depends on the node: from its binding. None where that is not stated."""
    bound = wire.condition(pod.status.conditions, "PodScheduled")
    if bound is None or bound.last_transition_time is None:
        return None
    return whole - (bound.last_transition_time.timestamp() - pod.metadata.created)


@dataclass(frozen=True, slots=True)
class CutShort:
    """A start that the start-up probe has ended: which run of the server, and the seconds that it was given."""

    run: int
    patience: float


def cut_short(pod: wire.Pod) -> CutShort | None:
    """The last start of ``pod`` if its probe has ended it; None if it went well, or ended by itself."""
    server = next((entry for entry in pod.spec.containers or () if entry.name == SERVER_CONTAINER), None)
    status = next((entry for entry in pod.status.container_statuses if entry.name == SERVER_CONTAINER), None)
    if server is None or server.startup_probe is None or status is None:
        return None
    ended = status.state.terminated or status.last_state.terminated
    ready = wire.condition(pod.status.conditions, "Ready")
    if ended is None or ended.started_at is None or ended.finished_at is None or ready is None:
        return None
    since, probe = ready.last_transition_time, server.startup_probe
    served = ready.status == "True" or since is None or since > ended.started_at
    if served or (ended.finished_at - ended.started_at).total_seconds() < probe.least - ROUNDING_SECONDS:
        return None
    return CutShort(status.restart_count + (status.state.terminated is not None), probe.seconds)


def start_seconds(pod: wire.Pod) -> float | None:
    """From creation to the last readiness; None where it is not ready, or where a restart has blurred it."""
    ready = wire.condition(pod.status.conditions, "Ready")
    if ready is None or ready.status != "True" or ready.last_transition_time is None:
        return None
    if any(status.restart_count for status in pod.status.container_statuses):
        return None
    return ready.last_transition_time.timestamp() - pod.metadata.created


def crashes(pod: wire.Pod) -> int:
    """How often its server has ended without the pod being ready now."""
    if is_ready(pod):
        return 0
    return sum(status.restart_count for status in pod.status.container_statuses) + (pod.status.phase == "Failed")
