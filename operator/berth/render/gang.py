"""A placement becomes pods: the same plan gives the same bytes, whoever renders it and whenever.

Each pod is pinned to its node before it exists, so that it costs one write; kube-scheduler still binds it and stays
the authority on taints, volumes and devices. What the user's template says is kept unless Berth owns the field.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from berth.api.names import (
    API_VERSION,
    LABEL_ATTEMPT,
    LABEL_JOB_NAME,
    LABEL_JOB_UID,
    LABEL_MANAGED_BY,
    LABEL_POOL,
    LABEL_RANK,
    MANAGED_BY,
    TRAINING_JOB,
    pod_group_name,
    pod_name,
)
from berth.render.rendezvous import SERVICE_SUFFIX, environment
from berth.values import CPU, format_resource, parse_resource

Json = dict[str, Any]

SHARED_MEMORY_PATH = "/dev/shm"  # noqa: S108 - the mount point that frameworks use, not a file of ours
SHARED_MEMORY_VOLUME = "berth-shared-memory"
PROBE = "berth-check"
"""What stands in a probe for everything that differs from job to job."""


@dataclass(frozen=True, slots=True)
class GangPlan:
    """All that a gang's objects are a function of.

    ``nodes`` are in rank order. ``cpu_millicores`` per worker is 0 where the template names its own CPU. ``rdma`` maps
    resource names to devices per worker. ``environment`` is the same for every rank and yields to the template's.
    ``preempt_seconds`` 0: no preemption deadline. ``pod_group`` False: no native gang.
    """

    name: str
    namespace: str
    uid: str
    attempt: int
    pool: str
    resource: str
    accelerators_per_worker: int
    nodes: tuple[str, ...]
    template: Mapping[str, Any]
    priority_class: str
    framework: str = "None"
    cpu_millicores: int = 0
    rdma: Mapping[str, int] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    preempt_signal: str = ""
    preempt_seconds: int = 0
    pod_group: bool = False

    @property
    def workers(self) -> int:
        """Ranks in the gang."""
        return len(self.nodes)

    @property
    def networked(self) -> bool:
        """Whether ranks find each other by name, through a headless Service."""
        return networked(self.framework, self.workers)


def each_pod(plan: GangPlan, ranks: Iterable[int]) -> Iterator[Json]:
    """The pods of ``ranks``, to be created in this order, made as they are asked for. What all share is one object."""
    base_spec = _spec(plan)
    for rank in ranks:
        yield _pod(plan, base_spec, rank)


def pods(plan: GangPlan, ranks: Iterable[int]) -> list[Json]:
    """All that :func:`each_pod` makes."""
    return list(each_pod(plan, ranks))


def probe_pod(plan: GangPlan) -> Json:
    """One pod as :func:`pods` makes it, for a server dry run: quota, Pod Security and the template itself speak.

    It names no job, no owner and no node, so that jobs with equal templates ask with equal bodies; and no gang, which
    the server would look for.
    """
    neutral = replace(plan, name=PROBE, uid=PROBE, attempt=1, nodes=(PROBE,) * plan.workers, pod_group=False)
    body = _pod(neutral, _spec(neutral), 0)
    del body["metadata"]["ownerReferences"]
    body["metadata"]["name"] = PROBE
    return body


def gang_probe(plan: GangPlan) -> Json:
    """:func:`probe_pod` asking for what all workers ask for together, so that a quota answers for the whole gang.

    Only a quota's refusal of it means anything: a LimitRange speaks of single pods. Raises: ValueProblem.
    """
    body = probe_pod(plan)
    spec = body["spec"]
    for kind in ("containers", "initContainers"):
        if spec.get(kind):
            spec[kind] = [_multiplied(container, plan.workers) for container in spec[kind]]
    body["spec"] = _multiplied(spec, plan.workers)
    return body


def _multiplied(holder: Json, factor: int) -> Json:
    """A container, or a pod's spec, with its own ``resources`` times ``factor``."""
    if not holder.get("resources"):
        return holder
    resources = dict(holder["resources"])
    for kind in ("requests", "limits"):
        amounts = {name: parse_resource(name, text) * factor for name, text in (resources.get(kind) or {}).items()}
        resources[kind] = {name: format_resource(name, amount) for name, amount in amounts.items()}
    return {**holder, "resources": resources}


def service(plan: GangPlan) -> Json:
    """The headless Service through which ranks resolve each other before they are ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": plan.name + SERVICE_SUFFIX,
            "namespace": plan.namespace,
            "labels": {LABEL_JOB_NAME: plan.name, LABEL_MANAGED_BY: MANAGED_BY},
            "ownerReferences": [_owner(plan)],
        },
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector(plan.name, plan.uid)},
    }


def networked(framework: str, workers: int) -> bool:
    """Whether the ranks of a gang of so many need names, and so the Service."""
    return framework != "None" and workers > 1


def selector(name: str, uid: str) -> dict[str, str]:
    """The pods of a job that its Service names: those of every attempt."""
    return {LABEL_JOB_NAME: name, LABEL_JOB_UID: uid}


def pod_group(plan: GangPlan) -> Json:
    """The native gang of one attempt, so that binding is all or nothing too."""
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {
            "name": pod_group_name(plan.name, plan.attempt),
            "namespace": plan.namespace,
            "labels": _labels(plan),
            "ownerReferences": [_owner(plan)],
        },
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": plan.workers}},
            "priorityClassName": plan.priority_class,
        },
    }


def _owner(plan: GangPlan) -> Json:
    return {
        "apiVersion": API_VERSION,
        "kind": TRAINING_JOB.kind,
        "name": plan.name,
        "uid": plan.uid,
        "controller": True,
    }


def _labels(plan: GangPlan) -> dict[str, str]:
    return {
        LABEL_JOB_NAME: plan.name,
        LABEL_JOB_UID: plan.uid,
        LABEL_ATTEMPT: str(plan.attempt),
        LABEL_POOL: plan.pool,
        LABEL_MANAGED_BY: MANAGED_BY,
    }


def _pod(plan: GangPlan, base: Json, rank: int) -> Json:
    metadata = plan.template.get("metadata") or {}
    name = pod_name(plan.name, plan.attempt, rank)
    worker, *others = base["containers"]
    spec = {
        **base,
        "affinity": pinned(base.get("affinity"), plan.nodes[rank]),
        "containers": [{**worker, "env": _environment(plan, worker, rank)}, *others],
    }
    if plan.networked:
        spec["hostname"] = name
        spec["subdomain"] = plan.name + SERVICE_SUFFIX
    body: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": plan.namespace,
            "labels": {**(metadata.get("labels") or {}), **_labels(plan), LABEL_RANK: str(rank)},
            "ownerReferences": [_owner(plan)],
        },
        "spec": spec,
    }
    if metadata.get("annotations"):
        body["metadata"]["annotations"] = dict(metadata["annotations"])
    return body


def pinned(affinity: Mapping[str, Any] | None, node: str) -> Json:
    """``affinity`` with the pin in every required node-selector term: terms are ORed, one without it would let go."""
    pin = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    affinity = dict(affinity or {})
    node_affinity = dict(affinity.get("nodeAffinity") or {})
    required = dict(node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {})
    terms = [{**term, **pin} for term in required.get("nodeSelectorTerms") or ()] or [pin]
    node_affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    affinity["nodeAffinity"] = node_affinity
    return affinity


def _spec(plan: GangPlan) -> Json:
    spec: Json = dict(plan.template.get("spec") or {})
    worker, *others = spec["containers"]
    spec["containers"] = [_worker(plan, worker), *others]
    spec["restartPolicy"] = "Never"
    spec["priorityClassName"] = plan.priority_class
    spec["tolerations"] = _tolerations(plan, spec.get("tolerations") or ())
    if not spec.get("serviceAccountName"):
        spec.setdefault("automountServiceAccountToken", False)
    if plan.preempt_seconds:
        spec["terminationGracePeriodSeconds"] = plan.preempt_seconds + _grace(spec)
    if not _mounts_shared_memory(spec["containers"][0]):
        _add_shared_memory(spec)
    if plan.pod_group:
        spec["schedulingGroup"] = {"podGroupName": pod_group_name(plan.name, plan.attempt)}
    return spec


def _grace(spec: Mapping[str, Any]) -> int:
    value = spec.get("terminationGracePeriodSeconds")
    return 30 if value is None else int(value)


def _worker(plan: GangPlan, container: Mapping[str, Any]) -> Json:
    resources = dict(container.get("resources") or {})
    limits, requests = dict(resources.get("limits") or {}), dict(resources.get("requests") or {})
    for resource, count in {plan.resource: plan.accelerators_per_worker, **plan.rdma}.items():
        limits[resource] = requests[resource] = str(count)
    if plan.cpu_millicores and CPU not in requests and CPU not in limits:
        requests[CPU] = format_resource(CPU, plan.cpu_millicores)
    worker = {**container, "resources": {**resources, "limits": limits, "requests": requests}}
    if plan.rdma:
        worker["securityContext"] = _with_locked_memory(container.get("securityContext") or {})
    if plan.preempt_signal and plan.preempt_seconds and not (container.get("lifecycle") or {}).get("preStop"):
        command = f"kill -s {plan.preempt_signal.removeprefix('SIG')} 1; exec sleep {plan.preempt_seconds}"
        hook = {"exec": {"command": ["/bin/sh", "-c", command]}}
        worker["lifecycle"] = {**(container.get("lifecycle") or {}), "preStop": hook}
    return worker


def _with_locked_memory(context: Mapping[str, Any]) -> Json:
    capabilities = dict(context.get("capabilities") or {})
    added = list(capabilities.get("add") or ())
    capabilities["add"] = added if "IPC_LOCK" in added else [*added, "IPC_LOCK"]
    return {**context, "capabilities": capabilities}


def _tolerations(plan: GangPlan, own: Sequence[Mapping[str, Any]]) -> list[Json]:
    tolerations = [dict(toleration) for toleration in own]
    if not any(entry.get("key") == plan.resource and entry.get("operator") == "Exists" for entry in tolerations):
        tolerations.append({"key": plan.resource, "operator": "Exists"})
    return tolerations


def _mounts_shared_memory(container: Mapping[str, Any]) -> bool:
    return any(mount.get("mountPath") == SHARED_MEMORY_PATH for mount in container.get("volumeMounts") or ())


def _add_shared_memory(spec: Json) -> None:
    worker, *others = spec["containers"]
    mount = {"name": SHARED_MEMORY_VOLUME, "mountPath": SHARED_MEMORY_PATH}
    spec["containers"] = [{**worker, "volumeMounts": [*(worker.get("volumeMounts") or ()), mount]}, *others]
    volume = {"name": SHARED_MEMORY_VOLUME, "emptyDir": {"medium": "Memory"}}
    spec["volumes"] = [*(spec.get("volumes") or ()), volume]


def _environment(plan: GangPlan, container: Mapping[str, Any], rank: int) -> list[Json]:
    own = [dict(entry) for entry in container.get("env") or ()]
    named = {entry.get("name") for entry in own}
    ours = {**plan.environment, **environment(plan, rank)}
    return [*({"name": key, "value": value} for key, value in ours.items() if key not in named), *own]
