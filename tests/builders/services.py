"""Services, their variants and plans, for every test of what is rendered of them."""

from __future__ import annotations

from typing import Any, Final

from berth.api.inferenceservice import parse_spec
from berth.catalogue.load import load
from berth.inference.records import Variant
from berth.render.service.plan import DeploymentPlan, ServicePlan

CATALOGUE: Final = load()
MODEL: Final = {
    "name": "llama-3-8b",
    "parameters": "8B",
    "uri": "hf://meta/llama-3-8b",
    "contextTokens": 8192,
    "kvBytesPerToken": 131072,
}
OWN: Final = {"spec": {"containers": [{"name": "server", "image": "example.com/own:1"}]}}
"""The template of a service with an engine of its own."""


def make_service(engine: str = "vLLM", *, args: tuple[str, ...] = (), **spec: Any) -> ServicePlan:
    """The service ``chat`` of an 8B model; ``spec`` in the contract's words, ``model`` laid over :data:`MODEL`."""
    model = {key: value for key, value in {**MODEL, **spec.pop("model", {})}.items() if value is not None}
    if engine == "Custom":
        spec.setdefault("template", OWN)
    raw = {"model": model, "runtime": {"engine": engine, "args": list(args)}, **spec}
    return ServicePlan("chat", "serving", "uid-of-chat", parse_spec(raw), CATALOGUE)


def make_variant(accelerator: str = "L4", **fields: Any) -> Variant:
    """A variant of ``chat`` on one device on demand."""
    own = {"name": "chat-l4-od-x", "capacity_type": "OnDemand", "pool": "l4", "devices": 1}
    return Variant(**{"accelerator": accelerator, "usd_per_hour": 0.8, "capacity": 1.0, **own, **fields})


def make_plan(service: ServicePlan | None = None, variant: Variant | None = None, **fields: Any) -> DeploymentPlan:
    """The plan of one variant."""
    return DeploymentPlan(service or make_service(), variant or make_variant(), **fields)
