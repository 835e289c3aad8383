"""Dynamo's planner (``components/src/dynamo/planner/core``): one-step forecasts, and its fast loop above them.

Throughput scaling asks for ceil(forecast / what an engine carries), at every step; what an engine carries is the
target of the sweep. The forecast is for the next interval, whatever a replica needs to start. With the load loop that
is only a floor: one more when every engine misses its level (load above capacity) and none is starting; fewer, one per
tick of 5 s, while what would be left of them stays below ``SENSITIVITY`` of capacity.
"""

from __future__ import annotations

import importlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from benchmarks.policies.arima import AutoRegression
from benchmarks.policies.base import STEP_SECONDS, Ints, Limits
from benchmarks.policies.sweep import TARGETS, pods_for

SENSITIVITY = 0.8

_TICKS = round(STEP_SECONDS / 5)


class Predictor(Protocol):
    """Told one value per step, it names the next."""

    def update(self, value: float) -> float:
        """The forecast of the value after ``value``."""


class DynamoPanel:
    """Every target, without and with the load loop. ``predictor`` makes a fresh one.

    Forecasts do not depend on replicas, so a series that is played again (with another cold start) is not forecast
    again.
    """

    def __init__(self, predictor: Callable[[], Predictor], targets: Sequence[float] = TARGETS) -> None:
        self.settings = [f"target {target:.0%}, {loop}" for loop in ("forecast", "load loop") for target in targets]
        self._predictor, self._targets = predictor, np.array(targets)
        self._model = predictor()
        self._told, self._made = list[float](), list[float]()  # values so far, and the forecast after each

    def reset(self, cold_steps: int, limits: Limits) -> None:
        """See ``Panel``."""
        self._played = 0

    def decide(self, step: int, seen: float | None, ready: Ints, starting: Ints) -> Ints:
        """See ``Panel``."""
        current = ready + starting
        if seen is None:
            return current
        floor = pods_for(max(self._forecast(seen), 0.0), self._targets)
        half = len(floor)
        return np.concatenate([floor, _load_loop(seen, floor, current[half:], ready[half:])])

    def _forecast(self, seen: float) -> float:
        at = self._played
        self._played += 1
        if at < len(self._told) and self._told[at] != seen:  # another series from here on
            self._model, self._told = self._predictor(), self._told[:at]
            self._made = [self._model.update(value) for value in self._told]
        if at == len(self._told):
            self._told.append(seen)
            self._made.append(self._model.update(seen))
        return self._made[at]


def _load_loop(seen: float, floor: Ints, current: Ints, ready: Ints) -> Ints:
    idle = current == ready
    missed = idle & (seen > ready)
    proven = np.maximum(floor, int(np.ceil(seen / SENSITIVITY)))
    fewer = np.maximum(proven, current - _TICKS)
    above = np.where(missed, current + 1, np.where(idle & (fewer < current), fewer, current))
    return np.maximum(floor, above)


class Constant:
    """The next is as the last."""

    def update(self, value: float) -> float:
        """See ``Predictor``."""
        return value


class Kalman:
    """Local linear trend with Dynamo's constants, and its start at the first value that is not 0."""

    q_level, q_trend, noise, first_variance = 1.0, 0.1, 10.0, 1000.0

    def __init__(self) -> None:
        self._level, self._trend, self._begun = 0.0, 0.0, False
        self._p = (self.first_variance, 0.0, self.first_variance)  # variances of level and trend, covariance between

    def update(self, value: float) -> float:
        """See ``Predictor``."""
        a, b, d = self._p
        if self._begun:
            gain = a + self.noise
            error = value - self._level
            self._level += a / gain * error
            self._trend += b / gain * error
            a, b, d = a - a * a / gain, b - a * b / gain, d - b * b / gain
        elif value != 0:
            self._level, self._begun = value, True
        else:
            return 0.0
        self._level += self._trend
        self._p = (a + 2 * b + d + self.q_level, b + d, d + self.q_trend)
        return self._level


class Arima:
    """Dynamo's automatic ARIMA, here an autoregression refitted every hour on the last day (see ``arima``)."""

    window, refit, enough = 1440, 60, 5

    def __init__(self) -> None:
        self._seen: deque[float] = deque(maxlen=self.window)
        self._model: AutoRegression | None = None
        self._next_fit = 0

    def update(self, value: float) -> float:
        """See ``Predictor``."""
        if value == 0 and not self._seen:
            return 0.0
        self._seen.append(value)
        if len(self._seen) < self.enough:
            return value
        if self._model is None or self._next_fit <= 0:
            self._model = AutoRegression.fit(np.array(self._seen))
            self._next_fit = min(self.refit, len(self._seen))  # sooner while there is little to go by
        self._next_fit -= 1
        recent = [self._seen[index] for index in range(-min(len(self._seen), self._model.reach), 0)]
        return self._model.next(recent)


class ProphetLast:
    """Prophet on the last 50 values, as Dynamo has it, but refitted every 15 steps.

    A fit takes a quarter of a second, so at every step it would take a day for a handful of traces.
    """

    window, refit, enough = 50, 15, 5

    def __init__(self) -> None:
        self._seen: deque[float] = deque(maxlen=self.window)
        self._coming: deque[float] = deque()
        for noisy in ("prophet", "prophet.plot", "cmdstanpy"):
            logging.getLogger(noisy).disabled = True
        self._prophet: Any = importlib.import_module("prophet").Prophet
        self._frame: Any = importlib.import_module("pandas").DataFrame

    def update(self, value: float) -> float:
        """See ``Predictor``."""
        self._seen.append(value)
        if len(self._seen) < self.enough:
            return value
        if not self._coming:
            minutes = np.arange(len(self._seen) + self.refit).astype("timedelta64[m]")  # steps of 60 s
            dates = np.datetime64("2024-01-01", "ns") + minutes
            model = self._prophet()
            model.fit(self._frame({"ds": dates[: -self.refit], "y": list(self._seen)}))
            self._coming.extend(model.predict(self._frame({"ds": dates[-self.refit :]}))["yhat"].tolist())
        return self._coming.popleft()


def prophet_missing() -> str | None:
    """Why Prophet cannot run here, None when it can."""
    for name in ("prophet", "pandas"):
        try:
            importlib.import_module(name)
        except ImportError as problem:
            return f"{name} cannot be imported: {problem}"
    return None
