"""Where a replica finds its model.

Weights on a claim or in an image are mounted, so that no replica copies them and the node keeps an image for the next
one. Everything else the engine fetches by itself from the URI. Credentials reach it as environment variables out of the
Secret, never as arguments, which anybody may read who may list pods.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from berth.api.inferenceservice_parts import ServedModel
from berth.api.names import LABEL_MODEL_CACHE
from berth.render.service.plan import Json, ServicePlan

MODEL_VOLUME: Final = "berth-model"
MODEL_PATH: Final = "/models"
CACHE_VOLUME: Final = "berth-model-cache"
CACHE_PATH: Final = "/var/cache/berth"
MOUNTED: Final = frozenset({"", "pvc", "oci"})
"""Schemes that every engine can read, as a folder; empty: the spec names no URI."""


@dataclass(frozen=True, slots=True)
class Weights:
    """``location`` is what the engine is told: a path, a name or a URI; ``source`` of the volume that is mounted."""

    scheme: str = ""
    location: str = ""
    revision: str = ""
    source: Json | None = None


def weights(model: ServedModel) -> Weights:
    """Where the weights of ``model`` lie; its URI has been validated."""
    if model.uri is None:
        return Weights()
    scheme, _, rest = model.uri.partition("://")
    match scheme:
        case "pvc":
            claim, _, path = rest.partition("/")
            source = {"persistentVolumeClaim": {"claimName": claim, "readOnly": True}}
            return Weights(scheme, f"{MODEL_PATH}/{path}".rstrip("/"), source=source)
        case "oci":
            return Weights(scheme, MODEL_PATH, source={"image": {"reference": rest, "pullPolicy": "IfNotPresent"}})
        case "hf":
            name, _, revision = rest.partition("@")
            return Weights(scheme, name, revision)
    return Weights(scheme, model.uri)


def unreadable(plan: ServicePlan) -> str:
    """Why the engine cannot fetch the weights by itself, as a sentence; empty where it can or the template sees to it.

    The template does where its server states its own arguments.
    """
    engine, found = plan.engine, weights(plan.spec.model)
    if engine is None or found.scheme in MOUNTED or found.scheme in engine.schemes:
        return ""
    containers = (plan.template.get("spec") or {}).get("containers") or ()
    if any(entry.get("args") or entry.get("command") for entry in containers):
        return ""
    known = ", ".join(sorted({*engine.schemes, "pvc", "oci"}))
    return (
        f"{engine.name} reads no {found.scheme}:// by itself; use one of {known}, or fetch the weights in an init "
        "container of spec.template and name their folder in the server's args"
    )


def cached(plan: ServicePlan) -> bool:
    """Whether weights stay on the node for the next start: fetched into the cache volume, or as an image."""
    cold = plan.spec.cold_start
    return weights(plan.spec.model).scheme == "oci" or (cold is not None and cold.model_cache == "NVMe")


def model_cache_label(uri: str) -> str:
    """The label of nodes that hold the weights of ``uri``; the same for every service of that model."""
    return LABEL_MODEL_CACHE + hashlib.sha256(uri.encode()).hexdigest()[:16]
