"""Whether a public service may have its route.

A route is an open door: it is made only while a listener of the Gateway ends TLS with a certificate and the policy
object that protects the route exists and targets all of it. Both are read, not assumed, and asked for again now and
then. The route joins those listeners by name: a route that names none is served by the Gateway's plain ones too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from berth.api.inferenceservice_parts import Expose
from berth.cluster.client import ApiClient
from berth.cluster.errors import ClusterError, Forbidden
from berth.cluster.kinds import GATEWAYS, Kind
from berth.cluster.wire import Gateway, Listener, Targeting
from berth.controllers.services.view import ServiceView
from berth.inference.service import Verdict
from berth.render.service.exposure import GATEWAY_GROUP

AGAIN_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Opening:
    """The condition Exposed, and the listeners that the route may join: none unless the verdict is true."""

    verdict: Verdict
    listeners: tuple[str, ...] = ()


class Exposure:
    """Answers what a service's route may join; None for a service that is not public."""

    def __init__(
        self, client: ApiClient, *, again: float = AGAIN_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client, self._again, self._clock = client, again, clock
        self._known: dict[str, tuple[int, float, Opening]] = {}  # uid -> generation, when, answer

    def forget(self, uid: str) -> None:
        """The service is gone."""
        self._known.pop(uid, None)

    async def opening(self, view: ServiceView) -> Opening | None:
        """Whether and at which listeners the route may be there.

        Raises: ClusterError where the API server cannot be asked.
        """
        expose = view.spec.expose if view.spec is not None else None
        if expose is None or expose.scope != "Public":
            return None
        generation, known = view.object.metadata.generation, self._known.get(view.uid)
        if known is not None and known[0] == generation and self._clock() - known[1] < self._again:
            return known[2]
        opening = await self._judge(view, expose)
        self._known[view.uid] = (generation, self._clock(), opening)
        return opening

    async def _judge(self, view: ServiceView, expose: Expose) -> Opening:
        reference = expose.gateway_ref
        if reference is None or expose.auth is None or expose.auth.policy_ref is None:
            return Opening(Verdict(False, "SpecIncomplete", "expose.gatewayRef and expose.auth.policyRef are needed"))
        namespace = reference.namespace or view.key[0]
        name = f"Gateway {namespace}/{reference.name}"
        try:
            gateway = await self._client.find(GATEWAYS, reference.name, namespace)
        except ClusterError as problem:
            return Opening(Verdict(False, "GatewayUnknown", f"{name} cannot be read: {problem}"))
        if gateway is None:
            return Opening(
                Verdict(False, "GatewayNotFound", f"{name} does not exist, or the Gateway API is not installed")
            )
        listeners, why_not = _open_to(gateway, reference.section_name, expose.hostnames or ())
        if why_not:
            return Opening(Verdict(False, "NoTls", f"{name} {why_not}; the route is not made without TLS"))
        verdict = await self._policy(view, expose)
        return Opening(verdict, listeners if verdict.status else ())

    async def _policy(self, view: ServiceView, expose: Expose) -> Verdict:
        assert expose.auth is not None
        policy = expose.auth.policy_ref
        assert policy is not None
        what = f"{policy.kind}.{policy.group} {view.key[0]}/{policy.name}"
        kind = await self._find_kind(policy.group, policy.kind)
        if kind is None:
            return Verdict(False, "PolicyNotFound", f"the API server serves no {policy.kind}.{policy.group}")
        try:
            found = await self._client.find(kind, policy.name, view.key[0])
        except Forbidden:
            return Verdict(
                False, "PolicyUnreadable", f"{what} may not be read; list its kind in the chart's value expose.policies"
            )
        if found is None:
            return Verdict(False, "PolicyNotFound", f"{what} does not exist; the route is not made without it")
        if not _targets(found, view.key[1]):
            return Verdict(
                False, "PolicyElsewhere", f"{what} does not target HTTPRoute {view.key[1]}; add it to its targetRefs"
            )
        return Verdict(True, "RouteAttached", f"through the Gateway, protected by {what}")

    async def _find_kind(self, group: str, kind: str) -> Kind[Targeting] | None:
        for version in await self._client.versions(group):
            for resource in await self._client.kinds(group, version):
                if resource[1] == kind:
                    return Kind(group, version, resource[0], kind, True, Targeting)
        return None


def _open_to(gateway: Gateway, section: str | None, hostnames: Iterable[str]) -> tuple[tuple[str, ...], str]:
    """The listeners that the route joins, and where there are none why.

    They end TLS with a certificate and answer for one of ``hostnames``; only that of the name ``section``, if given.
    """
    named = [entry for entry in gateway.spec.listeners if section in (None, entry.name)]
    if not named:
        return (), f"has no listener {section}" if section else "has no listener"
    called = f" named {section}" if section else ""
    safe = [entry for entry in named if _ends_tls(entry)]
    if not safe:
        return (), "has no HTTPS listener with a certificate" + called
    ours = [entry.name for entry in safe if any(_meets(entry.hostname, name) for name in hostnames)]
    return tuple(sorted(ours)), "" if ours else f"has no HTTPS listener{called} for any of the hostnames"


def _meets(listener: str, name: str) -> bool:
    """Whether a listener for a hostname answers for ``name``; ``*.`` stands for one label or more, empty for all."""
    if not listener or listener.lower() == name.lower():
        return True
    return any(
        wild.startswith("*.") and other.removeprefix("*").endswith(wild[1:])
        for wild, other in ((listener.lower(), name.lower()), (name.lower(), listener.lower()))
    )


def _ends_tls(listener: Listener) -> bool:
    tls = listener.tls
    return listener.protocol == "HTTPS" and tls is not None and tls.mode != "Passthrough" and bool(tls.certificate_refs)


def _targets(policy: Targeting, route: str) -> bool:
    spec: Mapping[str, Any] = msgspec.json.decode(policy.spec) if policy.spec else {}
    references = [*(spec.get("targetRefs") or ()), *([spec["targetRef"]] if spec.get("targetRef") else ())]
    return any(_is_route(entry, route) for entry in references if isinstance(entry, Mapping))


def _is_route(reference: Mapping[str, Any], name: str) -> bool:
    """Whether a policy's target is the route ``name``, and all of it: a section of a route is one of its rules."""
    known = (reference.get("group"), reference.get("kind"), reference.get("name"))
    return known == (GATEWAY_GROUP, "HTTPRoute", name) and not reference.get("sectionName")
