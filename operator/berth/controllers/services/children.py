"""A service's children are made what its plan says, writing only what differs.

The template and the count of a Deployment have different writers within: applying a template never touches the count,
scaling never touches the template. Before a decrease the pods that should go are marked, so that the Deployment
controller takes those and not the busiest.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any, Final

from berth.api.names import FIELD_MANAGER, LABEL_APPLIED_HASH, SCALE_MANAGER
from berth.cluster import wire
from berth.cluster.client import ApiClient
from berth.cluster.errors import NotFound
from berth.cluster.kinds import DEPLOYMENTS, DISRUPTION_BUDGETS, HTTP_ROUTES, PODS, SERVICES, Kind
from berth.controllers.services.observe import ServiceObserver
from berth.controllers.services.plans import deployment_plan, service_plan
from berth.controllers.services.rollout import Turn, turns
from berth.controllers.services.view import ServiceView
from berth.fleet.fleet import Fleet
from berth.inference.records import Variant
from berth.inference.service import Plan
from berth.render.service.deployment import deployment, deployment_scale, deployment_template, template_hash
from berth.render.service.exposure import disruption_budget, http_route, service
from berth.render.service.plan import DeploymentPlan, Json

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
FIRST_TO_GO: Final = "-1000"
AGAIN_SECONDS: Final = 600.0
"""After so long a child that is not watched is read again: somebody may have deleted it."""


class NameTaken(Exception):
    """An object of the name that a child must have belongs to something else."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} exists and belongs to something else; rename the service or remove it")


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
    ) -> None:
        self._client, self._observer, self._fleet = client, observer, fleet
        self._again, self._clock = again, clock

    async def carry_out(
        self,
        view: ServiceView,
        plan: Plan,
        variants: Mapping[str, Variant],
        rooms: Mapping[str, int],
        *,
        listeners: Sequence[str],
    ) -> Turn | None:
        """Make every child what it should be; whose turn it is where a rollout is under way.

        ``rooms``: more replicas that would fit, by variant. ``listeners``: what the route joins, none: there is no
        route. Raises: NameTaken, ClusterError.
        """
        await self._give_up_lost(view)
        shared = service_plan(view, self._fleet.catalogue)
        await self._ensure(view, SERVICES, service(shared))
        await self._ensure(view, DISRUPTION_BUDGETS, disruption_budget(shared))
        if listeners:
            await self._ensure(view, HTTP_ROUTES, http_route(shared, listeners))
        elif "HTTPRoute" in view.applied or view.spec_exposed:
            await self._withdraw(view)
        return await self._deployments(view, plan, variants, rooms)

    async def _deployments(
        self, view: ServiceView, plan: Plan, variants: Mapping[str, Variant], rooms: Mapping[str, int]
    ) -> Turn | None:
        live = self._observer.deployments(view)
        goals = {
            name: template_hash(deployment_plan(view, variants[name], self._fleet)) for name in live if name in variants
        }
        turn = turns(live, goals)
        for name, count in plan.counts.items():
            if name in live:
                await self._follow(view, live[name], name, count, plan, variants, turn, rooms)
            elif count and name in variants:
                made = deployment_plan(view, variants[name], self._fleet, replicas=count, surge=rooms.get(name, 0) > 0)
                await self._found(view, made)
        for name, known in live.items():
            gone = name not in variants and not plan.counts.get(name)
            if gone and not known.spec.replicas and not known.status.replicas:
                await self._client.delete(DEPLOYMENTS, known.metadata.name, view.key[0], uid=known.metadata.uid)
        return turn

    async def _found(self, view: ServiceView, made: DeploymentPlan) -> None:
        """A Deployment that is not there yet, with the count in the hands of its own manager from the start."""
        found = await self._client.find(DEPLOYMENTS, made.name, view.key[0])
        if found is not None and not _owned(found.metadata, view.uid):
            raise NameTaken(f"Deployment {made.name}")
        await self._client.apply(DEPLOYMENTS, made.name, deployment(made), view.key[0], manager=FIELD_MANAGER)
        await self._scale(view, made)

    async def _scale(self, view: ServiceView, plan: DeploymentPlan) -> None:
        answer = await self._client.apply(
            DEPLOYMENTS, plan.name, deployment_scale(plan), view.key[0], manager=SCALE_MANAGER
        )
        self._observer.caches.deployments.put(answer)

    async def _follow(
        self,
        view: ServiceView,
        known: wire.Deployment,
        name: str,
        count: int,
        plan: Plan,
        variants: Mapping[str, Variant],
        turn: Turn | None,
        rooms: Mapping[str, int],
    ) -> None:
        made = None
        if name in variants:
            waits = turn is not None and name in turn.waiting
            either = [
                deployment_plan(
                    view, variants[name], self._fleet, replicas=known.spec.replicas, paused=waits, surge=surge
                )
                for surge in (rooms.get(name, 0) > 0, rooms.get(name, 0) <= 0)
            ]
            made = either[0]
            bodies = [deployment_template(entry) for entry in either]
            if known.metadata.labels.get(LABEL_APPLIED_HASH) not in [
                body["metadata"]["labels"][LABEL_APPLIED_HASH] for body in bodies
            ]:
                await self._scale(
                    view, made
                )  # so that the count has an owner when the template's manager leaves it out
                answer = await self._client.apply(
                    DEPLOYMENTS, known.metadata.name, bodies[0], view.key[0], manager=FIELD_MANAGER
                )
                self._observer.caches.deployments.put(answer)
        if known.spec.replicas != count:
            await self._mark(view, plan.victims.get(name, ()))
            if made is not None:
                await self._scale(view, replace(made, replicas=count))
            else:
                body = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": count},
                        "metadata": {"name": known.metadata.name, "namespace": view.key[0]}}  # fmt: skip
                answer = await self._client.apply(
                    DEPLOYMENTS, known.metadata.name, body, view.key[0], manager=SCALE_MANAGER
                )
                self._observer.caches.deployments.put(answer)

    async def _give_up_lost(self, view: ServiceView) -> None:
        """Delete pods whose node is gone, so that others are made in their place now and not after a minute."""
        for pod in self._observer.lost(view):
            with contextlib.suppress(NotFound):
                await self._client.delete(PODS, pod.metadata.name, view.key[0], uid=pod.metadata.uid)

    async def _mark(self, view: ServiceView, pods: tuple[str, ...]) -> None:
        """Tell the Deployment controller which pods to take first; one that is gone meanwhile needs no mark."""
        patch = {"metadata": {"annotations": {DELETION_COST: FIRST_TO_GO}}}
        results = await asyncio.gather(
            *(self._client.patch(PODS, name, patch, view.key[0]) for name in pods), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, NotFound):
                raise result

    async def _ensure(self, view: ServiceView, kind: Kind[Any], body: Json) -> None:
        """Apply a child unless it is known to be just that already."""
        digest, now = body["metadata"]["labels"][LABEL_APPLIED_HASH], self._clock()
        if view.applied.get(kind.kind) == digest and now - view.checked.get(kind.kind, -inf) < self._again:
            return
        found = await self._client.find(kind, body["metadata"]["name"], view.key[0])
        if found is not None and not _owned(found.metadata, view.uid):
            raise NameTaken(f"{kind.kind} {found.metadata.name}")
        if found is None or found.metadata.labels.get(LABEL_APPLIED_HASH) != digest:
            await self._client.apply(kind, body["metadata"]["name"], body, view.key[0], manager=FIELD_MANAGER)
        view.applied[kind.kind], view.checked[kind.kind] = digest, now

    async def _withdraw(self, view: ServiceView) -> None:
        """Take back a route that may no longer be there."""
        found = await self._client.find(HTTP_ROUTES, view.key[1], view.key[0])
        if found is not None and _owned(found.metadata, view.uid):
            await self._client.delete(HTTP_ROUTES, found.metadata.name, view.key[0], uid=found.metadata.uid)
        view.applied.pop("HTTPRoute", None)
        view.spec_exposed = False


def _owned(meta: wire.Meta, uid: str) -> bool:
    return any(owner.uid == uid for owner in meta.owner_references)
