"""Services, their variants, sights and plans, for every test of what is decided about and rendered of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from berth.api.inferenceservice import parse_spec
from berth.catalogue.load import load
from berth.inference.records import DemandState, Offer, Variant
from berth.inference.service import Foreseen, Replica, Seen, Sight
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


def make_offer(name: str = "od", room: int = 50, *, usd: float = 1.0, capacity: float = 1.0, **more: Any) -> Offer:
    """An offer of the variant ``name``: spot in the zone of its last letter where it begins with spot."""
    spot = name.startswith("spot")
    variant = make_variant(
        name=name, usd_per_hour=usd, capacity=capacity, capacity_type="Spot" if spot else "OnDemand",
        zone=name[-1] if spot else "", pool=name.partition("-")[0],
    )  # fmt: skip
    return Offer(variant, room, **more)


def make_replica(name: str = "r0", variant: str = "od", *, ready: bool = True, **fields: Any) -> Replica:
    """A live pod, ready since 0."""
    own = {"uid": f"uid-of-{name}", "created": 0.0, "ready_since": 0.0 if ready else None, "ever_ready": ready}
    return Replica(**{"name": name, "variant": variant, "ready": ready, **own, **fields})


def make_replicas(count: int, variant: str = "od", **fields: Any) -> tuple[Replica, ...]:
    """``count`` pods that are alike."""
    return tuple(make_replica(f"{variant}-{number}", variant, **fields) for number in range(count))


def make_sight(
    work: float | None = None,
    wanted: Mapping[str, int] | int = 0,
    *,
    now: float = 10_000.0,
    foreseen: float | None = None,
    replicas: tuple[Replica, ...] | None = None,
    reason: str = "",
    at_zero: bool = False,
    offers: tuple[Offer, ...] | None = None,
    **fields: Any,
) -> Sight:
    """``work`` is measured, None unknown. By default all that is wanted is ready, and one variant is offered."""
    counts = {"od": wanted} if isinstance(wanted, int) else dict(wanted)
    counts = {name: count for name, count in counts.items() if count}
    state = DemandState.UNKNOWN if work is None else DemandState.VALUE if work > 0 else DemandState.IDLE
    if replicas is None:
        replicas = tuple(replica for name, count in counts.items() for replica in make_replicas(count, name))
    ahead = Foreseen(foreseen, foreseen or 0.0, 0.9, 120.0)
    seen = Seen(state, work, now, reason, at_zero)
    return Sight(now, counts, replicas, seen, ahead, offers if offers is not None else (make_offer(),), **fields)
