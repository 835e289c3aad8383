"""The back-test: every way of choosing replicas runs beside the others, on what it would have paid and left unserved.

A candidate is a method, a shape of margin and a number of margin units. A replica asked for at step t carries load from
t + cold start on, and one no longer asked for is gone at once, so what a candidate has ready is the least that it asked
for within a cold start. Hence cost and unserved work of thousands of candidates take a few array operations per step,
and the real objective is compared, not a stand-in such as squared error: at a *price* of unserved work (in replica
steps per unit) the candidates with the least cost + price x unserved are followed, weighted by how close they are. A
grid of prices is followed side by side; what each price in truth left unserved, chosen only from what was known then,
is the honest estimate by which a promise picks its price.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from berth.inference.forecast.history import Floats
from berth.inference.forecast.margins import SCALES
from berth.inference.forecast.methods import METHODS, PERSISTENCE

Ints = NDArray[np.int64]

PRICES: Final = np.geomspace(1.5, 3000.0, 20)
UNITS: Final = np.array([-1, -0.5, 0, 0.4, 0.8, 1.2, 1.7, 2.3, 3, 4, 5.5, 7.5, 10, 14, 20, 30.0])
SHAPE: Final = (len(METHODS), len(SCALES), len(UNITS))
CANDIDATES: Final = int(np.prod(SHAPE))
MEMBERS: Final = 16
MOST: Final = 30_000.0  # replicas; rings hold 16-bit numbers

_MEMORY_DAYS: Final = 3.0  # half-life of scores
_RECORD_DAYS: Final = 14.0  # half-life of what a price left unserved
_ROWS: Final = 12
_PICK_STEPS: Final = 10
_EARLY_STEPS: Final = 60  # candidates are picked anew at each of the first steps
_CLOSE: Final = 0.008  # by so much of the best score a candidate counts 1/e of the best
_EDGE: Final = 0.002  # persistence is left only for what is better by this share
_DOUBT_STEPS: Final = 72.0  # steps of mean demand that a unit of doubt weighs
_SCALE_DOUBT: Final = dict(zip(SCALES, (0.2, 0.0, 0.2, 0.3, 0.0), strict=True))


class Race:
    """Candidates at a cold start of ``span`` - 1 steps, and what the followed prices ask for.

    ``asked``: replicas by price, not rounded. ``unserved`` by price and ``offered``, all work, are discounted alike.
    ``members`` and ``weights``: the candidates that each price follows, shape (prices, MEMBERS). ``asking`` and
    ``followed`` hold what was asked for within a cold start; of long ones a row is the least of ``stride`` steps.
    """

    def __init__(self, span: int, day: int, first: float) -> None:
        self.span, self.day = span, day
        self.count = 0
        self.stride = -(-span // _ROWS)
        rows = -(-span // self.stride)
        first = min(max(np.ceil(first), 0.0), MOST)
        self.asking = np.full((rows, CANDIDATES), first, dtype=np.int16)
        self.newest = self.asking[0].copy()
        self.cost = np.zeros(CANDIDATES, dtype=np.float32)
        self.lost = np.zeros(CANDIDATES, dtype=np.float32)
        self.members = np.zeros((len(PRICES), MEMBERS), dtype=np.int64)
        self.weights = np.full((len(PRICES), MEMBERS), 1 / MEMBERS)
        self.asked = np.full(len(PRICES), first)
        self.followed = np.full((rows, len(PRICES)), first)
        self.unserved = np.zeros(len(PRICES))
        self.offered = 0.0
        self.carried = 0.0  # sum of demand, never discounted

    def judge(self, value: float) -> None:
        """Account for a step of demand ``value`` that was met with what had been asked for before."""
        fade = 0.5 ** (1 / (_MEMORY_DAYS * self.day))
        self.cost *= fade
        self.cost += self.newest
        self.lost *= fade
        self.lost += np.maximum(np.float32(value) - self.asking.min(axis=0), np.float32(0))
        fade = 0.5 ** (1 / (_RECORD_DAYS * self.day))
        self.unserved *= fade
        self.unserved += np.maximum(value - self.followed.min(axis=0), 0.0)
        self.offered = self.offered * fade + value
        self.carried += value

    def ask(self, foreseen: Floats, units: Floats, lowest: float, highest: float) -> None:
        """Let every candidate ask; ``foreseen`` (methods,), ``units`` of margin (methods, scales)."""
        self.newest = _wanted(foreseen, units, lowest, highest)
        if self.count % _PICK_STEPS == 0 or self.count < _EARLY_STEPS:
            self._pick()
        self.asked = (self.newest[self.members] * self.weights).sum(axis=1)
        row, fresh = self.count // self.stride % len(self.asking), self.count % self.stride == 0
        asked = np.ceil(self.asked - 1e-6)
        self.asking[row] = self.newest if fresh else np.minimum(self.asking[row], self.newest)
        self.followed[row] = asked if fresh else np.minimum(self.followed[row], asked)
        self.count += 1

    def resume(self, foreseen: Floats, units: Floats, lowest: float, highest: float) -> None:
        """After a restart: every candidate has ready what it would ask for now."""
        self.newest = _wanted(foreseen, units, lowest, highest)
        self.asking[:] = self.newest

    def rest(self) -> None:
        """Steps were missed: what was asked for last is ready by now."""
        self.asking[:] = self.newest
        self.followed[:] = np.ceil(self.asked - 1e-6)

    def adopt(self, other: Race) -> None:
        """Begin with the scores at another cold start, at half their weight, and with what it asks for."""
        self.count = other.count
        self.newest, self.asked = other.newest.copy(), other.asked.copy()
        self.rest()
        self.cost[:] = other.cost / 2
        self.lost[:] = other.lost / 2
        self.unserved, self.offered = other.unserved / 2, other.offered / 2
        self.carried = other.carried
        self._pick()

    def best(self, price: int) -> tuple[int, int, int]:
        """Method, scale and unit (as indices) of the candidate that counts most at ``PRICES[price]``."""
        chosen = int(self.members[price, int(self.weights[price].argmax())])
        method, scale, unit = np.unravel_index(chosen, SHAPE)
        return int(method), int(scale), int(unit)

    def _pick(self) -> None:
        scores = self.cost[None, :] + PRICES.astype(np.float32)[:, None] * self.lost[None, :]
        scores *= _FAVOUR
        if self.count < _MEMORY_DAYS * self.day:
            mean = self.carried / max(self.count, 1)
            scores += np.float32(_DOUBT_STEPS * max(mean, 0.5)) * _DOUBT
        members = np.argpartition(scores, MEMBERS, axis=1)[:, :MEMBERS].copy()  # a view would keep all candidates
        chosen = np.take_along_axis(scores, members, axis=1).astype(np.float64)
        best = chosen.min(axis=1, keepdims=True)
        weights = np.exp(-(chosen - best) / (_CLOSE * best + 1e-9))
        self.members, self.weights = members, weights / weights.sum(axis=1, keepdims=True)


def _wanted(foreseen: Floats, units: Floats, lowest: float, highest: float) -> NDArray[np.int16]:
    wanted: Floats = (foreseen[:, None, None] + units[:, :, None] * UNITS).ravel()
    whole: NDArray[np.int16] = np.clip(np.ceil(wanted - 1e-9), lowest, min(highest, MOST)).astype(np.int16)
    return whole


def _doubt() -> NDArray[np.float32]:
    # Without evidence: around the peak of the last minutes, with a margin of the square root of the price in units.
    # Where errors have a variance about 1/u² of them exceed u units (Chebyshev), so there the last unit earns its cost.
    methods = np.array([method.prior for method in METHODS])
    scales = np.array([_SCALE_DOUBT[scale] for scale in SCALES])
    margin = np.abs(np.log1p(np.maximum(UNITS, 0.0)) - 0.5 * np.log(PRICES)[:, None])
    doubt = methods[:, None, None] + scales[:, None] + margin[:, None, None, :]
    flat: NDArray[np.float32] = doubt.reshape(len(PRICES), CANDIDATES).astype(np.float32)
    return flat


_DOUBT: Final = _doubt()
_FAVOUR: Final = (
    np.where(np.arange(len(METHODS)) == PERSISTENCE, 1.0, 1.0 + _EDGE)
    .astype(np.float32)
    .repeat(len(SCALES) * len(UNITS))
)
