"""Which running gangs would have to end for a waiting one to fit.

For every domain that could hold the waiting gang, running gangs are taken until there is room: the smallest that frees
all that is missing, or else the one that frees most; those that turn out not to be needed are put back. Where no two of
them share a node, what they free adds up and the answer is the fewest there can be; elsewhere it is a good one, and
said to be that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from berth.fleet.arrays import Bools
from berth.fleet.fleet import Fleet
from berth.fleet.pool import Pool
from berth.training.candidates import allowed_rows, devices_per_worker, tree_of
from berth.training.records import GangRequest
from berth.training.refuse import Room
from berth.training.tree import Ints
from berth.values import MOST_AMOUNT, PODS

Gang = tuple[str, Sequence[str], int, float]
"""Name, claim keys, priority, start."""

_DOMAINS: Final = 32  # domains tried, the roomiest first
_MOST: Final = 64  # gangs that may have to end; past it the answer is of no use


@dataclass(frozen=True, slots=True)
class Ending:
    """``jobs`` whose end would make room in ``pool``; ``fewest`` where that is proven."""

    pool: str
    jobs: tuple[str, ...]
    fewest: bool


@dataclass(slots=True)
class _Holdings:
    """What running gangs hold on the rows of a pool: an entry for each gang and row, in the order of gangs.

    Gangs are numbered in the order in which they should end: lowest priority first, then youngest. ``held`` is by
    resource and entry; ``wants`` is what one worker of the waiting gang needs of each.
    """

    names: list[str]
    gang: Ints
    row: Ints
    held: dict[str, Ints]
    wants: dict[str, int]

    def part(self, kept: Bools) -> _Holdings:
        held = {name: amounts[kept] for name, amounts in self.held.items()}
        return _Holdings(self.names, self.gang[kept], self.row[kept], held, self.wants)


def after_jobs(fleet: Fleet, now: Sequence[Room], request: GangRequest, running: Sequence[Gang]) -> Ending | None:
    """The fewest running gangs found whose end would let the gang fit; ``None`` when not even all together would."""
    ordered = sorted(running, key=lambda gang: (gang[2], -gang[3], gang[0]))
    best: Ending | None = None
    for room in now:
        holdings = _holdings(fleet, room.candidate.pool, request, ordered)
        ending = _in_pool(room, request, holdings) if len(holdings.row) else None
        if ending is not None and (best is None or len(ending.jobs) < len(best.jobs)):
            best = ending
    return best


def _holdings(fleet: Fleet, pool: Pool, request: GangRequest, running: Sequence[Gang]) -> _Holdings:
    wants = {name: amount for name, amount in request.per_worker.items() if amount > 0 and name != PODS}
    wants[pool.resource] = devices_per_worker(pool, request)
    allowed = allowed_rows(pool, request) & ~pool.held_by_other_role("Training")
    entries: list[tuple[int, ...]] = []
    for number, (_, keys, _, _) in enumerate(running):
        for key in keys:
            claim = fleet.claims.get(key)
            row = pool.row.get(claim.node, -1) if claim is not None else -1
            if claim is not None and row >= 0 and allowed[row]:
                entries.append((number, row, *[min(claim.amounts.get(name, 0), MOST_AMOUNT) for name in wants]))
    flat = np.array(entries, np.int64).reshape(-1, 2 + len(wants))
    places, entry = np.unique(flat[:, 0] * len(pool) + flat[:, 1], return_inverse=True)
    held = {name: np.bincount(entry, flat[:, 2 + at], len(places)).astype(np.int64) for at, name in enumerate(wants)}
    held[PODS] = np.bincount(entry, minlength=len(places)).astype(np.int64)
    size = max(len(pool), 1)
    return _Holdings([gang[0] for gang in running], places // size, places % size, held, {**wants, PODS: 1})


def _in_pool(room: Room, request: GangRequest, holdings: _Holdings) -> Ending | None:
    pool, level = room.candidate.pool, room.candidate.confine
    domain = pool.domain[level] if level >= 0 else np.zeros(len(pool), np.int32)
    best: Ending | None = None
    for root in _domains(room, domain[holdings.row].astype(np.int64)):
        inside = holdings.part(domain[holdings.row] == root)
        chosen = _greedy(room, request, root, inside, _MOST if best is None else len(best.jobs) - 1)
        if chosen is not None:
            alone = len(np.unique(inside.row)) == len(inside.row) and not room.tree.split
            names = tuple(sorted(holdings.names[gang] for gang in chosen))
            best = Ending(pool.spec.name, names, fewest=len(chosen) == 1 or alone)
            if len(chosen) == 1:
                break
    return best


def _domains(room: Room, of_entries: Ints) -> list[int]:
    """Domains in which running gangs hold room, those with most room already first."""
    level = room.candidate.confine
    if level < 0:
        return [0]
    ids = room.tree.by_path(level, np.unique(of_entries[of_entries >= 0]))
    first: list[int] = ids[np.argsort(-room.tree.capacity[level][ids], kind="stable")][:_DOMAINS].tolist()
    return first


class _Trial:
    """The room of one domain as gangs end, one after the other."""

    def __init__(self, room: Room, request: GangRequest, root: int, holdings: _Holdings) -> None:
        self.room, self.request, self.root, self.holdings = room, request, root, holdings
        pool, level = room.candidate.pool, room.candidate.confine
        self._rows, self._at = np.unique(holdings.row, return_inverse=True)
        self._free = {name: pool.free_of(name)[self._rows] for name in holdings.wants}
        self._fits = room.fits[self._rows]
        capacity = room.tree.capacity[max(level, 0)]
        held = int(capacity.sum()) if level < 0 else int(capacity[root])
        self._before, self._held = int(self._fits.sum()), held * room.tree.unit(max(level, 0))
        self.left = np.ones(len(holdings.names), np.bool_)

    @property
    def missing(self) -> int:
        """Workers that still do not fit, at least one: room in pieces may not hold whole groups."""
        return max(self.request.workers - self._held - int(self._fits.sum()) + self._before, 1)

    def gains(self) -> tuple[Ints, Ints]:
        """By gang the workers that would fit beside those that do if it ended, and the devices it would free."""
        gained = self._with_held() - self._fits[self._at]
        count = len(self.holdings.names)
        devices = self.holdings.held[self.room.candidate.pool.resource]
        return (
            np.bincount(self.holdings.gang, gained, count).astype(np.int64),
            np.bincount(self.holdings.gang, devices, count).astype(np.int64),
        )

    def end(self, gang: int) -> None:
        """``gang`` ends."""
        mine = self.holdings.gang == gang
        rows = self._at[mine]
        self._fits[rows] = self._with_held()[mine]
        for name, free in self._free.items():
            free[rows] += self.holdings.held[name][mine]
        self.left[gang] = False

    def enough(self) -> bool:
        """Whether the waiting gang fits now."""
        if self.request.workers > self._held + int(self._fits.sum()) - self._before and not self.room.tree.split:
            return False
        fits = self.room.fits.copy()
        fits[self._rows] = self._fits
        tree, level = tree_of(self.room.candidate, self.request, fits), self.room.candidate.confine
        held = int(tree.capacity[0].sum()) if level < 0 else int(tree.capacity[level][self.root])
        return held >= tree.need[max(level, 0)]

    def _with_held(self) -> Ints:
        """By entry the workers that its row takes once the entry's gang has ended."""
        fits = [
            (self._free[name][self._at] + self.holdings.held[name]) // want
            for name, want in self.holdings.wants.items()
        ]
        least: Ints = np.maximum(np.min(fits, axis=0), 0)
        return least


def _greedy(room: Room, request: GangRequest, root: int, holdings: _Holdings, most: int) -> list[int] | None:
    """Gangs taken one after the other, without those that prove needless; ``None`` when it takes over ``most``."""
    trial = _Trial(room, request, root, holdings)
    there = np.unique(holdings.gang)
    chosen: list[int] = []
    while not trial.enough():
        left = there[trial.left[there]]
        if not len(left) or len(chosen) >= most:
            return None
        gained, devices = trial.gains()
        enough = left[gained[left] >= trial.missing]
        if len(enough):
            best = enough[np.lexsort((enough, devices[enough], gained[enough]))[0]]
        else:
            best = left[np.lexsort((left, -devices[left], -gained[left]))[0]]
        chosen.append(int(best))
        trial.end(int(best))
    return _needed(room, request, root, holdings, chosen)


def _needed(room: Room, request: GangRequest, root: int, holdings: _Holdings, chosen: list[int]) -> list[int]:
    for gang in list(chosen) if len(chosen) > 1 else []:
        trial = _Trial(room, request, root, holdings)
        fewer = [each for each in chosen if each != gang]
        for each in fewer:
            trial.end(each)
        if trial.enough():
            chosen = fewer
    return chosen
