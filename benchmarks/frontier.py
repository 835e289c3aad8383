"""Two autoscalers compared at equal cost, because either can buy a smaller unserved share with more replicas.

A rival's frontier is made of its settings that no other of its settings beats in both cost and unserved share. Between
neighbours the logarithm of the unserved share is taken to be linear in cost. Below ``FLOOR`` differences mean nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.policies.base import Outcome

FLOOR = 1e-5


@dataclass(frozen=True, slots=True)
class Frontier:
    """The settings of one autoscaler that none of its others beats, from the cheapest to the dearest."""

    points: tuple[Outcome, ...]

    @staticmethod
    def of(outcomes: Iterable[Outcome]) -> Frontier:
        """The non-dominated of ``outcomes``, of which there is at least one."""
        best: list[Outcome] = []
        for outcome in sorted(outcomes, key=lambda each: (each.cost, each.unserved)):
            if not best or outcome.unserved < best[-1].unserved:
                best.append(outcome)
        return Frontier(tuple(best))

    def unserved(self, cost: float) -> float:
        """Unserved share at ``cost``, not below ``FLOOR``; outside the range that of the nearest end."""
        costs = [point.cost for point in self.points]
        logs = [math.log(max(point.unserved, FLOOR)) for point in self.points]
        return math.exp(float(np.interp(cost, costs, logs)))

    def reaches(self, cost: float) -> bool:
        """Whether ``cost`` lies between the cheapest and the dearest point."""
        return self.points[0].cost <= cost <= self.points[-1].cost

    def cheapest(self, promise: float) -> Outcome | None:
        """The cheapest setting that leaves at most ``promise`` unserved; None when there is none."""
        return next((point for point in self.points if point.unserved <= promise), None)


@dataclass(frozen=True, slots=True)
class Comparison:
    """``ratio`` of unserved shares at equal cost; None when both are below the floor. ``outside``: no equal cost."""

    ratio: float | None
    outside: bool


def compare(outcome: Outcome, rival: Frontier) -> Comparison:
    """``outcome`` over ``rival`` at the cost of ``outcome``; below 1 is better than the rival."""
    theirs, outside = rival.unserved(outcome.cost), not rival.reaches(outcome.cost)
    if outcome.unserved <= FLOOR and theirs <= FLOOR * (1 + 1e-9):
        return Comparison(None, outside)
    return Comparison(max(outcome.unserved, FLOOR) / theirs, outside)


def geomean(values: Sequence[float]) -> float | None:
    """Geometric mean; None of nothing."""
    return math.exp(sum(math.log(value) for value in values) / len(values)) if values else None
