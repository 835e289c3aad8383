"""Clients and administrators see one service, whatever its mix of variants."""

from __future__ import annotations

from typing import Any

import pytest

from berth.api.names import LABEL_APPLIED_HASH
from berth.render.service.exposure import disruption_budget, http_route, service
from tests.builders.services import make_service

PUBLIC = {
    "port": 80,
    "scope": "Public",
    "hostnames": ["chat.example.com", "a.example.com"],
    "gatewayRef": {"name": "edge", "namespace": "gateways", "sectionName": "https"},
    "auth": {"type": "Policy", "policyRef": {"group": "g.example", "kind": "SecurityPolicy", "name": "p"}},
}


def own(*ports: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "server", "image": "own:1", "ports": list(ports)}]}}


def test_one_service_stands_before_all_variants():
    body = service(make_service())
    assert (body["apiVersion"], body["kind"], body["metadata"]["name"]) == ("v1", "Service", "chat")
    assert body["spec"]["selector"] == {"berth.dev/service-name": "chat"}
    assert body["spec"]["type"] == "ClusterIP"
    assert "publishNotReadyAddresses" not in body["spec"]
    assert body["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] is False


@pytest.mark.parametrize(
    ("engine", "spec", "port", "target"),
    [
        ("vLLM", {}, 8000, "http"),
        ("vLLM", {"expose": {"port": 80}}, 80, "http"),
        ("Custom", {"template": own({"containerPort": 9000})}, 9000, 9000),
        ("Custom", {"template": own({"containerPort": 1}, {"name": "http", "containerPort": 9000})}, 9000, "http"),
        ("Custom", {"template": own({"containerPort": 9000}), "expose": {"port": 80}}, 80, 9000),
        ("Custom", {"expose": {"port": 7000}}, 7000, 7000),
        ("Custom", {}, 8000, 8000),
    ],
)
def test_the_port_is_the_user_s_or_what_the_server_listens_on(engine: str, spec: Any, port: int, target: int | str):
    first = service(make_service(engine, **spec))["spec"]["ports"][0]
    assert (first["name"], first["port"], first["targetPort"]) == ("http", port, target)


def test_metrics_on_a_port_of_their_own_can_be_reached():
    ports = service(make_service("Triton"))["spec"]["ports"]
    assert [(entry["name"], entry["port"]) for entry in ports] == [("http", 8000), ("metrics", 8002)]


@pytest.mark.parametrize(
    ("rollout", "evictable"),
    [({}, "10%"), ({"maxUnavailable": 3}, 3), ({"maxUnavailable": 0}, "10%"), ({"maxUnavailable": "0%"}, "10%")],
)
def test_a_node_can_always_be_drained(rollout: Any, evictable: int | str):
    """karpenter#1776, #2802: budgets of nothing held nodes for days."""
    body = disruption_budget(make_service(rollout=rollout))
    assert body["spec"] == {
        "maxUnavailable": evictable,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": {"berth.dev/service-name": "chat"}},
    }


def test_the_route_joins_the_listeners_and_leads_to_the_service():
    body = http_route(make_service(expose=PUBLIC), ["https", "also"])
    assert (body["apiVersion"], body["kind"]) == ("gateway.networking.k8s.io/v1", "HTTPRoute")
    parents = [(entry["name"], entry["namespace"], entry["sectionName"]) for entry in body["spec"]["parentRefs"]]
    assert parents == [("edge", "gateways", "also"), ("edge", "gateways", "https")]
    assert body["spec"]["hostnames"] == ["a.example.com", "chat.example.com"]
    (rule,) = body["spec"]["rules"]
    (backend,) = rule["backendRefs"]
    assert (backend["name"], backend["port"]) == ("chat", 80)
    assert rule["timeouts"] == {"request": "0s"}, "answers stream for minutes"


def test_a_gateway_is_in_the_service_s_own_namespace_unless_it_says_otherwise():
    expose = {**PUBLIC, "gatewayRef": {"name": "edge"}}
    (parent,) = http_route(make_service(expose=expose), ["https"])["spec"]["parentRefs"]
    assert parent["namespace"] == "serving"


def test_a_route_is_never_made_without_naming_a_listener():
    with pytest.raises(ValueError, match="joins all"):
        http_route(make_service(expose={**PUBLIC, "gatewayRef": {"name": "edge"}}), [])


def test_a_service_that_is_not_public_has_no_route():
    with pytest.raises(ValueError, match="gatewayRef"):
        http_route(make_service(), ["https"])


def test_what_was_applied_is_known_by_its_digest():
    for render in (service, disruption_budget):
        one, same = (render(make_service())["metadata"]["labels"][LABEL_APPLIED_HASH] for _ in range(2))
        assert one == same
    labels = [service(make_service(expose={"port": port}))["metadata"]["labels"] for port in (80, 81)]
    assert labels[0][LABEL_APPLIED_HASH] != labels[1][LABEL_APPLIED_HASH]
