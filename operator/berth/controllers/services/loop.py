"""InferenceServices as one part of the operator: wired here, kept warm on every replica, run by the leader."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

from berth.api.names import LABEL_SERVICE_NAME
from berth.cluster import wire
from berth.cluster.cache import Cache
from berth.cluster.client import ApiClient
from berth.cluster.errors import ClusterError, NotLeading, log_level
from berth.cluster.events import EventRecorder
from berth.cluster.kinds import DEPLOYMENTS, INFERENCE_SERVICES
from berth.cluster.queue import QueueClosed, WorkQueue
from berth.cluster.ratelimit import TokenBucket
from berth.controllers.services.children import ServiceChildren
from berth.controllers.services.childwatch import ChildWatch
from berth.controllers.services.demand import DemandBook
from berth.controllers.services.exposure import Exposure
from berth.controllers.services.judge import TemplateJudge
from berth.controllers.services.notices import Notices
from berth.controllers.services.observe import ServiceCaches, ServiceObserver
from berth.controllers.services.planner import LOOK_PERIODS, PERIOD_SECONDS, ServicePlanner
from berth.controllers.services.plans import pod_facts
from berth.controllers.services.prefetch import Prefetcher
from berth.controllers.services.reconcile import Services
from berth.controllers.services.reserve import Reservations
from berth.controllers.services.spotting import SpotWatch
from berth.controllers.services.standing import Standings
from berth.controllers.services.supply import Market
from berth.controllers.services.view import ServiceKey, ServiceView
from berth.controllers.services.warmth import Warmth
from berth.controllers.services.writer import ServiceWriter
from berth.controllers.services.writeturns import WriteTurns
from berth.fleet.fleet import Fleet
from berth.inference.room import Rooms
from berth.inference.service import Verdict
from berth.telemetry.metrics import Metrics
from berth.telemetry.readings import DemandSource, SourceName

_LOG: Final = logging.getLogger(__name__)

WORKERS: Final = 8
GATHER_SECONDS: Final = 0.1
"""Changes of one service within this time are looked at together."""
LOOKS_PER_STEP: Final = 4
"""Control periods in a step of the forecaster: demand of a single moment is noise."""
MOVING_PER_SECOND: Final = 1.0
MOVING_BURST: Final = 5


class ServiceLoop:
    """Everything about InferenceServices. ``source`` is where demand is asked for.

    ``default_source``: the part of ``source`` that is asked about a service which names no signal.
    ``prefetches``: so many nodes get weights ahead of replicas at once; 0: none does, and no node is labelled.
    ``priority``: the value of a PriorityClass; ``unclassed``: what is told of one that does not exist.
    ``spare``: the budget of what else moves, of which services write with what is unused.
    """

    def __init__(
        self,
        client: ApiClient,
        fleet: Fleet,
        pods: Cache[wire.Pod],
        nodes: Cache[wire.Node],
        recorder: EventRecorder,
        metrics: Metrics,
        source: DemandSource,
        *,
        default_source: SourceName = "Prometheus",
        priority: Callable[[str], int],
        unclassed: Callable[[str], str] = lambda name: "",
        period: float = PERIOD_SECONDS,
        prefetches: int = 0,
        spare: TokenBucket | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        clock = client.transport.clock
        self.queue: WorkQueue[ServiceKey] = WorkQueue(clock)
        self.caches = ServiceCaches(
            Cache(client, INFERENCE_SERVICES), Cache(client, DEPLOYMENTS, label_selector=LABEL_SERVICE_NAME)
        )
        self.leading = False
        self._metrics, self._urgent = metrics, asyncio.Event()
        rooms = Rooms(fleet)
        facts = pod_facts(fleet)
        self.observer = ServiceObserver(
            self.caches,
            pods,
            nodes,
            leaving=Notices(fleet, wall=wall),
            wake=self.wake,
            gone=self._gone,
            wall=wall,
        )
        self._child_watch = ChildWatch(client, view=self.observer.view, wake=self.wake)
        market = Market(fleet, rooms, facts, Standings(fleet, rooms, self.observer))
        demand = self._demand = DemandBook(
            source, fleet, default_source=default_source, step_seconds=LOOKS_PER_STEP * period
        )
        self._warmth = warmth = Warmth(pods, nodes)
        self.planner = ServicePlanner(
            self.observer, market, demand, Reservations(fleet, rooms), facts,
            SpotWatch(fleet, nodes, rooms), warmth, metrics,
            priority=lambda view: _priority(view, priority), carry_out=self._carry_out,
            period=period, wall=wall,
        )  # fmt: skip
        self.prefetcher = Prefetcher(
            client, fleet, rooms, facts, self.observer, self.planner, demand, warmth, pods, nodes, metrics,
            most=prefetches, changed=self.wake, wall=wall,
        ) if prefetches else None  # fmt: skip
        writer = ServiceWriter(
            client,
            self.observer,
            WriteTurns(TokenBucket(MOVING_PER_SECOND, MOVING_BURST, clock), clock, call=self.queue.add, spare=spare),
            again=self._look_again,
            wall=wall,
        )
        children, exposure = (
            ServiceChildren(client, self.observer, fleet, again=LOOK_PERIODS * period, wall=wall),
            Exposure(client, again=LOOK_PERIODS * period, call=self._look_again, wall=wall),
        )
        self.services = Services(
            client, self.observer, self.planner, market, demand,
            children, TemplateJudge(client, fleet, again=self._look_again), exposure, writer, recorder,
            fleet=fleet, prefetched=self._prefetched, unclassed=unclassed, wall=wall,
        )  # fmt: skip

    def every_cache(self) -> Iterator[Cache[Any]]:
        """The caches that must be warm."""
        yield from self.caches.every()
        yield from self._child_watch.every()

    def wake(self, key: ServiceKey) -> None:
        """Something about the service is different: decide about it soon."""
        if self.leading:
            self.queue.add_after(key, GATHER_SECONDS)

    def reclass(self, old: wire.PriorityClass | None, new: wire.PriorityClass | None) -> None:
        """A PriorityClass is another one: whoever names it decides again, and says whether it is there."""
        known = new or old
        assert known is not None
        for view in self.observer.views.values():
            if view.spec is not None and view.spec.priority_class_name == known.metadata.name:
                self.wake(view.key)

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        """What the leader runs, from the moment it is called."""
        self.observer.resume(self._warmth.over)
        ahead = [self.prefetcher.run()] if self.prefetcher is not None else []
        return [self._rounds(), *ahead, *(self._work() for _ in range(WORKERS))]

    def _prefetched(self, view: ServiceView) -> Verdict | None:
        return self.prefetcher.verdict(view) if self.prefetcher is not None else None

    def _carry_out(self, key: ServiceKey) -> None:
        self.queue.add(key)

    def _look_again(self, key: ServiceKey, seconds: float) -> None:
        self.queue.add_after(key, seconds)

    def _gone(self, view: ServiceView) -> None:
        self.services.forget(view)

    async def _rounds(self) -> None:
        try:
            await self._periods()
        finally:
            self._demand.stop()

    async def _periods(self) -> None:
        """Ask for demand and decide about every service, once in a control period."""
        while True:
            began = time.monotonic()
            try:
                await self.planner.ask()
            except Exception:  # a source that misbehaves must not stop the floors from being kept
                _LOG.exception("demand was not asked for")
            try:
                await self.planner.decide_all()
            except Exception:  # single services are guarded; whoever leads must go on
                _LOG.exception("a round of decisions failed")
            rest = self.planner.period - (time.monotonic() - began)
            await asyncio.sleep(max(rest, 1.0) * random.uniform(0.95, 1.05))  # noqa: S311 - spreads load

    async def _work(self) -> None:
        while True:
            try:
                key = await self.queue.get()
            except QueueClosed:
                return
            try:
                view = self.observer.view(key)
                if view is not None:
                    self.planner.refresh(view)
                await self.services.reconcile(key)
            except NotLeading:
                raise  # else a leader that is certain again a moment later would have a worker less
            except ClusterError as problem:
                delay = self.queue.retry(key)
                level = log_level(problem, self.queue.failures(key))
                _LOG.log(level, "inferenceservice %s/%s: %s; again in %.1f s", *key, problem, delay)
                self._metrics.reconciles.labels("inferenceservice", "error").inc()
            except Exception as problem:  # one bad object must not stop the others
                delay = self.queue.retry(key)
                trace = self.queue.failures(key) == 1
                _LOG.error("inferenceservice %s/%s: %r; again in %.1f s", *key, problem, delay, exc_info=trace)
                await self.services.tell_defect(key, problem)
                self._metrics.reconciles.labels("inferenceservice", "error").inc()
            else:
                self.queue.forget(key)
                self._metrics.reconciles.labels("inferenceservice", "ok").inc()
            finally:
                self.queue.done(key)


def _priority(view: ServiceView, value_of: Callable[[str], int]) -> int:
    name = view.spec.priority_class_name if view.spec is not None else None
    return value_of(name) if name else 0
