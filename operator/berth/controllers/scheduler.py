"""The one loop that commits placements, against one ledger.

Reconcilers say which jobs wait; this loop decides for all of them together and promises room before anybody else can.
It writes nothing: a promise is carried out by the job's own reconciler. A pass happens only when the queue or the
room has changed since the last one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from berth.controllers.observe import JobKey, JobView, Observer, Promise
from berth.fleet.fleet import Fleet
from berth.fleet.records import Claim, gang_key
from berth.telemetry.metrics import Metrics
from berth.training.clearing import kept_nodes
from berth.training.explain import RunningGang, explain
from berth.training.job import Sight
from berth.training.placement import place
from berth.training.queue import Returning, Verdict, Waiting, order, schedule
from berth.training.records import Placement, Refusal
from berth.training.refusals import Refusals
from berth.training.request import lifecycle_job
from berth.training.state import ACTIVE, Phase

_LOG: Final = logging.getLogger(__name__)

GATHER_SECONDS: Final = 0.02
"""How long a pass waits for more of the same burst."""
CROWD_GATHER_SECONDS: Final = 0.1
CROWD: Final = 200
"""With so many refused, a pass waits that long for more nodes to come free, so that fewer look at the whole queue."""
PLACEMENTS_PER_PASS: Final = 32
ROWS_PER_PASS: Final = 640_000
"""Nodes that the searches of one pass may look at; a search in vain costs some 50 ns for each, and 0.2 ms besides."""
EXPLAIN_SECONDS: Final = 0.5
EXPLAIN_AGAIN_SECONDS: Final = 60.0
EXPLAIN_AFTER_SECONDS: Final = 1.0
"""A job that is placed within this time after its refusal needs no explanation."""
RETURNING_SECONDS: Final = 1.0
"""How often it is looked whether gangs that restart still keep the nodes that the last pass left them."""
AFTER_DEFECT_SECONDS: Final = 5.0
"""When a pass is tried again that failed as a whole."""


@dataclass(slots=True)
class Explained:
    """A refusal with its explanation, and of which state of the fleet it speaks."""

    refusal: Refusal
    version: int
    at: float


@dataclass(frozen=True, slots=True)
class Waits:
    """Why a job waits: nothing known yet (position 0), the bare refusal, or with what would change it."""

    refusal: Refusal | None = None
    position: int = 0
    explained: bool = False


class Scheduler:
    """Decides placements. ``carry_out`` is called with the key of a job that has a promise, ``tell`` of one refused."""

    def __init__(
        self,
        observer: Observer,
        metrics: Metrics,
        *,
        carry_out: Callable[[JobKey], object],
        tell: Callable[[JobKey], object],
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._observer, self._metrics = observer, metrics
        self._carry_out, self._tell, self._clock, self._wall = carry_out, tell, clock, wall
        self._waiting: dict[str, Waiting] = {}
        self._sorted: list[Waiting] | None = None
        self._verdicts: dict[str, Verdict] = {}
        self._explained: dict[str, Explained] = {}
        self._refused: dict[str, float] = {}  # since when a job has been refused
        self._refusals = Refusals()
        self._wake = asyncio.Event()
        self._decided: tuple[int, int] = (-1, -1)  # fleet version and queue version of the last complete pass
        self._queue_version = 0
        self._returning: tuple[Returning, ...] = ()  # those of the last pass

    @property
    def waiting(self) -> int:
        """Jobs that want a placement and have none."""
        return len(self._waiting)

    def poke(self) -> None:
        """Room or queue may have changed."""
        self._wake.set()

    def want(self, job: Waiting) -> None:
        """``job`` waits for a placement."""
        if self._waiting.get(job.uid) != job:
            self._waiting[job.uid] = job
            self._sorted = None
            self._queue_version += 1
            self.poke()

    def unwant(self, uid: str) -> None:
        """The job waits no more."""
        self._verdicts.pop(uid, None)
        self._explained.pop(uid, None)
        self._refused.pop(uid, None)
        if self._waiting.pop(uid, None) is not None:
            self._sorted = None
            self._queue_version += 1
            self.poke()

    def clear(self) -> None:
        """Forget everything: this replica does not lead, and whoever leads again starts from what is written."""
        self._waiting.clear()
        self._verdicts.clear()
        self._explained.clear()
        self._refused.clear()
        self._refusals = Refusals()
        self._sorted = None
        self._returning = ()
        self._decided = (-1, -1)

    def why(self, uid: str) -> Waits:
        """Why the job still waits."""
        verdict = self._verdicts.get(uid)
        if verdict is None or isinstance(verdict.outcome, Placement):
            return Waits()
        explained = self._explained.get(uid)
        return Waits(explained.refusal if explained else verdict.outcome, verdict.position, explained is not None)

    async def run(self) -> None:
        """Decide for ever."""
        while True:
            await self._poked()
            await asyncio.sleep(gather_seconds(len(self._refused)))
            self._wake.clear()
            if not self._waiting:
                self._returning = ()
                continue
            try:
                if self.due():
                    self.decide()
            except Exception:  # whoever leads must go on; single jobs are guarded in the pass
                _LOG.exception("a pass over the queue failed; again in %.0f s", AFTER_DEFECT_SECONDS)
                await asyncio.sleep(AFTER_DEFECT_SECONDS)
                self.poke()

    async def _poked(self) -> None:
        """Wait until something has changed; nobody says when a gang that restarts keeps its nodes no more."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), RETURNING_SECONDS if self._returning else None)

    def due(self) -> bool:
        """Whether a pass may decide otherwise than the last one did."""
        self._observer.follow_pools()
        decided = (self._observer.fleet.version, self._queue_version) == self._decided
        return not decided or self._returns() != self._returning

    def decide(self) -> list[Verdict]:
        """One pass now, on pools as their nodes make them now."""
        self._observer.follow_pools()
        self._returning = self._returns()
        fleet = self._observer.fleet
        began, version, queue_version = self._clock(), fleet.version, self._queue_version
        if self._sorted is None:
            self._sorted = order(self._waiting.values())
        promises: dict[str, Promise] = {}

        def claims(job: Waiting, placement: Placement) -> list[Claim]:
            view = self._observer.views[job.uid]
            promise = Promise(job.attempt, placement, self._observer.choose_share(view, placement), began)
            promises[job.uid] = promise
            return [
                Claim(gang_key(job.uid, job.attempt, rank), node, promise.share.amounts, view.name, "Training")
                for rank, node in enumerate(placement.nodes)
            ]

        known = [job for job in self._sorted if self._is_current(job)]
        result = schedule(
            fleet, known, claims, returning=self._returning,
            refusals=self._refusals, most=PLACEMENTS_PER_PASS, tries=searches_per_pass(fleet),
        )  # fmt: skip
        for verdict in result.verdicts:
            self._take(verdict, promises)
        self._metrics.decision_seconds.observe(self._clock() - began)
        settled = result.complete and fleet.version == version
        self._decided = (version, queue_version + len(promises)) if settled else (-1, -1)
        if not result.complete:
            self.poke()
        return result.verdicts

    def _is_current(self, job: Waiting) -> bool:
        """Whether the job asks for this still; one edited since is on its way to ask anew."""
        view = self._observer.views.get(job.uid)
        if view is None or view.request is None:
            return False
        return job.generation in (None, view.object.metadata.generation)

    def _take(self, verdict: Verdict, promises: dict[str, Promise]) -> None:
        job, outcome = verdict.waiting, verdict.outcome
        view = self._observer.views[job.uid]
        if isinstance(outcome, Placement):
            self.unwant(job.uid)
            self._observer.promise(job.uid, promises[job.uid])
            self._metrics.placements.labels(outcome.certificate).inc()
            gap = sum(outcome.domains.get(level, 0) - bound for level, bound in outcome.lower_bound.items())
            self._metrics.placement_gap.observe(max(gap, 0))
            self._carry_out(view.key)
            return
        before = self._verdicts.get(job.uid)
        self._verdicts[job.uid] = verdict
        if verdict.problem is not None and (before is None or repr(before.problem) != repr(verdict.problem)):
            _LOG.error("trainingjob %s: no decision", view.name, exc_info=verdict.problem)
        self._refused.setdefault(job.uid, self._clock())
        if before is None or before.outcome != outcome:
            self._metrics.refusals.labels(outcome.reason).inc()
            self._explained.pop(job.uid, None)
            self._tell(view.key)

    async def explain_for_ever(self) -> None:
        """A few refusals a second get their smallest change worked out: the head of the queue first."""
        while True:
            await asyncio.sleep(EXPLAIN_SECONDS)
            job = self._next_to_explain()
            if job is not None:
                self._explain_guarded(job)

    def _next_to_explain(self) -> Waiting | None:
        now, version = self._clock(), self._observer.fleet.version
        for job in self._sorted or ():
            verdict = self._verdicts.get(job.uid)
            if verdict is None or isinstance(verdict.outcome, Placement):
                continue
            if now - self._refused.get(job.uid, now) < EXPLAIN_AFTER_SECONDS:
                continue
            known = self._explained.get(job.uid)
            if known is None or (known.version != version and now - known.at >= EXPLAIN_AGAIN_SECONDS):
                return job
        return None

    def _explain_guarded(self, job: Waiting) -> None:
        try:
            self._explain(job)
        except Exception:  # one bad job must not stop the others; its refusal stands without an explanation
            if job.uid not in self._explained:
                _LOG.exception("trainingjob %s: no explanation", job.key)
            bare = self._verdicts[job.uid].outcome
            assert isinstance(bare, Refusal)
            self._explained[job.uid] = Explained(bare, self._observer.fleet.version, self._clock())

    def _explain(self, job: Waiting) -> None:
        verdict = self._verdicts[job.uid]
        assert isinstance(verdict.outcome, Refusal)
        fleet = self._observer.fleet
        now = place(fleet, job.request)  # the refusal may be older than what it counts
        refusal = now if isinstance(now, Refusal) else verdict.outcome
        if not verdict.behind:
            refusal = explain(fleet, job.request, refusal, self._running())
        elif isinstance(now, Placement):  # only what is kept for others stands in its way
            restarts = any(gang.key == verdict.behind for gang in self._returning)
            why = ", which restarts and keeps its nodes" if restarts else " in the queue, which may use every free node"
            refusal = replace(refusal, message=f"Behind {verdict.behind}{why}")
        self._explained[job.uid] = Explained(refusal, fleet.version, self._clock())
        view = self._observer.views.get(job.uid)
        if view is not None and refusal != verdict.outcome:
            self._tell(view.key)

    def _running(self) -> list[RunningGang]:
        gangs = []
        for view in self._observer.views.values():
            if view.state.phase in ACTIVE and view.held:
                current = view.state.current
                started = current.start if current is not None else 0.0
                gangs.append(RunningGang(view.name, tuple(sorted(view.held)), self._priority(view), started))
        return gangs

    def _priority(self, view: JobView) -> int:
        return self._observer.caches.priority(view.spec.priority_class_name if view.spec is not None else None)

    def _returns(self) -> tuple[Returning, ...]:
        """The gangs that restart and have not asked for a placement yet, as their statuses and pods say now."""
        return tuple(
            Returning(
                view.name,
                view.uid,
                view.state.placement.pool,
                nodes,
                self._priority(view),
                view.object.metadata.created,
            )
            for view in self._observer.views.values()
            if view.state.phase == Phase.RESTARTING and view.state.placement is not None
            if view.uid not in self._waiting and view.uid not in self._observer.promises
            if (nodes := self._kept(view))
        )

    def _kept(self, view: JobView) -> tuple[str, ...]:
        if view.spec is None:
            return ()
        workers = self._observer.workers(view.uid)
        job = lifecycle_job(view.spec, deleting=view.object.metadata.deleting, rejected=None)
        return kept_nodes(job, view.state, Sight(workers, self._observer.node_states(view, workers), self._wall(), {}))


def gather_seconds(refused: int) -> float:
    """How long a pass waits for more changes, with so many jobs ``refused`` by the last ones."""
    return GATHER_SECONDS + (CROWD_GATHER_SECONDS - GATHER_SECONDS) * min(refused / CROWD, 1.0)


def searches_per_pass(fleet: Fleet) -> int:
    """Searches in vain that one pass may make, so that it takes some 50 ms at most."""
    return min(max(ROWS_PER_PASS // max(len(fleet.nodes), 1), 8), 256)


def count_idle_nodes(observer: Observer) -> dict[str, int]:
    """Usable training nodes that nobody holds anything on, by pool."""
    idle = {}
    for name, pool in observer.fleet.pools.items():
        if "Training" in pool.spec.roles:
            idle[name] = int(np.count_nonzero(pool.usable & (pool.free_devices == pool.total_devices)))
    return idle
