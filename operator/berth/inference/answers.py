"""Answers of the search that hold for the question after it too.

What is asked of a mix changes little from one decision to the next: the need drifts, prices, room and replicas stand. A
mix that is cheapest for a need is so for every larger one that it still carries, for more need only rules mixes out
(what is missed of soft rows aside, whose need is part of the question);
and what no mix can keep, none can when more is asked. So most searches need not be repeated. Nothing is lost by it: a
bound that was proven holds for the larger need as well, and an answer is taken only with what was told of it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

import numpy as np

from berth.inference.program import Program, Solution

MOST_KEPT: Final = 16_384
"""Of a thousand services with a dozen questions each; a few hundred bytes apiece."""
_EACH: Final = 4
"""A need that goes to and fro over a step has two answers."""

Kept = tuple[tuple[float, ...], Solution | None]
"""The least of each row that was asked for, and the answer."""


class Answers:
    """Remembers ``most`` questions that differ in more than the least of their rows, those used last."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._kept: OrderedDict[bytes, list[Kept]] = OrderedDict()

    def answer(self, program: Program, search: Callable[[], Solution | None], *, kind: str = "") -> Solution | None:
        """What ``search`` found for ``program``, or for one that asks for less, where that is an answer to this one.

        Searches of another ``kind`` are kept apart.
        """
        key = _key(program, kind)
        least = tuple(row.least for row in program.rows)
        kept = self._kept.get(key, [])
        for asked, found in kept:
            if _within(asked, least) and (found is None or program.feasible(found.counts)):
                self._kept.move_to_end(key)
                return found
        found = search()
        others = [(asked, one) for asked, one in kept if not (_same(one, found) and _within(least, asked))]
        self._kept[key] = [(least, found), *others[: _EACH - 1]]
        self._kept.move_to_end(key)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return found


def _key(program: Program, kind: str) -> bytes:
    """Of all that an answer depends on but the least of each row."""
    numbers: list[float] = [len(program.columns), len(program.rows), len(program.groups), len(program.softs)]
    for column in program.columns:
        numbers += (column.low, column.high, len(column.pieces))
        for piece in column.pieces:
            numbers += piece
    for row in program.rows:
        numbers += row.coefficients
    for group in program.groups:
        numbers += (len(group), *group)
    for soft in program.softs:
        numbers += (*soft.coefficients, soft.least, soft.price)
    return blake2b(np.array(numbers, float).tobytes(), digest_size=16, key=kind.encode()).digest()


def _within(asked: tuple[float, ...], least: tuple[float, ...]) -> bool:
    """Whether ``least`` asks for as much in every row."""
    return all(before <= now for before, now in zip(asked, least, strict=True))


def _same(one: Solution | None, other: Solution | None) -> bool:
    return (one is None) == (other is None) and (one is None or other is None or one.counts == other.counts)
