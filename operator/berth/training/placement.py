"""Where a gang goes: all of its workers at once, with proof of how good the place is.

One decision looks at every pool the gang may use, in the order of the accelerators it prefers. Inside a pool the
search is exact (:mod:`search`); between pools of one preference the same order decides: fewest domains at the
preferred level, then at each level below, least left behind, cheapest, healthiest, by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from berth.fleet.arrays import Bools
from berth.fleet.fleet import Fleet
from berth.training.candidates import (
    Candidate,
    Held,
    candidates,
    tree_of,
    workers_if_empty,
    workers_now,
)
from berth.training.names import natural
from berth.training.rank import nodes_in_rank_order
from berth.training.records import GangRequest, Placement, Refusal
from berth.training.refuse import refuse
from berth.training.search import BUDGET, Found, search
from berth.training.tree import Ints, Tree

DEFAULT_BUDGET: Final = BUDGET
"""Elementary steps of one search; see :data:`berth.training.search.BUDGET`."""


@dataclass(frozen=True, slots=True)
class _Option:
    candidate: Candidate
    tree: Tree
    fits: Ints
    found: Found


def place(
    fleet: Fleet, request: GangRequest, *, held: Held | None = None, budget: int = DEFAULT_BUDGET
) -> Placement | Refusal:
    """The best placement of the gang, or why there is none.

    ``held``: by pool the rows that are barred for this gang. ``budget``: elementary steps one pool's search may take
    to prove its answer; past it the placement is Bounded. The answer depends on the arguments alone, and not on the
    order in which nodes were seen.
    """
    groups = candidates(fleet, request)
    if isinstance(groups, Refusal):
        return groups
    for group in groups:
        options = [option for option in (_option(each, request, held, budget) for each in group) if option is not None]
        if options:
            return _chosen(options)
    return refuse(groups, request, held)


def usable_rows(fleet: Fleet, request: GangRequest) -> dict[str, Bools]:
    """By pool the rows that the gang could use if nothing were on them; empty when it could never fit.

    Rows of domains that are too small for it even so are left out.
    """
    groups = candidates(fleet, request)
    if isinstance(groups, Refusal):
        return {}
    found: dict[str, Bools] = {}
    for candidate in (each for group in groups for each in group):
        rows = _rows_if_empty(candidate, request)
        if rows.any():
            found[candidate.pool.spec.name] = rows
    return found


def _rows_if_empty(candidate: Candidate, request: GangRequest) -> Bools:
    pool, fits = candidate.pool, workers_if_empty(candidate.pool, request)
    tree = tree_of(candidate, request, fits)
    if candidate.confine < 0:
        return (fits > 0) if int(tree.capacity[0].sum()) >= tree.need[0] else np.zeros(len(fits), np.bool_)
    holding = np.append(tree.capacity[candidate.confine] >= tree.need[candidate.confine], False)
    rows: Bools = (fits > 0) & holding[pool.domain[candidate.confine]]
    return rows


def _option(candidate: Candidate, request: GangRequest, held: Held | None, budget: int) -> _Option | None:
    fits = workers_now(candidate.pool, request, held)
    if int(fits.sum()) < request.workers:
        return None
    tree = tree_of(candidate, request, fits)
    found = search(tree, candidate.confine, candidate.prefer, budget)
    return None if found is None else _Option(candidate, tree, fits, found)


def _chosen(options: list[_Option]) -> Placement:
    alike = len({_levels(option) for option in options}) == 1

    def key(option: _Option) -> tuple[object, ...]:
        price = option.candidate.pool.usd_per_accelerator_hour
        return (
            not option.candidate.prefers, _comparable(option.found.counts, alike), option.found.spare,
            price is None, price or 0, option.found.penalised, natural(option.candidate.pool.spec.name),
        )  # fmt: skip

    best = min(options, key=key)
    rivals = [option for option in options if option.candidate.prefers == best.candidate.prefers]
    bound = min(_comparable(option.found.bounds, alike) for option in rivals)
    return _placement(best, proven=best.found.proven and bound >= _comparable(best.found.counts, alike))


def _levels(option: _Option) -> tuple[str, ...]:
    return tuple(level.name for level in option.candidate.pool.levels[option.candidate.prefer :])


def _comparable(counts: tuple[int, ...], alike: bool) -> tuple[int, ...]:
    """All numbers where pools have the same levels; else those that any pool has, the first level's and the hosts'."""
    return counts if alike else (counts[0], counts[-1])


def _placement(option: _Option, *, proven: bool) -> Placement:
    pool, tree, found = option.candidate.pool, option.tree, option.found
    domains = {level.name: len(np.unique(tree.up(tree.host, found.hosts, at))) for at, level in enumerate(pool.levels)}
    counted = pool.levels[option.candidate.prefer :]
    return Placement(
        pool=pool.spec.name,
        nodes=nodes_in_rank_order(pool, tree, found, option.fits),
        certificate="Optimal" if proven else "Bounded",
        domains=domains,
        lower_bound={level.name: bound for level, bound in zip(counted, found.bounds, strict=True)},
        leftover=found.spare,
    )
