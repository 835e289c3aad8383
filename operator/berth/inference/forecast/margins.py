"""How far each method has been off, in the ways in which an error can scale.

A margin in proportion to the forecast overpays at the peak of a quiet service, a constant one at night; which shape
fits is part of what the back-test finds. Errors seen before a jump say little at the new level; a plain share of the
forecast, which no error goes into, is right at once where noise grows with the load.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from berth.inference.forecast.history import Floats, History
from berth.inference.forecast.methods import METHODS, peaks

SCALES: Final = ("constant", "root", "lately", "daytime", "share")
_LEVEL: Final = 0.05  # work; a forecast below counts as this where an error is seen in proportion
_LEAST_CONSTANT: Final = 0.25  # work
_LEAST_ROOT: Final = 0.02
_MEMORY_DAYS: Final = 3.0  # half-life of mean errors
_LATELY: Final = 1 / 30
_QUARTERS: Final = 96  # of an hour, in a day
_QUARTER_RATE: Final = 0.05
_SHARE: Final = 0.05  # of the forecast
_OWN: Final = 0.8  # weight of the recent or the daytime's error beside the mean one


class Margins:
    """Mean absolute errors of ``METHODS`` at a horizon of ``span`` steps (the peak until there against what came)."""

    def __init__(self, span: int) -> None:
        count = len(METHODS)
        self.span = span
        self.count = 0
        self.newest = 0  # row of ``made`` with what is foreseen now
        self.made = np.full((span, count), np.nan)
        self.constant = np.zeros(count)
        self.root = np.zeros(count)
        self.lately = np.zeros(count)
        self.daytime = np.full((_QUARTERS, count), np.nan, dtype=np.float32)

    def add(self, history: History, missed: int) -> tuple[Floats, Floats]:
        """Learn from the newest step; returns the forecasts now and one unit of margin: (methods, scales)."""
        if missed:
            self.made[:] = np.nan
        row = history.last % self.span
        before = self.made[row].copy()
        if not np.isnan(before[0]):
            self._learn(before, history)
        foreseen = peaks(history, self.span)
        self.made[row] = foreseen
        self.newest = row
        return foreseen, self.units(foreseen, history)

    def adopt(self, other: Margins) -> None:
        """Begin with the errors at another horizon; a longer one has larger errors, so they are soon learned anew."""
        self.count = min(other.count, 10 * self.span)
        self.constant, self.root = other.constant.copy(), other.root.copy()
        self.lately, self.daytime = other.lately.copy(), other.daytime.copy()

    def _learn(self, before: Floats, history: History) -> None:
        self.count += 1
        error = np.abs(history.recent[-1] - before)
        rate = max(1 / self.count, math.log(2) / (_MEMORY_DAYS * history.day))
        self.constant += rate * (error - self.constant)
        self.root += rate * (error / np.sqrt(np.maximum(before, _LEVEL)) - self.root)
        self.lately += max(1 / self.count, _LATELY) * (error - self.lately)
        row = self.daytime[self._quarter(history.last, history.day)]
        row[:] = np.where(np.isnan(row), error, row + _QUARTER_RATE * (error - row))

    def units(self, foreseen: Floats, history: History) -> Floats:
        """One unit of margin around ``foreseen`` for each shape of it: (methods, scales)."""
        mean = self.constant
        here = self.daytime[self._quarter(history.last + 1 + self.span // 2, history.day)].astype(np.float64)
        here = np.where(np.isnan(here), mean, here)
        root = np.maximum(self.root * np.sqrt(np.maximum(foreseen, _LEVEL)), _LEAST_ROOT)
        lately = _OWN * self.lately + (1 - _OWN) * mean
        daytime = _OWN * here + (1 - _OWN) * mean
        return np.stack([np.maximum(mean, _LEAST_CONSTANT), root, lately, daytime, _SHARE * foreseen], axis=1)

    @staticmethod
    def _quarter(number: int, day: int) -> int:
        return number % day * _QUARTERS // day
