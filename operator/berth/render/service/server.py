"""The container that serves, as it is before the user's template is laid over it.

Its probes come from one start-up budget: nothing is killed while it loads, nothing gets requests before the model is
loaded, and an engine that is slow because it is busy is neither taken out nor started again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from berth.api.names import SERVER_CONTAINER
from berth.catalogue.serving import Engine
from berth.render.service.engine import arguments
from berth.render.service.plan import DeploymentPlan, Json
from berth.render.service.weights import CACHE_PATH, CACHE_VOLUME, MODEL_PATH, MODEL_VOLUME, cached, weights
from berth.values import CPU, format_resource

HTTP: Final = "http"
METRICS: Final = "metrics"
SHARED_MEMORY_PATH: Final = "/dev/shm"  # noqa: S108 - the mount point that engines use, not a file of ours
SHARED_MEMORY_VOLUME: Final = "berth-shared-memory"
SCRATCH_PATH: Final = "/tmp"  # noqa: S108 - of the container, the one place where an engine may write
SCRATCH_VOLUME: Final = "berth-scratch"
USER_ID: Final = 1000
MOST_CPU_PER_DEVICE: Final = 16_000
"""Millicores; the limit where the template names no CPU."""
_PROBE_SECONDS: Final = 5
_IDENTITY: Final[Mapping[str, Any]] = {"runAsNonRoot": True, "runAsUser": USER_ID, "runAsGroup": USER_ID}


def server(plan: DeploymentPlan) -> Json:
    """The container named ``server``: all of it for a catalogue engine, what surrounds it for one of the user's own."""
    engine = plan.service.engine
    container: Json = {"name": SERVER_CONTAINER}
    if engine is not None:
        container |= _engine(plan, engine)
    container["env"] = _environment(plan, engine)
    secret = plan.service.spec.model.secret_ref
    if secret is not None and weights(plan.service.spec.model).scheme != "oci":
        container["envFrom"] = [{"secretRef": {"name": secret.name}}]
    container["volumeMounts"] = _mounts(plan, engine)
    container["securityContext"] = _security(plan, engine)
    return container


def volumes(plan: DeploymentPlan) -> list[Json]:
    """The volumes that :func:`server` mounts."""
    found = weights(plan.service.spec.model)
    volumes: list[Json] = [{"name": SHARED_MEMORY_VOLUME, "emptyDir": {"medium": "Memory"}}]
    if plan.service.engine is not None:
        volumes.append({"name": SCRATCH_VOLUME, "emptyDir": {}})
    if found.source is not None:
        volumes.append({"name": MODEL_VOLUME, **found.source})
    if _fetched_into_cache(plan):
        volumes.append({"name": CACHE_VOLUME, **plan.cache})
    return volumes


def with_resources(plan: DeploymentPlan, container: Mapping[str, Any]) -> Json:
    """``container`` with its devices, whatever it says of them, and with CPU where it says nothing of that."""
    resources = dict(container.get("resources") or {})
    limits, requests = dict(resources.get("limits") or {}), dict(resources.get("requests") or {})
    resource, devices = plan.accelerator.resource, plan.variant.devices
    cpu = max(plan.cpu_millicores, 1000 * devices if resource == CPU else 0)
    if cpu and CPU not in requests and CPU not in limits:
        requests[CPU] = format_resource(CPU, cpu)
        limits[CPU] = format_resource(CPU, max(cpu, MOST_CPU_PER_DEVICE * devices))
    if resource and resource != CPU:
        limits[resource] = requests[resource] = str(devices)
    return {**container, "resources": {**resources, "limits": limits, "requests": requests}}


def with_startup(plan: DeploymentPlan, container: Mapping[str, Any]) -> Json:
    """``container`` with a start-up probe of its own handler, where it has other probes and none for that.

    Otherwise its liveness probe would end every start that is slower than the probe is patient.
    """
    probe = container.get("readinessProbe") or container.get("livenessProbe")
    if not probe or container.get("startupProbe"):
        return dict(container)
    handler = {key: probe[key] for key in ("exec", "httpGet", "grpc", "tcpSocket") if key in probe}
    return {**container, "startupProbe": {**handler, **_budget(plan)}}


def _engine(plan: DeploymentPlan, engine: Engine) -> Json:
    image = engine.images.get(plan.accelerator.runtime)
    ports = [{"name": HTTP, "containerPort": engine.port, "protocol": "TCP"}]
    if engine.metrics_port != engine.port:
        ports.append({"name": METRICS, "containerPort": engine.metrics_port, "protocol": "TCP"})
    ready, alive = ({"httpGet": {"path": path, "port": HTTP}} for path in (engine.ready, engine.alive))
    return {
        **({"image": image} if image else {}),
        "command": list(engine.command),
        "args": arguments(plan, engine),
        "ports": ports,
        "startupProbe": {**ready, **_budget(plan)},
        "readinessProbe": {**ready, "periodSeconds": 10, "timeoutSeconds": 20, "failureThreshold": 3},
        "livenessProbe": {**alive, "periodSeconds": 30, "timeoutSeconds": 30, "failureThreshold": 6},
    }


def _budget(plan: DeploymentPlan) -> Json:
    failures = max(1, -(-plan.startup_seconds // _PROBE_SECONDS))
    return {"periodSeconds": _PROBE_SECONDS, "timeoutSeconds": _PROBE_SECONDS, "failureThreshold": failures}


def _environment(plan: DeploymentPlan, engine: Engine | None) -> list[Json]:
    model, found = plan.service.spec.model, weights(plan.service.spec.model)
    named = {
        "BERTH_SERVICE_NAME": plan.service.name,
        "BERTH_MODEL_NAME": plan.service.model_name,
        "BERTH_MODEL_URI": model.uri or "",
        "BERTH_MODEL_PATH": found.location if found.source is not None else "",
        "BERTH_DEVICES": str(plan.variant.devices),
        "BERTH_CONTEXT_TOKENS": str(model.context_tokens or ""),
        "HF_HOME": CACHE_PATH if _fetched_into_cache(plan) else "",
    }
    if engine is not None:
        # Libraries write below the home folder and look up the user's name, which this user has in no image's passwd.
        named |= {"HOME": SCRATCH_PATH, "USER": "berth"}
    return [{"name": name, "value": value} for name, value in named.items() if value]


def _mounts(plan: DeploymentPlan, engine: Engine | None) -> list[Json]:
    mounts: list[Json] = [{"name": SHARED_MEMORY_VOLUME, "mountPath": SHARED_MEMORY_PATH}]
    if engine is not None:
        mounts.append({"name": SCRATCH_VOLUME, "mountPath": SCRATCH_PATH})
    if weights(plan.service.spec.model).source is not None:
        mounts.append({"name": MODEL_VOLUME, "mountPath": MODEL_PATH, "readOnly": True})
    if _fetched_into_cache(plan):
        mounts.append({"name": CACHE_VOLUME, "mountPath": CACHE_PATH})
    return mounts


def _fetched_into_cache(plan: DeploymentPlan) -> bool:
    """Weights that are mounted need no copy."""
    return cached(plan.service) and weights(plan.service.spec.model).source is None


def _security(plan: DeploymentPlan, engine: Engine | None) -> Json:
    """What an engine does without; of an image of the user's own, what no server needs.

    What the template says for the whole pod is not said again here, where it would win over it.
    """
    if engine is None:
        return {"allowPrivilegeEscalation": False}
    whole = (plan.service.template.get("spec") or {}).get("securityContext") or {}
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        **{key: value for key, value in _IDENTITY.items() if key not in whole},
    }
