"""The promises of :mod:`benchmarks.checker`, watched on a live cluster beside every test and benchmark.

    with InvariantWatcher(api, catalogue) as watcher:
        ...
    watcher.expect_clean()

It watches through connections of its own and stays silent until asked. Usable from plain and from async tests alike:
everything happens in its own threads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from benchmarks.checker import SLACK_SECONDS, Checker, Violation, Watched
from benchmarks.streams import EVENTS, JOBS, NODES, PODS, POOLS, Consumer, Stream
from berth.catalogue.records import Catalogue
from berth.devcluster.api import Api

__all__ = ["InvariantWatcher", "Violation"]

_TICK_SECONDS = 0.5
_CATCH_UP_SECONDS = 1.5


class InvariantWatcher:
    """Watches pods, nodes, TrainingJobs, AcceleratorPools and evictions of the whole cluster.

    ``catalogue`` gives the meaning of node labels in discovered pools. ``consumers`` take the same events, by
    collection path, so that a benchmark need not watch twice.
    """

    def __init__(
        self,
        api: Api,
        catalogue: Catalogue | None = None,
        *,
        slack_seconds: float = SLACK_SECONDS,
        consumers: Mapping[str, Consumer] | None = None,
    ) -> None:
        self._checker = Checker(catalogue, slack_seconds=slack_seconds)
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        extra = consumers or {}
        watched: dict[str, Watched] = {NODES: "Node", POOLS: "AcceleratorPool", JOBS: "TrainingJob", PODS: "Pod"}
        self._streams = [
            Stream(api, path, partial(self._see, kind), *([extra[path]] if path in extra else []))
            for path, kind in watched.items()
        ]
        self._evictions = Stream(api, EVENTS, self._see_eviction, fieldSelector="reason=Preempted")
        self._streams.append(self._evictions)
        self._ticker = threading.Thread(target=self._tick, name="invariants", daemon=True)

    def start(self) -> InvariantWatcher:
        """Begin; returns once pods and nodes have been listed."""
        for stream in self._streams:
            stream.start()
        for stream in self._streams:
            if stream.path in (PODS, NODES):
                stream.wait_listed(30)
        self._ticker.start()
        return self

    def stop(self) -> tuple[Violation, ...]:
        """Let the streams catch up, judge what is due, and end."""
        if not self._stopped.is_set():
            time.sleep(_CATCH_UP_SECONDS)
            self._stopped.set()
            for stream in self._streams:
                stream.stop()
            with self._lock:
                self._checker.tick(time.monotonic())
        return self.violations

    @property
    def violations(self) -> tuple[Violation, ...]:
        """Everything found so far."""
        with self._lock:
            return self._checker.violations

    @property
    def longest_partial(self) -> float:
        """Seconds that any gang has had pods running and others not started; normal while a gang comes up."""
        return self._checker.longest_partial

    @property
    def unjudged(self) -> int:
        """Placements that could not be judged for lack of facts."""
        return self._checker.unjudged

    @property
    def unseen(self) -> tuple[str, ...]:
        """Paths of collections that were never listed: of these nothing was judged."""
        return tuple(stream.path for stream in self._streams if not stream.wait_listed(0))

    def expect_clean(self) -> None:
        """Raises: AssertionError naming every broken promise, or what could not be judged."""
        found = [str(violation) for violation in self.violations]
        found += [f"never listed: {path}" for path in self.unseen]
        found += [f"placements that could not be judged: {self.unjudged}"] if self.unjudged else []
        if found:
            raise AssertionError("broken promises:\n" + "\n".join(f"  {line}" for line in found))

    def __enter__(self) -> InvariantWatcher:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _see(self, kind: Watched, change: str, thing: Mapping[str, Any], at: float) -> None:
        with self._lock:
            self._checker.see(kind, change, thing, at)

    def _see_eviction(self, change: str, event: Mapping[str, Any], at: float) -> None:
        if self._evictions.wait_listed(0):  # those of the first list happened before we watched
            self._see("Event", change, event, at)

    def _tick(self) -> None:
        while not self._stopped.wait(_TICK_SECONDS):
            with self._lock:
                self._checker.tick(time.monotonic())
