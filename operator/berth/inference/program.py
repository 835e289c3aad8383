"""The choice of a mix as an integer program: convex costs per variant, linear rows over counts.

Both solvers, the enumeration and the one by a solver library, read this one form, so that they cannot disagree about
what is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Final

TINY: Final = 1e-9
_FRACTIONS: Final = range(1, 11)
_FRACTION: Final = 1e-4
"""A fraction below it may come of rounding, and is cut no further."""


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
class Soft:
    """A row that may be missed: ``price`` for each unit that ``Σ coefficients·count`` is below ``least``."""

    coefficients: tuple[float, ...]
    least: float
    price: float

    def cost(self, counts: Sequence[int]) -> float:
        """What ``counts`` miss of it, at its price."""
        return self.price * max(0.0, self.least - sum(a * n for a, n in zip(self.coefficients, counts, strict=True)))


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
    """Minimise the sum of the columns' costs, and of what is missed of ``softs``, within the rows.

    ``groups`` are columns that do alike, such as one accelerator's in several zones: a search decides their sum before
    it decides among them.
    """

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    groups: tuple[tuple[int, ...], ...] = ()
    softs: tuple[Soft, ...] = ()

    def cost(self, counts: Sequence[int]) -> float:
        """Of ``counts``, in the order of the columns."""
        own = sum(column.cost(count) for column, count in zip(self.columns, counts, strict=True))
        return own + sum(soft.cost(counts) for soft in self.softs)

    def missed(self, soft: Soft) -> float:
        """The most that any counts within the columns miss of ``soft``."""
        ends = zip(soft.coefficients, self.columns, strict=True)
        return max(0.0, soft.least - sum(a * (column.low if a > 0 else column.high) for a, column in ends))

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


def roundings(rows: Sequence[Row]) -> list[Row]:
    """Rows that every solution in whole numbers keeps, and fractions need not: for rows without negative coefficients.

    Mixed-integer rounding (Nemhauser and Wolsey, 1990): a row divided by one of its coefficients, with f the fraction
    of its bound, gives ``Σ (⌊a⌋ + min(1, frac a / f))·n ≥ ⌈b⌉``.
    """
    found: dict[tuple[tuple[float, ...], float], Row] = {}
    for row in rows:
        if row.least <= 0 or min(row.coefficients, default=-1.0) < 0:
            continue
        for unit in sorted({a for a in row.coefficients if a > TINY}):
            fraction = row.least / unit - floor(row.least / unit)
            if fraction >= _FRACTION:
                whole = tuple(_rounded(a / unit, fraction) for a in row.coefficients)
                least = float(ceil(row.least / unit))
                found.setdefault((whole, least), Row(row.name, whole, least))
    return list(found.values())


def _rounded(amount: float, fraction: float) -> float:
    whole = floor(amount + TINY)
    return whole + min(1.0, max(0.0, amount - whole) / fraction)
