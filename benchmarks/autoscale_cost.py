"""What the forecaster itself costs, measured in the run that judges what it gains.

A richer method has to earn its place against these figures, so they are taken on this machine and not remembered. They
are of one process without rivals beside it, on a seeded demand that swings and is noisy.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import tracemalloc
from dataclasses import dataclass

import numpy as np

from benchmarks.policies.base import STEP_SECONDS, Floats
from berth.inference.forecast.model import DemandModel

DAYS = 3
PROMISE = 0.005
_IMPORT = "import numpy, time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"
_MODEL = "berth.inference.forecast.model"
_OFTEN = 95  # percentile; one step in ten chooses anew among the candidates


@dataclass(frozen=True, slots=True)
class ForecastCost:
    """``import_ms``: in a new interpreter that has numpy. Per service, and the worst of the cold starts:

    ``step_ms`` and ``refit_ms``: to hear a step and answer, in the median and where candidates are chosen anew;
    ``fit_ms``: to take in ``fit_days`` of history after a restart; ``memory_kb`` what it then holds, ``record_bytes``
    what a restart keeps of it.
    """

    import_ms: float
    step_ms: float
    refit_ms: float
    fit_ms: float
    fit_days: int
    memory_kb: float
    record_bytes: int


def measure(cold_seconds: tuple[int, ...], *, days: int = DAYS) -> ForecastCost:
    """The cost at each cold start over ``days`` of steps. Raises: CalledProcessError where it cannot be imported."""
    load = _load(days)
    steps, refits, fits, memory, records = zip(*(_service(load, cold) for cold in cold_seconds), strict=True)
    return ForecastCost(
        import_ms=round(_import_seconds() * 1e3, 1),
        step_ms=round(max(steps) * 1e3, 3),
        refit_ms=round(max(refits) * 1e3, 3),
        fit_ms=round(max(fits) * 1e3, 1),
        fit_days=days,
        memory_kb=round(max(memory) / 1e3, 1),
        record_bytes=max(records),
    )


def line(cost: ForecastCost) -> str:
    """``cost`` as text."""
    return (
        f"forecaster: import {cost.import_ms:.0f} ms, step {cost.step_ms:.2f} ms, refit {cost.refit_ms:.2f} ms,"
        f" fit of {cost.fit_days} days {cost.fit_ms:.0f} ms, {cost.memory_kb:.0f} kB and a record of"
        f" {cost.record_bytes} bytes a service"
    )


def _load(days: int) -> Floats:
    minutes = np.arange(days * 1440)
    load: Floats = 5 + 4 * np.sin(minutes / 230) + np.random.default_rng(1).random(len(minutes))
    return load


def _import_seconds() -> float:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", _IMPORT.format(_MODEL)]
    return float(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def _service(load: Floats, cold: int) -> tuple[float, float, float, float, int]:
    # Seconds of a step, of a refit and of the fit, bytes of memory and of the record.
    samples = [(step * STEP_SECONDS, value) for step, value in enumerate(load.tolist())]
    model = DemandModel(STEP_SECONDS, highest=80)
    spent = np.empty(len(samples))
    for step, (at, value) in enumerate(samples):
        began = time.perf_counter()
        model.observe(at, value)
        model.target(at + STEP_SECONDS, cold, PROMISE)
        spent[step] = time.perf_counter() - began
    fresh = DemandModel(STEP_SECONDS, highest=80)
    began = time.perf_counter()
    fresh.replay(samples, cold)
    fit = time.perf_counter() - began
    packed = model.pack()
    return float(np.median(spent)), float(np.percentile(spent, _OFTEN)), fit, _memory(packed), len(packed)


def _memory(packed: bytes) -> float:
    DemandModel.unpack(packed)  # what is only allocated once, for all services
    tracemalloc.start()
    try:
        held = DemandModel.unpack(packed)
        size = float(tracemalloc.get_traced_memory()[0])
        del held
        return size
    finally:
        tracemalloc.stop()
