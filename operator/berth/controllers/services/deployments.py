"""The Deployment of a variant is made what the plan says, writing only what differs.

What others change of the template is put right, see :mod:`.upkeep`: whether they have is asked only where the
Deployment's generation is one that no write of ours explains.

Its template and its count have different writers within: applying a template never touches the count, scaling never
touches the template. Before a decrease the pods that should go are marked, so that the Deployment controller takes
those and not the busiest. No write meets another object of the same name, and a decrease neither one that has changed
since it was looked at.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from berth.api.names import (
    FIELD_MANAGER,
    LABEL_APPLIED_HASH,
    LABEL_FIRST_TO_GO,
    LABEL_TEMPLATE_HASH,
    LABEL_VARIANT,
    SCALE_MANAGER,
)
from berth.cluster import wire
from berth.cluster.client import ApiClient
from berth.cluster.errors import Conflict, Invalid, NotFound
from berth.cluster.kinds import DEPLOYMENT_WRITERS, DEPLOYMENTS, PODS
from berth.controllers.services.contest import Contests
from berth.controllers.services.observe import ServiceObserver
from berth.controllers.services.plans import deployment_plan
from berth.controllers.services.rollout import Space, blocked, rolled, strict, yielded, yields
from berth.controllers.services.upkeep import REPLICAS, Lost, Mends, changed, lost, writers
from berth.controllers.services.view import ServiceView
from berth.fleet.fleet import Fleet
from berth.inference.records import Variant
from berth.inference.service import Plan
from berth.render.service.deployment import deployment, deployment_scale, deployment_template
from berth.render.service.plan import Json

_LOG: Final = logging.getLogger(__name__)

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
FIRST_TO_GO: Final = "-1000"
_MARK: Final[Json] = {"metadata": {"annotations": {DELETION_COST: FIRST_TO_GO}, "labels": {LABEL_FIRST_TO_GO: "true"}}}
_UNMARK: Final[Json] = {"metadata": {"annotations": {DELETION_COST: None}, "labels": {LABEL_FIRST_TO_GO: None}}}


class ServiceDeployments:
    """Writes Deployments; the answers go back into the cache."""

    def __init__(
        self,
        client: ApiClient,
        observer: ServiceObserver,
        fleet: Fleet,
        mends: Mends,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._client, self._observer, self._fleet, self._wall = client, observer, fleet, wall
        self._mends, self._clock = mends, clock
        self._whole: dict[str, dict[str, tuple[str, int]]] = {}  # uid -> Deployment -> its uid, generation: as applied
        self._contests = Contests()
        self._contested: dict[str, dict[str, str]] = {}  # uid -> Deployment -> who else sets its count
        self._yielded: dict[str, dict[str, str]] = {}  # uid -> Deployment -> why its rollout misses a replica

    def forget(self, view: ServiceView) -> None:
        """The service is gone."""
        self._contests.forget(view.uid)
        self._contested.pop(view.uid, None)
        self._whole.pop(view.uid, None)
        self._yielded.pop(view.uid, None)

    def contested(self, view: ServiceView) -> str:
        """Whose writes of a count undo those of Berth, in a sentence; empty where nobody's do."""
        return "; ".join(words for _, words in sorted(self._contested.get(view.uid, {}).items()))

    async def found(
        self, view: ServiceView, variant: Variant, count: int, space: Space, *, template: str | None = None
    ) -> None:
        """Make a Deployment that is not there, with the count in the hands of its own manager from the start.

        ``template``: the digest of what it may run; where the spec has become another one since, nothing is made.
        """
        made = deployment(deployment_plan(view, variant, self._fleet, replicas=count, surge=space.free > 0))
        if template not in (None, made["metadata"]["labels"][LABEL_TEMPLATE_HASH]):
            return
        answer = await self._apply(view, made, FIELD_MANAGER)
        self._is_whole(view, answer)
        await self._scale(view, answer, count)

    async def follow(
        self,
        view: ServiceView,
        known: wire.Deployment,
        name: str,
        variant: Variant | None,
        plan: Plan,
        *,
        waits: bool,
        space: Space,
        template: str | None = None,
    ) -> None:
        """Bring the Deployment of the variant ``name``, which is there, to its template and its count.

        ``variant`` None: its pool is gone, and its template stays. ``waits``: other variants roll first. ``template``:
        the digest of what it may run; the spec may have become another one since. Raises: Conflict, when the Deployment
        has changed meanwhile.
        """
        if variant is not None:
            known = await self._templated(view, known, variant, template, waits=waits, space=space)
        await self._spare(view, known, name, plan.victims.get(name, ()))
        await self._counted(view, known, name, plan)

    async def _templated(
        self,
        view: ServiceView,
        known: wire.Deployment,
        variant: Variant,
        template: str | None,
        *,
        waits: bool,
        space: Space,
    ) -> wire.Deployment:
        """The Deployment with its template. With or without a surge, it stays as it is as long as the rollout goes."""

        def form(*, surge: bool, gives: bool = False) -> Json:
            made = deployment_plan(view, variant, self._fleet, paused=waits, surge=surge, yields=gives)
            return deployment_template(made)

        unbound = self._unbound_seconds(view, variant.name)
        in_vain = blocked(known, unbound, space)
        surge = space.free > 0 and not in_vain
        gives = self._gives(view, known, unbound, space, lambda: form(surge=False, gives=True))
        body = form(surge=surge, gives=gives)
        if template not in (None, body["metadata"]["labels"][LABEL_TEMPLATE_HASH]):
            return known
        other = None if in_vain or gives else form(surge=not surge)
        if applied := next((each for each in (body, other) if each is not None and _applied(known, each)), None):
            return await self._kept(view, known, applied)
        return await self._formed(view, known, body)

    async def _formed(self, view: ServiceView, known: wire.Deployment, body: Json) -> wire.Deployment:
        """Apply all but the count."""
        # The count gets an owner of its own first: it falls to 1 when the only manager that holds it leaves it out.
        known = await self._scale(view, known, known.spec.replicas, unchanged=True)
        body["metadata"]["uid"] = known.metadata.uid
        answer = await self._apply(view, body, FIELD_MANAGER)
        self._is_whole(view, answer)
        return answer

    def _is_whole(self, view: ServiceView, known: wire.Deployment) -> None:
        """Nothing of what was applied is changed in this generation."""
        meta = known.metadata
        self._whole.setdefault(view.uid, {})[meta.name] = meta.uid, meta.generation

    async def _kept(self, view: ServiceView, known: wire.Deployment, body: Json) -> wire.Deployment:
        """The Deployment, to which ``body`` was applied, put right where others have changed it since; not again and
        again."""
        meta, key, now = known.metadata, (view.uid, known.metadata.name), self._clock()
        if self._whole.get(view.uid, {}).get(meta.name) == (meta.uid, meta.generation) or self._mends.waits(key, now):
            return known
        found = await self._client.find(DEPLOYMENT_WRITERS, meta.name, view.key[0])
        if found is None or found.metadata.generation != meta.generation:
            return known  # what has changed since brings another look
        gone = lost(body, found.metadata.managed_fields, FIELD_MANAGER)
        if gone is None and known.spec.paused != body["spec"]["paused"]:
            gone = Lost("spec.paused", ("f:spec", "f:paused"))
        if gone is None:
            self._is_whole(view, known)
            return known
        words = changed(DEPLOYMENTS.kind, found.metadata, gone, (FIELD_MANAGER, SCALE_MANAGER))
        _LOG.warning("inferenceservice %s: %s", view.name, words)
        answer = await self._formed(view, known, body)
        self._mends.done(key, now, words)
        return answer

    def _gives(
        self, view: ServiceView, known: wire.Deployment, unbound: float, space: Space, form: Callable[[], Json]
    ) -> bool:
        """Whether a rollout that may miss no replica has to; once it does, in ``form``, it does to its end."""
        assert view.spec is not None
        told, name = self._yielded.setdefault(view.uid, {}), known.metadata.name
        told.pop(name, None)
        if not strict(view.spec.rollout):
            return False
        serving = sum(entry.status.ready_replicas for entry in self._observer.deployments(view).values())
        gives = yields(known, unbound, space, serving) or (not rolled(known) and _applied(known, form()))
        if gives:
            told[name] = yielded(name, view.spec.rollout)
        return gives

    def yielded(self, view: ServiceView) -> str:
        """Of rollouts that take a replica though none may be missing, in a sentence; empty where none does."""
        return "; ".join(words for _, words in sorted(self._yielded.get(view.uid, {}).items()))

    def _unbound_seconds(self, view: ServiceView, variant: str) -> float:
        """How long the pod of a variant waits that has waited longest for a node."""
        since = [
            pod.metadata.created
            for pod in self._observer.pods(view)
            if pod.metadata.labels.get(LABEL_VARIANT) == variant
            and not pod.spec.node_name
            and not pod.metadata.deleting
        ]
        return self._wall() - min(since) if since else 0.0

    async def _counted(self, view: ServiceView, known: wire.Deployment, name: str, plan: Plan) -> None:
        """Set the count, unless another plan has come since or somebody else keeps setting it."""
        key, count, now = (view.uid, name), plan.counts[name], self._wall()
        self._contests.found(key, known.spec.replicas, now)
        contested = self._contested.setdefault(view.uid, {})
        if not self._contests.contested(key, now):
            contested.pop(name, None)
        if known.spec.replicas == count:
            return
        if self._contests.contested(key, now) and name not in contested:
            contested[name] = await self._accuse(view, known)
        lowers = count < known.spec.replicas
        if self._contests.waits(key, now, lowers=lowers):
            return
        if lowers:
            await self._patch(view, plan.victims.get(name, ()), _MARK)
        if view.plan is None or view.plan.counts.get(name) != count:
            return  # whoever decided otherwise meanwhile has asked for another look
        await self._scale(view, known, count, unchanged=lowers)
        self._contests.wrote(key, count, now)

    async def _accuse(self, view: ServiceView, known: wire.Deployment) -> str:
        found = await self._client.find(DEPLOYMENT_WRITERS, known.metadata.name, view.key[0])
        others = (
            writers(found.metadata.managed_fields, (FIELD_MANAGER, SCALE_MANAGER), REPLICAS)
            if found is not None
            else ()
        )
        return (
            f"replicas of Deployment {known.metadata.name} are set by {' and '.join(others) or 'others'} too; remove"
            " the HorizontalPodAutoscaler or program that targets it, or let it scale this InferenceService with"
            " scaling.mode Manual"
        )

    async def _scale(
        self, view: ServiceView, known: wire.Deployment, count: int, *, unchanged: bool = False
    ) -> wire.Deployment:
        """Set the count of this very Deployment.

        Raises: Conflict, where it is another one, with ``unchanged`` also where anything about it has changed since.
        """
        meta = known.metadata
        version = meta.resource_version if unchanged else ""
        body = deployment_scale(view.key[0], meta.name, count, uid=meta.uid, resource_version=version)
        answer = await self._apply(view, body, SCALE_MANAGER)
        known_whole = self._whole.get(view.uid, {}).get(meta.name) == (meta.uid, meta.generation)
        if known_whole and answer.metadata.generation == meta.generation + (known.spec.replicas != count):
            self._is_whole(view, answer)
        return answer

    async def _apply(self, view: ServiceView, body: Json, manager: str) -> wire.Deployment:
        name = body["metadata"]["name"]
        try:
            answer = await self._client.apply(DEPLOYMENTS, name, body, view.key[0], manager=manager)
        except Invalid as problem:
            if any(cause.field == "metadata.uid" for cause in problem.causes):
                raise Conflict(409, "Conflict", problem.message) from problem
            raise
        self._observer.caches.deployments.put(answer)
        return answer

    async def _spare(self, view: ServiceView, known: wire.Deployment, variant: str, victims: Iterable[str]) -> None:
        """Take the mark back from pods that an earlier decrease was to take and that are still there after it."""
        status = known.status
        seen = status.observed_generation >= known.metadata.generation
        if not seen or status.replicas > known.spec.replicas:
            return
        marked = [
            pod.metadata.name
            for pod in self._observer.pods(view)
            if LABEL_FIRST_TO_GO in pod.metadata.labels
            and pod.metadata.labels.get(LABEL_VARIANT) == variant
            and not pod.metadata.deleting
        ]
        await self._patch(view, [name for name in marked if name not in victims], _UNMARK)

    async def _patch(self, view: ServiceView, pods: Iterable[str], patch: Mapping[str, Any]) -> None:
        """Patch pods; one that is gone meanwhile needs none."""
        results = await asyncio.gather(
            *(self._client.patch(PODS, name, patch, view.key[0]) for name in pods), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, NotFound):
                raise result


def _applied(known: wire.Deployment, body: Json) -> bool:
    """Whether the Deployment is what ``body`` makes it."""
    digest: str = body["metadata"]["labels"][LABEL_APPLIED_HASH]
    return known.metadata.labels.get(LABEL_APPLIED_HASH) == digest
