"""Natural order of names, so that equal choices fall the same way whatever order nodes were seen in.

Ids of rows and domains depend on the order of observation; names do not. Every tie is therefore broken by name, and
``node-9`` comes before ``node-10``, as people expect.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from itertools import compress
from operator import is_not
from typing import Final

import numpy as np
from numpy.typing import NDArray

_DIGITS: Final = re.compile(r"\d+")
_FEW: Final = 4096  # up to so many ids of a longer level are sorted by themselves


@lru_cache(maxsize=1 << 17)
def natural(name: str) -> str:
    """A key that sorts names with their numbers compared as numbers; distinct names have distinct keys."""
    return f"{_DIGITS.sub(_padded, name)}\0{name}"


def _padded(digits: re.Match[str]) -> str:
    return digits.group().zfill(20)


class NameOrder:
    """Ranks of one level's names. Keeps the order of the whole level once it was needed and mends it by difference."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._keys: list[str] = []
        self._ids: list[int] = []
        self._rank: NDArray[np.int64] = np.zeros(0, np.int64)
        self._known = False

    def ranks(self, names: Sequence[str], ids: NDArray[np.int64], *, changed: bool) -> NDArray[np.int64]:
        """Numbers that order ``ids`` as their names; equal names have equal numbers.

        ``changed`` says that ``names`` may differ from those of the call before.
        """
        if len(ids) <= _FEW < len(names) and (changed or not self._known):
            keys = [natural(names[number]) for number in ids.tolist()]
            place = {key: number for number, key in enumerate(sorted(set(keys)))}
            self._known = self._known and not changed
            return np.fromiter((place[key] for key in keys), np.int64, len(keys))
        if changed or not self._known:
            self._mend(names)
        return self._rank[ids]

    def _mend(self, names: Sequence[str]) -> None:
        """Bring the kept order up to ``names``: by difference where little changed, else anew."""
        now = list(names)
        shared = min(len(now), len(self._names))
        differ = list(compress(range(shared), map(is_not, self._names, now)))
        differ += range(shared, max(len(now), len(self._names)))
        if len(differ) > 64 + len(now) // 16:
            self._ids = sorted(range(len(now)), key=lambda number: natural(now[number]))
            self._keys = [natural(now[number]) for number in self._ids]
        else:
            for number in differ:
                self._move(number, now[number] if number < len(now) else None)
        self._names, self._known = now, True
        if not now:
            return
        fresh = np.fromiter(map(is_not, self._keys[1:], self._keys), np.bool_, len(now) - 1)
        fresh &= np.fromiter((a != b for a, b in zip(self._keys[1:], self._keys, strict=False)), np.bool_, len(now) - 1)
        self._rank = np.empty(len(now), np.int64)
        self._rank[self._ids] = np.concatenate(([0], np.cumsum(fresh)))

    def _move(self, number: int, name: str | None) -> None:
        if number < len(self._names):
            at = bisect_left(self._keys, natural(self._names[number]))
            while self._ids[at] != number:
                at += 1
            del self._keys[at], self._ids[at]
        if name is not None:
            key = natural(name)
            at = bisect_left(self._keys, key)
            self._keys.insert(at, key)
            self._ids.insert(at, number)
