"""Traces of training jobs: a CSV file of one's own, or a seeded stand-in.

The file has the columns ``timestamp`` (ISO date and time, or seconds), ``duration`` (seconds) and ``num_gpus``, as the
public Philly trace has; plain or gzipped.
"""

from __future__ import annotations

import csv
import gzip
import io
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from berth.values import ConfigProblem

_COLUMNS = ("timestamp", "duration", "num_gpus")


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job: seconds from the first arrival to its own, seconds it runs, GPUs."""

    arrival: float
    duration: float
    gpus: int


def read(path: Path) -> list[TraceJob]:
    """Every job in the file at ``path``, by arrival. Raises: ConfigProblem with the line."""
    try:
        raw = path.read_bytes()
    except OSError as problem:
        raise ConfigProblem(f"cannot be read: {problem.strerror}", source=str(path)) from problem
    text = gzip.decompress(raw).decode() if raw[:2] == b"\x1f\x8b" else raw.decode()
    rows = csv.DictReader(io.StringIO(text))
    if missing := [name for name in _COLUMNS if name not in (rows.fieldnames or ())]:
        raise ConfigProblem(f"has no column {missing}; needed are {list(_COLUMNS)}", source=str(path), line=1)
    jobs = []
    for row in rows:
        try:
            jobs.append(TraceJob(_seconds(row["timestamp"]), float(row["duration"]), int(row["num_gpus"])))
        except (ValueError, TypeError) as problem:
            raise ConfigProblem(str(problem), source=str(path), line=rows.line_num) from problem
    return _from_first(jobs)


def generate(count: int, seed: int = 7) -> list[TraceJob]:
    """A stand-in of ``count`` jobs: clustered arrivals, sizes by the powers of two, log-normal durations.

    Shaped like public traces of shared GPU clusters: half the jobs last under a few hours and a tail runs for days,
    2, 4 and 8 GPUs make up nearly all, and submissions come in bursts.
    """
    rng = random.Random(seed)
    now, jobs = 0.0, list[TraceJob]()
    while len(jobs) < count:
        now += rng.expovariate(1 / 3600)
        for _ in range(min(1 + int(rng.paretovariate(1.3)), count - len(jobs), 40)):
            size = rng.choices((2, 4, 8, 16, 32), weights=(34, 35, 27, 3, 1))[0]
            jobs.append(TraceJob(now, min(rng.lognormvariate(8.7, 2.6), 5e6), size))
            now += rng.expovariate(1 / 20)
    return _from_first(jobs)


def select(jobs: Sequence[TraceJob], *, count: int, min_gpus: int) -> list[TraceJob]:
    """The last ``count`` jobs of ``min_gpus`` or more: the steady part, for a trace starts in an empty cluster."""
    return _from_first([job for job in jobs if job.gpus >= min_gpus][-count:])


def compress(jobs: Sequence[TraceJob], *, seconds: float, cap_quantile: float = 0.9) -> list[TraceJob]:
    """``jobs`` with durations capped at a quantile, and all time divided so that arrivals span ``seconds``."""
    ordered = sorted(job.duration for job in jobs)
    cap = ordered[min(len(ordered) - 1, int(cap_quantile * len(ordered)))]
    factor = max(jobs[-1].arrival, 1e-9) / seconds
    return [replace(job, arrival=job.arrival / factor, duration=min(job.duration, cap) / factor) for job in jobs]


def nodes_for(jobs: Sequence[TraceJob], *, load: float, gpus_per_node: int, start_seconds: float = 0.0) -> int:
    """Nodes at which ``jobs`` offer ``load``: GPU seconds wanted over GPU seconds there are while they arrive.

    A GPU is wanted for the job's duration and for the ``start_seconds`` that its containers need to start.
    """
    wanted = sum(job.gpus * (job.duration + start_seconds) for job in jobs)
    largest = max(job.gpus for job in jobs)
    gpus = max(wanted / load / jobs[-1].arrival, largest)
    return -int(-gpus // gpus_per_node)


def work(jobs: Sequence[TraceJob]) -> float:
    """GPU seconds of useful work in ``jobs``."""
    return sum(job.gpus * job.duration for job in jobs)


def _from_first(jobs: Sequence[TraceJob]) -> list[TraceJob]:
    ordered = sorted(jobs, key=lambda job: job.arrival)
    return [replace(job, arrival=job.arrival - ordered[0].arrival) for job in ordered]


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return datetime.fromisoformat(text).timestamp()
