"""The operator as one object: caches that every replica keeps warm, and writers that only the leader runs."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final

from berth.api.names import LABEL_JOB_NAME
from berth.catalogue.overlay import LiveCatalogue
from berth.cluster.cache import Cache
from berth.cluster.client import ApiClient
from berth.cluster.errors import ClusterError, NotLeading, log_level
from berth.cluster.events import EventRecorder
from berth.cluster.kinds import (
    ACCELERATOR_POOLS,
    INFERENCE_SERVICES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    SERVICES,
    TRAINING_JOBS,
)
from berth.cluster.lease import Election
from berth.cluster.queue import QueueClosed, WorkQueue
from berth.cluster.wire import Object
from berth.controllers.facts import no_priority_class
from berth.controllers.gangs import Settings
from berth.controllers.gauges import Gauges
from berth.controllers.judge import Judge
from berth.controllers.observe import Caches, JobKey, Observer
from berth.controllers.pools import Pools
from berth.controllers.scheduler import Scheduler, count_idle_nodes
from berth.controllers.services.loop import ServiceLoop
from berth.controllers.services.planner import PERIOD_SECONDS
from berth.controllers.trainingjobs import CARRY_OUT, NEW_STATE, TrainingJobs
from berth.controllers.writer import StatusWriter
from berth.fleet.fleet import Fleet
from berth.fleet.recount import recount
from berth.telemetry.metrics import Metrics
from berth.telemetry.probes import Heartbeat
from berth.telemetry.readings import DemandSource, SourceName
from berth.telemetry.sources import NO_SOURCE
from berth.values import BerthError

_LOG: Final = logging.getLogger(__name__)

WORKERS: Final = 16
GATHER_SECONDS: Final = 0.05
RANK_GATHER_SECONDS: Final = 0.0005
MOST_GATHER_SECONDS: Final = 0.5
"""Changes of one job within this time are looked at together; one that has just been created waits for nothing. A look
costs in proportion to the ranks, of which each has several changes while a gang starts, so large gangs wait longer."""
RESYNC_SECONDS: Final = 600.0
STALE_SECONDS: Final = 240.0
DRIFT_SECONDS: Final = 300.0
AUDIT_PAUSE_SECONDS: Final = 0.02
"""Between two slices of a recount, so that it delays nobody and takes its second of CPU over several."""
DRIFTS_NAMED: Final = 20
CATCH_UP_SECONDS: Final = 60.0
"""A new leader lists everything, which takes seconds. One that cannot in this time must let another replica try:
it holds the lease, and nobody decides meanwhile."""
STOP_SECONDS: Final = 10.0
"""How long writers may take to stop; a lease is never released under one that still runs."""
PROMISE_SECONDS: Final = 60.0
"""A placement that is not on record after this time gives its nodes back: whatever keeps it may keep it for long."""
EVENT_HOLD_SECONDS: Final = 10.0
"""How long an event waits for one that says more."""
SUPERSEDES: Final = {"Started": {"Accepted", "Placed"}, "Placed": {"Accepted"}, "Completed": {"Accepted", "Placed"}}


class CannotLead(BerthError):
    """This replica holds the lease and cannot do what a leader must."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this replica is: its own name and where its Lease lives."""

    name: str
    namespace: str
    lease: str


class App:
    """Wires the pieces; :meth:`keep_warm` runs on every replica, :meth:`lead` while this one holds the lease."""

    def __init__(
        self,
        client: ApiClient,
        catalogue: LiveCatalogue,
        identity: Identity,
        metrics: Metrics,
        settings: Settings,
        source: DemandSource = NO_SOURCE,
        service_period: float = PERIOD_SECONDS,
        prefetches: int = 0,
        default_source: SourceName = "Prometheus",
    ) -> None:
        self.client, self.metrics, self.identity = client, metrics, identity
        self.heartbeat = Heartbeat()
        self._clock = client.transport.clock
        self.queue: WorkQueue[JobKey] = WorkQueue(self._clock)
        self.catalogue = catalogue
        self.fleet = Fleet(catalogue.catalogue)
        self.caches = Caches(
            jobs=Cache(client, TRAINING_JOBS),
            pods=Cache(client, PODS),
            nodes=Cache(client, NODES),
            pools=Cache(client, ACCELERATOR_POOLS),
            priority_classes=Cache(client, PRIORITY_CLASSES),
            namespaces=Cache(client, NAMESPACES),
            rendezvous=Cache(client, SERVICES, label_selector=LABEL_JOB_NAME),
        )
        self.observer = Observer(self.fleet, self.caches, wake=self._wake, changed=self._changed)
        self.scheduler = Scheduler(
            self.observer, metrics, carry_out=self._carry_out, tell=self._tell, clock=self._clock.now
        )
        self.writer = StatusWriter(client, self.observer, self.queue)
        self.judge = Judge(client, self.observer, self.queue, settings)
        self.recorder = EventRecorder(
            client, "berth.dev/operator", identity.name, supersedes=SUPERSEDES, hold=EVENT_HOLD_SECONDS
        )
        self.jobs = TrainingJobs(
            client, self.observer, self.scheduler, self.writer, self.judge, self.recorder, metrics, self.queue, settings
        )
        self.pools = Pools(client, self.observer, self.writer.budget)
        self.services = ServiceLoop(
            client, self.fleet, self.caches.pods, self.caches.nodes, self.recorder, metrics, source,
            priority=self.caches.priority, unclassed=self._unclassed, period=service_period, prefetches=prefetches,
            spare=self.writer.budget, default_source=default_source,
        )  # fmt: skip
        self.caches.priority_classes.subscribe(self.services.reclass)
        self.leading = False
        self.gauges = Gauges(
            metrics, self.observer, self.scheduler, self.queue, self.recorder,
            leading=lambda: self.leading, caches=self.every_cache(),
        )  # fmt: skip

    def wake(self, plural: str, key: JobKey) -> None:
        """kopf saw a change; our own caches see it too, and whoever is first wakes the object."""
        if plural == TRAINING_JOBS.plural:
            self._wake(key)
        elif plural == INFERENCE_SERVICES.plural:
            self.services.wake(key)

    def known(self, plural: str, key: JobKey, version: int) -> bool:
        """Whether our own caches have that version, or a later one, already; of pools we watch for ourselves."""
        found: Object | None
        if plural == TRAINING_JOBS.plural:
            found = self.caches.jobs.get(key[1], key[0])
        elif plural == INFERENCE_SERVICES.plural:
            found = self.services.caches.services.get(key[1], key[0])
        else:
            return True
        return found is not None and found.metadata.version >= version

    def _unclassed(self, name: str) -> str:
        """What is told of the PriorityClass ``name``; empty where it exists."""
        classes = self.caches.priority_classes
        return "" if classes.get(name) else no_priority_class(name, (known.metadata.name for known in classes))

    def every_cache(self) -> list[Cache[Any]]:
        """Whatever must be warm before anything is decided."""
        return [*self.caches.every(), *self.services.every_cache()]

    def _wake(self, key: JobKey) -> None:
        if self.leading:
            job = self.caches.jobs.get(key[1], key[0])
            view = self.observer.views.get(job.metadata.uid) if job is not None else None
            created = job is not None and not job.status
            self.queue.add_after(key, 0.0 if created else gather_seconds(len(view.held) if view else 0), NEW_STATE)

    def _carry_out(self, key: JobKey) -> None:
        self.queue.add(key, CARRY_OUT)

    def _tell(self, key: JobKey) -> None:
        self.queue.add_after(key, GATHER_SECONDS)

    def _changed(self) -> None:
        self.scheduler.poke()

    async def keep_warm(self) -> None:
        """Keep caches, fleet and heartbeat going for ever."""
        tasks: list[Coroutine[Any, Any, None]] = [cache.run() for cache in self.every_cache()]
        tasks += [self._beat(), self._audit(), self._follow_catalogue()]
        await _all(tasks)

    async def synced(self) -> None:
        """Return when every cache has its first complete list."""
        for cache in self.every_cache():
            await cache.synced.wait()

    async def lead(self) -> None:
        """Everything that writes; cancelled when the lease is lost or the process stops. Raises: CannotLead."""
        await self._catch_up()
        self.scheduler.clear()
        self.leading = self.services.leading = True
        self.scheduler.poke()
        for key in list(self.caches.jobs.objects()):
            self.queue.add(key)
        try:
            tasks: list[Coroutine[Any, Any, None]] = [self._work() for _ in range(WORKERS)]
            tasks += [self.scheduler.run(), self.scheduler.explain_for_ever(), self.recorder.run(), self.pools.run()]
            tasks += [self._resync(), *self.services.tasks()]
            await _all(tasks)
        except BaseExceptionGroup as failures:
            if failures.subgroup(NotLeading) is not None:
                raise CannotLead("a write was due while the lease was not held for certain") from failures
            raise
        finally:
            self.leading = self.services.leading = False

    async def _catch_up(self) -> None:
        """List everything again: what the last leader wrote must be seen before the first decision."""
        lists = {asyncio.create_task(cache.refresh()): cache for cache in self.every_cache()}
        everything = asyncio.create_task(asyncio.wait(lists))
        limit = asyncio.create_task(self._clock.sleep(CATCH_UP_SECONDS))
        try:
            await asyncio.wait({everything, limit}, return_when=asyncio.FIRST_COMPLETED)
            missing = [cache for refresh, cache in lists.items() if not refresh.done()]
        finally:
            for task in (*lists, everything, limit):
                task.cancel()
        if missing:
            named = ", ".join(f"{cache.kind.plural} ({cache.last_error or 'no answer'})" for cache in missing)
            raise CannotLead(
                f"a new leader could not list {named} within {CATCH_UP_SECONDS:.0f} s; the lease goes back"
            )
        self.observer.settle()

    async def _work(self) -> None:
        while True:
            try:
                key = await self.queue.get()
            except QueueClosed:
                return
            try:
                settled = await self.jobs.reconcile(key)
            except NotLeading:
                raise  # else a leader that is certain again a moment later would have a worker less
            except ClusterError as problem:
                delay = self.queue.retry(key)
                level = log_level(problem, self.queue.failures(key))
                _LOG.log(level, "trainingjob %s/%s: %s; again in %.1f s", *key, problem, delay)
                self.metrics.reconciles.labels("trainingjob", "error").inc()
            except Exception as problem:  # one bad object must not stop the others
                delay = self.queue.retry(key)
                trace = self.queue.failures(key) == 1
                _LOG.error("trainingjob %s/%s: %r; again in %.1f s", *key, problem, delay, exc_info=trace)
                await self.jobs.tell_defect(key, problem)
                self.metrics.reconciles.labels("trainingjob", "error").inc()
            else:
                if settled:
                    self.queue.forget(key)
                self.metrics.reconciles.labels("trainingjob", "ok").inc()
            finally:
                self.queue.done(key)

    async def _resync(self) -> None:
        """Look at every job once in ten minutes, spread evenly, whatever was seen or missed meanwhile."""
        while True:
            keys = list(self.caches.jobs.objects())
            pause = RESYNC_SECONDS / max(len(keys), 1)
            for key in keys:
                await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - spreads load, guards nothing
                self.queue.add(key)
            if not keys:
                await asyncio.sleep(pause)

    async def _beat(self) -> None:
        """Once a second, on every replica: a sign of life, what the leader counts, and what metrics show."""
        last = self._clock.now()
        while True:
            self.heartbeat.beat()
            await self._clock.sleep(1.0)
            now = self._clock.now()
            self.observer.follow_pools()
            if self.leading:
                self._count_idle(now - last)
                self._expire_promises(now)
            self.gauges.take()
            last = now

    def _count_idle(self, seconds: float) -> None:
        queue = "waiting" if self.scheduler.waiting else "empty"
        for pool, idle in count_idle_nodes(self.observer).items():
            if idle:
                self.metrics.idle_node_seconds.labels(pool, queue).inc(idle * seconds)

    def _expire_promises(self, now: float) -> None:
        for view in self.observer.expire(now - PROMISE_SECONDS, self.queue.busy):
            _LOG.warning(
                "trainingjob %s: its placement is not on record after %.0f s; its nodes are given back",
                view.name, PROMISE_SECONDS,
            )  # fmt: skip
            self.metrics.promises_expired.inc()
            self.queue.add(view.key, NEW_STATE)

    async def _audit(self) -> None:
        """Usage is derived: where the fleet differs from what a recount says, the recount wins, and it is logged."""
        while True:
            await self._clock.sleep(DRIFT_SECONDS * random.uniform(0.8, 1.2))  # noqa: S311
            found = []
            for differences in recount(self.fleet):
                found += differences
                await self._clock.sleep(AUDIT_PAUSE_SECONDS)
            if found:
                self.metrics.drifts.inc()
                named = "; ".join(found[:DRIFTS_NAMED])
                _LOG.error("the fleet had drifted in %d ways, and is recounted now: %s", len(found), named)
                self._changed()

    async def _follow_catalogue(self) -> None:
        """Take in a changed catalogue overlay; one that cannot be read leaves the last good one in force."""
        reported = self.catalogue.problem
        while True:
            await asyncio.sleep(5.0)
            if self.catalogue.refresh():
                _LOG.info("the catalogue has changed")
                self.fleet.set_catalogue(self.catalogue.catalogue)
                self.observer.read_pools()
                self.observer.reread()
                self.services.observer.reread()
            if self.catalogue.problem is not None and self.catalogue.problem is not reported:
                _LOG.error("the catalogue overlay is not taken in: %s", self.catalogue.problem)
            reported = self.catalogue.problem

    def not_ready(self) -> list[str]:
        """Why ``/readyz`` fails: caches without their first list."""
        return [
            f"{cache.kind.plural}: no complete list yet" for cache in self.every_cache() if not cache.synced.is_set()
        ]

    def not_healthy(self) -> list[str]:
        """Why ``/healthz`` fails: a stuck loop, or a watch that nothing has been heard of."""
        problems = self.heartbeat.problems()
        for cache in self.every_cache():
            silent = cache.staleness()
            if silent > STALE_SECONDS:
                problems.append(f"{cache.kind.plural}: nothing heard from the API server for {silent:.0f} s")
        return problems


def gather_seconds(ranks: int) -> float:
    """How long changes of a job that holds room for so many ``ranks`` are gathered before it is looked at."""
    return min(GATHER_SECONDS + RANK_GATHER_SECONDS * ranks, MOST_GATHER_SECONDS)


async def _all(tasks: list[Coroutine[Any, Any, None]]) -> None:
    """Run until one fails, then end the others and raise what it raised."""
    async with asyncio.TaskGroup() as group:
        for task in tasks:
            group.create_task(task)


async def elect_and_lead(app: App, election: Election) -> None:
    """Stand for election, lead, and release the lease after the last writer has stopped.

    Raises:
        CannotLead: elected in vain, or a writer does not stop; the lease is released, or left to run out.
    """
    standing = asyncio.create_task(election.run())
    elected = asyncio.create_task(election.elected.wait())
    leading: asyncio.Task[None] | None = None
    try:
        await asyncio.wait({standing, elected}, return_when=asyncio.FIRST_COMPLETED)
        if election.elected.is_set():
            leading = asyncio.create_task(app.lead())
            await asyncio.wait({standing, leading}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        elected.cancel()
        stopped = await _stop_leading(app, leading)
        standing.cancel()
        await asyncio.wait({standing})
        if not stopped:
            raise CannotLead(f"a writer did not stop within {STOP_SECONDS:.0f} s; the lease is left to run out")
        await election.release()
    for task in (leading, standing):
        if task is not None and not task.cancelled() and (failure := task.exception()) is not None:
            raise failure


async def _stop_leading(app: App, leading: asyncio.Task[None] | None) -> bool:
    """Stop the writers, and write what events are left; whether no writer runs any more."""
    if leading is None:
        return True
    leading.cancel()
    await asyncio.wait({leading}, timeout=STOP_SECONDS)
    if leading.done():
        await app.recorder.flush(3.0)
    return leading.done()
