"""Where one gang goes in one pool: the fewest domains, level after level, with proof or with the gap.

The search knows trees and capacities only: no fleet, no names. It goes down while one domain is enough
(:mod:`descend`), searches among the candidates at the first level where several are needed (:mod:`narrow`), and fills
the hosts of what was chosen (:mod:`hosts`). Whether the gang fits at all is never in question: capacities add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from berth.training.compose import SMALL, Budget
from berth.training.counts import tight_values, value_counts
from berth.training.descend import Descent, choose_one, descend
from berth.training.hosts import fill, pick
from berth.training.narrow import Narrowed, Narrowing
from berth.training.tree import Ints, Tree
from berth.training.whole import Bins, across, whole

BUDGET: Final = 8_000_000
"""Elementary steps one decision may take beyond bounds and good choices; about 20 ms."""

_TIES: Final = 4
"""Candidates that are searched although only their spare room can be better than that of the best so far."""


@dataclass(frozen=True, slots=True)
class Found:
    """``workers[i]`` of the gang on host ``hosts[i]``; ``counts`` and ``bounds`` from the preferred level to the hosts.

    ``spare``: workers that would still fit in the touched domains of the preferred level. ``penalised``: how many of
    the hosts are.
    """

    hosts: Ints
    workers: Ints
    counts: tuple[int, ...]
    bounds: tuple[int, ...]
    spare: int
    penalised: int

    @property
    def proven(self) -> bool:
        """Whether no placement has fewer domains, level after level."""
        return self.counts == self.bounds


def search(tree: Tree, confine: int, prefer: int, budget: int = BUDGET, small: int = SMALL) -> Found | None:
    """The best placement of the tree's gang; ``None`` proves that there is none.

    ``confine``: level of which one domain holds the whole gang, -1 for none. ``prefer``: level counted first.
    ``budget`` and ``small``: elementary steps to prove counts, and those spent on spare room and penalised hosts.
    """
    found = _search(tree, confine, prefer, Budget(budget, small))
    return found if found is None or not found.penalised else _healthiest(tree, confine, prefer, found)


def _healthiest(tree: Tree, confine: int, prefer: int, found: Found) -> Found:
    """As good as ``found`` with fewer penalised hosts, if there is: with none of them, else as few as can be."""
    without = _search(tree.without_penalised(), confine, prefer, Budget(SMALL))
    if without is not None and without.counts == found.counts:
        spare = _spare(tree, prefer, without.hosts)
        if spare <= found.spare:
            return replace(without, bounds=found.bounds, spare=spare)
    start = descend(tree, confine, prefer)
    assert start is not None
    exact = whole(tree, start.in_order(tree), prefer, Budget(SMALL))
    if exact is None:
        return found
    few = _fill(tree, prefer, exact.bins, [*start.counts, *exact.counts], found.bounds)
    better = (few.counts, few.spare, few.penalised) < (found.counts, found.spare, found.penalised)
    return few if better else found


def _spare(tree: Tree, prefer: int, hosts: Ints) -> int:
    touched = np.unique(tree.up(tree.host, hosts, prefer))
    return (int(tree.capacity[prefer][touched].sum()) - tree.need[prefer]) * tree.unit(prefer)


def _search(tree: Tree, confine: int, prefer: int, budget: Budget) -> Found | None:
    start = descend(tree, confine, prefer)
    if start is None:
        return None
    if start.level == tree.depth:
        host = start.roots[choose_one(tree, start, prefer)]
        return _fill(tree, prefer, [(np.array([host]), tree.need[-1])], start.counts, start.counts)
    if start.level > tree.bond > start.at and tree.split:
        answer = across(tree, start.in_order(tree), prefer, budget)
        return _fill(tree, prefer, answer.bins, answer.counts, answer.bounds)
    last = _last(tree, start)
    if last <= start.level:
        return _settle(tree, start.in_order(tree), prefer)
    return _narrow(tree, start, prefer, last, budget)


def _last(tree: Tree, start: Descent) -> int:
    """The last level whose number is not settled by those above: not the hosts' where all hold the same."""
    capacity = tree.capacity[tree.host][tree.active(tree.host)]
    size = int(capacity[0])
    settled = bool((capacity == size).all()) and (not tree.split or start.at >= tree.bond or tree.group % size == 0)
    return tree.host - 1 if settled else tree.host


def _settle(tree: Tree, start: Descent, prefer: int) -> Found:
    """Numbers are settled; the domains that leave the least behind."""
    level, need = start.level, tree.need[start.level]
    if start.spare is not None:
        root = choose_one(tree, start, prefer)
        ids, _ = tree.down(start.at, start.roots[root : root + 1], level)
        chosen = pick(tree, level, ids, start.number, need)
    else:
        chosen, least = start.roots[:0], -1
        for root in start.roots.tolist():
            ids, _ = tree.down(start.at, np.array([root]), level)
            tried = pick(tree, level, ids, start.number, need)
            held = int(tree.capacity[level][tried].sum())
            if least < 0 or held < least:
                chosen, least = tried, held
            if least == need:
                break
    counts = [*start.counts, start.number]
    return _fill(tree, prefer, _bins(tree, start.at, level, chosen, {}), counts, counts)


def _narrow(tree: Tree, start: Descent, prefer: int, last: int, budget: Budget) -> Found:
    """Search every candidate that its bounds leave a chance, the most promising first."""
    start = start.in_order(tree)
    inner = Narrowing(tree, last, prefer, budget)
    ids = tree.by_path(start.level, tree.down(start.at, start.roots, start.level)[0])
    owner = _places(start.roots, tree.up(start.level, ids, start.at))
    cuts = np.searchsorted(owner, np.arange(len(start.roots) + 1)).tolist()
    parts = [ids[low:high] for low, high in pairwise(cuts)]
    cov = inner.cover(start.level, ids)
    least = cov.bounds_by_group(owner, len(start.roots), start.number)
    spare = start.spare if start.spare is not None else _least_spare(tree, start, parts, least)
    best: Narrowed | None = None
    left, open_bounds, ties = 0, list[list[int]](), 0
    for at in np.lexsort((spare, least)).tolist():
        if best is not None:
            if not _chance(int(least[at]), int(spare[at]), best, left):
                continue
            ties += len(best.counts) == 2 and int(least[at]) == best.counts[1]
            if ties > _TIES:
                break
        tried = inner.solve(start.level, parts[at], start.number, cov.part(cuts[at], cuts[at + 1]))
        open_bounds.append(tried.bounds)
        leaves = int(spare[at]) if start.spare is not None else tried.capacity - tree.need[start.level]
        if best is None or (tried.counts, leaves) < (best.counts, left):
            best, left = tried, leaves
    assert best is not None
    bounds = min(open_bounds)
    deepest = max(best.sets)
    bins = _bins(tree, start.at, deepest, best.sets[deepest], best.shares)
    return _fill(tree, prefer, bins, [*start.counts, *best.counts], [*start.counts, *bounds])


def _places(roots: Ints, of: Ints) -> Ints:
    """Where each of ``of`` is in ``roots``."""
    by_id = np.argsort(roots)
    return by_id[np.searchsorted(roots[by_id], of)]


def _least_spare(tree: Tree, start: Descent, parts: list[Ints], least: Ints) -> Ints:
    """The least that each candidate may leave behind, for those whose bound is the least; 0 for the others."""
    level, need = start.level, tree.need[start.level]
    spare = np.zeros(len(parts), np.int64)
    for at in np.flatnonzero(least == least.min()).tolist() if len(parts) > 1 else []:
        values, available = value_counts(tree.capacity[level][parts[at]])
        spare[at] = int(tight_values(values, available, start.number, need) @ values) - need
    return spare


def _chance(least: int, spare: int, best: Narrowed, left: int) -> bool:
    """Whether a candidate with this bound and spare room may be better than ``best``, which leaves ``left``."""
    if least != best.counts[1] or len(best.counts) > 2:
        return least <= best.counts[1]
    return spare < left


def _bins(tree: Tree, at: int, level: int, chosen: Ints, shares: dict[int, int]) -> Bins:
    """Hosts to fill and how much with: one set, or with bound groups one per domain of the bond level."""
    hosts = chosen if level == tree.host else tree.down(level, chosen, tree.host)[0]
    if not tree.split or at >= tree.bond:
        return [(hosts, tree.need[-1])]
    domain = tree.up(tree.host, hosts, tree.bond)
    shares = shares or _shares(tree, chosen)
    return [(hosts[domain == each], groups * tree.group) for each, groups in shares.items()]


def _shares(tree: Tree, domains: Ints) -> dict[int, int]:
    """Groups by domain of the bond level, every domain full but the smallest."""
    groups = tree.capacity[tree.bond][domains].copy()
    groups[int(np.argmin(groups))] -= int(groups.sum()) - tree.need[tree.bond]
    return dict(zip(domains.tolist(), groups.tolist(), strict=True))


def _fill(tree: Tree, prefer: int, bins: Bins, counts: Sequence[int], bounds: Sequence[int]) -> Found:
    parts = [fill(tree, hosts, need, lean=prefer == tree.host) for hosts, need in bins]
    hosts = np.concatenate([part[0] for part in parts])
    workers = np.concatenate([part[1] for part in parts]) * tree.unit(tree.host)
    settled = [len(hosts)] * (tree.depth - prefer - len(counts))  # the hosts' number, where those above settle it
    penalised = int(tree.penalised[hosts].sum()) if tree.penalised is not None else 0
    return Found(hosts, workers, (*counts, *settled), (*bounds, *settled), _spare(tree, prefer, hosts), penalised)
