"""InferenceService: replicas of a model that are as many, as near and as cheap as its promise to clients allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import ConfigDict

from berth.api import inferenceservice_rules as checks
from berth.api.cel import named, validated
from berth.api.common import ContractProblem, Model, SubdomainName
from berth.api.inferenceservice_parts import (
    Candidates,
    ColdStart,
    Expose,
    Replicas,
    Rollout,
    Runtime,
    Scaling,
    ServedModel,
    Slo,
    Spot,
)
from berth.api.inferenceservice_status import InferenceServiceStatus
from berth.api.template import ServerTemplate
from berth.api.template_shape import misshapen


class InferenceServiceSpec(Model):
    """What the user asks for."""

    model_config = ConfigDict(json_schema_extra=validated(*checks.SPEC))

    priority_class_name: SubdomainName | None = None
    """A PriorityClass; who is served first when capacity is short. Absent: 0."""
    replicas: Replicas = 1
    """Read with scaling.mode Manual only, and a number from before it takes no replica away until it is set to
    another; written by the scale subresource."""
    model: ServedModel
    """What is served."""
    runtime: Runtime | None = None
    """What serves it."""
    accelerators: Candidates | None = None
    """What it may run on."""
    mode: Literal["Interactive", "Batch"] = "Interactive"
    """Batch may go to accelerators that only batch suits, interactive never."""
    objective: Literal["Cost", "Latency", "Flexibility"] = "Cost"
    """What the planner prefers among the mixes that keep the SLO."""
    slo: Slo | None = None
    """What is promised to clients."""
    scaling: Scaling | None = None
    """How many replicas there are."""
    spot: Spot | None = None
    """How much of it may run on spot capacity."""
    cold_start: ColdStart | None = None
    """How long a replica takes to start."""
    rollout: Rollout | None = None
    """How a change of the template reaches the replicas."""
    expose: Expose | None = None
    """How clients reach it."""
    template: ServerTemplate | None = None
    """PodTemplateSpec laid over the generated one, containers by name; the engine is "server"."""


class InferenceService(Model):
    """Replicas of a model that keep its promise to clients at the least cost."""

    model_config = ConfigDict(json_schema_extra=validated(*named()))

    spec: InferenceServiceSpec
    """What the user asks for."""
    status: InferenceServiceStatus | None = None
    """What became of it; written by Berth."""


def parse_spec(raw: Mapping[str, Any]) -> InferenceServiceSpec:
    """The spec of a live object. Raises: ContractProblem, also where the template has not the form of a pod's."""
    spec = InferenceServiceSpec.parse(raw, "spec")
    problem = misshapen(spec.template or {})
    if problem is not None:
        raise ContractProblem(problem)
    return spec


def parse_status(raw: Mapping[str, Any] | None) -> InferenceServiceStatus:
    """The status of a live object; an absent one is the empty status. Raises: ContractProblem."""
    return InferenceServiceStatus.parse(raw or {}, "status")
