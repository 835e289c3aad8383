"""A seeded stand-in for traces of demand, one for each way in which demand can be easy or hard to foresee.

None of them is fitted to a public trace. What repeats (office hours, a week), what drifts, what jumps without warning
and what is mostly silence are kept apart, because an autoscaler that is good at one is often bad at another.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.policies.base import Floats
from benchmarks.requests import DAY, Trace, scaled

_Maker = Callable[[np.random.Generator, int], Floats]


def generate(days: int = 12, seed: int = 11) -> list[Trace]:
    """One trace of ``days`` per kind; the same for the same arguments on every machine."""
    seeds = np.random.SeedSequence(seed).spawn(len(_KINDS))
    return [
        Trace(f"made-{name}", scaled(make(np.random.default_rng(child), days * DAY)))
        for (name, make), child in zip(_KINDS.items(), seeds, strict=True)
    ]


def _daily(rng: np.random.Generator, steps: int) -> Floats:
    return _day(steps, 0.2, sharp=1.5) * np.exp(_noise(rng, steps, 0.04, 0.97))


def _weekly(rng: np.random.Generator, steps: int) -> Floats:
    weekend = (np.arange(steps) // DAY) % 7 >= 5
    return _day(steps, 0.1, sharp=3.0) * np.where(weekend, 0.35, 1.0) * np.exp(_noise(rng, steps, 0.06, 0.98))


def _growing(rng: np.random.Generator, steps: int) -> Floats:
    growth = 0.4 + 0.6 * np.arange(steps) / steps
    return growth * _day(steps, 0.5, sharp=1.0) * np.exp(_noise(rng, steps, 0.05, 0.995))


def _batches(rng: np.random.Generator, steps: int) -> Floats:
    # A steady floor, and jobs on the hour, not all of which come.
    comes = np.repeat(rng.random(steps // 60 + 1) < 0.7, 60)[:steps]
    running = np.where((np.arange(steps) % 60 < 12) & comes, 1.0, 0.25)
    return running + np.abs(_noise(rng, steps, 0.02, 0.5))


def _drifting(rng: np.random.Generator, steps: int) -> Floats:
    wander: Floats = np.exp(_noise(rng, steps, 0.45, 0.9995) + _noise(rng, steps, 0.05, 0.9))
    return wander


def _jumping(rng: np.random.Generator, steps: int) -> Floats:
    # The level changes by a factor at moments that nothing announces.
    level = np.zeros(steps)
    for moment in np.cumsum(rng.exponential(DAY / 5, size=steps // DAY * 10)).astype(int):
        if moment < steps:
            level[moment:] += rng.normal(0.0, 0.7)
    jumps: Floats = np.exp(np.clip(level - 0.5 * level.mean(), -2.0, 1.2) + _noise(rng, steps, 0.08, 0.9))
    return jumps


def _spiky(rng: np.random.Generator, steps: int) -> Floats:
    # A few requests, and now and then a burst of minutes that decays.
    load = 0.06 * _day(steps, 0.5, sharp=1.0) * np.exp(_noise(rng, steps, 0.15, 0.8))
    for moment in np.cumsum(rng.exponential(DAY / 8, size=steps // DAY * 16)).astype(int):
        if moment < steps:
            length = min(int(rng.integers(10, 90)), steps - moment)
            load[moment : moment + length] += rng.pareto(2.5) * np.exp(-np.arange(length) / (length / 3))
    return load


_KINDS: dict[str, _Maker] = {
    "daily": _daily,
    "weekly": _weekly,
    "growing": _growing,
    "batches": _batches,
    "drifting": _drifting,
    "jumping": _jumping,
    "spiky": _spiky,
}


def _day(steps: int, floor: float, *, sharp: float) -> Floats:
    # Between ``floor`` at 3 in the morning and 1 at 15:00; the higher ``sharp``, the shorter the peak.
    phase = (np.arange(steps) % DAY) / DAY
    swing: Floats = (0.5 - 0.5 * np.cos(2 * np.pi * (phase - 0.125))) ** sharp
    return floor + (1 - floor) * swing


def _noise(rng: np.random.Generator, steps: int, deviation: float, memory: float) -> Floats:
    # First-order autoregression with this standard deviation.
    shocks = rng.normal(0.0, deviation * np.sqrt(1 - memory**2), size=steps)
    out = np.empty(steps)
    value = 0.0
    for step, shock in enumerate(shocks.tolist()):
        value = memory * value + shock
        out[step] = value
    return out
