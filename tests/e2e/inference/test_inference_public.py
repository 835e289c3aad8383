"""A public service has a route only while TLS ends at its Gateway and a policy protects it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from berth.devcluster import gatewayapi
from berth.devcluster.problems import BuildFailed, ToolMissing
from berth.devcluster.process import wait_until
from tests.conftest import without
from tests.e2e.inference.conftest import PATIENCE, Services, Serving

Json = dict[str, Any]
EXPOSE: Json = {
    "scope": "Public",
    "hostnames": ["chat.example.com"],
    "gatewayRef": {"name": "edge", "sectionName": "https"},
    "auth": {
        "type": "Policy",
        "policyRef": {"group": "gateway.envoyproxy.io", "kind": "SecurityPolicy", "name": "chat-auth"},
    },
}
HTTP: Json = {"name": "http", "protocol": "HTTP", "port": 80}
HTTPS: Json = {"name": "https", "protocol": "HTTPS", "port": 443, "tls": {"certificateRefs": [{"name": "certificate"}]}}
POLICIES = "/apis/gateway.envoyproxy.io/v1alpha1/namespaces/{}/securitypolicies"
GATEWAYS = "/apis/gateway.networking.k8s.io/v1/namespaces/{}/gateways"
ROUTES = "/apis/gateway.networking.k8s.io/v1/namespaces/{}/httproutes"


def policy_kind() -> Json:
    """A kind as a gateway brings it: its name and its targets are all that is read."""
    spec = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "securitypolicies.gateway.envoyproxy.io"},
        "spec": {
            "group": "gateway.envoyproxy.io",
            "scope": "Namespaced",
            "names": {"kind": "SecurityPolicy", "plural": "securitypolicies"},
            "versions": [{"name": "v1alpha1", "served": True, "storage": True, "schema": schema}],
        },
    }


@pytest.fixture
def gateway_api(serving: Serving) -> Iterator[None]:
    try:
        manifests = [*gatewayapi.definitions(), policy_kind()]
    except (ToolMissing, BuildFailed) as problem:
        without("Gateway API", problem)
    gatewayapi.install(serving.api, manifests)
    yield
    gatewayapi.remove(serving.api, manifests)


def gateway(services: Services, *listeners: Json) -> None:
    spec = {"gatewayClassName": "test", "listeners": list(listeners)}
    manifest = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "spec": spec,
                "metadata": {"name": "edge", "namespace": services.namespace}}  # fmt: skip
    services.api.apply(manifest)


def protect(services: Services, route: str) -> None:
    target = {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": route}
    manifest = {"apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "SecurityPolicy",
                "metadata": {"name": "chat-auth", "namespace": services.namespace},
                "spec": {"targetRefs": [target]}}  # fmt: skip
    services.api.apply(manifest)


def has_route(services: Services) -> bool:
    return services.api.exists(f"{ROUTES.format(services.namespace)}/chat")


@pytest.mark.usefixtures("gateway_api")
def test_a_route_is_there_only_behind_tls_and_a_policy(services: Services) -> None:
    services.apply("chat", expose=EXPOSE)
    services.expect_ready("chat", 1)
    services.expect_condition("chat", "Exposed", "False", "GatewayNotFound")
    gateway(services, HTTP)
    services.expect_condition("chat", "Exposed", "False", "NoTls")
    gateway(services, HTTP, HTTPS)
    services.expect_condition("chat", "Exposed", "False", "PolicyNotFound")
    protect(services, "another")
    services.expect_condition("chat", "Exposed", "False", "PolicyElsewhere")
    assert not has_route(services)
    protect(services, "chat")
    services.expect_condition("chat", "Exposed", "True", "RouteAttached")
    assert wait_until(lambda: has_route(services), PATIENCE)
    route = services.api.get(f"{ROUTES.format(services.namespace)}/chat")
    assert route["spec"]["hostnames"] == ["chat.example.com"]
    assert route["spec"]["rules"][0]["backendRefs"][0]["name"] == "chat"
    path = f"{ROUTES.format(services.namespace)}/chat"
    parents = [*route["spec"]["parentRefs"], {"name": "edge", "sectionName": "http"}]
    services.api.patch(path, {"spec": {"parentRefs": parents}})
    assert wait_until(lambda: services.api.get(path)["spec"]["parentRefs"] == route["spec"]["parentRefs"], PATIENCE)
    services.api.delete(f"{POLICIES.format(services.namespace)}/chat-auth")
    services.expect_condition("chat", "Exposed", "False", "PolicyNotFound")
    assert wait_until(lambda: not has_route(services), PATIENCE), "a route without protection stays"
    protect(services, "chat")
    assert wait_until(lambda: has_route(services), PATIENCE)
    services.patch("chat", expose={"scope": "Cluster"})
    assert wait_until(lambda: not has_route(services), PATIENCE), "a route stays that nobody asks for"


def test_without_the_gateway_api_a_public_service_serves_inside(services: Services) -> None:
    services.apply("chat", expose=EXPOSE)
    services.expect_ready("chat", 1)
    services.expect_condition("chat", "Exposed", "False", "GatewayNotFound")
