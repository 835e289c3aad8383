"""What every cluster benchmark shares: a cluster of its own, the operator on it, and eyes beside it.

A benchmark reports progress on stderr and prints one JSON object as its last line on stdout. ``SCALE=small`` makes it a
smoke run of a minute whose figures mean nothing.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import yaml

from benchmarks import writes
from benchmarks.invariants import InvariantWatcher
from benchmarks.manifests import NAMESPACE, Json
from benchmarks.recorder import Recorder
from benchmarks.streams import JOBS, PODS
from benchmarks.usage import Meter
from berth.catalogue.load import load as load_catalogue
from berth.devcluster.api import Api
from berth.devcluster.binaries import Binaries
from berth.devcluster.cluster import DevCluster, reap
from berth.devcluster.components import Features
from berth.devcluster.fleets import SimulatedFleet
from berth.devcluster.operator import OPERATOR_NAMESPACE, install_chart, run_operator
from berth.devcluster.problems import ApiRefused
from berth.values import BerthError

T = TypeVar("T")

SMALL = os.environ.get("SCALE") == "small"
JOBS_IN_NAMESPACE = f"/apis/berth.dev/v1alpha1/namespaces/{NAMESPACE}/trainingjobs"
PODS_IN_NAMESPACE = f"/api/v1/namespaces/{NAMESPACE}/pods"
STAGES = Path(__file__).parent / "data" / "stages.yaml"

_THREADS = 16
_BEGAN = time.monotonic()


class BenchmarkProblem(BerthError):
    """A measurement could not be made; the message says what was waited for."""


def progress(text: str) -> None:
    """Say what is happening, with the seconds since the start."""
    print(f"[{time.monotonic() - _BEGAN:6.1f} s] {text}", file=sys.stderr, flush=True)


def emit(result: Mapping[str, Any]) -> None:
    """Print the result: one JSON object, the last line."""
    print(json.dumps(result), flush=True)


def end_cleanly() -> None:
    """From now on a SIGTERM stops what was started, as an interrupt does."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def each(action: Callable[[T], object], items: Iterable[T]) -> None:
    """``action`` on every item, a few at a time; the first error is raised."""
    with ThreadPoolExecutor(_THREADS) as pool:
        for _ in pool.map(action, items):
            pass


def kwok_file(folder: Path, *, lease_seconds: int = 0) -> Path:
    """The simulator's configuration: the benchmark stages, nodes with leases of ``lease_seconds`` (0: none)."""
    options = {
        "manageAllNodes": True,
        "nodeLeaseDurationSeconds": lease_seconds,
        "nodeLeaseParallelism": 4,
        "nodePlayStageParallelism": 8,
        "podPlayStageParallelism": 16,
    }
    head = {"apiVersion": "config.kwok.x-k8s.io/v1alpha1", "kind": "KwokConfiguration", "options": options}
    path = folder / "kwok.yaml"
    path.write_text(f"{yaml.safe_dump(head, sort_keys=False)}---\n{STAGES.read_text()}")
    return path


class Bench:
    """A cluster with ``fleet``, the chart, the operator as a process with the chart's token, and the watchers.

    A context manager. The operator's writes are in :attr:`audit`; the invariants are judged all the while.
    """

    def __init__(
        self,
        name: str,
        fleet: SimulatedFleet,
        *,
        features: Features | None = None,
        lease_seconds: int = 0,
        operator_args: Sequence[str] = (),
    ) -> None:
        self._name, self._fleet, self._lease_seconds = name, fleet, lease_seconds
        self._operator_args = operator_args
        self._features = features or Features(qps=500, burst=1000)
        self._stack = ExitStack()

    def __enter__(self) -> Bench:
        with ExitStack() as stack:
            self._bring_up(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            progress(f"{self._jobs_not_done()}; the operator's last lines:\n{self.operator.process.tail()}")
        self._stack.close()

    def _bring_up(self, stack: ExitStack) -> None:
        end_cleanly()
        reap()
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="berth-bench-")))
        self.audit = writes.AuditLog(folder, f"system:serviceaccounts:{OPERATOR_NAMESPACE}")
        binaries = self.audit.kept_by(Binaries.ensure(progress))
        progress(f"bringing up a control plane with {len(self._fleet.nodes)} nodes")
        self.cluster = DevCluster.up(
            f"{self._name}-{os.getpid()}",
            fleet=self._fleet,
            features=self._features,
            binaries=binaries,
            stages=kwok_file(folder, lease_seconds=self._lease_seconds),
            owned=True,
        )
        stack.callback(self.cluster.down)
        self.api: Api = self.cluster.api()
        self.recorder = Recorder()
        install_chart(self.cluster)
        self.watcher = InvariantWatcher(
            self.api,
            load_catalogue(),
            consumers={PODS: self.recorder.on_pod, JOBS: self.recorder.on_job},
        )
        stack.callback(self.watcher.stop)
        self.watcher.start()
        progress("starting the operator")
        self.operator = stack.enter_context(run_operator(self.cluster, args=self._operator_args))

    def pids(self) -> dict[str, int]:
        """Process ids by component, the operator among them."""
        return {name: process.pid for name, process in self.cluster.processes.items()} | {"operator": self.operator.pid}

    def meter(self) -> Meter:
        """A meter over every process of the cluster."""
        return Meter(self.pids())

    def submit(self, jobs: Sequence[Json]) -> float:
        """Create TrainingJobs; the time just before the first."""
        began = time.monotonic()
        each(lambda job: self.api.post(JOBS_IN_NAMESPACE, job), jobs)
        return began

    def until(self, what: str, condition: Callable[[], bool], seconds: float, *, step: float = 0.05) -> None:
        """Wait for ``condition``. Raises: BenchmarkProblem, or ComponentDied when a process ended meanwhile."""
        deadline = time.monotonic() + seconds
        while not condition():
            self.cluster.expect_running()
            self.operator.expect_alive()
            if time.monotonic() > deadline:
                raise BenchmarkProblem(f"{what}: not within {seconds:.0f} s; {self._jobs_not_done()}")
            time.sleep(step)

    def clean(self) -> None:
        """Delete every TrainingJob and pod, wait until they are gone, and forget them."""
        for path in (JOBS_IN_NAMESPACE, PODS_IN_NAMESPACE):
            names = [thing["metadata"]["name"] for thing in self.api.list(path, resourceVersion="0")]
            each(partial(self._delete, path), names)
        self.until("an empty cluster", self._empty, 300, step=0.5)
        time.sleep(3)  # let the last writes land outside of what is measured next
        self.recorder.clear()
        self.audit.read()

    def settled_writes(self) -> writes.Counts:
        """The operator's writes since the last reading, once none has come for two seconds (at most twenty)."""
        counts = self.audit.counts()
        for _ in range(10):
            time.sleep(2)
            more = self.audit.counts()
            counts += more
            if not any(write.resource != "leases" for write in more):
                break
        return counts

    def promises(self) -> dict[str, Any]:
        """What the invariants found, for the result."""
        found = [str(violation) for violation in self.watcher.violations]
        found += [f"Unseen: {path}: was never listed" for path in self.watcher.unseen]
        for violation in found:
            progress(f"BROKEN PROMISE {violation}")
        return {
            "violations": found,
            "longest_partial_s": round(self.watcher.longest_partial, 2),
            "unjudged": self.watcher.unjudged,
        }

    def _delete(self, path: str, name: str) -> None:
        try:
            self.api.delete(f"{path}/{name}", propagationPolicy="Background", gracePeriodSeconds=0)
        except ApiRefused as refused:
            if refused.status != 404:
                raise

    def _empty(self) -> bool:
        return not any(self.api.get(path, limit=1)["items"] for path in (JOBS_IN_NAMESPACE, PODS_IN_NAMESPACE))

    def _jobs_not_done(self) -> str:
        lines = [(name, line) for name, line in self.recorder.jobs().items() if line.complete is None]
        shown = "; ".join(f"{name} {line.phase or 'no phase'}: {line.message}" for name, line in lines[:3])
        return f"{len(lines)} jobs are not complete, such as {shown}" if lines else "no job is open"
