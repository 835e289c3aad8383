"""The objects that a gang is made of, created so that doing it again is harmless.

Names follow from job, attempt and rank. One that is taken is this job's own from an earlier try, or belongs to an
earlier job of the same name whose children are still being collected, or to something that will not go away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from berth.api.names import FIELD_MANAGER, pod_group_name, pod_name
from berth.cluster import wire
from berth.cluster.client import ApiClient
from berth.cluster.errors import AlreadyExists, ApiError, BadRequest, Forbidden, Invalid
from berth.cluster.kinds import POD_GROUPS, PODS, SERVICES, Kind
from berth.cluster.transport import IN_FLIGHT
from berth.cluster.wire import Meta
from berth.controllers.facts import job_of, job_uid, shorten
from berth.controllers.observe import JobView, Observer
from berth.render import gang
from berth.render.rendezvous import SERVICE_SUFFIX
from berth.training.state import Reason, Refused


class NameLeaving(Exception):
    """A child's name belongs to one of an earlier job of the same name, which is going away."""


class _NameTaken(Exception):
    """An object of the name that a child must have belongs to something else."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} exists and belongs to something else; rename the job or remove it")


class Children:
    """Creates the pods of gangs and what they need beside them."""

    def __init__(self, client: ApiClient, observer: Observer) -> None:
        self._client, self._observer = client, observer

    async def create(self, plan: gang.GangPlan, ranks: Sequence[int]) -> Refused | None:
        """Create what is missing of the ranks; why the API server will not, if it is for the job to mend.

        Raises:
            NameLeaving: come back when the earlier job's children are gone.
            ClusterError: anything else that is not the job's fault, our own lack of permission among it.
        """
        try:
            await self._create_companions(plan)
            raise_first(await self._create_pods(plan, ranks))
        except Forbidden as problem:
            if problem.not_permitted:
                raise
            reason = Reason.QUOTA_EXCEEDED if problem.quota_exceeded else Reason.CREATE_REFUSED
            return Refused(reason, shorten(problem.message))
        except (Invalid, BadRequest) as problem:
            return Refused(Reason.CREATE_REFUSED, shorten(problem.message))
        except _NameTaken as problem:
            return Refused(Reason.CREATE_REFUSED, str(problem))
        return None

    def whole(self, view: JobView) -> bool:
        """Whether ranks can find each other still: the headless Service is there, and names them."""
        spec = view.spec
        if spec is None or not gang.networked(spec.framework, spec.workers):
            return True
        found = self._observer.caches.rendezvous.get(spec.name + SERVICE_SUFFIX, view.key[0])
        if found is None or found.spec.selector != gang.selector(spec.name, view.uid):
            return False
        return found.spec.publish_not_ready_addresses

    async def mend(self, plan: gang.GangPlan) -> None:
        """Bring the headless Service back that somebody has deleted or changed; another's of its name stays.

        Raises: ClusterError.
        """
        body = gang.service(plan)
        name = body["metadata"]["name"]
        found = await self._client.find(SERVICES, name, plan.namespace)
        if found is None:
            mended = await self._client.create(SERVICES, body, plan.namespace)
        elif found.metadata.owned_by(plan.uid):
            mended = await self._client.apply(SERVICES, name, body, plan.namespace, manager=FIELD_MANAGER)
        else:
            return
        self._observer.caches.rendezvous.put(mended)

    async def mend_group(self, plan: gang.GangPlan) -> None:
        """Make the native gang again, without which kube-scheduler binds none of its pods. Raises: ClusterError."""
        body = gang.pod_group(plan)
        if await self._client.find(POD_GROUPS, body["metadata"]["name"], plan.namespace) is None:
            with suppress(AlreadyExists):
                await self._client.create(POD_GROUPS, body, plan.namespace)

    def name_held(self, view: JobView, attempt: int) -> str:
        """A pod of an earlier job of this name that has the name of a rank of ``attempt``; empty when there is none."""
        assert view.spec is not None
        for rank in range(view.spec.workers):
            pod = self._observer.caches.pods.get(pod_name(view.spec.name, attempt, rank), view.key[0])
            if pod is not None and self._leaves(pod, view.uid):
                return pod.metadata.name
        return ""

    async def _create_companions(self, plan: gang.GangPlan) -> None:
        if plan.networked:
            await self._create_owned(SERVICES, gang.service(plan), plan)
        if plan.pod_group:
            await self._create_owned(POD_GROUPS, gang.pod_group(plan), plan)
            if plan.attempt > 1:
                await self._remove_pod_group(plan)

    async def _create_owned(self, kind: Kind[Any], body: gang.Json, plan: gang.GangPlan) -> None:
        """Create a child that may be there already, if it is this job's."""
        name = body["metadata"]["name"]
        try:
            found = await self._client.create(kind, body, plan.namespace)
        except AlreadyExists:
            found = await self._client.find(kind, name, plan.namespace)
            if found is None:
                raise NameLeaving(f"{kind.kind} {name}") from None
            if not found.metadata.owned_by(plan.uid):
                raise self._taken(kind, found.metadata) from None
        if kind is SERVICES:
            self._observer.caches.rendezvous.put(found)

    async def _remove_pod_group(self, plan: gang.GangPlan) -> None:
        """The native gang of the attempt before; its pods are gone."""
        old = await self._client.find(POD_GROUPS, pod_group_name(plan.name, plan.attempt - 1), plan.namespace)
        if old is not None and old.metadata.owned_by(plan.uid):
            await self._client.delete(POD_GROUPS, old.metadata.name, plan.namespace, uid=old.metadata.uid)

    async def _create_pods(self, plan: gang.GangPlan, ranks: Sequence[int]) -> list[Exception]:
        """Try every pod once; what failed. One is made when there is a turn for it, so the first is asked for at once
        and not when all of a large gang are made."""
        bodies, failures = gang.each_pod(plan, ranks), list[Exception]()

        async def create() -> None:
            for body in bodies:
                try:
                    await self._create_pod(plan, body)
                except Exception as problem:
                    failures.append(problem)

        await asyncio.gather(*(create() for _ in range(min(len(ranks), IN_FLIGHT))))
        return failures

    async def _create_pod(self, plan: gang.GangPlan, body: gang.Json) -> None:
        name = body["metadata"]["name"]
        try:
            created = await self._client.create(PODS, body, plan.namespace)
        except AlreadyExists:
            found = await self._client.find(PODS, name, plan.namespace)
            if found is None:
                raise NameLeaving(f"Pod {name}") from None
            if job_uid(found) != plan.uid:
                raise self._taken(PODS, found.metadata) from None
            created = found
        self._observer.caches.pods.put(created)

    def _leaves(self, pod: wire.Pod, uid: str) -> bool:
        return job_uid(pod) not in ("", uid) and self._goes(pod.metadata)

    def _goes(self, meta: Meta) -> bool:
        """Whether an object is a job's child and is being deleted, or its job is gone so that it will be."""
        job = job_of(meta)
        return job is not None and (meta.deleting or job.uid not in self._observer.views)

    def _taken(self, kind: Kind[Any], meta: Meta) -> Exception:
        what = f"{kind.kind} {meta.name}"
        return NameLeaving(what) if self._goes(meta) else _NameTaken(what)


def raise_first(results: Sequence[object], harmless: tuple[type[BaseException], ...] = ()) -> None:
    """Raise the first failure that matters, those that say why before those that only say wait."""
    failures = [result for result in results if isinstance(result, BaseException) and not isinstance(result, harmless)]
    telling = [failure for failure in failures if not isinstance(failure, ApiError) or failure.status < 500]
    if failures:
        raise (telling or failures)[0]
