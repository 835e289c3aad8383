"""A real cluster's jobs, replayed in minutes: does everything finish, and how much time does the API cost?

2,000 jobs of two or more GPUs from a trace arrive over four minutes, each as that many workers of one GPU, on a fleet
at which they offer a load of 0.9. Durations are capped at their 90th percentile and shrunk by the factor that shrinks
the arrivals. ``TRACE=<file>`` names the trace; without it a seeded stand-in is used, and the result says so.

Utilisation is the trace's GPU time over what the fleet could have given from the first arrival to the last completion,
so a pod that is slow to stop earns nothing. The ideal is the same decisions with no API server in between.
"""

from __future__ import annotations

import os
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import ideal, manifests, trace
from benchmarks.harness import JOBS_IN_NAMESPACE, SMALL, Bench, BenchmarkProblem, emit, progress
from benchmarks.trace import TraceJob
from berth.catalogue.load import load as load_catalogue
from berth.fleet.records import NodeFacts
from berth.values import parse_resources

COUNT, ARRIVAL_SECONDS = (60, 30.0) if SMALL else (2000, 240.0)
MIN_GPUS, GPUS_PER_NODE, LOAD = 2, 8, 0.9
NODES_PER_RACK = 8
START_SECONDS = 1.0  # as data/stages.yaml has it
CPU = "4"
START_TIMEOUT = "30s"
FINISH_SECONDS = 240.0
PREFERRED = "rack"
SUBMITTERS = 8


def load_jobs(path: str | None) -> tuple[list[TraceJob], str]:
    """The jobs to replay and where they come from."""
    if path:
        jobs, source = trace.read(Path(path)), Path(path).name
    else:
        jobs, source = trace.generate(COUNT), "generated, seed 7; give TRACE=<file> for a real one"
    chosen = trace.select(jobs, count=COUNT, min_gpus=MIN_GPUS)
    return trace.compress(chosen, seconds=ARRIVAL_SECONDS), source


def play(bench: Bench, jobs: Sequence[TraceJob]) -> tuple[float, float]:
    """Submit every job at its time and wait for the last: when the first was due, and the latest a submit was late."""
    began = time.monotonic() + 0.5
    lock = threading.Lock()
    left = iter(enumerate(jobs))
    lateness = [0.0]

    def submit() -> None:
        while True:
            with lock:
                index, job = next(left, (-1, None))
            if job is None:
                return
            time.sleep(max(0.0, began + job.arrival - time.monotonic()))
            manifest = manifests.training_job(
                _name(index), job.gpus, gpus=1, cpu=CPU, preferred=PREFERRED,
                run_seconds=job.duration, start_timeout=START_TIMEOUT,
            )  # fmt: skip
            lateness.append(time.monotonic() - began - job.arrival)
            bench.api.post(JOBS_IN_NAMESPACE, manifest)

    threads = [threading.Thread(target=submit, daemon=True) for _ in range(SUBMITTERS)]
    for thread in threads:
        thread.start()
    limit = ARRIVAL_SECONDS + FINISH_SECONDS
    try:
        for share in (0.25, 0.5, 0.75, 1.0):
            need = int(share * len(jobs))
            bench.until(
                f"{need} jobs Complete", partial(_enough, bench, need), began + limit - time.monotonic(), step=0.25
            )
            progress(f"{bench.recorder.finished()} jobs complete {time.monotonic() - began:.0f} s after the first")
    except BenchmarkProblem as problem:
        progress(str(problem))
    return began, max(lateness)


def _enough(bench: Bench, need: int) -> bool:
    return bench.recorder.finished() >= need


def facts_of(nodes: Sequence[manifests.Json]) -> list[NodeFacts]:
    """The fleet's nodes as decisions take them."""
    return [
        NodeFacts(
            node["metadata"]["name"],
            node["metadata"]["name"],
            node["metadata"]["labels"],
            parse_resources(node["status"]["allocatable"]),
        )
        for node in nodes
    ]


def waits_of(bench: Bench, jobs: Sequence[TraceJob], began: float) -> list[float]:
    """Seconds from each job's due arrival until all its pods ran."""
    by_gang: dict[str, list[float]] = {}
    for pod in bench.recorder.pods():
        if pod.running is not None:
            by_gang.setdefault(pod.gang, []).append(pod.running)
    names = [_name(index) for index in range(len(jobs))]
    return [max(by_gang[name]) - began - job.arrival for name, job in zip(names, jobs, strict=True) if name in by_gang]


def main() -> None:
    """Replay, and print the result."""
    jobs, source = load_jobs(os.environ.get("TRACE"))
    count = trace.nodes_for(jobs, load=LOAD, gpus_per_node=GPUS_PER_NODE, start_seconds=START_SECONDS)
    devices = count * GPUS_PER_NODE
    fleet = manifests.fleet(count, per_rack=NODES_PER_RACK)
    pods = sum(job.gpus for job in jobs)
    progress(f"{len(jobs)} jobs of {pods} pods from {source}, on {count} nodes of {GPUS_PER_NODE}")
    best = ideal.run(
        load_catalogue(), facts_of(fleet.nodes), jobs,
        cpu_millicores=int(CPU) * 1000, start_seconds=START_SECONDS, preferred=PREFERRED,
    )  # fmt: skip
    progress(f"without API delay the last job ends after {best.makespan:.1f} s")
    with Bench("bench-replay", fleet) as bench, bench.meter() as meter:
        began, late = play(bench, jobs)
        waits = waits_of(bench, jobs, began)
        lines = [bench.recorder.job(_name(index)) for index in range(len(jobs))]
        promises = bench.promises()
    ended = [line.complete if line else None for line in lines]
    makespan = max(filter(None, ended), default=time.monotonic()) - began
    done = [job for job, end in zip(jobs, ended, strict=True) if end is not None]
    broken = [text.partition(":")[0] for text in promises["violations"]]
    result: dict[str, Any] = {
        "jobs": len(jobs),
        "finished": len(done),
        "partial_gangs": broken.count("PartialGang"),
        "oversold_nodes": broken.count("NodeOversold") + broken.count("NodeOverpromised"),
        "utilisation": round(trace.work(done) / (devices * makespan), 4),
        "ideal_utilisation": round(best.utilisation(jobs, devices), 4),
        "trace": source,
        "nodes": count,
        "pods": pods,
        "makespan_s": round(makespan, 1),
        "ideal_makespan_s": round(best.makespan, 1),
        "wait_s": _quantiles(waits),
        "ideal_wait_s": _quantiles(best.waits),
        "submit_late_s": round(late, 2),
        "promises": promises,
        "cpu_s": meter.cpu,
        "foreign_cores": meter.foreign_cores,
    }
    emit(result)
    sys.exit(len(done) < len(jobs) or bool(promises["violations"]))


def _name(index: int) -> str:
    return f"replay-{index:05d}"


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    if not ordered:
        return {}
    return {
        "mean": round(statistics.fmean(ordered), 2),
        "p50": round(statistics.median(ordered), 2),
        "p90": round(ordered[int(0.9 * (len(ordered) - 1))], 2),
    }


if __name__ == "__main__":
    main()
