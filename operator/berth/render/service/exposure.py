"""What clients and administrators meet: one address, one budget of disruption and, if public, one route.

All of them are over every variant, so that a change of the mix changes none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from berth.api.names import LABEL_SERVICE_NAME
from berth.render.service.plan import Json, ServicePlan, child, service_labels
from berth.render.service.pod import server_of
from berth.render.service.server import HTTP, METRICS

GATEWAY_GROUP: Final = "gateway.networking.k8s.io"
MOST_PARENTS: Final = 32
"""Of a route, by the Gateway API."""
PORT: Final = 8000
"""Where neither the spec nor an engine nor the template names one."""
BUDGET: Final = "10%"
"""Replicas that may be evicted at once; rounded up, so that a node can always be drained."""


def service(plan: ServicePlan) -> Json:
    """The one address of all variants. Replicas get requests once their model is loaded."""
    target = _target(plan)
    port = service_port(plan)
    ports: list[Json] = [{"name": HTTP, "port": port, "targetPort": target, "protocol": "TCP"}]
    engine = plan.engine
    if engine is not None and engine.metrics_port not in (engine.port, port):
        ports.append({"name": METRICS, "port": engine.metrics_port, "targetPort": METRICS, "protocol": "TCP"})
    spec = {"type": "ClusterIP", "selector": {LABEL_SERVICE_NAME: plan.name}, "ports": ports}
    return child(plan, "v1", "Service", plan.name, service_labels(plan), spec)


def service_port(plan: ServicePlan) -> int:
    """The port of the Service: ``expose.port``, else what the server listens on."""
    expose = plan.spec.expose
    if expose is not None and expose.port is not None:
        return expose.port
    if plan.engine is not None:
        return plan.engine.port
    ports = _own_ports(plan)
    return int(_main_port(ports)["containerPort"]) if ports else PORT


def _target(plan: ServicePlan) -> int | str:
    """The server's port by name where it has one of ours, else by number."""
    if plan.engine is not None:
        return HTTP
    ports = _own_ports(plan)
    if not ports:
        return service_port(plan)
    main = _main_port(ports)
    return HTTP if main.get("name") == HTTP else int(main["containerPort"])


def _own_ports(plan: ServicePlan) -> list[Json]:
    return list(server_of(plan.template.get("spec") or {}).get("ports") or ())


def _main_port(ports: list[Json]) -> Json:
    return next((port for port in ports if port.get("name") == HTTP), ports[0])


def disruption_budget(plan: ServicePlan) -> Json:
    """How many replicas may be evicted at once: never none, and those that are not ready stand in nobody's way.

    ``rollout.maxUnavailable`` where it allows any, else :data:`BUDGET`.
    """
    spec = {
        "maxUnavailable": _unavailable(plan),
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": {LABEL_SERVICE_NAME: plan.name}},
    }
    return child(plan, "policy/v1", "PodDisruptionBudget", plan.name, service_labels(plan), spec)


def _unavailable(plan: ServicePlan) -> int | str:
    rollout = plan.spec.rollout
    stated = rollout.max_unavailable if rollout is not None else None
    return BUDGET if stated is None or stated in (0, "0%") else stated


def http_route(plan: ServicePlan, listeners: Sequence[str]) -> Json:
    """The route of a public service; asked for only once its Gateway and its policy have been found.

    It joins the ``listeners`` by their names and no other: without a name it would join every one of the Gateway, plain
    HTTP too. Answers stream for longer than the default of many a gateway, so the route sets no time limit.
    Raises: ValueError, for a service that is not public, or without listeners.
    """
    expose = plan.spec.expose
    if expose is None or expose.gateway_ref is None or expose.hostnames is None:
        raise ValueError("only a service with hostnames and a gatewayRef has a route")
    if not listeners:
        raise ValueError("a route that names no listener joins all of them")
    gateway = expose.gateway_ref
    parent = {
        "group": GATEWAY_GROUP,
        "kind": "Gateway",
        "name": gateway.name,
        "namespace": gateway.namespace or plan.namespace,
    }
    parents = [{**parent, "sectionName": name} for name in sorted(listeners)[:MOST_PARENTS]]
    backend = {"group": "", "kind": "Service", "name": plan.name, "port": service_port(plan), "weight": 1}
    rule = {
        "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
        "backendRefs": [backend],
        "timeouts": {"request": "0s"},
    }
    spec = {"parentRefs": parents, "hostnames": sorted(expose.hostnames), "rules": [rule]}
    return child(plan, f"{GATEWAY_GROUP}/v1", "HTTPRoute", plan.name, service_labels(plan), spec)
