"""A public route needs TLS at the Gateway and a policy that targets it; both are read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from berth.cluster.errors import Forbidden, TooManyRequests, Unavailable, Unreachable
from berth.cluster.kinds import GATEWAYS
from berth.controllers.services.exposure import AGAIN_SECONDS, Exposure, Opening
from tests.unit.controllers.services.test_service_refusals import Desk
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
        (Forbidden(403, "Forbidden", "no"), True, (None, "PolicyUnreadable")),
        (Unreachable("timed out"), True, (None, "PolicyUnreadable")),
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


NO_ANSWERS = [Unreachable("timed out"), TooManyRequests(429, "", "slow down"), Unavailable(503, "", "no"),
              Forbidden(403, "Forbidden", "no")]  # fmt: skip


class PublicDesk(Desk):
    """``chat`` behind a Gateway; what is in ``broken`` cannot be read."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: dict[str, Exception] = {}
        self.put("Gateway", "edge", {"listeners": [HTTPS]})
        self.put("Rule", "chat-auth", {"targetRef": ROUTE})
        self.find, self.server.find = self.server.find, self._find
        self.server.versions, self.server.kinds = Api(None).versions, Api(None).kinds
        self.server.delete = self._delete

    def put(self, kind: str, name: str, spec: Any) -> None:
        self.server.objects[kind, name] = {"metadata": {"name": name}, "spec": spec}

    async def _find(self, kind: Any, name: str, namespace: str) -> Any:
        if kind.kind in self.broken:
            raise self.broken[kind.kind]
        return await self.find(kind, name, namespace)

    async def _delete(self, kind: Any, name: str, namespace: str, *, uid: str) -> None:
        del self.server.objects[kind.kind, name]

    async def public(self) -> tuple[bool, str, str]:
        """Whether there is a route, and the condition's status and reason, after a look with a question due."""
        now = self.exposure._clock() + AGAIN_SECONDS
        self.exposure._clock = lambda: now
        status = await self.look(expose=EXPOSE)
        (found,) = (entry for entry in status["conditions"] if entry["type"] == "Exposed")
        self.words = found["message"]
        route = self.server.objects.get(("HTTPRoute", "chat"))
        if route is not None:
            route["metadata"]["ownerReferences"] = [{"uid": "uid-of-chat", "kind": "InferenceService", "name": "chat"}]
        return route is not None, found["status"], found["reason"]

    @property
    def exposure(self) -> Exposure:
        return self.loop.services._exposure


@pytest.mark.parametrize("answer", NO_ANSWERS, ids=lambda answer: type(answer).__name__)
@pytest.mark.parametrize(("kind", "reason"), [("Gateway", "GatewayUnknown"), ("Rule", "PolicyUnreadable")])
async def test_a_question_without_an_answer_leaves_the_route_as_it_is(kind: str, reason: str, answer: Any) -> None:
    desk = PublicDesk()
    assert await desk.public() == (True, "True", "RouteAttached")
    desk.broken = {kind: answer}
    assert await desk.public() == (True, "Unknown", reason)
    assert "the route stays as it is, which was RouteAttached when it was last read at 20" in desk.words
    desk.broken = {}
    assert await desk.public() == (True, "True", "RouteAttached")


async def test_what_is_read_to_be_missing_takes_the_route_back_and_no_answer_makes_none() -> None:
    desk = PublicDesk()
    assert await desk.public() == (True, "True", "RouteAttached")
    del desk.server.objects["Gateway", "edge"]
    assert await desk.public() == (False, "False", "GatewayNotFound")
    desk.broken = {"Gateway": Unreachable("timed out")}
    assert await desk.public() == (False, "Unknown", "GatewayUnknown")


async def test_what_got_no_answer_is_asked_again_soon_and_less_and_less_often() -> None:
    api: Any = Api([HTTPS], Unreachable("timed out"))
    now, waits = [0.0], list[float]()
    exposure = Exposure(api, clock=lambda: now[0], call=lambda key, seconds: waits.append(seconds))
    for _ in range(8):
        await exposure.opening(make_view(expose=EXPOSE))
        now[0] += waits[-1]
    assert waits == [2, 4, 8, 16, 32, 60, 60, 60]
    api.policy = {"targetRef": ROUTE}
    found = await exposure.opening(make_view(expose=EXPOSE))
    assert found is not None
    assert found.listeners == ("https",)
    assert len(waits) == 8
