"""Exact search of a small integer program: branch and bound on its linear relaxation.

A mix has few columns and rows but counts of up to thousands, so what the search costs must not grow with counts. Each
node narrows the counts of some columns, or the sum of some; its relaxation bounds every mix within. Nodes are opened in
the order of their bounds, so that the first whose relaxation is whole is the cheapest of all.

What is split next is what the cost hangs on most: the distance from a whole number times the price. Before that, each
row is joined by its roundings (:func:`~berth.inference.program.roundings`), without which few large replicas would be
bounded by fractions of one. The search counts nodes and reads no clock: equal questions have equal answers anywhere.

The relaxation is solved through its dual, ``max b·y − Σ u_j z_j`` with ``y·a_j − z_j ≤ c_j`` over the cost pieces j of
length u_j: no slope is negative, so the origin is feasible and there is no first phase, and since narrowing counts
changes the dual's objective alone, a node goes on from its parent's table and takes a few pivots. The counts are the
reduced costs of the slacks.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from math import ceil, floor, inf
from typing import Final

import numpy as np

from berth.inference.program import TINY, Program, Solution, roundings

MOST_NODES: Final = 120
_MOST_PIVOTS: Final = 200
_REPAIRS: Final = 40
_TRIED: Final = 10
"""Of so many nodes, the first ones and those left at the end, the mixes near their relaxations are looked at."""
_WHOLE: Final = 1e-6

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


class GaveUp(Exception):
    """The search opened as many nodes as it may. ``best`` is what it had found, ``bound`` holds for all solutions."""

    def __init__(self, best: Solution | None, bound: float) -> None:
        super().__init__("enumeration gave up")
        self.best, self.bound = best, bound


def enumerate_mix(program: Program, most_nodes: int = MOST_NODES, *, first: bool = False) -> Solution | None:
    """The cheapest solution, or the ``first`` that is found; ``None`` where there is none.

    Raises:
        GaveUp: not decided within ``most_nodes``.
    """
    relaxation = _Relaxation(program)
    root = relaxation.root()
    if root is None:
        return None
    best, upper = None, inf
    heap, opened, popped = [(root.bound, 0, root)], 1, 0
    while heap and _better(heap[0][0], upper):
        bound, _, node = heapq.heappop(heap)
        split = relaxation.loosest(node.filled)
        near = _whole(program, node.filled) if split is None else None
        if split is None and near is None:  # rounding in the table; the other solver decides
            raise GaveUp(best, bound)
        if split is not None and popped < _TRIED:
            near = _repaired(program, node.filled)
        popped += 1
        if near is not None and near.cost < upper:
            best, upper = near, near.cost
        if first and best is not None:
            return best
        if split is None:
            continue
        for child in relaxation.children(node, split, upper):
            opened += 1
            if _better(child.bound, upper):
                heapq.heappush(heap, (child.bound, opened, child))
        if opened > most_nodes and heap:
            raise GaveUp(_best_near(program, heap, best), heap[0][0])
    return None if best is None else Solution(best.counts, best.cost, best.cost, proven=True)


def _best_near(program: Program, heap: list[tuple[float, int, _Node]], best: Solution | None) -> Solution | None:
    """The cheapest of ``best`` and what is near the most promising nodes that are left."""
    found = [_repaired(program, node.filled) for _, _, node in heapq.nsmallest(_TRIED, heap)]
    return min((one for one in (best, *found) if one is not None), key=lambda one: one.cost, default=None)


def _better(bound: float, upper: float) -> bool:
    """Whether something below ``upper`` may be left."""
    return upper == inf or bound < upper - TINY * max(1.0, abs(upper))


@dataclass(frozen=True, slots=True)
class _Node:
    """Sums and counts narrowed to ``lows`` … ``highs``, the relaxation's value and counts there, its final table.

    Positions are those of the groups, then those of the columns.
    """

    bound: float
    filled: list[float]
    lows: list[int]
    highs: list[int]
    table: Floats
    basis: list[int]


class _Relaxation:
    """The dual of the linear relaxation. Columns of the table: prices y, then z, then slacks, then the right side."""

    def __init__(self, program: Program) -> None:
        self.program = program
        starts: list[int] = []
        ends: list[int] = []
        slopes: list[float] = []
        self.owner: list[int] = []
        for i, column in enumerate(program.columns):
            start = column.low
            for length, slope in column.pieces:
                self.owner.append(i)
                starts.append(start)
                ends.append(start + length)
                slopes.append(slope)
                start += length
        self.starts, self.ends, self.slopes = np.array(starts, float), np.array(ends, float), np.array(slopes)
        self.groups = [list(group) for group in program.groups]
        prices = [column.pieces[0][1] if column.pieces else 0.0 for column in program.columns]
        self.weights = [*(sum(prices[i] for i in group) / len(group) for group in self.groups), *prices]
        self.sums = np.zeros((len(self.groups), len(program.columns)))
        for position, group in enumerate(self.groups):
            self.sums[position, group] = 1.0
        held = [*program.rows, *roundings(program.rows)]
        rows = np.array([row.coefficients for row in held], float).reshape(len(held), len(program.columns))
        self.rows = np.vstack([rows, self.sums, -self.sums])
        self.least = np.array([row.least for row in held], float)
        self.prices, self.parts = len(self.rows), len(slopes)

    def root(self) -> _Node | None:
        """The relaxation of the whole program, ``None`` where it has no solution."""
        eye = np.eye(self.parts)
        table = np.hstack([self.rows.T[self.owner], -eye, eye, self.slopes[:, None]])
        columns = self.program.columns
        lows, highs = [column.low for column in columns], [column.high for column in columns]
        lows = [*(sum(lows[i] for i in group) for group in self.groups), *lows]
        highs = [*(sum(highs[i] for i in group) for group in self.groups), *highs]
        return self._solve(table, list(range(self.prices + self.parts, self.prices + 2 * self.parts)), lows, highs)

    def amount(self, filled: list[float], position: int) -> float:
        """The sum of a group or the count of a column."""
        count = len(self.groups)
        return sum(filled[i] for i in self.groups[position]) if position < count else filled[position - count]

    def loosest(self, filled: list[float]) -> int | None:
        """The sum or count that is off a whole number by the most money; ``None`` where all are whole."""
        off = [_off(self.amount(filled, position)) for position in range(len(self.weights))]
        loose = [position for position, distance in enumerate(off) if distance > _WHOLE]
        return max(loose, key=lambda position: off[position] * (self.weights[position] + TINY), default=None)

    def children(self, node: _Node, position: int, upper: float) -> list[_Node]:
        """The two nodes in which the amount at ``position`` is at most, and at least, the whole number next to it.

        One that cannot go below ``upper`` is left out.
        """
        at = self.amount(node.filled, position)
        below, above = list(node.highs), list(node.lows)
        below[position], above[position] = floor(at), ceil(at)
        found = (
            self._solve(node.table.copy(), list(node.basis), node.lows, below, upper),
            self._solve(node.table.copy(), list(node.basis), above, node.highs, upper),
        )
        return [child for child in found if child is not None]

    def _solve(
        self, table: Floats, basis: list[int], lows: list[int], highs: list[int], upper: float = inf
    ) -> _Node | None:
        count = len(self.groups)
        low, high = np.array(lows, float), np.array(highs, float)
        least = np.concatenate((self.least, low[:count], -high[:count]))
        low, high = low[count:], high[count:]
        lengths = np.minimum(self.ends, high[self.owner]) - np.maximum(self.starts, low[self.owner])
        worth = np.zeros(table.shape[1] - 1)
        worth[: self.prices] = least - self.rows @ low
        worth[self.prices : self.prices + self.parts] = -np.maximum(lengths, 0.0)
        reduced = worth[basis] @ table
        reduced[:-1] -= worth
        base = sum(column.cost(count) for column, count in zip(self.program.columns, lows[count:], strict=True))
        if not _pivot(table, reduced, basis, upper - base):
            return None
        filled = low.tolist()
        for owner, amount in zip(self.owner, reduced[self.prices + self.parts : -1].tolist(), strict=True):
            filled[owner] += amount
        return _Node(base + float(reduced[-1]), filled, lows, highs, table, basis)


def _pivot(table: Floats, reduced: Floats, basis: list[int], enough: float) -> bool:
    """Bring ``table`` with the ``reduced`` costs below it to the optimum; False where there is none below ``enough``.

    The value only grows on the way there.
    """
    small = TINY * max(1.0, float(np.abs(reduced[:-1]).max(initial=0.0)))
    for step in range(_MOST_PIVOTS):
        steepest = step < _MOST_PIVOTS // 2  # later by Bland's rule, which never turns in circles
        entering = int(reduced[:-1].argmin() if steepest else (reduced[:-1] < -small).argmax())
        if reduced[entering] >= -small:
            break
        column = table[:, entering]
        usable = column > TINY
        if not usable.any():
            return False
        ratios = np.divide(table[:, -1], column, out=np.full(len(column), inf), where=usable)
        leaving = int(ratios.argmin())
        row = table[leaving] / table[leaving, entering]
        table -= column[:, None] * row
        table[leaving] = row
        reduced -= reduced[entering] * row
        basis[leaving] = entering
        if not _better(float(reduced[-1]), enough):
            return False
    return True


def _off(amount: float) -> float:
    """How far from whole."""
    return abs(amount - round(amount))


def _whole(program: Program, filled: list[float]) -> Solution | None:
    counts = tuple(round(count) for count in filled)
    if not program.feasible(counts):
        return None
    cost = program.cost(counts)
    return Solution(counts, cost, cost, proven=False)


def _repaired(program: Program, filled: list[float]) -> Solution | None:
    """A first solution: the relaxation's counts to the nearest, what is missing added, what is over taken."""
    columns = program.columns
    counts = [min(column.high, max(column.low, round(x))) for column, x in zip(columns, filled, strict=True)]
    matrix = np.array([row.coefficients for row in program.rows]).reshape(len(program.rows), len(columns))
    least = np.array([row.least for row in program.rows])
    for _ in range(_REPAIRS):
        missing = least - matrix @ np.array(counts, float)
        missing[missing <= TINY * np.maximum(1.0, np.abs(least))] = 0.0
        if not missing.any():
            break
        share = np.where(missing > 0, 1 / np.maximum(missing, TINY), 0.0)
        helps = share @ np.minimum(matrix, missing[:, None])
        worth = [
            float(help_) / (column.cost(n + 1) - column.cost(n) + TINY) if n < column.high else -inf
            for help_, column, n in zip(helps, columns, counts, strict=True)
        ]
        chosen = int(np.argmax(worth))
        if worth[chosen] <= 0:
            return None
        counts[chosen] += 1
    for i in sorted(range(len(counts)), key=lambda i: -columns[i].cost(counts[i])):
        for _ in range(_REPAIRS):
            trial = [*counts[:i], counts[i] - 1, *counts[i + 1 :]]
            if trial[i] < columns[i].low or not program.feasible(trial):
                break
            counts = trial
    return _whole(program, [float(count) for count in counts])
