"""Best-fit greedy placement, the method to compare with.

As Kueue's topology-aware scheduling describes it (keps/2724-topology-aware-scheduling): sums of what fits climb the
tree; at the level asked for, and further up while no single domain holds the gang, the tightest domain that does is
taken; when none at the top does, the largest domains one after the other, the last one swapped for the tightest that
holds the rest. Then the same greedy walk downwards, level by level. Written for the same trees with the same arrays,
so that times compare method with method.
"""

from __future__ import annotations

import numpy as np

from berth.training.tree import Ints, Tree


def place(tree: Tree, confine: int, prefer: int) -> Ints | None:
    """The hosts that greedy takes for the tree's gang, ``None`` when it finds no place."""
    level = prefer
    candidates = tree.active(level)
    while True:
        capacity = tree.capacity[level][candidates]
        fitting = candidates[capacity >= tree.need[level]]
        if len(fitting):
            chosen = fitting[[int(np.argmin(tree.capacity[level][fitting]))]]
            break
        if level <= confine:
            return None
        if level == 0 or level - 1 < confine:
            chosen = _take(tree, level, candidates)
            if not len(chosen):
                return None
            break
        level -= 1
        candidates = tree.active(level)
    while level < tree.host:
        below, _ = tree.down(level, chosen, level + 1)
        level += 1
        chosen = _take(tree, level, below)
    return chosen


def _take(tree: Tree, level: int, ids: Ints) -> Ints:
    """The largest domains until the rest fits into one; for the rest the tightest that holds it."""
    capacity = tree.capacity[level][ids]
    order = np.argsort(-capacity, kind="stable")
    sums = np.cumsum(capacity[order])
    count = int(np.searchsorted(sums, tree.need[level]))
    if count == len(ids):
        return ids[:0]
    rest = tree.need[level] - (int(sums[count - 1]) if count else 0)
    left = order[count:]
    last = left[int(np.argmin(np.where(capacity[left] >= rest, capacity[left], np.iinfo(np.int64).max)))]
    chosen: Ints = ids[np.append(order[:count], last)]
    return chosen
