"""Whether a public service may have its route.

A route is an open door: it is made only while a listener of the Gateway ends TLS with a certificate and the policy
object that protects the route exists and targets all of it. Both are read, not assumed, and asked for again now and
then. The route joins those listeners by name: a route that names none is served by the Gateway's plain ones too.

Only what was read closes a door that is open: a question without an answer proves nothing, and a route that goes with
it is an outage. Then the route stays as it is, and the question is asked again soon.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from berth.api.common import rfc3339
from berth.api.inferenceservice_parts import Expose
from berth.cluster.client import ApiClient
from berth.cluster.errors import ClusterError, Forbidden
from berth.cluster.kinds import GATEWAYS, Kind
from berth.cluster.wire import Gateway, Listener, Targeting
from berth.controllers.facts import shorten
from berth.controllers.services.view import ServiceKey, ServiceView
from berth.inference.service import Verdict
from berth.render.service.exposure import GATEWAY_GROUP

AGAIN_SECONDS: Final = 60.0
UNANSWERED_SECONDS: Final = 2.0
"""A question that got no answer is asked again after so long, then after twice as long, up to the usual time."""


@dataclass(frozen=True, slots=True)
class Opening:
    """The condition Exposed, and the listeners that the route may join: none unless the verdict is true.

    A verdict of Unknown says nothing of the route: whatever there is stays.
    """

    verdict: Verdict
    listeners: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Known:
    """What was found of a ``generation``, used ``until`` then. ``proven``: the last that was read, and when.

    ``unanswered``: questions in a row that got no answer.
    """

    generation: int
    until: float
    opening: Opening
    proven: tuple[float, Verdict] | None
    unanswered: int = 0


class Exposure:
    """Answers what a service's route may join; None for a service that is not public.

    ``call`` is called with a service's key and the seconds after which to look again.
    """

    def __init__(
        self,
        client: ApiClient,
        *,
        again: float = AGAIN_SECONDS,
        call: Callable[[ServiceKey, float], object] = lambda key, seconds: None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._client, self._again, self._call, self._clock, self._wall = client, again, call, clock, wall
        self._known: dict[str, _Known] = {}  # by uid

    def forget(self, uid: str) -> None:
        """The service is gone."""
        self._known.pop(uid, None)

    async def opening(self, view: ServiceView) -> Opening | None:
        """Whether and at which listeners the route may be there."""
        expose = view.spec.expose if view.spec is not None else None
        if expose is None or expose.scope != "Public":
            self.forget(view.uid)
            return None
        generation, known = view.object.metadata.generation, self._known.get(view.uid)
        if known is None or known.generation != generation or self._clock() >= known.until:
            opening = await self._judge(view, expose)
            known = self._known[view.uid] = self._after(opening, generation, known)
            if known.unanswered:
                self._call(view.key, known.until - self._clock())
        return known.opening

    def _after(self, opening: Opening, generation: int, before: _Known | None) -> _Known:
        verdict, now = opening.verdict, self._clock()
        if verdict.status is not None:
            return _Known(generation, now + self._again, opening, (self._wall(), verdict))
        proven = before.proven if before is not None else None
        misses = before.unanswered if before is not None else 0
        last = f", which was {proven[1].reason} when it was last read at {rfc3339(proven[0])}" if proven else ""
        told = replace(verdict, message=f"{verdict.message}; the route stays as it is{last}")
        wait = min(self._again, UNANSWERED_SECONDS * 2.0 ** min(misses, 10))
        return _Known(generation, now + wait, Opening(told), proven, misses + 1)

    async def _judge(self, view: ServiceView, expose: Expose) -> Opening:
        reference = expose.gateway_ref
        if reference is None or expose.auth is None or expose.auth.policy_ref is None:
            return Opening(Verdict(False, "SpecIncomplete", "expose.gatewayRef and expose.auth.policyRef are needed"))
        namespace = reference.namespace or view.key[0]
        name = f"Gateway {namespace}/{reference.name}"
        try:
            gateway = await self._client.find(GATEWAYS, reference.name, namespace)
        except ClusterError as problem:
            return Opening(Verdict(None, "GatewayUnknown", f"{name} cannot be read: {shorten(str(problem))}"))
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
        try:
            kind = await self._find_kind(policy.group, policy.kind)
            if kind is None:
                return Verdict(False, "PolicyNotFound", f"the API server serves no {policy.kind}.{policy.group}")
            found = await self._client.find(kind, policy.name, view.key[0])
        except Forbidden:
            text = f"{what} may not be read; list its kind in the chart's value expose.policies"
            return Verdict(None, "PolicyUnreadable", text)
        except ClusterError as problem:
            return Verdict(None, "PolicyUnreadable", f"{what} cannot be read: {shorten(str(problem))}")
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
