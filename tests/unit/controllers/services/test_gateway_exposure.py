"""A public route needs TLS at the Gateway and a policy that targets it; both are read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from berth.cluster.errors import Forbidden, Unreachable
from berth.cluster.kinds import GATEWAYS
from berth.controllers.services.exposure import AGAIN_SECONDS, Exposure, Opening
from tests.unit.controllers.services.views import make_view

EXPOSE = {
    "scope": "Public",
    "hostnames": ["chat.example.com"],
    "gatewayRef": {"name": "edge", "namespace": "gateways"},
    "auth": {"type": "Policy", "policyRef": {"group": "g.example.com", "kind": "Rule", "name": "chat-auth"}},
}
HTTPS = {"name": "https", "protocol": "HTTPS", "tls": {"mode": "Terminate", "certificateRefs": [{"name": "c"}]}}
HTTP = {"name": "http", "protocol": "HTTP"}
API = "gateway.networking.k8s.io"
ROUTE = {"group": API, "kind": "HTTPRoute", "name": "chat"}


class Api:
    """What the API server knows of the Gateway and the policy."""

    def __init__(self, listeners: list[Any] | None, policy: Any = None, *, served: bool = True) -> None:
        self.listeners, self.policy, self.served, self.asked = listeners, policy, served, 0

    async def find(self, kind: Any, name: str, namespace: str) -> Any:
        self.asked += 1
        found = self.policy
        if kind is GATEWAYS:
            found = None if self.listeners is None else {"listeners": self.listeners}
        if isinstance(found, Exception):
            raise found
        return None if found is None else kind.decode(json.dumps({"metadata": {"name": name}, "spec": found}).encode())

    async def versions(self, group: str) -> list[str]:
        return ["v1"] if self.served else []

    async def kinds(self, group: str, version: str) -> list[tuple[str, str]]:
        return [("rules", "Rule")]


async def opening(api: Api, **expose: Any) -> Opening:
    client: Any = api
    found = await Exposure(client).opening(make_view(expose={**EXPOSE, **expose}))
    assert found is not None
    return found


async def verdict(api: Api, **expose: Any) -> tuple[bool | None, str]:
    found = (await opening(api, **expose)).verdict
    return found.status, found.reason


@pytest.mark.parametrize(
    ("listeners", "section", "expected"),
    [
        ([HTTPS], None, (True, "RouteAttached")),
        ([HTTP, HTTPS], None, (True, "RouteAttached")),
        ([HTTP, HTTPS], "https", (True, "RouteAttached")),
        ([HTTP, HTTPS], "http", (False, "NoTls")),
        ([HTTPS], "other", (False, "NoTls")),
        ([HTTP], None, (False, "NoTls")),
        ([], None, (False, "NoTls")),
        ([{**HTTPS, "tls": {"mode": "Passthrough", "certificateRefs": [{"name": "c"}]}}], None, (False, "NoTls")),
        ([{**HTTPS, "tls": {"mode": "Terminate"}}], None, (False, "NoTls")),
        ([{**HTTPS, "protocol": "TLS"}], None, (False, "NoTls")),
        (None, None, (False, "GatewayNotFound")),
    ],
)
async def test_listeners(listeners: list[Any] | None, section: str | None, expected: tuple[bool, str]) -> None:
    reference = {**EXPOSE["gatewayRef"], **({"sectionName": section} if section else {})}  # type: ignore[dict-item]
    assert await verdict(Api(listeners, {"targetRefs": [ROUTE]}), gatewayRef=reference) == expected


PLAIN_TOO = [HTTP, HTTPS, {**HTTPS, "name": "other"}, {**HTTPS, "name": "through", "tls": {"mode": "Passthrough"}}]


@pytest.mark.parametrize(
    ("section", "hostnames", "joined"),
    [(None, ("", ""), ("https", "other")), ("https", ("", ""), ("https",)), (None, ("elsewhere.org", ""), ("other",))],
)
async def test_the_route_joins_the_listeners_with_tls_and_no_other(
    section: str | None, hostnames: tuple[str, str], joined: tuple[str, ...]
) -> None:
    http, first, second, through = PLAIN_TOO
    listeners = [http, {**first, "hostname": hostnames[0]}, {**second, "hostname": hostnames[1]}, through]
    reference = {**EXPOSE["gatewayRef"], **({"sectionName": section} if section else {})}  # type: ignore[dict-item]
    found = await opening(Api(listeners, {"targetRefs": [ROUTE]}), gatewayRef=reference)
    assert found.listeners == joined


async def test_without_a_policy_the_route_joins_none() -> None:
    assert (await opening(Api([HTTPS]))).listeners == ()


@pytest.mark.parametrize(
    ("listener", "asked", "answered"),
    [
        ("", "chat.example.com", True),
        ("Chat.example.com", "chat.example.com", True),
        ("*.example.com", "chat.example.com", True),
        ("*.example.com", "a.chat.example.com", True),
        ("*.example.com", "example.com", False),
        ("*.example.com", "chat.example.org", False),
        ("*.example.com", "badexample.com", False),
        ("chat.example.com", "*.example.com", True),
        ("other.example.com", "chat.example.com", False),
    ],
)
async def test_hostnames_of_listeners(listener: str, asked: str, answered: bool) -> None:
    found = await verdict(Api([{**HTTPS, "hostname": listener}], {"targetRef": ROUTE}), hostnames=[asked])
    assert found == ((True, "RouteAttached") if answered else (False, "NoTls"))


@pytest.mark.parametrize(
    ("policy", "served", "expected"),
    [
        ({"targetRef": ROUTE}, True, (True, "RouteAttached")),
        ({"targetRefs": [{"group": API, "kind": "Gateway", "name": "edge"}, ROUTE]}, True, (True, "RouteAttached")),
        ({"targetRefs": [{**ROUTE, "name": "other"}]}, True, (False, "PolicyElsewhere")),
        ({"targetRefs": [{**ROUTE, "group": "example.com"}]}, True, (False, "PolicyElsewhere")),
        ({"targetRefs": [{**ROUTE, "group": ""}]}, True, (False, "PolicyElsewhere")),
        ({"targetRefs": [{**ROUTE, "sectionName": "one-rule"}]}, True, (False, "PolicyElsewhere")),
        ({}, True, (False, "PolicyElsewhere")),
        (None, True, (False, "PolicyNotFound")),
        ({"targetRef": ROUTE}, False, (False, "PolicyNotFound")),
        (Forbidden(403, "Forbidden", "no"), True, (False, "PolicyUnreadable")),
    ],
)
async def test_policies(policy: Any, served: bool, expected: tuple[bool, str]) -> None:
    assert await verdict(Api([HTTPS], policy, served=served)) == expected


async def test_a_service_within_the_cluster_has_nothing_to_prove() -> None:
    api: Any = Api(None)
    assert await Exposure(api).opening(make_view()) is None
    assert not api.asked


async def test_an_answer_is_kept_for_a_while() -> None:
    api: Any = Api([HTTPS], {"targetRef": ROUTE})
    now = [0.0]
    exposure, view = Exposure(api, clock=lambda: now[0]), make_view(expose=EXPOSE)
    for at, asked in ((0.0, 2), (AGAIN_SECONDS - 1, 2), (AGAIN_SECONDS + 1, 4)):
        now[0] = at
        await exposure.opening(view)
        assert api.asked == asked


async def test_a_gateway_that_cannot_be_read_gets_no_route() -> None:
    class Gone(Api):
        async def find(self, kind: Any, name: str, namespace: str) -> Any:
            raise Unreachable("no answer")

    assert await verdict(Gone(None)) == (False, "GatewayUnknown")
