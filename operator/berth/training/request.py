"""From what a user wrote to what the decisions take: the gang's request, and the lifecycle's view of the job.

Whatever can be refused without looking at the cluster is refused here, with the field and the fix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from berth import values
from berth.api.template import accelerator_mismatch
from berth.api.trainingjob import TrainingJobSpec
from berth.catalogue.records import Catalogue
from berth.training.job import Job
from berth.training.records import GangRequest
from berth.training.recovery import Rule
from berth.values import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    BerthError,
    Requirement,
    Requirements,
    Resources,
    Toleration,
    parse_resource,
)

DEFAULT_GRACE_SECONDS = 30
SCHEDULED = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE})
"""What the scheduler counts besides devices; admission adds of these alone."""


class RequestProblem(BerthError):
    """The spec asks for something that can never be placed; ``reason`` is the condition's."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason, self.message = reason, message
        super().__init__(message)


def gang_request(spec: TrainingJobSpec, catalogue: Catalogue) -> GangRequest:
    """What ``spec`` asks of the fleet.

    Raises:
        RequestProblem: a name that the catalogue does not know, or a template that contradicts the spec.
    """
    template = spec.template
    pod = template.get("spec") or {}
    devices = {entry.resource for entry in catalogue.accelerators.values() if entry.resource} - SCHEDULED
    _known("spec.accelerators.types", spec.accelerators.types, catalogue.accelerators, "UnknownAccelerator")
    fabric = spec.fabric
    _known("spec.fabric.kinds", fabric.kinds if fabric else (), catalogue.fabrics, "UnknownFabric")
    mismatch = accelerator_mismatch(template, devices, spec.accelerators.per_worker)
    if mismatch is not None:
        raise RequestProblem("AcceleratorMismatch", mismatch)
    if spec.workers % spec.slice_workers:
        raise RequestProblem(
            "SpecInvalid",
            f"spec.parallelism.tensor: groups of {spec.slice_workers} workers do not divide spec.workers: "
            f"{spec.workers}; make workers a multiple of {spec.slice_workers}",
        )
    return GangRequest(
        workers=spec.workers,
        accelerators_per_worker=spec.accelerators.per_worker,
        per_worker=pod_needs(pod, devices),
        types=spec.accelerators.types,
        required_level=spec.topology.required if spec.topology else None,
        preferred_level=spec.topology.preferred if spec.topology else None,
        slice_workers=spec.slice_workers,
        fabric_kinds=tuple(sorted(fabric.kinds)) if fabric else (),
        min_gbps=(fabric.min_gbps or 0) if fabric else 0,
        min_rails=(fabric.min_rails or 0) if fabric else 0,
        memory_bytes=spec.model_bytes or 0,
        tolerations=tolerations(pod),
        node_terms=node_terms(pod),
    )


def lifecycle_job(spec: TrainingJobSpec, *, deleting: bool, rejected: tuple[str, str, str] | None) -> Job:
    """What the lifecycle needs of ``spec``."""
    return Job(
        name=spec.name,
        workers=spec.workers,
        accelerators_per_worker=spec.accelerators.per_worker,
        start_timeout=spec.start_timeout_seconds,
        max_start_attempts=spec.start_attempts,
        max_restarts=spec.max_restarts,
        max_duration=spec.max_duration_seconds,
        ttl=None if spec.ttl_seconds_after_finished is None else float(spec.ttl_seconds_after_finished),
        force_delete_after=spec.force_delete_after_seconds,
        grace=grace_seconds(spec.template.get("spec") or {}),
        rules=tuple(_rules(spec)),
        suspended=spec.suspend,
        deleting=deleting,
        has_store=spec.checkpoint_uri is not None,
        asked=asked_conditions(spec),
        dataset=_dataset(spec),
        rejected=rejected,
    )


def asked_conditions(spec: TrainingJobSpec) -> tuple[str, ...]:
    """The conditions that any placement of the job fulfils, because ``spec`` asks for what they speak of."""
    fabric = spec.fabric
    linked = fabric is not None and bool(fabric.kinds or fabric.min_gbps or fabric.min_rails)
    asked = {"FabricSatisfied": linked, "MemoryFits": bool(spec.model_bytes)}
    return tuple(kind for kind, wanted in asked.items() if wanted)


def _dataset(spec: TrainingJobSpec) -> str:
    """``uri@version`` of the data."""
    dataset = spec.lineage.dataset if spec.lineage else None
    return "@".join(part for part in (dataset.uri, dataset.version) if part) if dataset else ""


def without_nodes(request: GangRequest, avoid: tuple[str, ...], *, hard: bool) -> GangRequest:
    """``request`` that keeps off the nodes of ``avoid``, or takes them last where ``hard`` is false."""
    if not avoid:
        return request
    names = frozenset(avoid)
    return replace(request, excluded_nodes=names) if hard else replace(request, penalised_nodes=names)


def grace_seconds(pod: Mapping[str, Any]) -> int:
    """The template's own termination grace period."""
    value = pod.get("terminationGracePeriodSeconds")
    return DEFAULT_GRACE_SECONDS if value is None else int(value)


def names_cpu(pod: Mapping[str, Any]) -> bool:
    """Whether the template states its CPU itself: for the worker, or for the pod as a whole."""
    worker = (pod.get("containers") or [{}])[0]
    stated = (worker.get("resources") or {}, pod.get("resources") or {})
    return any(CPU in (resources.get(kind) or {}) for resources in stated for kind in ("requests", "limits"))


def _known(path: str, names: tuple[str, ...], known: Mapping[str, object], reason: str) -> None:
    for name in names:
        if name not in known:
            have = ", ".join(sorted(known))
            raise RequestProblem(reason, f"{path}: the catalogue has no {name}; it has {have}")


def _rules(spec: TrainingJobSpec) -> list[Rule]:
    rules = []
    for rule in spec.recovery_rules:
        exits = rule.on_exit_codes
        conditions = tuple((entry.type, entry.status) for entry in rule.on_pod_conditions or ())
        rules.append(
            Rule(
                name=rule.name,
                action=rule.action,
                exit_operator=exits.operator if exits else "",
                exit_codes=exits.values if exits else (),
                container=(exits.container_name or "") if exits else "",
                conditions=conditions,
            )
        )
    return rules


def pod_needs(pod: Mapping[str, Any], devices: frozenset[str] | set[str]) -> dict[str, int]:
    """What one pod of the template asks for besides ``devices``, as the scheduler counts it."""
    whole = pod.get("resources") or {}
    total = values.pod_needs(
        (_asked(container) for container in pod.get("containers") or ()),
        (
            (container.get("restartPolicy") == "Always", _asked(container))
            for container in pod.get("initContainers") or ()
        ),
        _amounts(whole.get("requests")),
        _amounts(whole.get("limits")),
        _amounts(pod.get("overhead")),
    )
    return {name: value for name, value in sorted(total.items()) if name not in devices and value > 0}


def _asked(container: Mapping[str, Any]) -> dict[str, int]:
    resources = container.get("resources") or {}
    return _amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _amounts(texts: Mapping[str, Any] | None) -> dict[str, int]:
    return {name: parse_resource(name, str(text)) for name, text in (texts or {}).items()}


def as_admitted(request: GangRequest, needs: Resources, cpu_millicores: int) -> GangRequest:
    """``request`` of workers whose pod needs at least what admission makes of it, defaults and overhead included.

    ``needs`` is what the scheduler counts for one pod, of which Berth chose ``cpu_millicores``. Where nothing grows,
    ``request`` itself is returned.
    """
    grown = dict(request.per_worker)
    for name in SCHEDULED:
        amount = needs.get(name, 0) - (cpu_millicores if name == CPU else 0)
        if amount > grown.get(name, 0):
            grown[name] = amount
    if grown == request.per_worker:
        return request
    added = frozenset(name for name, amount in grown.items() if amount != request.per_worker.get(name))
    return replace(request, per_worker=grown, admitted=added)


def tolerations(pod: Mapping[str, Any]) -> tuple[Toleration, ...]:
    """The template's own tolerations."""
    return tuple(
        Toleration(
            entry.get("key") or "",
            entry.get("operator") or "Equal",
            entry.get("value") or "",
            entry.get("effect") or "",
        )
        for entry in pod.get("tolerations") or ()
    )


def node_terms(pod: Mapping[str, Any]) -> tuple[Requirements, ...]:
    """Which nodes the template allows: ORed terms, each with the node selector's labels ANDed in.

    Raises:
        RequestProblem: a term selects by field, which is how Berth pins a pod.
    """
    selector = tuple(
        Requirement(key, "In", (str(value),)) for key, value in sorted((pod.get("nodeSelector") or {}).items())
    )
    affinity = (pod.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    if any(term.get("matchFields") for term in required.get("nodeSelectorTerms") or ()):
        raise RequestProblem(
            "SpecInvalid",
            "spec.template.spec.affinity.nodeAffinity: matchFields is Berth's own; "
            "select nodes by matchExpressions, for example on kubernetes.io/hostname",
        )
    terms = tuple(
        (
            *selector,
            *(
                Requirement(entry["key"], entry["operator"], tuple(str(value) for value in entry.get("values") or ()))
                for entry in term.get("matchExpressions") or ()
            ),
        )
        for term in required.get("nodeSelectorTerms") or ()
    )
    return terms or ((selector,) if selector else ())
