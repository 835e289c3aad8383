"""Which price keeps a promise: conformal control of the unserved share that was in truth incurred.

A quantile of past errors promises coverage of steps, but what is promised to users is a share of work, and a chosen
forecast looks better on the past that it was chosen by than it is. So the price of unserved work is read off what each
price left unserved when it was followed without hindsight. Until that record says enough, a prior stands in: what a
price leaves unserved falls as a power of it. It gives way slowly: quiet days say nothing of the next jump, and a price
that falls with each of them buys too little when it comes. Work that the service's own targets already left unserved
beyond the promise is made good by a stricter aim; what was saved is not spent, since moving the price costs more than
it gains.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from berth.inference.forecast.history import Floats
from berth.inference.forecast.race import PRICES, Race

_PRIOR_SHARE: Final = 2.0
_PRIOR_PRICE: Final = 0.5
_PRIOR_POWER: Final = 1.25
_PRIOR_DAYS: Final = 4.0  # of demand at its highest hourly level, that the prior weighs
_PRIOR_FADES: Final = 2.0  # times its weight in demand, after which the prior weighs half
_PRIOR_LEAST: Final = 0.1
_STRICTEST: Final = 0.7  # of the promise
_AHEAD_DAYS: Final = 3.0  # over which what is overspent is made good, at least
_LEVEL_STEPS: Final = 60
_LEVEL_FADE: Final = 0.9999

_PRIOR: Final = _PRIOR_SHARE * (_PRIOR_PRICE / PRICES) ** _PRIOR_POWER


class Level:
    """The highest level of demand, smoothed over an hour, fading over days: what a day may bring."""

    def __init__(self) -> None:
        self.count = 0
        self.now = 0.0
        self.highest = 0.0

    def add(self, value: float) -> None:
        """One more step."""
        self.count += 1
        self.now += (value - self.now) / min(self.count, _LEVEL_STEPS)
        self.highest = max(self.highest * _LEVEL_FADE, self.now)


class Steering:
    """The account of one promise: ``share`` of all work may be unserved.

    ``unserved`` and ``offered``: work since the promise is known; ``covered`` of ``steps`` steps had nothing unserved.
    ``price`` is an index into ``PRICES`` (with a fraction), ``replicas`` what is to be ready after the cold start.
    """

    def __init__(self, share: float, span: int, first: float) -> None:
        self.share = share
        self.unserved = self.offered = 0.0
        self.steps = self.covered = 0
        self.count = 0
        self.asking = np.full(span, first)
        self.price = 0.0
        self.replicas = first

    def judge(self, value: float) -> None:
        """Account for a step of demand ``value``."""
        short = max(0.0, value - float(self.asking.min()))
        self.unserved += short
        self.offered += value
        self.steps += 1
        self.covered += short <= 0.0

    def ask(self, race: Race, level: Level, day: int) -> None:
        """Choose the price, and with it the replicas."""
        self.price = self._price(race, level, day)
        self.replicas = between(race.asked, self.price)
        self.asking[self.count % len(self.asking)] = self.replicas
        self.count += 1

    def rest(self) -> None:
        """Steps were missed."""
        self.asking[:] = self.replicas

    def aim(self, span: int) -> None:
        """Another cold start."""
        self.asking = np.full(span, self.replicas)
        self.count = 0

    def _price(self, race: Race, level: Level, day: int) -> float:
        mean = self.offered / max(self.steps, 1)
        ahead = max(self.offered, _AHEAD_DAYS * day * mean)
        aim = self.share
        if ahead > 0:
            left = self.share * (self.offered + ahead) - self.unserved
            aim = min(max(left / ahead, _STRICTEST * self.share), self.share)
        weight = _PRIOR_DAYS * day * max(race.carried / max(race.count, 1), level.now, level.highest / 2) + 1e-9
        weight *= max(0.5 ** (race.offered / (_PRIOR_FADES * weight)), _PRIOR_LEAST)
        shares = (race.unserved + _PRIOR * weight) / (race.offered + weight)
        shares = np.maximum.accumulate(shares[::-1])[::-1]
        return float(np.interp(-math.log(aim), -np.log(shares + 1e-9), np.arange(len(PRICES))))


def between(asked: Floats, price: float) -> float:
    """Whole replicas at a price with a fraction. A higher price never asks for less."""
    asked = np.maximum.accumulate(np.ceil(asked - 1e-6))
    low = int(price)
    high = min(low + 1, len(asked) - 1)
    return math.floor(float(asked[low] + (price - low) * (asked[high] - asked[low])) + 0.5)
