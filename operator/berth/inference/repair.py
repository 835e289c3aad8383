"""A mix near fractions: the search's first solutions, and what it ends with where its budget ends first."""

from __future__ import annotations

from functools import cache
from math import inf
from typing import Final

import numpy as np
from numpy.typing import NDArray

from berth.inference.program import TINY, Program, Row, Soft, Solution

_REPAIRS: Final = 40
_EXCHANGES: Final = 20
_WIDE: Final = 16
"""Of more columns than these only those in use and the cheapest of each group are exchanged, of as many one by one."""
_ALIKE: Final = 4
"""So many of a group, beside those in use."""

Floats = NDArray[np.float64]


def solution(program: Program, counts: Floats) -> Solution | None:
    """The mix of ``counts``, each within rounding of a whole number; None where a row does not hold."""
    found = tuple(round(count) for count in counts.tolist())
    if not program.feasible(found):
        return None
    cost = program.cost(found)
    return Solution(found, cost, cost, proven=False)


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
        softs = program.softs
        self.soft_rows = np.array([soft.coefficients for soft in softs], float).reshape(len(softs), len(columns))
        self.soft_least = np.array([soft.least for soft in softs], float)
        self.soft_prices = np.array([soft.price for soft in softs], float)

    def near(self, filled: Floats) -> Solution | None:
        """``filled`` to the nearest whole numbers, what is missing added, what is over taken; None where that fails."""
        counts = np.clip(np.rint(filled), self.lows, self.highs)
        if not self._add(counts):
            return None
        self._take(counts)
        if len(self.soft_least):
            self._settle(counts)
        return solution(self.program, counts)

    def forced(self, filled: Floats) -> Solution | None:
        """A mix where :meth:`near` finds none: exchanges that bring the rows nearer to being kept, then what saves."""
        counts = np.clip(np.rint(filled), self.lows, self.highs)
        self._add(counts)
        bundles, effects, on_rows = self._bundles()
        scale = np.maximum(1.0, np.abs(self.least))
        on_rows = on_rows / scale
        for _ in range(_EXCHANGES):
            spare = (self.rows @ counts - self.least + self.slack) / scale
            lacks = -float(np.minimum(spare, 0.0).sum())
            if lacks <= 0:
                found = solution(self.program, counts)
                return None if found is None else self.better(found)
            down = np.where(counts > self.lows, 0.0, -inf), np.where(counts - 1 > self.lows, 0.0, -inf)
            up = self._slopes(counts), self._slopes(counts + 1)
            leave = (_costs(bundles, *down) > -inf).nonzero()[0]
            come = (_costs(bundles, *up) < inf).nonzero()[0]
            if not len(leave) or not len(come):
                return None
            after = spare - on_rows[leave, None, :] + on_rows[come]
            left = -np.minimum(after, 0.0).sum(axis=2)
            best = int(left.argmin())
            if left.flat[best] >= lacks - TINY:
                return None
            counts += effects[come[best % len(come)]] - effects[leave[best // len(come)]]
        return None

    def _bundles(self) -> tuple[Bundles, Floats, Floats]:
        """One or two columns each, of more than :data:`_WIDE` one, with what they are in counts and in rows."""
        bundles = _bundles(len(self.each), pairs=len(self.each) <= _WIDE)
        effects = (bundles[0][:, None] == self.each).astype(float) + (bundles[1][:, None] == self.each)
        return bundles, effects, effects @ self.rows.T

    def better(self, known: Solution) -> Solution:
        """``known`` with one or two replicas exchanged for one or two others as long as that saves something."""
        counts = np.array(known.counts, float)
        if len(counts) > _WIDE and len(kept := self._promising(counts)) < len(counts):
            return self._narrowed(known, kept)
        return self.exchanged(known)

    def exchanged(self, known: Solution) -> Solution:
        """:meth:`better` over all columns, whose pairs of pairs are looked at one by one."""
        counts = np.array(known.counts, float)
        bundles, effects, on_rows = self._bundles()
        for _ in range(_EXCHANGES):
            pair = self._exchange(counts, bundles, effects, on_rows)
            if pair is None:
                break
            counts += effects[pair[1]] - effects[pair[0]]
        return solution(self.program, counts) or known

    def _promising(self, counts: Floats) -> list[int]:
        """The columns in use, and of each group the cheapest of the others."""
        costs = self._slopes(counts) + self._soft_costs(counts, self.soft_rows.T)
        order = [int(i) for i in np.argsort(costs, kind="stable") if counts[i] <= self.lows[i] and costs[i] < inf]
        kept = {int(i) for i in (counts > self.lows).nonzero()[0]}
        for group in self.program.groups or (tuple(range(len(counts))),):
            members = set(group)
            kept.update([i for i in order if i in members][:_ALIKE])
        return sorted(kept)

    def _narrowed(self, known: Solution, kept: list[int]) -> Solution:
        """:meth:`better` over the columns ``kept``; rows that are the same there are one."""
        program, fixed = self.program, np.array(known.counts, float)
        fixed[kept] = 0.0

        def left(row: Row | Soft) -> tuple[tuple[float, ...], float]:
            coefficients = np.array(row.coefficients)
            return tuple(coefficients[kept].tolist()), float(row.least - coefficients @ fixed)

        rows = {left(row): row for row in program.rows}
        prices: dict[tuple[tuple[float, ...], float], float] = {}
        for soft in program.softs:
            prices[left(soft)] = prices.get(left(soft), 0.0) + soft.price
        narrow = Program(
            tuple(program.columns[i] for i in kept),
            tuple(Row(row.name, *key) for key, row in rows.items()),
            softs=tuple(Soft(*key, price) for key, price in prices.items()),
        )
        start = Solution(tuple(known.counts[i] for i in kept), 0.0, 0.0, proven=False)
        counts = fixed
        counts[kept] = Repair(narrow).exchanged(start).counts
        found = solution(program, counts)
        return found if found is not None and found.cost <= known.cost else known

    def _exchange(self, counts: Floats, bundles: Bundles, effects: Floats, on_rows: Floats) -> tuple[int, int] | None:
        """The bundles that leave and come and save the most, where the rows hold; None where nothing is saved."""
        up, again = self._slopes(counts), self._slopes(counts + 1)
        down = np.where(counts > self.lows, self._slopes(counts - 1), -inf)
        before = np.where(counts - 1 > self.lows, self._slopes(counts - 2), -inf)
        saved, added = _costs(bundles, down, before), _costs(bundles, up, again)
        leave, come = (saved > -inf).nonzero()[0], (added < inf).nonzero()[0]
        if not len(leave) or not len(come):
            return None
        change = added[come] - saved[leave, None]
        if len(self.soft_least):
            moved = effects @ self.soft_rows.T
            change = change + self._soft_costs(counts, moved[come] - moved[leave, None, :])
        spare = self.rows @ counts - self.least + self.slack
        gain = change < -TINY * max(1.0, float(saved[leave].max(initial=0.0)))
        outs, ins = gain.nonzero()
        holds = (spare + on_rows[come[ins]] - on_rows[leave[outs]] >= 0).all(axis=1)
        if not holds.any():
            return None
        chosen = int(np.where(holds, change[outs, ins], inf).argmin())
        return int(leave[outs[chosen]]), int(come[ins[chosen]])

    def _soft_costs(self, counts: Floats, moved: Floats) -> Floats:
        """What is missed of the soft rows costs more than at ``counts`` where they are ``moved``, by the last axis."""
        missed = self.soft_least - self.soft_rows @ counts
        costs: Floats = (np.maximum(missed - moved, 0.0) - np.maximum(missed, 0.0)) @ self.soft_prices
        return costs

    def _settle(self, counts: Floats) -> None:
        """One replica more or less, as long as that saves something."""
        for _ in range(_REPAIRS):
            spare = self.rows @ counts - self.least + self.slack
            ends = counts < self.highs, counts > self.lows
            slopes = self._slopes(counts), -self._slopes(counts - 1)
            change = np.concatenate(
                [
                    np.where(may, slope + self._soft_costs(counts, sign * self.soft_rows.T), inf)
                    for may, slope, sign in zip(ends, slopes, (1, -1), strict=True)
                ]
            )
            change[(spare[:, None] + np.hstack([self.rows, -self.rows]) < 0).any(axis=0)] = inf
            chosen = int(change.argmin())
            if change[chosen] >= -TINY:
                return
            counts[chosen % len(counts)] += 1 if chosen < len(counts) else -1

    def _slopes(self, counts: Floats) -> Floats:
        """What one more of each costs; infinite where there can be none."""
        found: Floats = self.slopes[self.each, (counts[:, None] >= self.ends).sum(axis=1)]
        return found

    def _add(self, counts: Floats) -> bool:
        """One replica after the other, each where it makes up most of what is missing for its cost."""
        for _ in range(_REPAIRS):
            missing = self.least - self.rows @ counts
            short = (missing > self.slack).nonzero()[0]
            if not len(short):
                break
            lacks = missing[short]
            helps = (1 / lacks) @ np.minimum(self.rows[short], lacks[:, None])
            costs = self._slopes(counts)
            if len(self.soft_least):
                soft = self._soft_costs(counts, self.soft_rows.T)
                costs = costs + soft - soft.min()
            worth = np.where(counts < self.highs, helps / (costs + TINY), -inf)
            chosen = int(worth.argmax())
            if worth[chosen] <= 0:
                return False
            counts[chosen] += 1
        return True

    def _take(self, counts: Floats) -> None:
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


Bundles = tuple[NDArray[np.intp], NDArray[np.intp]]
"""One or two columns each: the first and the second, -1 where there is none."""


@cache
def _bundles(columns: int, *, pairs: bool) -> Bundles:
    alone = np.arange(columns)
    if not pairs:
        return alone, np.full(columns, -1)
    first, second = np.triu_indices(columns)
    return np.concatenate((alone, first)), np.concatenate((np.full(columns, -1), second))


def _costs(bundles: Bundles, one: Floats, other: Floats) -> Floats:
    """Of each bundle: ``one`` of a column costs that, the ``other`` of the same column that."""
    first, second = bundles
    with_second = np.where(second == first, other[first], one[second])
    return one[first] + np.where(second < 0, 0.0, with_second)
