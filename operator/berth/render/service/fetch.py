"""Weights on nodes: whether they outlive the pods that use them, and the pod that fetches them ahead of a replica.

Where weights come from is the spec's affair and how they are fetched the template's or the engine's. The fetching pod
is therefore cut out of the pod template that replicas have: the same image, user, credentials and volume, one command
that ends, no device. Where neither says how, that is said, and nothing is guessed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from berth.api.names import (
    LABEL_MANAGED_BY,
    LABEL_PREFETCH_FOR,
    MANAGED_BY,
    PRIORITY_CLASS_PREFETCH,
)
from berth.render.service.engine import values
from berth.render.service.plan import DeploymentPlan, Json, owner
from berth.render.service.pod import pod_template, server_of
from berth.render.service.server import SHARED_MEMORY_VOLUME
from berth.render.service.weights import CACHE_VOLUME, MODEL_VOLUME, cached, model_cache_label, weights
from berth.values import CPU

KEPT_BY_NODE: Final = frozenset({"hostPath", "csi", "image"})
"""Volume sources whose content the next pod on the node finds again. A CSI driver is taken at its user's word."""
FETCHER: Final = "fetch"
FETCH_SECONDS: Final = 3600
"""What has not been fetched by then is stuck."""
_REQUESTS: Final = {"cpu": "100m", "memory": "256Mi"}
_FROM_REPLICA: Final = (
    "serviceAccountName", "automountServiceAccountToken", "imagePullSecrets", "securityContext", "tolerations",
    "enableServiceLinks", "schedulerName", "hostNetwork", "dnsPolicy", "dnsConfig", "hostAliases",
)  # fmt: skip
_FROM_SERVER: Final = ("image", "imagePullPolicy", "env", "envFrom", "securityContext", "workingDir")


@dataclass(frozen=True, slots=True)
class Keeping:
    """``label`` of the nodes that hold the weights, empty where none ever do; ``why`` then says it in a sentence.

    ``image``: the kubelet keeps them, and deletes them when its disk is full.
    """

    label: str = ""
    why: str = ""
    image: bool = False


def keeping(plan: DeploymentPlan) -> Keeping | None:
    """Whether nodes keep the weights after a replica has gone; None where nobody asked for that."""
    service = plan.service
    found, engine, uri = weights(service.spec.model), service.engine, service.spec.model.uri
    if uri is None or not cached(service):
        return None
    volume = MODEL_VOLUME if found.source is not None else CACHE_VOLUME
    spec = pod_template(plan)["spec"]
    kinds = {kind for entry in spec.get("volumes") or () if entry["name"] == volume for kind in entry} - {"name"}
    if not kinds & KEPT_BY_NODE:
        return Keeping(why=_why_not_kept(found.scheme, volume, sorted(kinds)))
    if engine is not None and found.scheme not in engine.fetch and not _loaders(spec):
        return Keeping(
            why=f"{engine.name} leaves nothing of {found.scheme}:// on the node; fetch the weights in an init container"
            f" of spec.template that mounts {CACHE_VOLUME}"
        )
    return Keeping(model_cache_label(uri), image="image" in kinds)


def unfetchable(plan: DeploymentPlan) -> str:
    """Why no pod can fetch the weights ahead of a replica, as a sentence; empty where one can."""
    service, spec = plan.service, pod_template(plan)["spec"]
    loaders = _loaders(spec)
    if loaders:
        needy = [entry["name"] for entry in loaders if _devices(plan, entry)]
        return f"the init container {needy[0]} asks for devices, and fetching ahead has none" if needy else ""
    scheme = weights(service.spec.model).scheme
    if service.engine is None or scheme not in service.engine.fetch:
        return (
            "nothing says how the weights are fetched without starting a server; fetch them in an init container of"
            f" spec.template that mounts {CACHE_VOLUME}"
        )
    stated = server_of(service.template.get("spec") or {})
    if scheme != "oci" and (stated.get("command") or stated.get("args")):
        return "the server in spec.template states its own command, so what it reads is not known"
    return "" if server_of(spec).get("image") else f"{service.engine.name} has no image for {plan.accelerator.name}"


def fetch_name(plan: DeploymentPlan, node: str) -> str:
    """The name of the pod that fetches to ``node``: a second create of the same is refused as existing."""
    return fetch_pod_name(plan.service.name, plan.service.spec.model.uri or "", node)


def fetch_pod_name(service: str, uri: str, node: str) -> str:
    """The same, by the service's name and the URI of its model."""
    return f"{service}-fetch-{hashlib.sha256(f'{uri} {node}'.encode()).hexdigest()[:12]}"


def fetch_pod(plan: DeploymentPlan, node: str) -> Json:
    """The pod that brings the weights to ``node``. Call it only where :func:`unfetchable` is empty.

    The scheduler binds it, so that taints and room are respected; matchFields lets it look at that one node. It is no
    replica: it carries none of the labels by which the Service and the budget find those.
    """
    spec = pod_template(plan)["spec"]
    containers = _fetchers(plan, spec)
    mounted = {mount["name"] for entry in containers for mount in entry.get("volumeMounts") or ()}
    pinned = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    terms = {"nodeSelectorTerms": [pinned]}
    body: Json = {
        **{key: spec[key] for key in _FROM_REPLICA if key in spec},
        "restartPolicy": "Never",
        "activeDeadlineSeconds": FETCH_SECONDS,
        "terminationGracePeriodSeconds": 5,
        "priorityClassName": PRIORITY_CLASS_PREFETCH,
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
        "initContainers": containers[:-1],
        "containers": containers[-1:],
        "volumes": [volume for volume in spec.get("volumes") or () if volume["name"] in mounted],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": fetch_name(plan, node),
            "namespace": plan.service.namespace,
            "labels": {LABEL_PREFETCH_FOR: plan.service.name, LABEL_MANAGED_BY: MANAGED_BY},
            "ownerReferences": [owner(plan.service)],
        },
        "spec": {key: value for key, value in body.items() if value != []},
    }


def _fetchers(plan: DeploymentPlan, spec: Mapping[str, Any]) -> list[Json]:
    loaders = _loaders(spec)
    if loaders:
        return loaders
    engine, server = plan.service.engine, server_of(spec)
    assert engine is not None
    groups = engine.fetch[weights(plan.service.spec.model).scheme]
    mounts = [mount for mount in server.get("volumeMounts") or () if mount["name"] != SHARED_MEMORY_VOLUME]
    return [
        {
            "name": FETCHER,
            **{key: server[key] for key in _FROM_SERVER if key in server},
            "command": list(replace(engine, args=groups).arguments(values(plan))),
            "volumeMounts": mounts,
            "resources": {"requests": dict(_REQUESTS)},
        }
    ]


def _loaders(spec: Mapping[str, Any]) -> list[Json]:
    """Init containers that fill the cache volume and end."""
    return [
        dict(entry)
        for entry in spec.get("initContainers") or ()
        if entry.get("restartPolicy") != "Always"
        and any(mount.get("name") == CACHE_VOLUME for mount in entry.get("volumeMounts") or ())
    ]


def _devices(plan: DeploymentPlan, container: Mapping[str, Any]) -> bool:
    needs = container.get("resources") or {}
    resource = plan.accelerator.resource
    return resource not in ("", CPU) and any(resource in (needs.get(part) or {}) for part in ("requests", "limits"))


def _why_not_kept(scheme: str, volume: str, kinds: Sequence[str]) -> str:
    if volume == MODEL_VOLUME:
        return f"weights at {scheme}:// are mounted, and no node keeps a copy"
    what = f"a volume of {kinds[0]}" if kinds else "no volume"
    return (
        f"{volume} is {what}, which ends with its pod; name a volume {volume} in spec.template that stays on the node"
        " (hostPath or csi), or use oci://"
    )
