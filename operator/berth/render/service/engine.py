"""The engine's command line, from the catalogue's description of it.

Batching, parallelism, context and KV cache follow from what the candidate was sized by, so that what runs is what was
planned. The user's own arguments come last and stand in place of the same flags of ours.
"""

from __future__ import annotations

from dataclasses import replace

from berth.catalogue.serving import Engine, flag
from berth.inference.capacity import concurrency, kv_room, memory_share
from berth.inference.request import service_request
from berth.render.service.plan import DeploymentPlan
from berth.render.service.weights import weights

_MOST_KV_SHARE = 0.95


def arguments(plan: DeploymentPlan, engine: Engine) -> list[str]:
    """What follows the command."""
    runtime = plan.service.spec.runtime
    own = runtime.args if runtime is not None else ()
    found = weights(plan.service.spec.model)
    given = {flag(word) for word in own if word.startswith("-")}
    groups = (*engine.args, *engine.schemes.get(found.scheme, ()))
    kept = tuple(group for group in groups if not group or flag(group[0]) not in given)
    return [*replace(engine, args=kept).arguments(values(plan)), *own]


def values(plan: DeploymentPlan) -> dict[str, str]:
    """What placeholders in an engine's arguments stand for; those that are not known are absent."""
    service, accelerator, devices = plan.service, plan.accelerator, plan.variant.devices
    found = weights(service.spec.model)
    known: dict[str, str] = {
        "model": found.location,
        "revision": found.revision,
        "name": service.model_name,
        "devices": str(devices),
        "context": str(service.spec.model.context_tokens or ""),
    }
    model = service_request(service.name, service.spec, {}, service.catalogue).model
    if not accelerator.host_memory:
        share = memory_share(accelerator)
        known["memoryShare"] = f"{share:.2f}" if share > 0 else ""
    if model is not None:
        most = int(service.catalogue.serving.sizing.most_requests)
        held = concurrency(accelerator, model, devices, most)
        known["concurrency"] = str(held) if held > 0 else ""
        left = devices * accelerator.memory_bytes - model.weights
        room = kv_room(accelerator, model, devices)
        if not accelerator.host_memory and room > 0:
            known["kvShare"] = f"{min(_MOST_KV_SHARE, int(100 * room / left) / 100):.2f}"
    return {name: value for name, value in known.items() if value}
