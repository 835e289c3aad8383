"""The whole question composed exactly, where the faster ways do not answer all of it.

Two cases need it. Groups may be bound to domains above the level that is counted first: then domains of that level do
not simply add up, as what a group leaves over in its domain is of no use to another. And where penalised hosts cannot
be avoided altogether, the fewest of them is one more number to make least. The composition answers both for any tree;
its price is what a small gang or fleet can pay. Beyond it, the domains that promise most are composed, and the bound is
that of the gang without groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from berth.training import cover
from berth.training.compose import Budget, Composer, OutOfBudget, Selection, Weights, weights
from berth.training.counts import fewest_by_group
from berth.training.cover import Cover
from berth.training.descend import Descent
from berth.training.tree import Ints, Tree

_EXTRA: Final = 12  # promising domains beyond those that just hold the gang
_TIES: Final = 4  # candidates composed although only their spare room can be better

Bins = list[tuple[Ints, int]]
"""Hosts to fill, and how many units go on them."""


@dataclass(frozen=True, slots=True)
class Whole:
    """``counts`` of the levels from the one searched down, ``bounds`` on them, and what to fill with how much."""

    counts: list[int]
    bounds: list[int]
    spare: int
    cost: int
    bins: Bins

    @property
    def rank(self) -> tuple[list[int], int, int]:
        """Orders answers, the best first."""
        return self.counts, self.spare, self.cost


def whole(tree: Tree, start: Descent, prefer: int, budget: Budget) -> Whole | None:
    """The best below the candidates of ``start``: counts, spare room, penalised hosts. ``None`` beyond the budget."""
    if start.level == tree.depth:
        return _one_host(tree, start)
    try:
        every = [_composed(tree, start, prefer, at, _ids(tree, start, at), budget) for at in range(len(start.roots))]
    except OutOfBudget:
        return None
    return min(every, key=lambda answer: answer.rank)


def across(tree: Tree, start: Descent, prefer: int, budget: Budget) -> Whole:
    """The best where groups are bound to domains above ``start.level``, proven where bounds meet or budget allows."""
    below, owner = tree.down(start.at, start.roots, start.level)
    least = fewest_by_group(tree.capacity[start.level][below], owner, len(start.roots), tree.need[start.level])
    spare = start.spare if start.spare is not None else np.zeros(len(start.roots), np.int64)
    best: Whole | None = None
    bounds: list[list[int]] = []
    ties = 0
    for at in np.lexsort((spare, least)).tolist():
        if (
            best is not None
            and int(least[at]) >= best.counts[0]
            and (len(best.counts) == 1 or least[at] > best.counts[0])
        ):
            ties += 1
            if int(least[at]) > best.counts[0] or ties > _TIES:
                break
        tried = _one_root(tree, start, prefer, at, int(least[at]), budget)
        bounds.append(tried.bounds)
        if best is None or tried.rank < best.rank:
            best = tried
    assert best is not None
    return Whole(best.counts, min(bounds), best.spare, best.cost, best.bins)


def _one_root(tree: Tree, start: Descent, prefer: int, at: int, least: int, budget: Budget) -> Whole:
    ids = _ids(tree, start, at)
    try:
        return _composed(tree, start, prefer, at, ids, Budget(budget.small))
    except OutOfBudget:
        pass
    some = [_composed(tree, start, prefer, at, few, Budget(1 << 62)) for few in _promising(tree, start, ids)]
    best = min(some, key=lambda answer: answer.rank)
    rest = [1] * (len(best.counts) - 1)
    if best.counts > [least, *rest]:
        try:
            return _composed(tree, start, prefer, at, ids, budget)
        except OutOfBudget:
            pass
    return Whole(
        best.counts, [least, *rest] if best.counts[0] >= least else best.counts, best.spare, best.cost, best.bins
    )


def _promising(tree: Tree, start: Descent, ids: Ints) -> list[Ints]:
    """Some of ``ids`` of the bond level that hold the gang: the largest, and those that a price finds best."""
    groups = tree.capacity[tree.bond][ids]
    below, owner = tree.down(tree.bond, ids, start.level)
    cov = Cover(owner, tree.capacity[start.level][below], len(ids), tree.need[start.level])
    _, at = cover.bound(cov.price[1:], cov.worth[1:], cov.need, len(ids))
    orders = [np.lexsort((-cov.worth[0], -groups)), np.lexsort((-groups, -cov.worth[1 + at]))]
    enough = [int(np.searchsorted(np.cumsum(groups[order]), tree.need[tree.bond])) + 1 for order in orders]
    return [ids[np.sort(order[: count + _EXTRA])] for order, count in zip(orders, enough, strict=True)]


def _ids(tree: Tree, start: Descent, at: int) -> Ints:
    """What to compose under one candidate: domains of the counted level, or of the bond above it."""
    level = _first(tree, start)
    return tree.by_path(level, tree.down(start.at, start.roots[at : at + 1], level)[0])


def _first(tree: Tree, start: Descent) -> int:
    return min(start.level, tree.bond) if tree.split and start.at < tree.bond else start.level


def _composed(tree: Tree, start: Descent, prefer: int, at: int, ids: Ints, budget: Budget) -> Whole:
    """The best of ``ids`` under the candidate ``at``. Raises: OutOfBudget."""
    how = _weights(tree, start, prefer)
    most = {start.level: start.number} if start.number else {}
    cost, selection = Composer(tree, how, budget, most).cheapest(_first(tree, start), ids)
    spare = int(start.spare[at]) if start.spare is not None else how.spare_of(cost)
    counts = how.counts(cost)
    return Whole(counts, list(counts), spare, cost, _bins(tree, start, selection))


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
    return Whole([], [], int(spare[best]), 0, [(np.array([tree.first_by_path(tree.host, kept)]), tree.need[-1])])


def _bins(tree: Tree, start: Descent, chosen: Selection) -> Bins:
    deepest = max(chosen.sets)
    sets = np.array(chosen.sets[deepest])
    hosts = sets if deepest == tree.host else tree.down(deepest, sets, tree.host)[0]
    if not tree.split or start.at >= tree.bond:
        return [(hosts, tree.need[-1])]
    domain = tree.up(tree.host, hosts, tree.bond)
    return [(hosts[domain == each], groups * tree.group) for each, groups in chosen.shares.items()]
