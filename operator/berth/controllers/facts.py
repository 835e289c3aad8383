"""API objects become plain values: the only place where Kubernetes' vocabulary is read.

Each function looks at one object and says what it means for a decision; none remembers anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from berth import values
from berth.api.names import API_VERSION, LABEL_SERVICE_NAME, TRAINING_JOB
from berth.catalogue.located import suggestion
from berth.cluster import wire
from berth.fleet.records import Claim, NodeFacts, gang_key
from berth.training.state import NodeState, Worker
from berth.values import Resources, Role, Taint, Toleration, parse_resource

OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"

INFRASTRUCTURE_REASONS: Final = frozenset(
    {"Evicted", "NodeLost", "NodeShutdown", "Terminated", "Shutdown", "UnexpectedAdmissionError", "Preempting",
     "NodeAffinity", "NodeName", "UnmatchedNodePlacement"}
)  # fmt: skip
"""``status.reason`` of pods that the kubelet or the control plane ended; ``OutOf…`` joins them by its prefix."""

PROBLEM_REASONS: Final = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
     "RegistryUnavailable", "CreateContainerConfigError", "CreateContainerError", "RunContainerError",
     "CrashLoopBackOff", "PreStartHookError", "PostStartHookError"}
)  # fmt: skip
"""``waiting.reason`` of containers that will not start by waiting."""

SHORT: Final = 300
RANKED: Final = re.compile(r"([0-9]+)-([0-9]+)")
"""What the name of a gang's pod has after its job's (:func:`berth.api.names.pod_name`)."""


@lru_cache(maxsize=4096)
def amount(name: str, text: str) -> int:
    """One quantity in the unit of :mod:`berth.values`; a text that is none counts as 0, the API server refuses it."""
    try:
        return parse_resource(name, text)
    except ValueError:
        return 0


def node_facts(node: wire.Node) -> NodeFacts:
    """The node as decisions see it."""
    return NodeFacts(
        name=node.metadata.name,
        uid=node.metadata.uid,
        labels=node.metadata.labels,
        allocatable=_amounts(node.status.allocatable),
        taints=tuple(Taint(taint.key, taint.value, taint.effect) for taint in node.spec.taints),
        unschedulable=node.spec.unschedulable,
        ready=node.ready,
    )


def seen_by_pools(node: wire.Node | None) -> tuple[object, object]:
    """What pools conclude from: labels, and what is offered (a device plugin may bring rails long after the node)."""
    return (node.metadata.labels, node.status.allocatable) if node is not None else (None, None)


def node_state(node: wire.Node | None, tolerations: Iterable[Toleration] = ()) -> NodeState:
    """What a node means to a gang that holds it or was promised it; None is a node whose object is gone."""
    if node is None:
        return NodeState.GONE
    keys = {taint.key for taint in node.spec.taints}
    if OUT_OF_SERVICE in keys:
        return NodeState.GONE
    if UNREACHABLE in keys or not node.ready:
        return NodeState.UNREACHABLE
    if node.spec.unschedulable:
        return NodeState.BARRED
    owned = tuple(tolerations)
    for taint in node.spec.taints:
        plain = Taint(taint.key, taint.value, taint.effect)
        if plain.effect != "PreferNoSchedule" and not any(toleration.covers(plain) for toleration in owned):
            return NodeState.BARRED
    return NodeState.OK


def job_of(meta: wire.Meta) -> wire.OwnerReference | None:
    """The training job that controls an object, whether it is still there or not."""
    owner = meta.controller()
    ours = owner is not None and (owner.api_version, owner.kind) == (API_VERSION, TRAINING_JOB.kind)
    return owner if ours else None


def job_uid(pod: wire.Pod) -> str:
    """The uid of the training job that controls ``pod``, or nothing."""
    job = job_of(pod.metadata)
    return job.uid if job is not None else ""


def gang_rank(pod: wire.Pod) -> tuple[str, int, int] | None:
    """Uid of its job, attempt and rank of a gang's pod; None of any other.

    Its controller and its name say so, which are one pod's alone and stay as they are; labels are anybody's to write.
    """
    job = job_of(pod.metadata)
    found = RANKED.fullmatch(pod.metadata.name.removeprefix(f"{job.name}-")) if job is not None else None
    return (job.uid, int(found[1]), int(found[2])) if job is not None and found is not None else None


def worker(pod: wire.Pod) -> Worker | None:
    """A pod of a gang as the lifecycle sees it, or None where it is none."""
    member = gang_rank(pod)
    if member is None:
        return None
    status = pod.status
    conditions = {stated.type: stated for stated in status.conditions}
    ready = conditions.get("Ready")
    exits = _exits(pod)
    failed = next(((name, state) for name, state in exits if state.exit_code != 0), None)
    return Worker(
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        attempt=member[1],
        rank=member[2],
        node=pod.spec.node_name,
        bound=bool(pod.spec.node_name),
        phase=status.phase or "Pending",
        ready=ready is not None and ready.status == "True",
        deleting_since=_deleting_since(pod),
        forced=pod.metadata.deleting and pod.metadata.deletion_grace_period_seconds == 0,
        refused=_refused(conditions),
        problem=_problem(status),
        disrupted=_disrupted(status, conditions),
        exit_code=failed[1].exit_code if failed else None,
        failure=_failure(status, failed),
        conditions=tuple((stated.type, stated.status) for stated in status.conditions),
        exits=tuple((name, state.exit_code) for name, state in exits),
        image_id=_image_id(pod),
        failed_at=_failed_at(exits),
        ended_at=max(
            (state.finished_at.timestamp() for _, state in exits if state.finished_at is not None), default=None
        ),
        worker_exit=_worker_exit(pod, exits),
    )


def _deleting_since(pod: wire.Pod) -> float | None:
    """When deletion was asked for; the API server adds the grace period to the timestamp."""
    stamp = pod.metadata.deletion_timestamp
    if stamp is None:
        return None
    return stamp.timestamp() - (pod.metadata.deletion_grace_period_seconds or 0)


def _refused(conditions: Mapping[str, wire.Condition]) -> str:
    stated = conditions.get("PodScheduled")
    if stated is None or stated.status != "False" or stated.reason != "Unschedulable":
        return ""
    return shorten(stated.message) or "unschedulable"


def _exits(pod: wire.Pod) -> list[tuple[str, wire.StateTerminated]]:
    """Containers that have ended, sidecars left out: they are stopped by a signal when the others are done."""
    sidecars = {container.name for container in pod.spec.init_containers if container.restart_policy == "Always"}
    every = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    return [
        (one.name, one.state.terminated)
        for one in every
        if one.state.terminated is not None and one.name not in sidecars
    ]


def _worker_exit(pod: wire.Pod, exits: list[tuple[str, wire.StateTerminated]]) -> int | None:
    worker = pod.spec.containers[0].name if pod.spec.containers else None
    return next((state.exit_code for name, state in exits if name == worker), None)


def _failed_at(exits: list[tuple[str, wire.StateTerminated]]) -> float | None:
    times = [state.finished_at.timestamp() for _, state in exits if state.exit_code and state.finished_at is not None]
    return min(times, default=None)


def _problem(status: wire.PodStatus) -> str:
    for kind, statuses in (
        ("init container", status.init_container_statuses),
        ("container", status.container_statuses),
    ):
        for one in statuses:
            waiting = one.state.waiting
            if waiting is not None and waiting.reason in PROBLEM_REASONS:
                return f"{kind} {one.name}: {waiting.reason}" + (
                    f": {shorten(waiting.message)}" if waiting.message else ""
                )
    return ""


def _disrupted(status: wire.PodStatus, conditions: Mapping[str, wire.Condition]) -> str:
    target = conditions.get("DisruptionTarget")
    if target is not None and target.status == "True":
        return ": ".join(part for part in (target.reason or "DisruptionTarget", shorten(target.message)) if part)
    if status.reason in INFRASTRUCTURE_REASONS or status.reason.startswith("OutOf"):
        return ": ".join(part for part in (status.reason, shorten(status.message)) if part)
    return ""


def _image_id(pod: wire.Pod) -> str:
    """The image that the first container, which is the worker, runs; empty before it is pulled."""
    first = pod.spec.containers[0].name if pod.spec.containers else ""
    return next((one.image_id for one in pod.status.container_statuses if one.name == first), "")


def _failure(status: wire.PodStatus, failed: tuple[str, wire.StateTerminated] | None) -> str:
    if status.phase != "Failed" and failed is None:
        return ""
    if failed is None:
        return shorten(": ".join(part for part in (status.reason, status.message) if part))
    name, state = failed
    how = f"signal {state.signal}" if state.signal else f"exit code {state.exit_code}"
    why = "" if state.reason in ("", "Error") else f" ({state.reason})"
    return f"container {name} ended with {how}{why}"


def shorten(text: str) -> str:
    """One line of at most 300 characters."""
    line = " ".join(text.split())
    return line if len(line) <= SHORT else line[: SHORT - 1] + "…"


def no_priority_class(name: str, there: Iterable[str]) -> str:
    """What is told of the PriorityClass ``name`` of a spec that is not among those ``there``."""
    users = [known for known in there if not known.startswith("system-")]
    hint = suggestion(name, users) if users else "; create it"
    return f"spec.priorityClassName: there is no PriorityClass {name}{hint}"


def defect_words(problem: Exception) -> str:
    """What the status of an object says on which Berth itself failed."""
    return shorten(f"Berth failed on this object, which is a defect of its own; its log has the trace: {problem!r}")


def pod_needs(pod: wire.Pod) -> dict[str, int]:
    """What the scheduler counts for a pod, its overhead and itself included."""
    whole = pod.spec.resources or wire.NO_NEEDS
    return values.pod_needs(
        (_asked(container.resources) for container in pod.spec.containers or ()),
        ((container.restart_policy == "Always", _asked(container.resources)) for container in pod.spec.init_containers),
        _amounts(whole.requests),
        _amounts(whole.limits),
        _amounts(pod.spec.overhead),
    )


def _asked(needs: wire.ResourceNeeds) -> dict[str, int]:
    """A container's requests; a limit counts where nothing is requested."""
    return _amounts({**needs.limits, **needs.requests})


def _amounts(texts: Mapping[str, str]) -> dict[str, int]:
    return {name: amount(name, text) for name, text in texts.items()}


def pod_claim(pod: wire.Pod) -> Claim | None:
    """The room a pod holds: from its binding until it has ended or is gone, terminating or not."""
    if not pod.spec.node_name or pod.finished:
        return None
    meta = pod.metadata
    owner = meta.controller()
    member = gang_rank(pod)
    role: Role | None = "Training" if member else "Inference" if LABEL_SERVICE_NAME in meta.labels else None
    return Claim(
        key=gang_key(*member) if member else meta.uid,
        node=pod.spec.node_name,
        amounts=_shared(pod_needs(pod)),
        owner=f"{meta.namespace}/{owner.name if owner else meta.name}",
        role=role,
        daemon=owner is not None and owner.kind == "DaemonSet",
    )


_SHARED: dict[tuple[tuple[str, int], ...], Resources] = {}


def _shared(amounts: dict[str, int]) -> Resources:
    """One object for equal amounts: thousands of pods ask for the same."""
    key = tuple(sorted(amounts.items()))
    if len(_SHARED) > 10_000:
        _SHARED.clear()
    return _SHARED.setdefault(key, amounts)
