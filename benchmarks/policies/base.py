"""What a policy of the autoscaling benchmark is, and the one simulation that judges all of them.

Time goes in steps of 60 s. At each step replicas that have started become ready, the policy is told the load of the
step before and answers how many replicas there shall be; a replica added at step t carries load from step
t + ``cold_steps``, one taken away is gone at once, those still starting first. Load and replicas have one unit: what a
replica carries at its service level. The load is the work offered, with what queues, so it is not capped by what the
replicas could serve.

A ``Policy`` is one setting with whole numbers. A ``Panel`` is many settings of one algorithm as arrays, because a sweep
of hundreds of settings over tens of thousands of steps is only affordable side by side. Both are judged alike.

The planner of this project is ``benchmarks.policies.ours.planners(promises)``: one ``Policy`` per promised unserved
share. The benchmark calls it once per trace, with every case of promise and cold start, and runs all of them in
lockstep over the same load, so that they may share what they learn from it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

STEP_SECONDS = 60.0

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Limits:
    """Replicas that a service keeps at least and has at most, those starting included."""

    min_replicas: int = 1
    max_replicas: int = 80


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it: ``unserved`` as a share of all load, ``cost`` in replica steps, ready and starting."""

    unserved: float
    cost: float


class Policy(Protocol):
    """One setting of one autoscaler."""

    def reset(self, cold_steps: int, limits: Limits) -> None:
        """Forget everything; a new service begins whose replicas need ``cold_steps`` steps to start."""

    def decide(self, step: int, seen: float | None, ready: int, starting: int) -> int:
        """Replicas wanted from ``step`` on, ready and starting together.

        ``seen`` is the load of ``step - 1``, None at the first step. ``ready`` counts those that carry load in ``step``
        unless taken away, ``starting`` those that do not yet.
        """


class Panel(Protocol):
    """Settings of one algorithm side by side; every array has one value per setting."""

    @property
    def settings(self) -> Sequence[str]:
        """What each setting is called, in the order of the arrays."""

    def reset(self, cold_steps: int, limits: Limits) -> None:
        """As ``Policy.reset``."""

    def decide(self, step: int, seen: float | None, ready: Ints, starting: Ints) -> Ints:
        """As ``Policy.decide``, for every setting."""


def first_replicas(load: Floats, limits: Limits) -> int:
    """Ready replicas that every policy starts with: what the first step needs. No policy is given history."""
    return min(max(math.ceil(float(load[0])), limits.min_replicas), limits.max_replicas)


def simulate(policy: Policy, load: Floats, cold_steps: int, limits: Limits | None = None) -> Outcome:
    """Run ``policy`` over ``load``, one value per step, in replicas; ``cold_steps`` is at least 1."""
    return simulate_together([(policy, cold_steps)], load, limits)[0]


def simulate_together(
    cases: Sequence[tuple[Policy, int]], load: Floats, limits: Limits | None = None, first: int | None = None
) -> list[Outcome]:
    """Run policies, each with its cold start in steps, over one ``load`` in lockstep; outcomes in their order.

    All are asked about a step before any is asked about the next. ``first`` replaces ``first_replicas``.
    """
    limits = limits or Limits()
    first = first_replicas(load, limits) if first is None else first
    services = [_Service(policy, cold, limits, first) for policy, cold in cases]
    seen: float | None = None
    for step, now in enumerate(load.tolist()):
        for service in services:
            service.step(step, seen, now)
        seen = now
    total = max(float(load.sum()), 1e-12)
    return [Outcome(service.unserved / total, float(service.cost)) for service in services]


class _Service:
    # The replicas of one case, and the account of what it got and paid.

    __slots__ = ("cost", "limits", "pipeline", "policy", "ready", "starting", "unserved")

    def __init__(self, policy: Policy, cold_steps: int, limits: Limits, first: int) -> None:
        self.policy, self.limits = policy, limits
        self.ready, self.starting = first, 0
        self.pipeline = deque([0] * cold_steps)  # replicas added at the last steps, the oldest first
        self.unserved, self.cost = 0.0, 0
        policy.reset(cold_steps, limits)

    def step(self, step: int, seen: float | None, now: float) -> None:
        matured = self.pipeline.popleft()
        self.ready += matured
        self.starting -= matured
        wanted = self.policy.decide(step, seen, self.ready, self.starting)
        wanted = min(max(wanted, self.limits.min_replicas), self.limits.max_replicas)
        change = wanted - self.ready - self.starting
        self.pipeline.append(max(change, 0))
        if change < 0:
            self.ready -= -change - _cancel(self.pipeline, -change)
        self.starting = wanted - self.ready
        self.cost += wanted
        self.unserved += max(0.0, now - self.ready)


def simulate_panel(panel: Panel, load: Floats, cold_steps: int, limits: Limits | None = None) -> list[Outcome]:
    """``simulate`` for every setting of ``panel``; one outcome per setting, in their order."""
    limits = limits or Limits()
    count = len(panel.settings)
    ready = np.full(count, first_replicas(load, limits), dtype=np.int64)
    starting = np.zeros(count, dtype=np.int64)
    pipeline = np.zeros((cold_steps, count), dtype=np.int64)  # row ``step % cold_steps``: added at that step
    panel.reset(cold_steps, limits)
    unserved, cost = np.zeros(count), np.zeros(count)
    seen: float | None = None
    for step, now in enumerate(load.tolist()):
        row = pipeline[step % cold_steps]
        ready, starting = ready + row, starting - row
        wanted = np.clip(panel.decide(step, seen, ready, starting), limits.min_replicas, limits.max_replicas)
        change = wanted - ready - starting
        np.maximum(change, 0, out=row)
        drop = np.maximum(-change, 0)
        if drop.any():
            ready = ready - _cancel_rows(pipeline, step, drop)
        starting = wanted - ready
        cost += wanted
        unserved += np.maximum(0.0, now - ready)
        seen = now
    total = max(float(load.sum()), 1e-12)
    return [Outcome(float(lost) / total, float(paid)) for lost, paid in zip(unserved, cost, strict=True)]


def _cancel(pipeline: deque[int], count: int) -> int:
    # The youngest first: they have the longest way to go. Returns how many were still starting.
    left = count
    for index in range(len(pipeline) - 1, -1, -1):
        taken = min(pipeline[index], left)
        pipeline[index] -= taken
        left -= taken
    return count - left


def _cancel_rows(pipeline: Ints, step: int, count: Ints) -> Ints:
    # As ``_cancel``, for every setting; returns what the ready ones must give.
    left = count
    for age in range(len(pipeline)):
        row = pipeline[(step - age) % len(pipeline)]
        taken = np.minimum(row, left)
        row -= taken
        left = left - taken
    return left
