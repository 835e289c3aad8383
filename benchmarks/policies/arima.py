"""An automatic ARIMA(p, d, 0) that is cheap enough to be refitted every hour on every trace.

Libraries search p, d and q by maximum likelihood and need seconds per fit on a day of minutes. Here d comes from the
KPSS test of a constant level, as there, p from the corrected Akaike criterion, coefficients from least squares; moving
average terms are left to a longer p. A series in which nothing is found is taken again as log(1 + x), as Dynamo does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from benchmarks.policies.base import Floats

MAX_ORDER = 5
MAX_DIFFERENCES = 2
KPSS_CRITICAL = 0.463  # of a constant level at 5 %


@dataclass(frozen=True, slots=True)
class AutoRegression:
    """x after ``differences`` differences = constant + sum of coefficients times the values before, latest first."""

    differences: int
    constant: float
    coefficients: tuple[float, ...]
    logged: bool = False

    @property
    def reach(self) -> int:
        """How many last values a forecast needs."""
        return len(self.coefficients) + self.differences + 1

    @staticmethod
    def fit(values: Floats) -> AutoRegression:
        """The model of ``values``, at least five."""
        model = _fit(values, logged=False)
        if model.coefficients or values.min() == values.max():
            return model
        return _fit(np.log1p(np.maximum(values, 0.0)), logged=True)

    def next(self, recent: Sequence[float]) -> float:
        """The value after ``recent`` (as many as ``reach``, or all there are), not below 0."""
        series = [math.log1p(max(value, 0.0)) for value in recent] if self.logged else list(recent)
        answer = 0.0
        for _ in range(self.differences):
            if len(series) < 2:
                break
            answer += series[-1]
            series = [after - before for before, after in pairwise(series)]
        latest = series[::-1][: len(self.coefficients)]
        answer += self.constant + sum(a * x for a, x in zip(self.coefficients, latest, strict=False))
        return max(0.0, math.expm1(min(answer, 50.0)) if self.logged else answer)


def _fit(values: Floats, *, logged: bool) -> AutoRegression:
    differences = 0
    while differences < MAX_DIFFERENCES and len(values) > 4 and kpss(values) > KPSS_CRITICAL:
        values, differences = np.diff(values), differences + 1
    best: tuple[float, float, tuple[float, ...]] | None = None
    most = max(0, min(MAX_ORDER, (len(values) - 3) // 2))
    target = values[most:]
    for order in range(most + 1):
        columns = [values[most - lag : len(values) - lag] for lag in range(1, order + 1)]
        if differences < 2:
            columns.append(np.ones(len(target)))
        design = np.column_stack(columns) if columns else np.zeros((len(target), 0))
        weights = np.linalg.lstsq(design, target, rcond=None)[0]
        score = _aicc(float(np.sum((target - design @ weights) ** 2)), len(target), design.shape[1] + 1)
        if best is None or score < best[0]:
            constant = float(weights[-1]) if differences < 2 else 0.0
            best = score, constant, tuple(float(weight) for weight in weights[:order])
    assert best is not None
    return AutoRegression(differences, best[1], best[2], logged)


def _aicc(squares: float, count: int, parameters: int) -> float:
    left = count - parameters - 1
    if left <= 0:
        return math.inf
    return count * math.log(max(squares / count, 1e-300)) + 2 * parameters + 2 * parameters * (parameters + 1) / left


def kpss(values: Floats) -> float:
    """Statistic of Kwiatkowski, Phillips, Schmidt and Shin for a constant level; large when the level wanders."""
    count = len(values)
    errors = values - values.mean()
    lags = int(12 * (count / 100) ** 0.25) if count > 20 else int(math.sqrt(count))
    variance = float(errors @ errors)
    for lag in range(1, min(lags, count - 1) + 1):
        variance += 2 * (1 - lag / (lags + 1)) * float(errors[lag:] @ errors[:-lag])
    return float(np.sum(np.cumsum(errors) ** 2)) / (count * max(variance, 1e-300))
