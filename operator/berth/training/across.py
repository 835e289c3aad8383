"""Groups bound to domains above the level that is counted first.

Here domains of the counted level do not simply add up: what a group leaves over in its domain is of no use to another.
The composition over the domains of the bond is exact; it comes at a price that only a small gang or fleet can pay, so
beyond the budget the largest domains of the bond are taken, and the bound is that of the gang without groups.
"""

from __future__ import annotations

import numpy as np

from berth.training.compose import Budget, Composer, OutOfBudget, Selection, weights
from berth.training.counts import fewest
from berth.training.descend import Descent
from berth.training.tree import Ints, Tree

Bins = list[tuple[Ints, int]]


def across(tree: Tree, start: Descent, prefer: int, budget: Budget) -> tuple[Bins, list[int], list[int]]:
    """Hosts to fill with how many workers, the counts from the level ``prefer`` down, and the bounds on them."""
    start = start.in_order(tree)
    best: tuple[list[int], int] | None = None
    chosen, bounds = Selection(), list[list[int]]()
    for root in start.roots.tolist():
        ids, _ = tree.down(start.at, np.array([root]), tree.bond)
        ids = tree.by_path(tree.bond, ids)
        counts, spare, selection, proven = _compose(tree, ids, prefer, budget)
        bounds.append(counts if proven else _bound(tree, ids, prefer, counts))
        if best is None or (counts, spare) < best:
            best, chosen = (counts, spare), selection
    assert best is not None
    return _bins(tree, chosen), best[0], min(bounds)


def _compose(tree: Tree, ids: Ints, prefer: int, budget: Budget) -> tuple[list[int], int, Selection, bool]:
    levels = dict.fromkeys(range(prefer, tree.depth), tree.need[-1])
    spare = int(tree.capacity[prefer].max()) * tree.need[-1]
    bad = 0 if tree.penalised is None else int(tree.penalised.sum())
    how = weights(levels, tree.depth, (prefer, spare), min(bad, tree.need[-1]))
    assert how is not None
    try:
        cost, selection = Composer(tree, how, budget, {}).cheapest(tree.bond, ids)
        return how.counts(cost), how.spare_of(cost), selection, True
    except OutOfBudget:
        groups = tree.capacity[tree.bond][ids]
        largest = ids[np.argsort(-groups, kind="stable")[: fewest(groups, tree.need[tree.bond])]]
        cost, selection = Composer(tree, how, Budget(1 << 62), {}).cheapest(tree.bond, largest)
        return how.counts(cost), how.spare_of(cost), selection, False


def _bound(tree: Tree, ids: Ints, prefer: int, counts: list[int]) -> list[int]:
    below, _ = tree.down(tree.bond, ids, prefer)
    least = fewest(tree.capacity[prefer][below], tree.need[prefer])
    return [least, *([1] * (len(counts) - 1))] if least < counts[0] else [least, *counts[1:-1], counts[-1] - 1 or 1]


def _bins(tree: Tree, chosen: Selection) -> Bins:
    deepest = max(chosen.sets)
    sets = np.array(chosen.sets[deepest])
    hosts = sets if deepest == tree.host else tree.down(deepest, sets, tree.host)[0]
    domain = tree.up(tree.host, hosts, tree.bond)
    return [(hosts[domain == each], groups * tree.group) for each, groups in chosen.shares.items()]
