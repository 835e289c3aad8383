"""A pool's topology as one gang sees it: how many of its workers every domain could take.

The numbers of hosts climb the tree once; every question afterwards is about domains, of which there are far fewer.
Where tensor groups must stay in an NVLink domain, whole groups are counted from that level up and workers below it, so
that what does not add up to a group is never counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Ranker = Callable[[int, Ints], Ints]
"""Level and domain ids to numbers that order them by name."""


class Tree:
    """Domains by level, outermost first, hosts last, with what each could take.

    ``parent[level][id]`` is the id one level up (-1 at the top and for ids out of use). ``capacity[level][id]`` is in
    the unit of the level: groups of ``group`` workers down to the level ``bond``, within whose domains a group must
    stay, single workers below. ``need[level]`` is the gang's size in the same unit. With ``group`` 1, or where the
    bond is the host, one unit serves all levels: then ``bond`` is the host level.
    """

    def __init__(
        self,
        parent: Sequence[NDArray[np.integer]],
        workers_by_host: Ints,
        ranker: Ranker,
        *,
        workers: int,
        group: int = 1,
        bond: int | None = None,
        penalised: NDArray[np.bool_] | None = None,
    ) -> None:
        self.depth, self.host = len(parent), len(parent) - 1
        self.parent, self.ranker, self.penalised = parent, ranker, penalised
        self.bond = self.host if group == 1 or bond is None else bond
        self.group, self.workers, self._workers = group, workers, workers_by_host
        self.split = self.bond < self.host  # whether levels below the bond count workers and those above it groups
        host_unit = 1 if self.split else group
        self.need = [workers // (group if level <= self.bond else 1) for level in range(self.depth)]
        capacity = workers_by_host // host_unit if host_unit > 1 else workers_by_host
        climbed = [capacity]
        for level in range(self.host - 1, -1, -1):
            climbed.append(self._climb(level, climbed[-1]))
        self.capacity: list[Ints] = climbed[::-1]
        self._active: list[Ints | None] = [None] * self.depth
        if self.split:
            self._drop_broken()

    def _climb(self, level: int, below: Ints) -> Ints:
        ids = np.flatnonzero(below)
        sums = np.bincount(self.parent[level + 1][ids], below[ids], self._size(level)).astype(np.int64)
        return sums // self.group if self.split and level == self.bond else sums

    def _size(self, level: int) -> int:
        return len(self.parent[level])

    def _drop_broken(self) -> None:
        """Below the bond, forget what hangs under domains that hold no whole group."""
        whole = self.capacity[self.bond] > 0
        for level in range(self.bond + 1, self.depth):
            self.capacity[level] = self.capacity[level] * whole[self.parent[level]]
            whole = self.capacity[level] > 0

    def unit(self, level: int) -> int:
        """Workers in one unit of ``level``."""
        return self.group if level <= self.bond else 1

    def without_penalised(self) -> Tree:
        """The same tree with nothing on penalised hosts."""
        assert self.penalised is not None
        return Tree(
            self.parent,
            np.where(self.penalised, 0, self._workers),
            self.ranker,
            workers=self.workers,
            group=self.group,
            bond=self.bond,
        )

    def active(self, level: int) -> Ints:
        """The domains of ``level`` that could take anything, by id."""
        known = self._active[level]
        if known is None:
            known = self._active[level] = np.flatnonzero(self.capacity[level])
        return known

    def up(self, level: int, ids: Ints, to: int) -> Ints:
        """The domains of level ``to`` that hold ``ids`` of ``level``; level -1 is the pool, id 0."""
        if to < 0:
            return np.zeros(len(ids), np.int64)
        above: NDArray[np.integer] = ids
        while level > to:
            above = self.parent[level][above]
            level -= 1
        return above.astype(np.int64, copy=False)

    def down(self, at: int, ids: Ints, level: int) -> tuple[Ints, Ints]:
        """The active domains of ``level`` under ``ids`` of level ``at`` (-1: the pool) and, of each, whose it is.

        Ordered by owner as ``ids`` are, unordered below that; owners are positions in ``ids``.
        """
        below = self.active(level)
        if at < 0:
            return below, np.zeros(len(below), np.int64)
        place = np.full(self._size(at), -1, np.int64)
        place[ids] = np.arange(len(ids))
        owner = place[self.up(level, below, at)]
        kept = np.flatnonzero(owner >= 0)
        order = kept[np.argsort(owner[kept], kind="stable")] if len(ids) > 1 else kept
        return below[order], owner[order]

    def by_path(self, level: int, ids: Ints) -> Ints:
        """``ids`` in the natural order of their paths from the top."""
        if len(ids) < 2:
            return ids
        keys, above = [self.ranker(level, ids)], ids
        for outer in range(level - 1, -1, -1):
            above = self.up(outer + 1, above, outer)
            if (above == above[0]).all():
                break
            keys.append(self.ranker(outer, above))
        return ids[np.lexsort(keys)]

    def first_by_path(self, level: int, ids: Ints) -> int:
        """The first of ``ids`` in the natural order of their paths, without ordering all of them."""
        for outer in range(level + 1):
            if len(ids) == 1:
                break
            above = self.up(level, ids, outer)
            distinct, back = np.unique(above, return_inverse=True)
            if len(distinct) > 1:
                ranks = self.ranker(outer, distinct)
                ids = ids[(ranks == ranks.min())[back]]
        return int(ids.min())
