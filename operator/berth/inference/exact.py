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
reduced costs of the slacks. What is missed of a soft row is a column more, which need not be whole.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, floor, inf
from typing import Final

import numpy as np
from numpy.typing import NDArray

from berth.inference.program import TINY, Column, Program, Row, Soft, Solution, roundings
from berth.inference.repair import Repair, solution

MOST_NODES: Final = 120
_MOST_PIVOTS: Final = 200
_TRIED: Final = 10
"""Of so many nodes, the first ones and those left at the end, the mixes near their relaxations are looked at."""
_WHOLE: Final = 1e-6

Floats = NDArray[np.float64]


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
    repair = Repair(program)
    best, upper = None, inf
    heap, opened, popped = [(root.bound, 0, root)], 1, 0
    while heap and _better(heap[0][0], upper):
        bound, _, node = heapq.heappop(heap)
        split = relaxation.loosest(node)
        near = solution(program, relaxation.counts(node)) if split is None else None
        if split is None and near is None:  # rounding in the table; the other solver decides
            raise GaveUp(best, bound)
        if split is not None and popped < _TRIED:
            near = repair.near(relaxation.counts(node))
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
            nodes = [relaxation.counts(node) for _, _, node in heapq.nsmallest(_TRIED, heap)]
            raise GaveUp(_best_near(repair, nodes, best), heap[0][0])
    return None if best is None else Solution(best.counts, best.cost, best.cost, proven=True)


def _best_near(repair: Repair, nodes: list[Floats], best: Solution | None) -> Solution | None:
    """The cheapest of ``best`` and what is near the counts of the most promising nodes that are left."""
    found = [one for one in (best, *map(repair.near, nodes)) if one is not None]
    if found:
        return repair.better(min(found, key=lambda one: one.cost))
    return min((one for one in map(repair.forced, nodes) if one is not None), key=lambda one: one.cost, default=None)


def _better(bound: float, upper: float) -> bool:
    """Whether something below ``upper`` may be left."""
    return upper == inf or bound < upper - TINY * max(1.0, abs(upper))


@dataclass(frozen=True, slots=True)
class _Node:
    """Amounts narrowed to ``lows`` … ``highs``, the relaxation's value and counts there, its final table.

    Positions are those of the groups, whose amount is a sum, then those of the columns, whose amount is the count, then
    those of the soft rows, whose amount is what is missed.
    """

    bound: float
    filled: Floats
    lows: Floats
    highs: Floats
    table: Floats
    basis: list[int]


class _Relaxation:
    """The dual of the linear relaxation. Columns of the table: prices y, then slacks, then the right side.

    Rows of the table: one for each cost piece, then the reduced costs. A z is in the table only where it is basic: its
    column is the slack's turned round, and its reduced cost what the slack's is below the length of the piece.
    """

    def __init__(self, program: Program) -> None:
        columns, softs = program.columns, program.softs
        missed = [(len(columns) + i, 0.0, program.missed(soft), soft.price) for i, soft in enumerate(softs)]
        parts = [
            (i, start, start + length, slope)
            for i, column in enumerate(columns)
            for start, length, slope in _placed(column)
        ] + missed
        self.owner = np.array([i for i, _, _, _ in parts], int)
        self.starts = np.array([start for _, start, _, _ in parts], float)
        self.ends = np.array([end for _, _, end, _ in parts], float)
        self.slopes = np.array([slope for _, _, _, slope in parts], float)
        prices = np.array([column.pieces[0][1] if column.pieces else 0.0 for column in columns])
        self.count = len(program.groups)
        self.lows = np.array([*(column.low for column in columns), *(0.0 for _ in softs)], float)
        self.highs = np.array([*(column.high for column in columns), *(most for _, _, most, _ in missed)], float)
        sums = np.zeros((self.count, len(self.lows)))
        for position, group in enumerate(program.groups):
            sums[position, list(group)] = 1.0
        self.whole = self.count + len(columns)
        self.amounts = np.vstack([sums, np.eye(len(self.lows))])
        own = self.amounts[: self.whole, : len(columns)]
        self.weights = own @ prices / np.maximum(own.sum(axis=1), 1.0) + TINY
        held: list[Row | Soft] = [*program.rows, *roundings(program.rows), *softs]
        rows = np.zeros((len(held), len(self.lows)))
        rows[:, : len(columns)] = np.array([row.coefficients for row in held]).reshape(len(held), len(columns))
        rows[len(held) - len(softs) :, len(columns) :] = np.eye(len(softs))
        self.rows = np.vstack([rows, sums, -sums])
        self.least = np.array([row.least for row in held], float)
        self.prices, self.parts = len(self.rows), len(parts)

    def root(self) -> _Node | None:
        """The relaxation of the whole program, ``None`` where it has no solution."""
        eye = np.eye(self.parts)
        table = np.vstack(
            [
                np.hstack([self.rows.T[self.owner], eye, self.slopes[:, None]]),
                np.zeros(self.prices + self.parts + 1),
            ]
        )
        basis = list(range(self.prices, self.prices + self.parts))
        return self._solve(table, basis, self.amounts @ self.lows, self.amounts @ self.highs)

    def counts(self, node: _Node) -> Floats:
        """Of the columns."""
        return node.filled[: self.whole - self.count]

    def loosest(self, node: _Node) -> int | None:
        """The sum or count that is off a whole number by the most money; ``None`` where all are whole."""
        amounts = (self.amounts @ node.filled)[: self.whole]
        off = np.abs(amounts - np.rint(amounts))
        off[off <= _WHOLE] = 0.0
        position = int((off * self.weights).argmax()) if len(off) else 0
        return position if len(off) and off[position] > 0 else None

    def children(self, node: _Node, position: int, upper: float) -> list[_Node]:
        """The two nodes in which the amount at ``position`` is at most, and at least, the whole number next to it.

        One that cannot go below ``upper`` is left out.
        """
        at = float(self.amounts[position] @ node.filled)
        below, above = node.highs.copy(), node.lows.copy()
        below[position], above[position] = floor(at), ceil(at)
        found = (
            self._solve(node.table.copy(), list(node.basis), node.lows, below, upper),
            self._solve(node.table.copy(), list(node.basis), above, node.highs, upper),
        )
        return [child for child in found if child is not None]

    def _solve(self, table: Floats, basis: list[int], lows: Floats, highs: Floats, upper: float = inf) -> _Node | None:
        count, prices, parts = self.count, self.prices, self.parts
        low = lows[count:]
        begun = np.clip(low[self.owner], self.starts, self.ends)
        lengths = np.maximum(np.minimum(self.ends, highs[count:][self.owner]) - begun, 0.0)
        bounds = np.concatenate((self.least, lows[:count], -highs[:count])) - self.rows @ low
        worth = np.concatenate((bounds, np.zeros(parts), -lengths))
        reduced = table[-1]
        np.matmul(worth[basis], table[:-1], out=reduced)
        reduced[:prices] -= bounds
        base = float(self.slopes @ (begun - self.starts))
        if not _pivot(table, basis, lengths, upper - base):
            return None
        filled = low + np.bincount(self.owner, reduced[prices:-1], len(low))
        return _Node(base + float(reduced[-1]), filled, lows, highs, table, basis)


def _placed(column: Column) -> Iterator[tuple[int, int, float]]:
    """(start, length, slope) of each cost piece."""
    start = column.low
    for length, slope in column.pieces:
        yield start, length, slope
        start += length


def _pivot(table: Floats, basis: list[int], lengths: Floats, enough: float) -> bool:
    """Bring ``table``, whose last row is the reduced costs, to the optimum; False where none is below ``enough``.

    The value only grows on the way there. ``basis`` tells a z by the number of its slack and that of all pieces.
    """
    reduced, sides, parts = table[-1], table[:-1, -1], len(lengths)
    costs, filled = reduced[:-1], reduced[-1 - parts : -1]
    small = TINY * max(1.0, float(np.abs(costs).max(initial=0.0)), float(lengths.max(initial=0.0)))
    for step in range(_MOST_PIVOTS):
        left = lengths - filled
        entering, over = _entering(costs, left, small, steepest=step < _MOST_PIVOTS // 2)
        cost = float(left[over] if entering < 0 else costs[entering])
        if cost >= -small:
            break
        if entering < 0:
            entering = len(costs) + over
            column = -table[:, entering - parts]
            column[-1] = cost
        else:
            column = table[:, entering].copy()
        usable = (column[:-1] > TINY).nonzero()[0]
        if not len(usable):
            return False
        leaving = int(usable[(sides[usable] / column[usable]).argmin()])
        row = table[leaving] / column[leaving]
        table -= column[:, None] * row
        table[leaving] = row
        basis[leaving] = entering
        if not _better(float(reduced[-1]), enough):
            return False
    return True


def _entering(costs: Floats, left: Floats, small: float, *, steepest: bool) -> tuple[int, int]:
    """The column that enters, or -1 and the piece whose z does. Not the ``steepest``: the first, which by Bland's rule
    never turns in circles."""
    if steepest:
        column, over = int(costs.argmin()), int(left.argmin()) if len(left) else 0
        return (-1, over) if len(left) and left[over] < costs[column] else (column, over)
    column, over = int((costs < -small).argmax()), int((left < -small).argmax()) if len(left) else 0
    return (column, over) if costs[column] < -small or not len(left) else (-1, over)
