"""The choice of a mix as an integer program: convex costs per variant, linear rows over counts.

Both solvers, the enumeration and the one by a solver library, read this one form, so that they cannot disagree about
what is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

TINY: Final = 1e-9
_FRACTIONS: Final = range(1, 11)


@dataclass(frozen=True, slots=True)
class Row:
    """``Σ coefficients·count ≥ least``; ``name`` of the bound that it stands for."""

    name: str
    coefficients: tuple[float, ...]
    least: float

    def holds(self, counts: Sequence[int]) -> bool:
        """Whether ``counts`` keep it, up to rounding."""
        return sum(a * n for a, n in zip(self.coefficients, counts, strict=True)) >= self.least - TINY * max(
            1.0, abs(self.least)
        )


@dataclass(frozen=True, slots=True)
class Column:
    """The count of one variant, ``low`` to ``high``, and its cost: from ``low`` on pieces (length, slope) in turn.

    Slopes are not negative and never fall, so that a relaxation fills the pieces in their order.
    """

    name: str
    low: int
    high: int
    pieces: tuple[tuple[int, float], ...]

    def cost(self, count: int) -> float:
        """Of ``count``, 0 at ``low``."""
        left, total = count - self.low, 0.0
        for length, slope in self.pieces:
            if left <= length:
                return total + left * slope
            total += length * slope
            left -= length
        return total


@dataclass(frozen=True, slots=True)
class Program:
    """Minimise the sum of the columns' costs within the rows.

    ``groups`` are columns that do alike, such as one accelerator's in several zones: a search decides their sum before
    it decides among them.
    """

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    groups: tuple[tuple[int, ...], ...] = ()

    def cost(self, counts: Sequence[int]) -> float:
        """Of ``counts``, in the order of the columns."""
        return sum(column.cost(count) for column, count in zip(self.columns, counts, strict=True))

    def feasible(self, counts: Sequence[int]) -> bool:
        """Whether ``counts`` keep every row."""
        return all(row.holds(counts) for row in self.rows)


@dataclass(frozen=True, slots=True)
class Solution:
    """``counts`` in the order of the columns; no solution costs less than ``bound``. ``proven``: this one is it."""

    counts: tuple[int, ...]
    cost: float
    bound: float
    proven: bool


def pieces(low: int, high: int, current: int, room: int, slopes: tuple[float, float, float]) -> Column:
    """A nameless column: ``slopes`` of those that exist, of those to be started, of those on nodes to be added."""
    cuts = (low, min(max(current, low), high), min(max(room, current, low), high), high)
    found = tuple(
        (end - start, slope) for start, end, slope in zip(cuts, cuts[1:], slopes, strict=False) if end > start
    )
    return Column("", low, high, found)


def rounded_up(amount: float, sizes: Sequence[float]) -> float:
    """``amount`` up to what sums of ``sizes`` can be, where these are multiples of one size; else as it is.

    A valid cut: with replicas of one capacity, 40.3 of work take as many as 41.
    """
    if not sizes or amount <= 0:
        return amount
    for parts in _FRACTIONS:
        unit = min(sizes) / parts
        if all(abs(size / unit - round(size / unit)) < TINY for size in sizes):
            return max(amount, unit * ceil(amount / unit - TINY))
    return amount
