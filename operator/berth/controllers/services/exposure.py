"""Whether a public service may have its route.

A route is an open door: it is made only while the Gateway's listener ends TLS with a certificate and the policy object
that protects the route exists and targets it. Both are read, not assumed, and asked for again now and then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from berth.api.inferenceservice_parts import Expose
from berth.cluster.client import ApiClient
from berth.cluster.errors import ClusterError, Forbidden
from berth.cluster.kinds import GATEWAYS, Kind
from berth.cluster.wire import Gateway, Listener, Targeting
from berth.controllers.services.view import ServiceView
from berth.inference.service import Verdict

AGAIN_SECONDS: Final = 60.0


class Exposure:
    """Answers with the condition Exposed; None for a service that is not public."""

    def __init__(
        self, client: ApiClient, *, again: float = AGAIN_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client, self._again, self._clock = client, again, clock
        self._known: dict[tuple[str, int], tuple[float, Verdict]] = {}

    async def verdict(self, view: ServiceView) -> Verdict | None:
        """Whether the route may be there. Raises: ClusterError where the API server cannot be asked."""
        expose = view.spec.expose if view.spec is not None else None
        if expose is None or expose.scope != "Public":
            return None
        key = (view.uid, view.object.metadata.generation)
        known = self._known.get(key)
        if known is not None and self._clock() - known[0] < self._again:
            return known[1]
        verdict = await self._judge(view, expose)
        self._known = {k: v for k, v in self._known.items() if k[0] != view.uid} | {key: (self._clock(), verdict)}
        return verdict

    async def _judge(self, view: ServiceView, expose: Expose) -> Verdict:
        reference = expose.gateway_ref
        if reference is None or expose.auth is None or expose.auth.policy_ref is None:
            return Verdict(False, "SpecIncomplete", "expose.gatewayRef and expose.auth.policyRef are needed")
        namespace = reference.namespace or view.key[0]
        name = f"Gateway {namespace}/{reference.name}"
        try:
            gateway = await self._client.find(GATEWAYS, reference.name, namespace)
        except ClusterError as problem:
            return Verdict(False, "GatewayUnknown", f"{name} cannot be read: {problem}")
        if gateway is None:
            return Verdict(False, "GatewayNotFound", f"{name} does not exist, or the Gateway API is not installed")
        without_tls = _listener_problem(gateway, reference.section_name)
        if without_tls:
            return Verdict(False, "NoTls", f"{name} {without_tls}; the route is not made without TLS")
        return await self._policy(view, expose)

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


def _listener_problem(gateway: Gateway, section: str | None) -> str:
    """Why no listener that the route may attach to ends TLS with a certificate; empty where one does."""
    listeners = [entry for entry in gateway.spec.listeners if section in (None, entry.name)]
    if not listeners:
        return f"has no listener {section}"
    if any(_ends_tls(entry) for entry in listeners):
        return ""
    return "has no HTTPS listener with a certificate" + (f" named {section}" if section else "")


def _ends_tls(listener: Listener) -> bool:
    tls = listener.tls
    return listener.protocol == "HTTPS" and tls is not None and tls.mode != "Passthrough" and bool(tls.certificate_refs)


def _targets(policy: Targeting, route: str) -> bool:
    spec: Mapping[str, Any] = msgspec.json.decode(policy.spec) if policy.spec else {}
    references = [*(spec.get("targetRefs") or ()), *([spec["targetRef"]] if spec.get("targetRef") else ())]
    return any(entry.get("kind") == "HTTPRoute" and entry.get("name") == route for entry in references)
