"""From the top of the tree to the first level where one domain is not enough.

While a single domain of a level holds the gang, the best at that level is one, and every domain that can do it stays a
candidate: the next level down decides between them. The number at the first level that needs several is exact too, as
the fewest domains are the largest. Only which ones, and what follows below, needs a search.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from berth.training.counts import fewest_by_group
from berth.training.tree import Ints, Tree


@dataclass(slots=True)
class Descent:
    """Candidates ``roots`` of level ``at`` (-1: the pool), any of which can hold the gang at the same counts.

    ``counts`` are those of the levels from the preferred one to the one above ``level``. ``number`` domains of
    ``level`` are needed, in each of ``roots``; ``level`` is the tree's depth when the roots are hosts. ``spare`` is
    what each root leaves free in its preferred domain, ``None`` while that level is still below.
    """

    at: int
    roots: Ints
    level: int
    number: int = 0
    counts: list[int] = field(default_factory=list)
    spare: Ints | None = None

    def in_order(self, tree: Tree) -> Descent:
        """The same with roots in the natural order of their paths."""
        if self.at < 0 or len(self.roots) < 2:
            return self
        roots = tree.by_path(self.at, self.roots)
        if self.spare is not None:
            by_id = np.argsort(self.roots)
            self.spare = self.spare[by_id[np.searchsorted(self.roots[by_id], roots)]]
        self.roots = roots
        return self


def descend(tree: Tree, confine: int, prefer: int) -> Descent | None:
    """Where the search starts, ``None`` when no domain of the level ``confine`` (-1: the pool) holds the gang."""
    if confine < 0:
        roots = np.zeros(1 if int(tree.capacity[0].sum()) >= tree.need[0] else 0, np.int64)
    else:
        roots = np.flatnonzero(tree.capacity[confine] >= tree.need[confine])
    if not len(roots):
        return None
    found = Descent(confine, roots, max(prefer, confine + 1))
    if prefer <= confine:
        found.counts = [1] * (confine - prefer + 1)
        found.spare = tree.capacity[prefer][tree.up(confine, roots, prefer)] - tree.need[prefer]
    while found.level < tree.depth and not _across_bond(tree, found) and _step(tree, found, prefer):
        pass
    return found


def _across_bond(tree: Tree, found: Descent) -> bool:
    """Whether capacities of the next level do not add up, because groups are bound to domains in between."""
    return tree.split and found.at < tree.bond < found.level


def _step(tree: Tree, found: Descent, prefer: int) -> bool:
    level = found.level
    ids, owner = tree.down(found.at, found.roots, level)
    number = fewest_by_group(tree.capacity[level][ids], owner, len(found.roots), tree.need[level])
    least = int(number.min())
    kept = number == least
    if least > 1:
        found.number = least
        found.roots = found.roots[kept]
        found.spare = found.spare[kept] if found.spare is not None else None
        return False
    holding = np.flatnonzero(kept[owner] & (tree.capacity[level][ids] >= tree.need[level]))
    if level == prefer:
        found.spare = tree.capacity[level][ids[holding]] - tree.need[level]
    elif found.spare is not None:
        found.spare = found.spare[owner[holding]]
    found.at, found.roots, found.level = level, ids[holding], level + 1
    found.counts.append(1)
    return True


def choose_one(tree: Tree, found: Descent, prefer: int) -> int:
    """The position in ``roots`` of the one that leaves least behind, at the preferred level, then at each below, then
    above; among equals the first by name."""
    places = np.arange(len(found.roots))
    if found.spare is not None:
        places = places[found.spare == found.spare.min()]
    for level in (*range(prefer + 1, found.at + 1), *range(min(prefer, found.at + 1) - 1, -1, -1)):
        if len(places) == 1 or found.at < 0:
            break
        left = tree.capacity[level][tree.up(found.at, found.roots[places], level)]
        places = places[left == left.min()]
    if len(places) == 1 or found.at < 0:
        return int(places[0])
    first = tree.first_by_path(found.at, found.roots[places])
    return int(places[np.flatnonzero(found.roots[places] == first)[0]])
