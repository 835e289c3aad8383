"""What the objects of a service are a function of, and what all of them carry.

A pod template follows from the spec, the catalogue and this code alone: prices, capacities, counts and free room are in
the plan for other reasons and never reach it, so that a day of learning rolls nothing. What is learned and does reach
it (the start-up budget, the grace, the CPU) comes in coarse steps and is frozen by whoever makes the plan.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from berth.api.inferenceservice import InferenceServiceSpec
from berth.api.names import (
    API_VERSION,
    INFERENCE_SERVICE,
    LABEL_APPLIED_HASH,
    LABEL_CAPACITY_TYPE,
    LABEL_MANAGED_BY,
    LABEL_POOL,
    LABEL_SERVICE_NAME,
    LABEL_VARIANT,
    MANAGED_BY,
    PRIORITY_CLASS_INFERENCE,
)
from berth.catalogue.records import Accelerator, Catalogue
from berth.catalogue.serving import Engine
from berth.inference.records import Variant
from berth.render.service.drain import drain_seconds
from berth.values import Requirements, Toleration

Json = dict[str, Any]

NOT_IN_TEMPLATES: Final = frozenset(
    {"replicas", "priority_class_name", "accelerators", "mode", "objective", "scaling", "spot", "rollout", "expose"}
)
"""Fields of a spec that decide how many replicas there are, where, and how they are reached, and not what they are: of
``accelerators`` but for ``perReplica``."""


def node_disk() -> Json:
    """The volume source that every namespace allows: the node's own disk, for as long as the pod lives."""
    return {"emptyDir": {}}


@dataclass(frozen=True, slots=True)
class ServicePlan:
    """A service by its identity, what it asks for and what is known of the world."""

    name: str
    namespace: str
    uid: str
    spec: InferenceServiceSpec
    catalogue: Catalogue

    @property
    def engine(self) -> Engine | None:
        """What serves it; ``None`` where the template brings its own."""
        runtime = self.spec.runtime
        return self.catalogue.serving.engines.get(runtime.engine) if runtime is not None else None

    @property
    def model_name(self) -> str:
        """What clients ask for."""
        return self.spec.model.name or self.name

    @property
    def template(self) -> Mapping[str, Any]:
        """The user's own PodTemplateSpec, empty where there is none."""
        return self.spec.template or {}


def same_templates(one: InferenceServiceSpec, other: InferenceServiceSpec) -> bool:
    """Whether both specs say the same of what enters a variant's pod template."""
    fields = InferenceServiceSpec.model_fields.keys() - NOT_IN_TEMPLATES
    devices = {entry.accelerators.per_replica if entry.accelerators is not None else None for entry in (one, other)}
    return len(devices) == 1 and all(getattr(one, name) == getattr(other, name) for name in fields)


@dataclass(frozen=True, slots=True)
class DeploymentPlan:
    """One variant of a service.

    ``pool`` is the one that the template names, empty: the variant's; see :mod:`berth.inference.adopt`. ``nodes`` are
    the node selector's terms (ORed, each ANDed; none: every node). ``tolerations`` beyond that of the
    device's own taint. ``startup_seconds`` is what a start may take before the pod is started again. A replica that
    goes answers for ``grace_seconds`` more, 0: as its promise asks for. ``cpu_millicores`` per replica, used where the
    template names no CPU; 0: none is asked for. ``cache`` is the volume source in which fetched weights stay with
    ``coldStart.modelCache: NVMe``.

    These enter the pod template, beside the spec, the catalogue and the variant's name, accelerator, devices, pool and
    capacity type. ``replicas``, ``paused``, ``max_surge`` and ``max_unavailable`` (integers or percents) do not.
    """

    service: ServicePlan
    variant: Variant
    nodes: tuple[Requirements, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    startup_seconds: int = 600
    grace_seconds: int = 0
    cpu_millicores: int = 0
    cache: Mapping[str, Any] = field(default_factory=node_disk)
    priority_class: str = PRIORITY_CLASS_INFERENCE
    replicas: int = 0
    paused: bool = False
    max_surge: int | str = 0
    max_unavailable: int | str = 1
    pool: str = ""

    @property
    def name(self) -> str:
        """The Deployment's."""
        return self.variant.name

    @property
    def drain(self) -> int:
        """Seconds for which a replica that goes still answers."""
        return self.grace_seconds or drain_seconds(self.service.spec, self.service.catalogue.serving.sizing)

    @property
    def accelerator(self) -> Accelerator:
        """What a replica runs on. Raises: KeyError, where the catalogue no longer knows it."""
        return self.service.catalogue.accelerators[self.variant.accelerator]


def owner(plan: ServicePlan) -> Json:
    """The owner reference of every child: the service collects its children, and none of them holds it up."""
    return {
        "apiVersion": API_VERSION,
        "kind": INFERENCE_SERVICE.kind,
        "name": plan.name,
        "uid": plan.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def service_labels(plan: ServicePlan) -> dict[str, str]:
    """What every child carries."""
    return {LABEL_SERVICE_NAME: plan.name, LABEL_MANAGED_BY: MANAGED_BY}


def variant_labels(plan: DeploymentPlan) -> dict[str, str]:
    """What a Deployment and its pods carry."""
    return {
        **service_labels(plan.service),
        LABEL_VARIANT: plan.variant.name,
        LABEL_POOL: plan.pool or plan.variant.pool,
        LABEL_CAPACITY_TYPE: plan.variant.capacity_type,
    }


def child(
    plan: ServicePlan, api_version: str, kind: str, name: str, labels: Mapping[str, str], spec: Mapping[str, Any]
) -> Json:
    """A child's whole body, with the digest of it among its labels."""
    body: Json = {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": plan.namespace,
            "labels": dict(labels),
            "ownerReferences": [owner(plan)],
        },
        "spec": spec,
    }
    body["metadata"]["labels"][LABEL_APPLIED_HASH] = digest(body)
    return body


def digest(content: object) -> str:
    """A label's value that differs where ``content`` (JSON) differs, whatever the order of its keys."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
