"""What a forecast may look back on, kept up to date in constant time and memory.

A service is never asked to keep two weeks of minutes: the last hour stays as it was, older demand lives on as hourly
peaks, as smoothed levels and as profiles of the day and of the week. Profiles are indexed by the clock, so that a gap
loses what was not seen and shifts nothing.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DAY_SECONDS: Final = 86400.0
RECENT: Final = 64
SMOOTHING: Final = np.array([0.5, 0.2])
BANDS: Final = np.array([0.15, 0.3])
"""Demand further from its level than by these shares of it has found a new one."""
_SETTLED: Final = 30.0  # steps, over which at most a level is a mean
CORRECTIONS: Final = np.array([1.0, 0.2, 0.05])
"""How fast the level of a profile follows the demand, as shares of the difference taken up at each step."""
DAY_RATES: Final = np.array([1.0, 0.35])
"""Share of the newest day in each profile of the day: yesterday alone, and a mean over about four days."""
WEEK_RATE: Final = 0.7
WEEK_BINS_SECONDS: Final = 300.0


class History:
    """Demand seen so far. Steps are numbered by the clock: number = unix seconds // ``step_seconds``.

    ``recent`` the last ``RECENT`` steps (oldest first; steps of a short gap lie on the line between their neighbours),
    ``smooth`` its exponential means, ``steady`` its level by ``BANDS``: a mean over the ``lasted`` steps since demand
    left the level before, of about the newest ``_SETTLED`` where there are more. ``hours`` the peaks of the last 24
    hours (-1 unknown), ``peak`` the highest value, halved in two days. ``days`` one row per rate of ``DAY_RATES``, a
    value per step of the day, NaN where never seen;
    ``week`` the same in bins of five minutes. ``offset[i, j]`` is how far demand lies above profile i, smoothed by
    ``CORRECTIONS[j]``; ``level`` and ``expected`` are demand and profile smoothed alike, for a ratio.
    """

    def __init__(self, step_seconds: float) -> None:
        self.step_seconds = step_seconds
        self.day = max(2, round(DAY_SECONDS / step_seconds))
        self.hour = max(1, round(3600 / step_seconds))
        self.bin = max(1, round(WEEK_BINS_SECONDS / step_seconds))
        self.count = 0
        self.last = 0
        self.recent = np.zeros(RECENT)
        self.smooth = np.zeros(len(SMOOTHING))
        self.steady = np.zeros(len(BANDS))
        self.lasted = np.zeros(len(BANDS))
        self.hours = np.full(24, -1.0)
        self.peak = 0.0
        self.mean = 0.0
        self.days = np.full((len(DAY_RATES), self.day), np.nan, dtype=np.float32)
        self.week = np.full(7 * self.day // self.bin, np.nan, dtype=np.float32)
        profiles = len(DAY_RATES) + 1
        self.level = np.zeros(len(CORRECTIONS))
        self.offset = np.zeros((profiles, len(CORRECTIONS)))
        self.expected = np.zeros((profiles, len(CORRECTIONS)))

    def add(self, number: int, value: float) -> int:
        """Take in the demand of step ``number``, later than all before; returns how many steps were missed."""
        missed = number - self.last - 1 if self.count else 0
        if not self.count:
            self.recent[:] = value
            self.smooth[:] = value
            self.level[:] = value
            self.expected[:] = value
        self._remember(value, missed)
        self._levels(value)
        self._hourly(number, value)
        self._profiles(number, value)
        self.count += 1
        self.last = number
        self.mean += max(1 / self.count, 1 / (7 * self.day)) * (value - self.mean)
        return missed

    def expect(self, numbers: NDArray[np.int64]) -> Floats:
        """What each profile has for the steps ``numbers``: shape (profiles, len(numbers)), NaN where unknown."""
        days = self.days[:, numbers % self.day]
        week = self.week[(numbers // self.bin) % len(self.week)]
        return np.concatenate([days, week[None, :]]).astype(np.float64)

    def _remember(self, value: float, missed: int) -> None:
        recent = self.recent
        between = min(missed, RECENT - 1)
        if between:
            path = np.linspace(recent[-1], value, between + 2)[1:-1]
            recent[:-between] = recent[between:]
            recent[-between:] = path
        recent[:-1] = recent[1:]
        recent[-1] = value
        for _ in range(between + 1):
            self.smooth += SMOOTHING * (value - self.smooth)

    def _levels(self, value: float) -> None:
        off = value - self.steady
        self.lasted[np.abs(off) > BANDS * self.steady] = 0.0
        self.lasted = np.minimum(self.lasted + 1.0, _SETTLED)
        self.steady += off / self.lasted

    def _hourly(self, number: int, value: float) -> None:
        hour, before = number // self.hour, self.last // self.hour if self.count else number // self.hour - 24
        for passed in range(max(before, hour - 24) + 1, hour + 1):
            self.hours[passed % 24] = -1.0
        self.hours[hour % 24] = max(self.hours[hour % 24], value)
        self.peak = max(self.peak * 0.5 ** (1 / (2 * self.day)), value)

    def _profiles(self, number: int, value: float) -> None:
        at = number % self.day
        bin_ = (number // self.bin) % len(self.week)
        had = np.append(self.days[:, at], self.week[bin_]).astype(np.float64)
        known = ~np.isnan(had)
        self.level += CORRECTIONS * (value - self.level)
        self.offset[known] += CORRECTIONS * (value - had[known, None] - self.offset[known])
        base = np.where(known, had, value)
        self.expected += CORRECTIONS * (base[:, None] - self.expected)
        self.days[:, at] = base[:-1] + DAY_RATES * (value - base[:-1])
        self._weekly(number, bin_, value)

    def _weekly(self, number: int, bin_: int, value: float) -> None:
        # The bin's mean takes the place of last week's value by and by: the k-th of n steps moves it by 1/n.
        old = self.week[bin_]
        self.week[bin_] = value if np.isnan(old) else old + WEEK_RATE / self.bin * (value - old)
