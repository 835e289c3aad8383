"""What a service asks of accelerators, from its spec, its annotations and the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal

from berth.api.inferenceservice import InferenceServiceSpec
from berth.api.names import SERVER_CONTAINER
from berth.catalogue.records import Catalogue
from berth.catalogue.serving import Engine, Mode, Objective, Sizing
from berth.catalogue.sizing import ServedModel
from berth.inference.capacity import Promise
from berth.values import parse_count, parse_duration


@dataclass(frozen=True, slots=True)
class ServiceRequest:
    """What must be served, how well, and what it may run on.

    ``model`` is ``None`` where parameters are not stated; then ``devices`` (per replica) is. ``types`` are the
    catalogue names allowed, empty for all. ``own_image``: its template names an image. ``compiled_for`` are the
    accelerators for which the weights were compiled.
    """

    service: str
    model: ServedModel | None
    promise: Promise
    devices: int | None = None
    types: tuple[str, ...] = ()
    training_pools: bool = False
    mode: Mode = "Interactive"
    objective: Objective = "Cost"
    spot: Literal["Never", "Mixed", "Only"] = "Never"
    engine: Engine | None = None
    own_image: bool = False
    speculates: bool = False
    traits: Mapping[str, str] = field(default_factory=dict)
    compiled_for: frozenset[str] = frozenset()


def service_request(
    name: str, spec: InferenceServiceSpec, annotations: Mapping[str, str], catalogue: Catalogue
) -> ServiceRequest:
    """The request of the service ``name`` with ``spec``. Raises: ValueProblem, which a validated spec does not."""
    serving, allowed = catalogue.serving, spec.accelerators
    runtime = spec.runtime
    engine = serving.engines.get(runtime.engine) if runtime is not None else None
    traits = serving.read_traits(annotations)
    compiled = traits.get("compiledFor", "")
    devices = allowed.per_replica if allowed is not None and isinstance(allowed.per_replica, int) else None
    return ServiceRequest(
        service=name,
        model=_model(spec),
        promise=promise(spec, serving.sizing),
        devices=devices,
        types=allowed.types if allowed is not None else (),
        training_pools=allowed is not None and allowed.allow_training_pools,
        mode=spec.mode,
        objective=spec.objective,
        spot=spec.spot.mode if spec.spot is not None else "Never",
        engine=engine,
        own_image=engine is None or _names_image(spec),
        speculates=engine is not None and runtime is not None and engine.speculates(runtime.args),
        traits=traits,
        compiled_for=frozenset(part.strip() for part in compiled.split(",") if part.strip()),
    )


def _model(spec: InferenceServiceSpec) -> ServedModel | None:
    model = spec.model
    if model.parameters is None:
        return None
    return ServedModel(
        parse_count(model.parameters), model.bits_per_parameter or 16, model.kv_bytes_per_token or 0,
        model.context_tokens or 0,
    )  # fmt: skip


def promise(spec: InferenceServiceSpec, sizing: Sizing) -> Promise:
    """What is promised; an interactive service that promises no time is held to the catalogue's."""
    slo = spec.slo
    percentile = float(slo.percentile or sizing.percentile) if slo is not None else sizing.percentile
    ttft, itl, latency = (
        parse_duration(text) if text is not None else inf
        for text in ((slo.ttft, slo.itl, slo.latency) if slo is not None else (None, None, None))
    )
    stated = Promise(percentile, ttft, itl, latency)
    if stated.timed or spec.mode == "Batch":
        return stated
    return Promise(percentile, sizing.ttft_seconds, sizing.itl_seconds)


def _names_image(spec: InferenceServiceSpec) -> bool:
    template: Mapping[str, Any] = spec.template or {}
    containers = (template.get("spec") or {}).get("containers") or ()
    return any(entry.get("name") == SERVER_CONTAINER and entry.get("image") for entry in containers)
