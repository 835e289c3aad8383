"""A service's children are made what its plan says, writing only what differs."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any, Final, TypeVar

from berth.api.names import FIELD_MANAGER, LABEL_APPLIED_HASH
from berth.cluster import wire
from berth.cluster.client import ApiClient
from berth.cluster.errors import NotFound
from berth.cluster.kinds import DEPLOYMENTS, DISRUPTION_BUDGETS, HTTP_ROUTES, PODS, SERVICES, Kind
from berth.controllers.services.childwatch import WATCHED
from berth.controllers.services.deployments import ServiceDeployments
from berth.controllers.services.observe import ServiceObserver
from berth.controllers.services.ownership import adoption, foreign, orphaned
from berth.controllers.services.plans import service_plan
from berth.controllers.services.rollout import NO_SPACE, Space, Turn, turns
from berth.controllers.services.upkeep import Mends, changed, lost
from berth.controllers.services.view import ServiceView
from berth.fleet.fleet import Fleet
from berth.inference.records import Variant
from berth.inference.service import Plan
from berth.render.service.exposure import disruption_budget, http_route, service
from berth.render.service.plan import Json

_LOG: Final = logging.getLogger(__name__)
Child = TypeVar("Child", bound=wire.Object)

AGAIN_SECONDS: Final = 60.0
"""After so long a child that is not watched is read again: somebody may have deleted it."""


class NameTaken(Exception):
    """An object of the name that a child must have belongs to something else."""

    def __init__(self, kind: str, meta: wire.Meta, view: ServiceView) -> None:
        super().__init__(
            f"{kind} {meta.name} exists and belongs to something else: {foreign(meta, view)}; rename the service or"
            " remove it"
        )


class ServiceChildren:
    """Carries out plans of services."""

    def __init__(
        self,
        client: ApiClient,
        observer: ServiceObserver,
        fleet: Fleet,
        *,
        again: float = AGAIN_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._client, self._observer, self._fleet = client, observer, fleet
        self._again, self._clock = again, clock
        self._mends = Mends()
        self.deployments = ServiceDeployments(client, observer, fleet, self._mends, clock=clock, wall=wall)

    async def carry_out(
        self,
        view: ServiceView,
        plan: Plan,
        variants: Mapping[str, Variant],
        templates: Mapping[str, str],
        spaces: Mapping[str, Space],
        *,
        listeners: Sequence[str] | None,
    ) -> Turn | None:
        """Make every child what it should be; whose turn it is where a rollout is under way.

        ``templates``: the digest of what each variant is to run. ``spaces``: by variant. ``listeners``: what the route
        joins, none: there is no route, None: it stays as it is.
        Raises: NameTaken, ClusterError. A name that is taken from a service with replicas does not stop their count.
        """
        await self._give_up_lost(view)
        taken: NameTaken | None = None
        try:
            await self._share(view, listeners)
        except NameTaken as problem:
            if not self._observer.deployments(view):
                raise
            taken = problem
        turn = await self._roll(view, plan, variants, templates, spaces)
        if taken is not None:
            raise taken
        return turn

    async def _share(self, view: ServiceView, listeners: Sequence[str] | None) -> None:
        """The children that all variants have together."""
        shared = service_plan(view, self._fleet.catalogue)
        await self._ensure(view, SERVICES, service(shared))
        await self._ensure(view, DISRUPTION_BUDGETS, disruption_budget(shared))
        if listeners:
            await self._ensure(view, HTTP_ROUTES, http_route(shared, listeners))
        elif listeners is not None and ("HTTPRoute" in view.applied or view.spec_exposed):
            await self._withdraw(view)

    async def _roll(
        self,
        view: ServiceView,
        plan: Plan,
        variants: Mapping[str, Variant],
        templates: Mapping[str, str],
        spaces: Mapping[str, Space],
    ) -> Turn | None:
        live = self._observer.deployments(view)
        live = {name: await self._adopted(view, DEPLOYMENTS, known) for name, known in live.items()}
        goals = {name: template for name, template in templates.items() if name in live and name not in view.refused}
        turn = turns(live, goals)
        for name, count in plan.counts.items():
            space = spaces.get(name, NO_SPACE)
            if name not in live and count and name in variants and name not in view.refused:
                known = await self._unheard(view, name)
                if known is None:
                    await self.deployments.found(view, variants[name], count, space, template=templates.get(name))
                    continue
                live[name] = known
            if name in live:
                waits = turn is not None and name in turn.waiting
                await self.deployments.follow(
                    view,
                    live[name],
                    name,
                    None if name in view.refused else variants.get(name),
                    plan,
                    waits=waits,
                    space=space,
                    template=templates.get(name),
                )
        for name, known in live.items():
            gone = name not in variants and not plan.counts.get(name)
            if gone and not known.spec.replicas and not known.status.replicas:
                await self._client.delete(DEPLOYMENTS, known.metadata.name, view.key[0], uid=known.metadata.uid)
        return turn

    async def _unheard(self, view: ServiceView, name: str) -> wire.Deployment | None:
        """A Deployment that is there though the cache has not heard of it. Raises: NameTaken."""
        found = await self._client.find(DEPLOYMENTS, name, view.key[0])
        return None if found is None else await self._adopted(view, DEPLOYMENTS, found)

    async def _adopted(self, view: ServiceView, kind: Kind[Child], found: Child) -> Child:
        """``found`` as a child of the service, which takes it over where it has lost its owner. Raises: NameTaken."""
        meta = found.metadata
        if meta.owned_by(view.uid):
            return found
        if not orphaned(meta, view):
            raise NameTaken(kind.kind, meta, view)
        _LOG.info("inferenceservice %s: takes over %s %s, which had lost its owner", view.name, kind.kind, meta.name)
        answer = await self._client.patch(kind, meta.name, adoption(meta, view), view.key[0])
        if isinstance(answer, wire.Deployment):
            self._observer.caches.deployments.put(answer)
        return answer

    async def _give_up_lost(self, view: ServiceView) -> None:
        """Delete pods whose node is gone, so that others are made in their place now and not after a minute."""
        for pod in self._observer.lost(view):
            with contextlib.suppress(NotFound):
                await self._client.delete(PODS, pod.metadata.name, view.key[0], uid=pod.metadata.uid)

    async def _ensure(self, view: ServiceView, kind: Kind[Any], body: Json) -> None:
        """Apply a child unless it is known to be just that already."""
        digest, now = body["metadata"]["labels"][LABEL_APPLIED_HASH], self._clock()
        age = now - view.checked.get(kind.kind, -inf)
        if view.applied.get(kind.kind) == digest and age < (inf if kind in WATCHED else self._again):
            return
        view.checked[kind.kind] = now  # a deletion from here on takes it back
        try:
            found = await self._client.find(kind.written(), body["metadata"]["name"], view.key[0])
            if found is not None:
                found = await self._adopted(view, kind.written(), found)
            if found is None or found.metadata.labels.get(LABEL_APPLIED_HASH) != digest:
                await self._client.apply(kind, body["metadata"]["name"], body, view.key[0], manager=FIELD_MANAGER)
            else:
                await self._mend(view, kind, body, found)
        except BaseException:
            view.checked.pop(kind.kind, None)
            raise
        view.applied[kind.kind] = digest

    async def _mend(self, view: ServiceView, kind: Kind[Any], body: Json, found: wire.Written) -> None:
        """Apply a child again whose fields others have changed, unless they do so again and again."""
        gone = lost(body, found.metadata.managed_fields, FIELD_MANAGER)
        key, now = (view.uid, kind.kind), self._clock()
        if gone is None:
            return
        if self._mends.waits(key, now):
            view.checked.pop(kind.kind, None)
            return
        words = changed(kind.kind, found.metadata, gone, (FIELD_MANAGER,))
        _LOG.warning("inferenceservice %s: %s", view.name, words)
        await self._client.apply(kind, found.metadata.name, body, view.key[0], manager=FIELD_MANAGER)
        self._mends.done(key, now, words)

    def mended(self, view: ServiceView) -> str:
        """Which fields of children others have changed of late, in a sentence each; empty where none."""
        return self._mends.told(view.uid, self._clock())

    def forget(self, view: ServiceView) -> None:
        """The service is gone."""
        self._mends.forget(view.uid)
        self.deployments.forget(view)

    async def _withdraw(self, view: ServiceView) -> None:
        """Take back a route that may no longer be there."""
        found = await self._client.find(HTTP_ROUTES, view.key[1], view.key[0])
        if found is not None and (found.metadata.owned_by(view.uid) or orphaned(found.metadata, view)):
            await self._client.delete(HTTP_ROUTES, found.metadata.name, view.key[0], uid=found.metadata.uid)
        view.applied.pop("HTTPRoute", None)
        view.spec_exposed = False
