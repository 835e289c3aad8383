"""When what happened: a line per pod and per job, kept from watch events."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.facts import PodFacts, read_pod


@dataclass(slots=True)
class PodLine:
    """The life of one pod; each time is when its event was received, ``None`` until it was."""

    name: str
    gang: str
    attempt: int
    rank: int
    created: float
    node: str = ""
    bound: float | None = None
    running: float | None = None
    ended: float | None = None
    deleting: float | None = None
    deleted: float | None = None
    succeeded: bool = False

    @property
    def alive(self) -> bool:
        """Whether it runs and nobody has asked it to stop."""
        return self.running is not None and self.ended is None and self.deleting is None and self.deleted is None


@dataclass(slots=True)
class JobLine:
    """The life of one TrainingJob: when it was first Running, when it was Complete or Failed, its last words."""

    created: float
    running: float | None = None
    complete: float | None = None
    failed: float | None = None
    phase: str = ""
    message: str = ""
    attempt: int = 0


class Recorder:
    """Takes pod and TrainingJob events (from other threads) and answers questions about them.

    Pods are kept by uid, gangs are named by the job's name: benchmarks use one namespace.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pods: dict[str, PodLine] = {}
        self._jobs: dict[str, JobLine] = {}

    def on_pod(self, change: str, pod: Mapping[str, Any], at: float) -> None:
        """A consumer of the pod stream."""
        facts = read_pod(pod)
        with self._lock:
            line = self._pods.get(facts.uid)
            if line is None:
                line = self._pods[facts.uid] = _line_of(facts, pod, at)
            if change == "DELETED":
                line.deleted = line.deleted or at
                return
            if facts.node:
                line.node, line.bound = facts.node, line.bound or at
            if facts.phase == "Running":
                line.running = line.running or at
            if facts.ended:
                line.ended, line.succeeded = line.ended or at, facts.phase == "Succeeded"
            if facts.terminating:
                line.deleting = line.deleting or at

    def on_job(self, change: str, job: Mapping[str, Any], at: float) -> None:
        """A consumer of the TrainingJob stream."""
        status = job.get("status") or {}
        with self._lock:
            line = self._jobs.setdefault(job["metadata"]["name"], JobLine(at))
            if change == "DELETED":
                return
            line.phase, line.message = status.get("phase", ""), status.get("message", "")
            line.attempt = status.get("attempt", 0)
            true = {entry["type"] for entry in status.get("conditions") or () if entry["status"] == "True"}
            if line.phase == "Running" or "AllRunning" in true:
                line.running = line.running or at
            if "Complete" in true:
                line.complete = line.complete or at
            if "Failed" in true:
                line.failed = line.failed or at

    def pods(self, gangs: Collection[str] | None = None) -> list[PodLine]:
        """The pods of ``gangs`` (job names), of every gang and none when ``None``."""
        with self._lock:
            return [line for line in self._pods.values() if gangs is None or line.gang in gangs]

    def job(self, name: str) -> JobLine | None:
        """The line of one job."""
        with self._lock:
            return self._jobs.get(name)

    def jobs(self) -> dict[str, JobLine]:
        """All jobs by name."""
        with self._lock:
            return dict(self._jobs)

    def finished(self) -> int:
        """How many jobs are Complete."""
        with self._lock:
            return sum(line.complete is not None for line in self._jobs.values())

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._pods.clear()
            self._jobs.clear()


def _line_of(facts: PodFacts, pod: Mapping[str, Any], at: float) -> PodLine:
    gang = facts.job.partition("/")[2] or (pod["metadata"].get("labels") or {}).get("gang", "")
    return PodLine(pod["metadata"]["name"], gang, facts.gang[1] if facts.gang else 0, facts.rank, at)


def last(times: Collection[float | None]) -> float | None:
    """The latest of ``times``, ``None`` when there are none or one is missing."""
    known = [time for time in times if time is not None]
    return max(known) if known and len(known) == len(times) else None
