"""What metrics say of the operator's state.

A scrape runs on a thread of its own, beside the event loop that grows the fleet's arrays and dictionaries. So the loop
takes a picture once a second, of what changed since the last one, and scrapes read only pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from berth.cluster.cache import Cache
from berth.cluster.events import EventRecorder
from berth.cluster.queue import WorkQueue
from berth.controllers.observe import JobKey, Observer
from berth.controllers.scheduler import Scheduler
from berth.fleet.report import PoolReport
from berth.telemetry.metrics import Metrics, Values


@dataclass(frozen=True, slots=True)
class Picture:
    """One moment of the operator; never changed, only replaced."""

    phases: Values = field(default_factory=dict)
    depth: int = 0
    oldest: float = 0.0
    waiting: int = 0
    events: Values = field(default_factory=dict)
    nodes: Values = field(default_factory=dict)
    accelerators: Values = field(default_factory=dict)
    free: Values = field(default_factory=dict)


class Gauges:
    """Takes the pictures (:meth:`take`, from the event loop) and registers what reads them."""

    def __init__(
        self,
        metrics: Metrics,
        observer: Observer,
        scheduler: Scheduler,
        queue: WorkQueue[JobKey],
        recorder: EventRecorder,
        *,
        leading: Callable[[], bool],
        caches: Sequence[Cache[Any]] = (),
    ) -> None:
        self._observer, self._scheduler, self._queue, self._recorder = observer, scheduler, queue, recorder
        self._leading, self._caches = leading, caches
        self._reports: dict[str, tuple[int, PoolReport]] = {}
        self._picture = Picture()
        self._register(metrics)

    def take(self) -> None:
        """Take a picture; only pools that changed since the last one are counted again."""
        pools = self._observer.fleet.pools
        self._reports = {name: self._report(name, pool.version) for name, pool in pools.items()}
        reports = [report for _, report in self._reports.values()]
        self._picture = Picture(
            phases=self._phases(),
            depth=self._queue.depth,
            oldest=self._queue.oldest(),
            waiting=self._scheduler.waiting,
            events={(fate,): float(count) for fate, count in asdict(self._recorder.counts).items()},
            nodes={(report.pool,): float(report.nodes) for report in reports},
            accelerators={(report.pool,): float(report.accelerators) for report in reports},
            free={(report.pool,): float(report.free) for report in reports},
        )

    def _report(self, name: str, version: int) -> tuple[int, PoolReport]:
        known = self._reports.get(name)
        return known if known is not None and known[0] == version else (version, self._observer.fleet.report(name))

    def _phases(self) -> Values:
        phases: dict[tuple[str, ...], float] = {}
        for view in self._observer.views.values():
            label = (str(view.state.phase or "New"),)
            phases[label] = phases.get(label, 0.0) + 1.0
        return phases

    def _staleness(self) -> Values:
        stale: dict[tuple[str, ...], float] = {}
        for cache in self._caches:
            label = (cache.kind.plural,)
            stale[label] = max(stale.get(label, 0.0), cache.staleness())
        return stale

    def _register(self, metrics: Metrics) -> None:
        read = metrics.read
        read("berth_leading", "Whether this replica leads.", (), lambda: {(): float(self._leading())})
        read("berth_watch_staleness_seconds", "Seconds since a sign of life by kind.", ("resource",), self._staleness)
        read("berth_queue_depth", "Jobs that wait for a reconcile.", (), lambda: {(): float(self._picture.depth)})
        read("berth_queue_oldest_seconds", "How long the oldest has waited.", (), lambda: {(): self._picture.oldest})
        read("berth_gangs_waiting", "Gangs that wait for a placement.", (), lambda: {(): float(self._picture.waiting)})
        read("berth_gangs", "Training jobs by phase.", ("phase",), lambda: self._picture.phases)
        read("berth_events_total", "Kubernetes Events by what became of them.", ("fate",), lambda: self._picture.events)
        read("berth_pool_nodes", "Nodes by pool.", ("pool",), lambda: self._picture.nodes)
        read("berth_pool_accelerators", "Accelerators by pool.", ("pool",), lambda: self._picture.accelerators)
        read("berth_pool_accelerators_free", "Free accelerators by pool.", ("pool",), lambda: self._picture.free)
