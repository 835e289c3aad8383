"""One variant of a service as a Deployment."""

from __future__ import annotations

from typing import Final

from berth.api.names import LABEL_SERVICE_NAME, LABEL_TEMPLATE_HASH, LABEL_VARIANT
from berth.render.service.plan import DeploymentPlan, Json, child, digest, variant_labels
from berth.render.service.pod import pod_template

NODE_SECONDS: Final = 600
"""What a start may take before the pod has a node: an autoscaler's new one, its drivers, the image."""
REVISIONS: Final = 2


def deployment(plan: DeploymentPlan) -> Json:
    """The Deployment as it is first applied, with ``replicas``, so that it never runs the API's default of 1.

    Applied, not posted: what a create has set no later apply can take out. :func:`deployment_scale` follows.
    """
    body = deployment_template(plan)
    body["spec"] = {"replicas": plan.replicas, **body["spec"]}
    return body


def deployment_template(plan: DeploymentPlan) -> Json:
    """What is applied to a Deployment that exists: everything but ``replicas``, which a new template never touches.

    :func:`deployment_scale` goes before it, with the count as it is: a manager that has once applied a field and leaves
    it out gives it up, and unless another one holds it the count falls to the API's default of 1. Both are no writes
    where they change nothing.
    """
    template = pod_template(plan)
    spec: Json = {
        "selector": {
            "matchLabels": {LABEL_SERVICE_NAME: plan.service.name, LABEL_VARIANT: plan.variant.name},
        },
        "paused": plan.paused,
        "progressDeadlineSeconds": plan.startup_seconds + NODE_SECONDS,
        "revisionHistoryLimit": REVISIONS,
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": plan.max_surge, "maxUnavailable": plan.max_unavailable},
        },
        "template": template,
    }
    labels = {**variant_labels(plan), LABEL_TEMPLATE_HASH: digest(template)}
    return child(plan.service, "apps/v1", "Deployment", plan.name, labels, spec)


def deployment_scale(namespace: str, name: str, replicas: int, *, uid: str, resource_version: str = "") -> Json:
    """``replicas`` alone, to be applied by :data:`berth.api.names.SCALE_MANAGER`: the only way in which counts move.

    The server refuses it where the Deployment is another one than ``uid``, or none; with ``resource_version`` also
    where anything about it has changed since.
    """
    metadata = {"name": name, "namespace": namespace, "uid": uid}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata | ({"resourceVersion": resource_version} if resource_version else {}),
        "spec": {"replicas": replicas},
    }


def template_hash(plan: DeploymentPlan) -> str:
    """The value of the label :data:`LABEL_TEMPLATE_HASH`: where it differs, applying the plan rolls the replicas."""
    return digest(pod_template(plan))
