"""How much demand our planner leaves unserved, beside the autoscalers of the field, on traces of demand.

Steps of 60 s; every policy acts at every step and has seen the load up to the step before; load is the work offered, in
replicas, its peak at 40 of at most 80. Nobody is given history, and every step counts. The unserved share is the sum of
max(0, load - ready) over the sum of the load; the cost is the sum of ready and starting replicas. Our planner, one
configuration for all, is told what share it may leave unserved; it is compared at equal cost with the frontier of all
423 settings of the HPA on the same trace, chosen in hindsight.

``TRACES=<folder>`` (else a seeded stand-in), ``FULL=1`` with the slow rivals, ``OUT=<file>`` for the plot,
``SCALE=small`` for a smoke run. Progress on stderr; on stdout the table, a line per trace, and one JSON object as the
last line.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks import autoscale_cost, autoscale_summary, requests, requests_made
from benchmarks.autoscale_cases import COLD_STARTS, Measured, measure
from benchmarks.autoscale_plot import plot
from benchmarks.policies.dynamo import prophet_missing
from benchmarks.requests import DAY, Trace
from berth.values import ConfigProblem

PLOT = Path("build/bench-autoscale.svg")
SMALL_TRACES, SMALL_STEPS = 2, 2 * DAY

_BEGAN = time.monotonic()


def main() -> int:
    """Run the benchmark; 2 when there is nothing to run it on."""
    small, full = os.environ.get("SCALE") == "small", os.environ.get("FULL") == "1"
    try:
        traces, source, problems = _traces(os.environ.get("TRACES", ""))
    except ConfigProblem as problem:
        print(f"bench-autoscale: {problem}", file=sys.stderr)
        return 2
    if small:
        traces = [_cut(trace) for trace in traces[:SMALL_TRACES]]
    for left_out in problems:
        progress(f"left out: {left_out}")
    if full and (missing := prophet_missing()):
        progress(f"without Prophet: {missing}")
        full = False
    forecast = _forecast(small)  # before the cores are busy
    progress(f"{len(traces)} traces from {source}")
    measured = sorted(_measure(traces, full), key=lambda each: each.name)
    picture = Path(os.environ.get("OUT") or PLOT)
    picture.parent.mkdir(parents=True, exist_ok=True)
    picture.write_text(plot(measured))
    _print(measured, forecast, {"traces": source, "left_out": problems, "plot": str(picture), "small": small})
    return 0


def progress(text: str) -> None:
    """Say what is happening."""
    print(f"[{time.monotonic() - _BEGAN:6.1f} s] {text}", file=sys.stderr, flush=True)


def _traces(folder: str) -> tuple[list[Trace], str, list[str]]:
    if not folder:
        return requests_made.generate(), "the seeded stand-in (no TRACES given)", []
    found = requests.read_folder(Path(folder))
    return list(found.traces), folder, list(found.problems)


def _cut(trace: Trace) -> Trace:
    stepped = None if trace.stepped is None else trace.stepped[:SMALL_STEPS]
    return replace(trace, load=trace.load[:SMALL_STEPS], stepped=stepped)  # not scaled again: no figure of it counts


def _measure(traces: Sequence[Trace], full: bool) -> Iterator[Measured]:
    # The longest first, so that no core ends with one of them alone.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # inherited: one process per core is enough
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = min(cores, len(traces))
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        order = sorted(traces, key=lambda trace: -len(trace.load))
        for done, future in enumerate(as_completed([pool.submit(measure, each, full=full) for each in order]), start=1):
            result = future.result()
            progress(f"{done}/{len(traces)} {autoscale_summary.trace_line(result)}")
            yield result


def _forecast(small: bool) -> dict[str, Any]:
    cost = autoscale_cost.measure(COLD_STARTS, days=1 if small else autoscale_cost.DAYS)
    progress(autoscale_cost.line(cost))
    return asdict(cost)


def _print(measured: Sequence[Measured], forecast: dict[str, Any], facts: dict[str, Any]) -> None:
    rows = autoscale_summary.baselines(measured)
    for line in autoscale_summary.table(rows):
        print(line)
    for trace in measured:
        print(autoscale_summary.trace_line(trace))
    details = {**facts, **autoscale_summary.details(measured), "seconds": round(time.monotonic() - _BEGAN, 1)}
    figures = {**autoscale_summary.summary(measured), "forecast": forecast, "baselines": rows, "details": details}
    print(json.dumps(figures))


if __name__ == "__main__":
    sys.exit(main())
