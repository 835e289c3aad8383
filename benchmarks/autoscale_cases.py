"""One trace under every policy: what one process of the autoscaling benchmark computes.

A case is one promise with one cold start. The planner is told its promise beforehand; the rivals have no such notion,
so each is measured with all of its settings, and the best for a promise is chosen afterwards, in its favour.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from benchmarks import frontier
from benchmarks.frontier import Frontier
from benchmarks.policies.base import (
    STEP_SECONDS,
    Floats,
    Limits,
    Outcome,
    Policy,
    simulate_panel,
    simulate_together,
)
from benchmarks.policies.clairvoyant import clairvoyant
from benchmarks.policies.hpa import HpaPanel
from benchmarks.policies.rivals import FULL_RIVALS, HPA, RIVALS
from benchmarks.requests import Trace, daily_autocorrelation

PROMISES = (0.001, 0.005, 0.02)
COLD_STARTS = (60, 180, 480)  # seconds
LIMITS = Limits(min_replicas=1, max_replicas=80)
PATTERNED = 0.8  # daily autocorrelation from which a trace counts as one whose day repeats
SLACK = 1.2  # a promise counts as kept up to this factor

_LOWEST_TARGET = 0.10


@dataclass(frozen=True, slots=True)
class Case:
    """Our planner at one promise (unserved share) and cold start (seconds).

    ``ratio``: unserved share over that of the HPA's frontier at equal cost, None where both are below the floor.
    ``outside``: there is no equal cost. ``unreachable``: the HPA at its lowest target cannot keep the promise.
    """

    promise: float
    cold_seconds: int
    outcome: Outcome
    over_clairvoyant: float
    ratio: float | None
    outside: bool
    unreachable: bool

    @property
    def kept(self) -> bool:
        """Whether the promise was kept, with the slack that the rules allow."""
        return self.outcome.unserved <= SLACK * self.promise


@dataclass(frozen=True, slots=True)
class Measured:
    """One trace. ``rivals`` and ``clairvoyant`` by cold start in seconds; rivals' outcomes in the order of settings."""

    name: str
    steps: int
    correlation: float
    cases: tuple[Case, ...]
    stepped: tuple[Case, ...]
    rivals: Mapping[str, Mapping[int, tuple[Outcome, ...]]]
    clairvoyant: Mapping[int, Outcome]
    seconds: float

    @property
    def patterned(self) -> bool:
        """Whether a day of it is like the next."""
        return self.correlation >= PATTERNED


def measure(trace: Trace, *, full: bool = False) -> Measured:
    """Every policy on ``trace``; ``full`` with the slow rivals. Stepped series are run for our planner only."""
    began = time.monotonic()
    makers = {**RIVALS, **(FULL_RIVALS if full else {})}
    panels = {name: make() for name, make in makers.items()}
    rivals = {
        name: {cold: tuple(simulate_panel(panel, trace.load, _steps(cold), LIMITS)) for cold in COLD_STARTS}
        for name, panel in panels.items()
    }
    stepped: tuple[Case, ...] = ()
    if trace.stepped is not None and planner_exists():
        hpa = {c: tuple(simulate_panel(HpaPanel(), trace.stepped, _steps(c), LIMITS)) for c in COLD_STARTS}
        stepped = _cases(trace.stepped, hpa)
    return Measured(
        name=trace.name,
        steps=len(trace.load),
        correlation=daily_autocorrelation(trace.load),
        cases=_cases(trace.load, rivals[HPA]),
        stepped=stepped,
        rivals=rivals,
        clairvoyant={cold: clairvoyant(trace.load, _steps(cold), LIMITS) for cold in COLD_STARTS},
        seconds=time.monotonic() - began,
    )


def planner_exists() -> bool:
    """Whether this checkout has our planner."""
    return importlib.util.find_spec("benchmarks.policies.ours") is not None


def _cases(load: Floats, hpa: Mapping[int, Sequence[Outcome]]) -> tuple[Case, ...]:
    if not planner_exists():
        return ()
    pairs = list(product(COLD_STARTS, PROMISES))
    policies: Sequence[Policy] = importlib.import_module("benchmarks.policies.ours").planners([p for _, p in pairs])
    runs = [(policy, _steps(cold)) for policy, (cold, _) in zip(policies, pairs, strict=True)]
    outcomes = simulate_together(runs, load, LIMITS)
    return tuple(
        judge(outcome, promise, cold, hpa[cold], clairvoyant(load, _steps(cold), LIMITS))
        for (cold, promise), outcome in zip(pairs, outcomes, strict=True)
    )


def judge(outcome: Outcome, promise: float, cold_seconds: int, hpa: Sequence[Outcome], bound: Outcome) -> Case:
    """What ``outcome`` is worth beside all settings of the HPA and the clairvoyant ``bound``."""
    compared = frontier.compare(outcome, Frontier.of(hpa))
    panel = HpaPanel()
    lowest = [each.unserved for each, target in zip(hpa, panel.targets, strict=True) if target == _LOWEST_TARGET]
    return Case(
        promise=promise,
        cold_seconds=cold_seconds,
        outcome=outcome,
        over_clairvoyant=outcome.cost / bound.cost,
        ratio=compared.ratio,
        outside=compared.outside,
        unreachable=min(lowest) > promise,
    )


def _steps(cold_seconds: int) -> int:
    return round(cold_seconds / STEP_SECONDS)
