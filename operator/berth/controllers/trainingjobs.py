"""Training jobs: read the caches, take one pure step, carry it out, write what changed.

The order is what makes a crash harmless: the status first, so that a placement is on record before its first pod, and
with it the events that tell of it; then deletions and creations, which are idempotent by uid and by name.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from berth.api.conditions import INTERNAL_ERROR
from berth.cluster.client import ApiClient
from berth.cluster.errors import ClusterError, Conflict, NotFound
from berth.cluster.events import EventRecorder, about
from berth.cluster.kinds import PODS, TRAINING_JOBS
from berth.cluster.queue import WorkQueue
from berth.controllers.children import Children, NameLeaving, raise_first
from berth.controllers.facts import defect_words, shorten
from berth.controllers.gangs import Settings, gang_plan, initial_checkpoint
from berth.controllers.judge import Judge
from berth.controllers.observe import JobKey, JobView, Observer
from berth.controllers.scheduler import Scheduler, Waits
from berth.controllers.writer import StatusWriter
from berth.telemetry.metrics import Metrics
from berth.training.acceptance import defect
from berth.training.job import Sight
from berth.training.lifecycle import NAME_SECONDS, advance
from berth.training.queue import Waiting
from berth.training.records import Refusal
from berth.training.recovery import barred_left
from berth.training.request import lifecycle_job, without_nodes
from berth.training.state import ACTIVE, FINISHED, Delete, Event, JobState, Phase, Reason, Refused, Step, Worker

_LOG: Final = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 0.5
"""When to look at a job again that somebody else has just changed; the watch usually brings it sooner."""

MEND_SECONDS: Final = 60.0
"""Nothing of a gang is mended more often: whoever takes it away each time does not want it."""
EVENT_SECONDS: Final = 3600.0
"""For so long an API server keeps an event; what only an event tells is told again after that."""
GROUP_SECONDS: Final = 30.0
"""A gang of which kube-scheduler has not bound every pod after this time may have lost its PodGroup."""

CARRY_OUT: Final = 10
NEW_STATE: Final = 5
"""Priorities in the work queue: decided placements, then changes; a resync has 0."""


@dataclass(frozen=True, slots=True)
class Unsaid:
    """What a job has become since ``of``, which its status still shows, and the events that go with the status."""

    of: JobState
    state: JobState
    events: tuple[Event, ...] = ()


@dataclass(slots=True)
class Memory:
    """What is worth remembering of a job between looks, and harmless to forget."""

    stuck_since: dict[str, float] = field(default_factory=dict)
    refused: Refused | None = None
    attempt: int = 0
    unsaid: Unsaid | None = None
    told: tuple[str, float] = ("", 0.0)  # why its status cannot be read, and when that was said last
    mended: float = 0.0  # when its Service or its PodGroup was last looked after
    unrecorded: str = ""
    """Why the API server would not have the last placement recorded."""


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
        self._children = Children(client, observer)
        self._memory: dict[str, Memory] = {}
        self._uids: dict[JobKey, str] = {}  # whose memory a name stands for

    async def reconcile(self, key: JobKey) -> bool:
        """One look at one job. Raises what the API server answers; the queue then comes back to it.

        Returns whether earlier failures may be forgotten: not while a placement is wanted of which the last could not
        be recorded. A look that only asks for the next one has put nothing right, and the pauses must go on growing.
        """
        namespace, name = key
        job = self._observer.caches.jobs.get(name, namespace)
        if job is None:
            self._uids.pop(key, None)
            self._forget_absent()
            return True
        view = self._observer.views[job.metadata.uid]
        if view.unreadable:
            self._leave_alone(view)
            return True
        if view.spec is None:
            await self._reject_unreadable(view)
            return True
        if self._uids.setdefault(key, view.uid) != view.uid:
            self._uids[key] = view.uid
            self._forget_absent()
        workers = self._observer.workers(view.uid)
        memory = self._remember(view, workers)
        rejected = await self._rejection(view, workers)
        unsaid = memory.unsaid if memory.unsaid is not None and memory.unsaid.of == view.state else None
        state = unsaid.state if unsaid is not None else view.state
        promise = self._observer.promises.get(view.uid)
        placed = promise.placement if promise is not None and promise.attempt == state.attempt + 1 else None
        pool = self._observer.fleet.pools.get(placed.pool) if placed is not None else None
        sight = Sight(
            workers=workers,
            nodes=self._observer.node_states(view, workers),
            now=self._wall(),
            stuck_since=memory.stuck_since,
            placed=placed,
            checkpoint=initial_checkpoint(view.spec, placed, self._observer.fleet.catalogue) if placed else None,
            price=pool.usd_per_accelerator_hour if pool is not None else None,
            refused=memory.refused,
            name_held=self._children.name_held(view, state.attempt + 1) if self._may_begin(view, workers) else "",
            finished=self._observer.finished(view, state.attempt),
        )
        facts = lifecycle_job(view.spec, deleting=job.metadata.deleting, rejected=rejected)
        step = advance(facts, state, sight)
        if unsaid is not None:
            step = replace(step, events=(*unsaid.events, *step.events))
        await self._carry_out(view, view.state, step, memory)
        return not memory.unrecorded

    async def tell_defect(self, key: JobKey, problem: Exception) -> None:
        """A look at the job failed by a defect of ours: its status says so, once, instead of nothing."""
        job = self._observer.caches.jobs.get(key[1], key[0])
        view = self._observer.views.get(job.metadata.uid) if job is not None else None
        if view is None or view.unreadable:
            return
        words = defect_words(problem)
        try:
            state = defect(view.state, words, self._wall())
            if state is not view.state:
                await self._writer.write(view, state)
                self._recorder.warning(about(TRAINING_JOBS, view.object.metadata), INTERNAL_ERROR, words)
        except Exception as failure:  # what cannot be told is in the log
            _LOG.warning("trainingjob %s: its defect cannot be told: %r", view.name, failure)

    def _leave_alone(self, view: JobView) -> None:
        """The status cannot be read: others know what it says, and the pods may be those of a gang that runs."""
        self._scheduler.unwant(view.uid)
        self._observer.retract(view.uid)
        memory, words, now = self._memory.setdefault(view.uid, Memory()), shorten(view.unreadable), self._wall()
        if memory.told[0] == words and now - memory.told[1] < EVENT_SECONDS:
            return
        memory.told = (words, now)
        note = (
            f"{words}. The job and its pods are left as they are. Mend or remove that field (kubectl edit "
            f"--subresource=status trainingjob {view.key[1]}), or run the version of Berth that wrote it"
        )
        _LOG.error("trainingjob %s: its status cannot be read: %s", view.name, words)
        self._recorder.warning(about(TRAINING_JOBS, view.object.metadata), "StatusUnreadable", note)

    async def _reject_unreadable(self, view: JobView) -> None:
        self._scheduler.unwant(view.uid)
        self._observer.retract(view.uid)
        reason, message = view.problem or ("SpecInvalid", "the spec cannot be read")
        state = view.state.with_condition("Accepted", False, reason, message, now=self._wall())
        if state is not view.state:
            phase = state.phase or Phase.QUEUED
            await self._writer.write(view, replace(state, phase=phase, message=message))
            self._recorder.warning(about(TRAINING_JOBS, view.object.metadata), "Rejected", message)

    async def _rejection(self, view: JobView, workers: Sequence[Worker]) -> tuple[str, str, str] | None:
        """Why the job cannot be accepted; asked only while it is about to be placed."""
        return await self._judge.rejection(view) if self._may_begin(view, workers) else None

    @staticmethod
    def _may_begin(view: JobView, workers: Sequence[Worker]) -> bool:
        """Whether nothing of the job itself keeps the next attempt from beginning."""
        idle = view.state.phase not in ACTIVE and view.state.phase not in FINISHED
        if not idle or view.spec is None or view.spec.suspend or view.object.metadata.deleting:
            return False
        return all(worker.ended for worker in workers)

    def _remember(self, view: JobView, workers: Sequence[Worker]) -> Memory:
        memory = self._memory.setdefault(view.uid, Memory())
        now = self._wall()
        stuck = {worker.uid for worker in workers if worker.problem}
        memory.told = ("", 0.0)
        memory.stuck_since = {uid: memory.stuck_since.get(uid, now) for uid in stuck}
        if memory.attempt != view.state.attempt:
            memory.attempt, memory.refused = view.state.attempt, None
        return memory

    async def _carry_out(self, view: JobView, before: JobState, step: Step, memory: Memory) -> None:
        state = step.state
        if step.remove_job:
            await self._remove(view)
            return
        if not step.wants_placement:
            self._scheduler.unwant(view.uid)
        began = state.attempt > before.attempt
        if began:
            if not await self._record(view, state, memory):
                return
            memory.attempt, memory.refused = state.attempt, None
        elif not step.wants_placement:
            memory.unrecorded = ""
            if self._observer.promises.get(view.uid) is not None:
                self._observer.retract(view.uid)
        waits = self._why(view, memory) if step.wants_placement else None
        held = self._writer.holds(view, before, state)
        memory.unsaid = Unsaid(before, state, step.events) if held else None
        written = began or (not held and await self._writer.consider(view, before, state, waits))
        if held:
            self._announce(view, step)
        if written:
            self._tell(view, step, began=began)
            self._count(before, state)
            if state.phase != before.phase:
                self._queue.add_after(view.key, 0.05, NEW_STATE)
        if step.wants_placement:
            self._want(view, state)
        await self._follow(view, step, memory, began=began)
        if step.wake_after is not None:
            self._queue.add_after(view.key, max(step.wake_after, 0.05), NEW_STATE)

    async def _follow(self, view: JobView, step: Step, memory: Memory, *, began: bool) -> None:
        """Bring the pods, and what they need beside them, to what the step wants."""
        await self._delete(view, step.delete)
        if step.create:
            await self._create(view, step.state, step.create, memory)
        elif not began:
            await self._mend(view, step.state, memory)

    async def _record(self, view: JobView, state: JobState, memory: Memory) -> bool:
        """Write the placement, and remember why it is refused where the same write would be again."""
        try:
            written = await self._writer.write_placement(view, state)
        except ClusterError as problem:
            if view.uid not in self._observer.promises:
                memory.unrecorded = f"The placement cannot be recorded: {shorten(str(problem))}"
            raise
        memory.unrecorded = ""
        return written

    def _why(self, view: JobView, memory: Memory) -> Waits:
        """Why the job waits: in the scheduler's words where it has some, else for want of a record."""
        waits = self._scheduler.why(view.uid)
        if waits.refusal is not None or not memory.unrecorded:
            return waits
        return Waits(Refusal("WriteRefused", memory.unrecorded), explained=True)

    async def _remove(self, view: JobView) -> None:
        """Delete the job as it was seen; one that was changed meanwhile is looked at again."""
        meta = view.object.metadata
        try:
            await self._client.delete(
                TRAINING_JOBS, meta.name, meta.namespace, uid=meta.uid, resource_version=meta.resource_version
            )
        except Conflict:
            self._queue.add_after(view.key, AGAIN_SECONDS)

    def _want(self, view: JobView, state: JobState) -> None:
        assert view.request is not None
        assert view.spec is not None
        left = barred_left(state, self._wall())
        request = without_nodes(view.request, state.avoid, hard=left > 0)
        if state.avoid and left > 0:
            self._queue.add_after(view.key, left + 0.1)
        meta = view.object.metadata
        priority = self._judge.priority(view.spec)
        asked = (state.attempt + 1, request, priority, meta.created, meta.generation)
        self._scheduler.want(Waiting(view.name, view.uid, *asked))

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
        raise_first(results, harmless=(Conflict, NotFound))

    async def _create(self, view: JobView, state: JobState, ranks: Sequence[int], memory: Memory) -> None:
        plan = gang_plan(view, state, self._observer, self._settings)
        if plan is None:
            return
        try:
            memory.refused = await self._children.create(plan, ranks)
        except NameLeaving:
            self._queue.add_after(view.key, NAME_SECONDS, NEW_STATE)
            return
        if memory.refused is not None:
            if memory.refused.reason == Reason.QUOTA_EXCEEDED:
                self._judge.quota_was_short(view.key[0])
            self._queue.add(view.key, NEW_STATE)

    async def _mend(self, view: JobView, state: JobState, memory: Memory) -> None:
        """Bring back what the gang needs beside its pods, where that is missing."""
        if state.phase not in ACTIVE:
            return
        whole, group = self._children.whole(view), self._settings.native_gangs and self._binds_late(view, state)
        if whole and not group:
            return
        now = self._wall()
        wait = memory.mended + MEND_SECONDS - now
        if wait > 0:
            self._queue.add_after(view.key, wait)
            return
        plan = gang_plan(view, state, self._observer, self._settings)
        if plan is None:
            return
        memory.mended = now
        if not whole:
            _LOG.warning("trainingjob %s: its headless Service was deleted or changed, and is mended", view.name)
            await self._children.mend(plan)
        if group:
            await self._children.mend_group(plan)

    def _binds_late(self, view: JobView, state: JobState) -> bool:
        """Whether a pod of the gang is unbound after :data:`GROUP_SECONDS`; until then it is looked at again."""
        if state.current is None or all(worker.bound or worker.ended for worker in self._observer.workers(view.uid)):
            return False
        left = state.current.start + GROUP_SECONDS - self._wall()
        self._queue.add_after(view.key, left + 0.1 if left > 0 else MEND_SECONDS)
        return left <= 0

    def _announce(self, view: JobView, step: Step) -> None:
        """The events of ``step`` go with a status that waits: what they make superfluous need not be told before."""
        target = about(TRAINING_JOBS, view.object.metadata)
        for event in step.events:
            self._recorder.supersede(target, event.reason)

    def _tell(self, view: JobView, step: Step, *, began: bool) -> None:
        """Tell the events of ``step``, but for those that another of them says too."""
        target = about(TRAINING_JOBS, view.object.metadata)
        completed = any(event.reason == "Completed" for event in step.events)
        silent = ({"Accepted"} if began else set()) | ({"Started"} if completed else set())
        for event in step.events:
            if event.warning:
                self._recorder.warning(target, event.reason, event.message)
            elif event.reason not in silent:
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
