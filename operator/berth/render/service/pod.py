"""The pod template of a variant: what Berth generates, the user's over it, and what must hold whatever that says.

What must hold: the labels by which replicas are found, the chart's priority class, the devices, the pool's nodes, and
that a replica drains before its time is up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from berth.api.names import SERVER_CONTAINER
from berth.render.service.overlay import overlaid
from berth.render.service.placing import affinity, spread, tolerations
from berth.render.service.plan import DeploymentPlan, Json, variant_labels
from berth.render.service.server import USER_ID, server, volumes, with_resources, with_startup
from berth.render.service.weights import weights

PROBE: Final = "berth-check"
"""The name of the pod that the server is asked about."""
STOP_SECONDS: Final = 15
"""Between the end of draining and the end of the grace: for the engine to stop by itself."""
GRACE_SECONDS: Final = 30
"""The API's own, where the template takes ours out."""


def pod_template(plan: DeploymentPlan) -> Json:
    """The PodTemplateSpec. What it follows from stands with :class:`DeploymentPlan`."""
    own = plan.service.template
    body = overlaid({"spec": _generated(plan)}, {key: own[key] for key in ("metadata", "spec") if own.get(key)})
    metadata = {key: value for key, value in (body.get("metadata") or {}).items() if key in ("labels", "annotations")}
    metadata["labels"] = {**(metadata.get("labels") or {}), **variant_labels(plan)}
    return {"metadata": metadata, "spec": _holding(plan, body["spec"])}


def probe_pod(plan: DeploymentPlan) -> Json:
    """One pod of the template, for a server dry run: quota, Pod Security and the template itself speak.

    It carries no owner and none of the labels by which the Service would find it.
    """
    template = pod_template(plan)
    ours = variant_labels(plan)
    labels = {key: value for key, value in template["metadata"]["labels"].items() if key not in ours}
    meta = {**template["metadata"], "name": PROBE, "namespace": plan.service.namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}


def server_of(spec: Mapping[str, Any]) -> Json:
    """The container that serves in a pod's ``spec``, empty where there is none."""
    found = (entry for entry in spec.get("containers") or () if entry.get("name") == SERVER_CONTAINER)
    return dict(next(found, {}))


def _generated(plan: DeploymentPlan) -> Json:
    own = plan.service.template.get("spec") or {}
    spec: Json = {
        "containers": [server(plan)],
        "volumes": volumes(plan),
        "topologySpreadConstraints": spread(plan),
        "tolerations": tolerations(plan),
        "terminationGracePeriodSeconds": plan.drain + STOP_SECONDS,
        "enableServiceLinks": False,  # a Service named after an engine would set that engine's own variables
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
    }
    if plan.service.engine is not None:
        # So that the engine's user may read what a claim holds.
        spec["securityContext"] |= {"fsGroup": USER_ID, "fsGroupChangePolicy": "OnRootMismatch"}
    if not own.get("serviceAccountName"):
        spec["automountServiceAccountToken"] = False
    secret = plan.service.spec.model.secret_ref
    if secret is not None and weights(plan.service.spec.model).scheme == "oci":
        spec["imagePullSecrets"] = [{"name": secret.name}]
    return spec


def _holding(plan: DeploymentPlan, spec: Json) -> Json:
    containers = [
        _server(plan, spec, entry) if entry.get("name") == SERVER_CONTAINER else entry for entry in spec["containers"]
    ]
    spec = {**spec, "containers": containers}
    spec["affinity"] = affinity(plan, spec.get("affinity") or {})
    spec["priorityClassName"] = plan.priority_class
    spec["volumes"] = _mounted(plan, spec)
    return {key: value for key, value in spec.items() if value not in ([], {})}


def _server(plan: DeploymentPlan, spec: Mapping[str, Any], container: Mapping[str, Any]) -> Json:
    container = with_startup(plan, with_resources(plan, container))
    drain = min(plan.drain, int(spec.get("terminationGracePeriodSeconds", GRACE_SECONDS)) - STOP_SECONDS)
    lifecycle = container.get("lifecycle") or {}
    if drain > 0 and not lifecycle.get("preStop"):
        container["lifecycle"] = {**lifecycle, "preStop": {"sleep": {"seconds": drain}}}
    security = container.get("securityContext") or {}
    if security.get("privileged"):
        container["securityContext"] = {k: v for k, v in security.items() if k != "allowPrivilegeEscalation"}
    return container


def _mounted(plan: DeploymentPlan, spec: Mapping[str, Any]) -> list[Json]:
    """The volumes without those of ours in whose place the template has mounted its own."""
    ours = {volume["name"] for volume in volumes(plan)}
    used = {
        mount.get("name")
        for kind in ("containers", "initContainers")
        for container in spec.get(kind) or ()
        for mount in container.get("volumeMounts") or ()
    }
    return [volume for volume in spec.get("volumes") or () if volume["name"] not in ours or volume["name"] in used]
