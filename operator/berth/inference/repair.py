"""A mix near fractions: the search's first solutions, and what it ends with where its budget ends first."""

from __future__ import annotations

from math import inf
from typing import Final

import numpy as np
from numpy.typing import NDArray

from berth.inference.program import TINY, Program, Solution

_REPAIRS: Final = 40


class Repair:
    """Makes whole counts that keep the rows of one program, as arrays."""

    def __init__(self, program: Program) -> None:
        self.program = program
        columns, rows = program.columns, program.rows
        self.lows = np.array([column.low for column in columns], float)
        self.highs = np.array([column.high for column in columns], float)
        self.rows = np.array([row.coefficients for row in rows], float).reshape(len(rows), len(columns))
        self.least = np.array([row.least for row in rows], float)
        self.slack = TINY * np.maximum(1.0, np.abs(self.least))
        most = max((len(column.pieces) for column in columns), default=0)
        self.ends = np.full((len(columns), most), inf)
        self.slopes = np.full((len(columns), most + 1), inf)
        for i, column in enumerate(columns):
            lengths = [length for length, _ in column.pieces]
            self.ends[i, : len(lengths)] = column.low + np.cumsum(lengths)
            self.slopes[i, : len(lengths)] = [slope for _, slope in column.pieces]
        self.each = np.arange(len(columns))

    def near(self, filled: NDArray[np.float64]) -> Solution | None:
        """``filled`` to the nearest whole numbers, what is missing added, what is over taken; None where that fails."""
        counts = np.clip(np.rint(filled), self.lows, self.highs)
        if not self._add(counts):
            return None
        self._take(counts)
        found = tuple(int(count) for count in counts.tolist())
        if not self.program.feasible(found):
            return None
        cost = self.program.cost(found)
        return Solution(found, cost, cost, proven=False)

    def _add(self, counts: NDArray[np.float64]) -> bool:
        """One replica after the other, each where it makes up most of what is missing for its cost."""
        for _ in range(_REPAIRS):
            missing = self.least - self.rows @ counts
            short = (missing > self.slack).nonzero()[0]
            if not len(short):
                break
            lacks = missing[short]
            helps = (1 / lacks) @ np.minimum(self.rows[short], lacks[:, None])
            slopes = self.slopes[self.each, (counts[:, None] >= self.ends).sum(axis=1)]
            worth = np.where(counts < self.highs, helps / (slopes + TINY), -inf)
            chosen = int(worth.argmax())
            if worth[chosen] <= 0:
                return False
            counts[chosen] += 1
        return True

    def _take(self, counts: NDArray[np.float64]) -> None:
        """As many as the rows allow, of the column first on which most is spent."""
        spare = self.rows @ counts - self.least + self.slack
        columns = self.program.columns
        used = [int(i) for i in (counts > self.lows).nonzero()[0]]
        for i in sorted(used, key=lambda i: -columns[i].cost(int(counts[i]))):
            column = self.rows[:, i]
            needs = column > 0
            most = float((spare[needs] / column[needs]).min(initial=inf))
            taken = max(0.0, min(counts[i] - self.lows[i], most // 1, _REPAIRS))
            counts[i] -= taken
            spare -= taken * column
