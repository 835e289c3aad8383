"""The bound below which no policy goes: the cheapest schedule that serves every step, by one who knows the load.

Count the k-th replica by itself. It is needed in the steps where the load is above k - 1. In a pause between two needs
it either stays, which costs a replica step per step, or goes and is started again in time, which costs the cold start.
So a pause of g steps costs min(g, cold start), and the sum over k is the least of all schedules, because the k-th
replica is needed whenever the (k+1)-th is: pauses nest, and each replica may be decided alone.
"""

from __future__ import annotations

import math

import numpy as np

from benchmarks.policies.base import Floats, Ints, Limits, Outcome


def clairvoyant(load: Floats, cold_steps: int, limits: Limits | None = None) -> Outcome:
    """What the cheapest schedule with ready >= load (or all that are allowed) costs and leaves unserved."""
    limits = limits or Limits()
    wanted = schedule(load, cold_steps, limits)
    unserved = np.maximum(0.0, load - limits.max_replicas).sum()
    return Outcome(float(unserved) / max(float(load.sum()), 1e-12), float(wanted.sum()))


def schedule(load: Floats, cold_steps: int, limits: Limits) -> Ints:
    """Replicas by step, ready and starting, of the cheapest schedule.

    It begins with ``first_ready`` ready replicas: before the first step it was as clairvoyant as after it.
    """
    need = needed(load, limits)
    wanted = np.zeros(len(need), dtype=np.int64)
    for level in range(1, int(need.max()) + 1):
        wanted += _level(need >= level, cold_steps)
    return wanted


def first_ready(load: Floats, cold_steps: int, limits: Limits) -> int:
    """Ready replicas that the schedule begins with: what is needed before anything started now can be ready."""
    return int(needed(load[:cold_steps], limits).max())


def needed(load: Floats, limits: Limits) -> Ints:
    """Ready replicas that serve each step, within the limits."""
    return np.clip(np.ceil(load - 1e-9), limits.min_replicas, limits.max_replicas).astype(np.int64)


def _level(need: np.ndarray[tuple[int], np.dtype[np.bool_]], cold_steps: int) -> Ints:
    # 1 in the steps in which this replica exists.
    there = need.astype(np.int64)
    steps = np.flatnonzero(need)
    for before, after in zip([-math.inf, *steps[:-1].tolist()], steps.tolist(), strict=True):
        pause = after - before - 1
        if pause > 0:
            there[max(0, int(max(before + 1, after - cold_steps))) : after] = 1
    return there
