"""The whole question composed exactly, where the faster ways do not answer all of it.

Two cases need it. Groups may be bound to domains above the level that is counted first: then domains of that level do
not simply add up, as what a group leaves over in its domain is of no use to another. And where penalised hosts cannot
be avoided altogether, the fewest of them is one more number to make least. The composition answers both for any tree;
its price is what a small gang or fleet can pay.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from berth.training.compose import Budget, Composer, OutOfBudget, Selection, Weights, weights
from berth.training.counts import fewest
from berth.training.descend import Descent
from berth.training.tree import Ints, Tree

Bins = list[tuple[Ints, int]]
"""Hosts to fill, and how many units go on them."""


@dataclass(frozen=True, slots=True)
class Whole:
    """``counts`` of the levels from the one searched down, ``bounds`` on them, and what to fill with how much."""

    counts: list[int]
    bounds: list[int]
    bins: Bins


def whole(tree: Tree, start: Descent, prefer: int, budget: Budget) -> Whole | None:
    """The best below the candidates of ``start``: counts, spare room, penalised hosts. ``None`` beyond the budget."""
    if start.level == tree.depth:
        return _one_host(tree, start)
    best: tuple[tuple[list[int], int, int], Selection] | None = None
    level = _first(tree, start)
    most = {start.level: start.number} if start.number else {}
    try:
        for at, root in enumerate(start.roots.tolist()):
            ids = tree.by_path(level, tree.down(start.at, np.array([root]), level)[0])
            how = _weights(tree, start, prefer)
            cost, selection = Composer(tree, how, budget, most).cheapest(level, ids)
            spare = int(start.spare[at]) if start.spare is not None else how.spare_of(cost)
            rank = (how.counts(cost), spare, cost)
            if best is None or rank < best[0]:
                best = rank, selection
    except OutOfBudget:
        return None
    assert best is not None
    (counts, _, _), selection = best
    return Whole(counts, list(counts), _bins(tree, start, selection))


def largest_first(tree: Tree, start: Descent, prefer: int) -> Whole:
    """Where groups are bound above the counted level and the budget is spent: the largest domains of the bond.

    What lies in them is composed; the bound is that of the gang without groups.
    """
    best: Whole | None = None
    bounds: list[int] = []
    for root in start.roots.tolist():
        ids = tree.by_path(tree.bond, tree.down(start.at, np.array([root]), tree.bond)[0])
        groups = tree.capacity[tree.bond][ids]
        largest = ids[np.argsort(-groups, kind="stable")[: fewest(groups, tree.need[tree.bond])]]
        how = _weights(tree, start, prefer)
        cost, selection = Composer(tree, how, Budget(1 << 62), {}).cheapest(tree.bond, largest)
        counts = how.counts(cost)
        below, _ = tree.down(tree.bond, ids, start.level)
        least = fewest(tree.capacity[start.level][below], tree.need[start.level])
        bounds = min(bounds or [tree.need[-1] + 1], [least, *([1] * (len(counts) - 1))])
        if best is None or counts < best.counts:
            best = Whole(counts, [], _bins(tree, start, selection))
    assert best is not None
    return Whole(best.counts, bounds, best.bins)


def _first(tree: Tree, start: Descent) -> int:
    """The level from which to compose: the counted one, or the bond above it."""
    return min(start.level, tree.bond) if tree.split and start.at < tree.bond else start.level


def _weights(tree: Tree, start: Descent, prefer: int) -> Weights:
    levels = {level: min(tree.need[-1], len(tree.active(level))) for level in range(start.level, tree.depth)}
    spare = int(np.sort(tree.capacity[prefer])[::-1][: tree.need[-1]].sum()) if start.spare is None else 0
    bad = 0 if tree.penalised is None else int(tree.penalised.sum())
    how = weights(levels, tree.depth, (prefer, spare) if spare else None, min(bad, tree.need[-1]))
    if how is None:
        raise OutOfBudget
    return how


def _one_host(tree: Tree, start: Descent) -> Whole:
    spare = start.spare if start.spare is not None else np.zeros(len(start.roots), np.int64)
    bad = tree.penalised[start.roots] if tree.penalised is not None else np.zeros(len(start.roots), np.bool_)
    best = np.lexsort((bad, spare))[0]
    kept = start.roots[(spare == spare[best]) & (bad == bad[best])]
    return Whole([], [], [(np.array([tree.first_by_path(tree.host, kept)]), tree.need[-1])])


def _bins(tree: Tree, start: Descent, chosen: Selection) -> Bins:
    deepest = max(chosen.sets)
    sets = np.array(chosen.sets[deepest])
    hosts = sets if deepest == tree.host else tree.down(deepest, sets, tree.host)[0]
    if not tree.split or start.at >= tree.bond:
        return [(hosts, tree.need[-1])]
    domain = tree.up(tree.host, hosts, tree.bond)
    return [(hosts[domain == each], groups * tree.group) for each, groups in chosen.shares.items()]
