"""Training jobs: read the caches, take one pure step, carry it out, write what changed.

The order is what makes a crash harmless: the status first, so that a placement is on record before its first pod;
then deletions and creations, which are idempotent by uid and by name; events last.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from berth.api.names import pod_group_name
from berth.cluster.client import ApiClient
from berth.cluster.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, NotFound
from berth.cluster.events import EventRecorder, about
from berth.cluster.kinds import POD_GROUPS, PODS, SERVICES, TRAINING_JOBS, Kind
from berth.cluster.queue import WorkQueue
from berth.cluster.wire import Meta
from berth.controllers.facts import job_uid, shorten
from berth.controllers.gangs import Settings, gang_plan, initial_checkpoint
from berth.controllers.judge import Judge
from berth.controllers.observe import JobKey, JobView, Observer
from berth.controllers.scheduler import Scheduler
from berth.controllers.writer import StatusWriter
from berth.render import gang
from berth.telemetry.metrics import Metrics
from berth.training.lifecycle import Sight, advance
from berth.training.queue import Waiting
from berth.training.request import lifecycle_job, without_nodes
from berth.training.state import ACTIVE, FINISHED, Delete, JobState, Step, Worker

AVOID_SECONDS: Final = 60.0
"""For so long a node that failed a gang is barred to it; after that it is merely the last choice."""

CARRY_OUT: Final = 10
NEW_STATE: Final = 5
"""Priorities in the work queue: decided placements, then changes; a resync has 0."""


@dataclass(slots=True)
class Memory:
    """What is worth remembering of a job between looks, and harmless to forget."""

    stuck_since: dict[str, float] = field(default_factory=dict)
    refused_create: str = ""
    attempt: int = 0


class TrainingJobs:
    """The reconciler of one kind. One call per key at a time; the work queue sees to that."""

    def __init__(
        self,
        client: ApiClient,
        observer: Observer,
        scheduler: Scheduler,
        writer: StatusWriter,
        judge: Judge,
        recorder: EventRecorder,
        metrics: Metrics,
        queue: WorkQueue[JobKey],
        settings: Settings,
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._client, self._observer, self._scheduler = client, observer, scheduler
        self._writer, self._judge, self._recorder = writer, judge, recorder
        self._metrics, self._queue, self._settings, self._wall = metrics, queue, settings, wall
        self._memory: dict[str, Memory] = {}

    async def reconcile(self, key: JobKey) -> None:
        """One look at one job. Raises what the API server answers; the queue then comes back to it."""
        namespace, name = key
        job = self._observer.caches.jobs.get(name, namespace)
        if job is None:
            self._forget_absent()
            return
        view = self._observer.views[job.metadata.uid]
        if view.spec is None:
            await self._reject_unreadable(view)
            return
        workers = self._observer.workers(view.uid)
        memory = self._remember(view, workers)
        rejected = await self._rejection(view, workers)
        state = view.state
        promise = self._observer.promises.get(view.uid)
        placed = promise.placement if promise is not None and promise.attempt == state.attempt + 1 else None
        where = placed or state.placement
        pool = self._observer.fleet.pools.get(where.pool) if where is not None else None
        price = float(pool.usd_per_accelerator_hour or 0) if pool is not None else 0.0
        sight = Sight(
            workers=workers,
            nodes=self._observer.node_states(view, workers),
            now=self._wall(),
            stuck_since=memory.stuck_since,
            placed=placed,
            checkpoint=initial_checkpoint(view.spec, placed, self._observer.fleet.catalogue) if placed else None,
            refused_create=memory.refused_create,
        )
        facts = lifecycle_job(
            view.spec, deleting=job.metadata.deleting, rejected=rejected, usd_per_accelerator_hour=price
        )
        step = advance(facts, state, sight)
        await self._carry_out(view, state, step, memory)

    async def _reject_unreadable(self, view: JobView) -> None:
        reason, message = view.problem or ("SpecInvalid", "the spec cannot be read")
        state = view.state.with_condition("Accepted", False, reason, message, now=self._wall())
        if state is not view.state:
            await self._writer.write(view, replace(state, message=message))
            self._recorder.warning(about(TRAINING_JOBS, view.object.metadata), "Rejected", message)

    async def _rejection(self, view: JobView, workers: Sequence[Worker]) -> tuple[str, str, str] | None:
        """Why the job cannot be accepted; asked only while it is about to be placed."""
        idle = view.state.phase not in ACTIVE and view.state.phase not in FINISHED
        if not idle or view.spec is None or view.spec.suspend or view.object.metadata.deleting:
            return None
        if any(not worker.ended for worker in workers):
            return None
        return await self._judge.rejection(view)

    def _remember(self, view: JobView, workers: Sequence[Worker]) -> Memory:
        memory = self._memory.setdefault(view.uid, Memory())
        now = self._wall()
        stuck = {worker.uid for worker in workers if worker.problem}
        memory.stuck_since = {uid: memory.stuck_since.get(uid, now) for uid in stuck}
        if memory.attempt != view.state.attempt:
            memory.attempt, memory.refused_create = view.state.attempt, ""
        return memory

    async def _carry_out(self, view: JobView, before: JobState, step: Step, memory: Memory) -> None:
        state = step.state
        if step.remove_job:
            await self._client.delete(TRAINING_JOBS, view.key[1], view.key[0], uid=view.uid)
            return
        if not step.wants_placement:
            self._scheduler.unwant(view.uid)
        began = state.attempt > before.attempt
        if began:
            await self._writer.write_placement(view, state)
            memory.attempt, memory.refused_create = state.attempt, ""
        elif self._observer.promises.get(view.uid) is not None and not step.wants_placement:
            self._observer.retract(view.uid)
        waits = self._scheduler.why(view.uid) if step.wants_placement else None
        written = began or await self._writer.consider(view, before, state, waits)
        if step.wants_placement:
            self._want(view, state)
        await self._delete(view, step.delete)
        if step.create:
            await self._create(view, state, step.create, memory)
        if written:
            self._tell(view, step, began=began)
            self._count(before, state)
            if state.phase != before.phase:
                self._queue.add_after(view.key, 0.05, NEW_STATE)
        if step.wake_after is not None:
            self._queue.add_after(view.key, max(step.wake_after, 0.05), NEW_STATE)

    def _want(self, view: JobView, state: JobState) -> None:
        assert view.request is not None
        assert view.spec is not None
        ended = state.attempts[-1].end if state.attempts else None
        left = (ended or 0.0) + AVOID_SECONDS - self._wall()
        request = without_nodes(view.request, state.avoid, hard=left > 0)
        if state.avoid and left > 0:
            self._queue.add_after(view.key, left + 0.1)
        meta = view.object.metadata
        priority = self._judge.priority(view.spec)
        self._scheduler.want(Waiting(view.name, view.uid, state.attempt + 1, request, priority, meta.created))

    async def _delete(self, view: JobView, deletes: Sequence[Delete]) -> None:
        if not deletes:
            return
        namespace = view.key[0]
        results = await asyncio.gather(
            *(
                self._client.delete(PODS, entry.name, namespace, uid=entry.uid, grace_seconds=entry.grace)
                for entry in deletes
            ),
            return_exceptions=True,
        )
        _raise_first(results, harmless=(Conflict, NotFound))

    async def _create(self, view: JobView, state: JobState, ranks: Sequence[int], memory: Memory) -> None:
        assert view.spec is not None
        assert state.placement is not None
        namespace = view.key[0]
        plan = gang_plan(view, state, self._observer, self._settings)
        if plan is None:
            return
        try:
            await self._create_companions(plan)
            bodies = gang.pods(plan, ranks)
            results = await asyncio.gather(
                *(self._create_pod(view, body, namespace) for body in bodies), return_exceptions=True
            )
            _raise_first(results)
        except (Forbidden, Invalid, _NameTaken) as problem:
            memory.refused_create = shorten(str(problem))
            self._queue.add(view.key, NEW_STATE)

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
            await self._client.create(kind, body, plan.namespace)
        except AlreadyExists:
            found = await self._client.find(kind, name, plan.namespace)
            if found is not None and not _owned(found.metadata, plan):
                raise _NameTaken(f"{kind.kind} {name}") from None

    async def _remove_pod_group(self, plan: gang.GangPlan) -> None:
        """The native gang of the attempt before; its pods are gone."""
        old = await self._client.find(POD_GROUPS, pod_group_name(plan.name, plan.attempt - 1), plan.namespace)
        if old is not None and _owned(old.metadata, plan):
            await self._client.delete(POD_GROUPS, old.metadata.name, plan.namespace, uid=old.metadata.uid)

    async def _create_pod(self, view: JobView, body: gang.Json, namespace: str) -> None:
        try:
            created = await self._client.create(PODS, body, namespace)
        except AlreadyExists:
            name = body["metadata"]["name"]
            created = await self._client.get(PODS, name, namespace)
            if job_uid(created) != view.uid:
                raise _NameTaken(f"pod {name}") from None
        self._observer.caches.pods.put(created)

    def _tell(self, view: JobView, step: Step, *, began: bool) -> None:
        target = about(TRAINING_JOBS, view.object.metadata)
        for event in step.events:
            if event.warning:
                self._recorder.warning(target, event.reason, event.message)
            elif not (began and event.reason == "Accepted"):
                self._recorder.normal(target, event.reason, event.message)

    def _count(self, before: JobState, after: JobState) -> None:
        ended = {attempt.number for attempt in before.attempts if attempt.end is not None}
        for attempt in after.attempts:
            if attempt.end is not None and attempt.number not in ended and after.phase not in FINISHED:
                self._metrics.restarts.labels(attempt.cause).inc()

    def _forget_absent(self) -> None:
        for uid in [uid for uid in self._memory if uid not in self._observer.views]:
            del self._memory[uid]
            self._scheduler.unwant(uid)
            self._writer.forget(uid)
            self._judge.forget(uid)


class _NameTaken(Exception):
    """An object of the name that a child must have belongs to something else."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} exists and belongs to something else; rename the job or remove it")


def _owned(meta: Meta, plan: gang.GangPlan) -> bool:
    return any(owner.uid == plan.uid for owner in meta.owner_references)


def _raise_first(results: Sequence[object], harmless: tuple[type[BaseException], ...] = ()) -> None:
    """The first failure that matters, those that say why before those that only say wait."""
    failures = [result for result in results if isinstance(result, BaseException) and not isinstance(result, harmless)]
    telling = [failure for failure in failures if not isinstance(failure, ApiError) or failure.status < 500]
    if failures:
        raise (telling or failures)[0]
