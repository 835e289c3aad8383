"""Label requirements answered for a whole pool.

A node selector looks at one or two keys, and a key has few values, so each key that is asked for becomes a column of
value numbers: a requirement is then judged once per value instead of once per node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from berth.fleet.arrays import Bools, Ints32, grown
from berth.values import Requirement, Requirements

_KEPT: Final = 16  # columns; selectors of live jobs use few keys


class _Column:
    """The values of one label key by row: 0 stands for absent."""

    def __init__(self, key: str, labels: Sequence[Mapping[str, str]]) -> None:
        self._key = key
        self._values: list[str | None] = [None]
        self._numbers: dict[str | None, int] = {None: 0}
        self._of_row: Ints32 = np.zeros(0, np.int32)
        for row, of_node in enumerate(labels):
            self.put(row, of_node)

    def put(self, row: int, labels: Mapping[str, str]) -> None:
        value = labels.get(self._key)
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self._values)
            self._values.append(value)
        self._of_row = grown(self._of_row, row + 1, 0)
        self._of_row[row] = number

    def overgrown(self) -> bool:
        """Whether values that nobody carries any more outnumber the rows."""
        return len(self._values) > 2 * len(self._of_row) + 64

    def meet(self, requirement: Requirement, rows: int) -> Bools:
        verdicts = [requirement.matches({} if value is None else {self._key: value}) for value in self._values]
        return np.array(verdicts, np.bool_)[self._of_row[:rows]]


class LabelColumns:
    """Columns of the label keys asked for most recently."""

    def __init__(self) -> None:
        self._columns: dict[str, _Column] = {}

    def put(self, row: int, labels: Mapping[str, str]) -> None:
        """The node of ``row`` has other labels; a hole has none."""
        for key, column in list(self._columns.items()):
            column.put(row, labels)
            if column.overgrown():
                del self._columns[key]

    def any_of(self, terms: Iterable[Requirements], labels: Sequence[Mapping[str, str]]) -> Bools:
        """The rows that meet all requirements of at least one term."""
        found: Bools = np.zeros(len(labels), np.bool_)
        for term in terms:
            met: Bools = np.ones(len(labels), np.bool_)
            for requirement in term:
                met &= self._column(requirement.key, labels).meet(requirement, len(labels))
            found |= met
        return found

    def _column(self, key: str, labels: Sequence[Mapping[str, str]]) -> _Column:
        column = self._columns.pop(key, None) or _Column(key, labels)
        self._columns[key] = column
        while len(self._columns) > _KEPT:
            del self._columns[next(iter(self._columns))]
        return column
