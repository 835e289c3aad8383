"""A service as its controllers know it."""

from __future__ import annotations

import json
from typing import Any

from berth.api.inferenceservice import parse_spec
from berth.cluster import wire
from berth.cluster.kinds import DEPLOYMENTS, INFERENCE_SERVICES, NODES, PODS
from berth.controllers.services.view import ServiceView
from berth.inference.service import rules_of
from tests.builders.services import MODEL


def make_view(name: str = "chat", **spec: Any) -> ServiceView:
    """The service ``serving/<name>`` of an 8B model on vLLM."""
    raw = {"model": MODEL, "runtime": {"engine": "vLLM", "args": []}, **spec}
    meta = {"name": name, "namespace": "serving", "uid": f"uid-of-{name}", "generation": 1}
    body = {"metadata": meta, "spec": raw}
    known: wire.InferenceService = INFERENCE_SERVICES.decode(json.dumps(body).encode())
    parsed = parse_spec(raw)
    return ServiceView(known, parsed, rules_of(parsed))


def make_pod(name: str = "p", *, node: str = "n", conditions: list[Any] | None = None, **status: Any) -> wire.Pod:
    """A pod of a service."""
    meta = {"name": name, "namespace": "serving", "uid": f"uid-of-{name}"}
    body = {"metadata": meta, "spec": {"nodeName": node}, "status": {"conditions": conditions or [], **status}}
    found: wire.Pod = PODS.decode(json.dumps(body).encode())
    return found


def make_wire_node(
    name: str = "n", *, labels: Any = None, taints: list[Any] | None = None, conditions: list[Any] | None = None
) -> wire.Node:
    """A node as the API server tells of it."""
    body = {
        "metadata": {"name": name, "uid": f"uid-of-{name}", "labels": labels or {}},
        "spec": {"taints": taints or []},
        "status": {"conditions": conditions or []},
    }
    found: wire.Node = NODES.decode(json.dumps(body).encode())
    return found


def make_deployment(template: str, *, paused: bool = False, wanted: int = 2, **status: int | str) -> wire.Deployment:
    """A Deployment that runs ``template``; all replicas are new and ready unless ``status`` says otherwise."""
    stuck = status.pop("stuck", "")
    whole = {"observedGeneration": 1, "replicas": wanted, "updatedReplicas": wanted, "readyReplicas": wanted, **status}
    stated = [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": stuck}]
    body = {
        "metadata": {"name": "d", "generation": 1, "labels": {"berth.dev/template-hash": template}},
        "spec": {"replicas": wanted, "paused": paused},
        "status": {**whole, "conditions": stated if stuck else []},
    }
    found: wire.Deployment = DEPLOYMENTS.decode(json.dumps(body).encode())
    return found
