"""Which running gangs would have to end for a waiting one to fit.

For every domain that could hold the waiting gang, the running gangs that free most of what is missing there are taken
first, and afterwards those that turn out not to be needed are put back. Where no two of them share a node, what they
free adds up and taking the largest first is the fewest there can be; elsewhere it is a good set, and said to be that.
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
from berth.values import PODS

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
class _Freed:
    """What one gang holds in a pool: rows, and by resource how much on each."""

    name: str
    order: tuple[int, float, str]
    rows: Ints
    amounts: dict[str, Ints]


def after_jobs(fleet: Fleet, now: Sequence[Room], request: GangRequest, running: Sequence[Gang]) -> Ending | None:
    """The fewest running gangs found whose end would let the gang fit; ``None`` when not even all together would."""
    best: Ending | None = None
    for room in now:
        pool = room.candidate.pool
        allowed = allowed_rows(pool, request)
        freed = [held for gang in running if (held := _held(fleet, pool, gang, allowed)) is not None]
        ending = _in_pool(room, request, freed) if freed else None
        if ending is not None and (best is None or len(ending.jobs) < len(best.jobs)):
            best = ending
    return best


def _held(fleet: Fleet, pool: Pool, gang: Gang, allowed: Bools) -> _Freed | None:
    name, keys, priority, started = gang
    totals: dict[int, dict[str, int]] = {}
    for key in keys:
        claim = fleet.claims.get(key)
        row = pool.row.get(claim.node) if claim is not None else None
        if claim is None or row is None or not allowed[row]:
            continue
        total = totals.setdefault(row, {PODS: 0})
        total[PODS] += 1
        for resource, amount in claim.amounts.items():
            if resource != PODS:
                total[resource] = total.get(resource, 0) + amount
    if not totals:
        return None
    resources = {resource for total in totals.values() for resource in total}
    amounts = {each: np.array([total.get(each, 0) for total in totals.values()], np.int64) for each in resources}
    return _Freed(name, (priority, -started, name), np.array(list(totals), np.int64), amounts)


def _in_pool(room: Room, request: GangRequest, freed: list[_Freed]) -> Ending | None:
    pool, level = room.candidate.pool, room.candidate.confine
    domain = pool.domain[level].astype(np.int64) if level >= 0 else np.zeros(len(pool), np.int64)
    best: Ending | None = None
    for root in _domains(room, domain, freed):
        inside = [part for gang in freed if (part := _inside(gang, domain == root)) is not None]
        trial = _Trial(room, request, root, domain == root)
        chosen = _greedy(trial, inside, _MOST if best is None else len(best.jobs) - 1)
        if chosen is not None:
            rows = np.concatenate([gang.rows for gang in inside])
            fewest = len(chosen) == 1 or (len(np.unique(rows)) == len(rows) and not room.tree.split)
            best = Ending(pool.spec.name, tuple(sorted(gang.name for gang in chosen)), fewest)
            if len(chosen) == 1:
                break
    return best


def _domains(room: Room, domain: Ints, freed: list[_Freed]) -> list[int]:
    """Domains in which running gangs hold room, those with most room already first."""
    ids = np.unique(np.concatenate([domain[gang.rows] for gang in freed]))
    if room.candidate.confine < 0:
        return [0]
    ids = room.tree.by_path(room.candidate.confine, ids[ids >= 0])
    capacity = room.tree.capacity[room.candidate.confine][ids]
    first: list[int] = ids[np.argsort(-capacity, kind="stable")][:_DOMAINS].tolist()
    return first


def _inside(gang: _Freed, inside: Bools) -> _Freed | None:
    kept = inside[gang.rows]
    if not kept.any():
        return None
    return _Freed(gang.name, gang.order, gang.rows[kept], {name: held[kept] for name, held in gang.amounts.items()})


class _Trial:
    """The room of one domain as gangs end, one after the other."""

    def __init__(self, room: Room, request: GangRequest, root: int, inside: Bools) -> None:
        self.room, self.request, self.root, self.inside = room, request, root, inside
        self.pool = room.candidate.pool
        self.fits = room.fits.copy()
        self._workers = int(self.fits[inside].sum())
        names = [name for name, amount in request.per_worker.items() if amount > 0 and name != PODS]
        self._wants: dict[str, int] = {name: request.per_worker[name] for name in names}
        self._wants[self.pool.resource] = devices_per_worker(self.pool, request)
        self._wants[PODS] = 1
        self._free = {name: self.pool.free_of(name).copy() for name in self._wants}
        self._closed = self.pool.held_by_other_role("Training")

    def gain(self, gang: _Freed) -> tuple[int, int]:
        """Workers that would fit beside those that do if ``gang`` ended too, and devices it would free."""
        devices = gang.amounts.get(self.pool.resource)
        return int((self._fits(gang) - self.fits[gang.rows]).sum()), 0 if devices is None else int(devices.sum())

    def end(self, gang: _Freed) -> None:
        """``gang`` ends."""
        fits = self._fits(gang)
        self._workers += int((fits - self.fits[gang.rows]).sum())
        self.fits[gang.rows] = fits
        for name, free in self._free.items():
            if name in gang.amounts:
                free[gang.rows] += gang.amounts[name]

    @property
    def missing(self) -> int:
        """Workers that still do not fit, at least one: room in pieces may not hold whole groups."""
        return max(self.request.workers - self._workers, 1)

    def enough(self) -> bool:
        """Whether the waiting gang fits now."""
        if self._workers < self.request.workers:
            return False
        tree = tree_of(self.room.candidate, self.request, self.fits)
        level = self.room.candidate.confine
        if level < 0:
            return int(tree.capacity[0].sum()) >= tree.need[0]
        return int(tree.capacity[level][self.root]) >= tree.need[level]

    def _fits(self, gang: _Freed) -> Ints:
        rows = gang.rows
        fits = np.full(len(rows), np.iinfo(np.int64).max)
        for name, want in self._wants.items():
            free = self._free[name][rows] + gang.amounts.get(name, 0)
            np.minimum(fits, free // want, out=fits)
        return np.where(self._closed[rows], 0, np.maximum(fits, 0))


def _greedy(trial: _Trial, gangs: list[_Freed], most: int) -> list[_Freed] | None:
    """Gangs taken by what they free, then without those that prove needless; ``None`` when it takes over ``most``."""
    left = dict(enumerate(sorted(gangs, key=lambda gang: gang.order)))
    gains = {at: trial.gain(gang) for at, gang in left.items()}
    on: dict[int, list[int]] = {}
    for at, gang in left.items():
        for row in gang.rows.tolist():
            on.setdefault(row, []).append(at)
    chosen: list[_Freed] = []
    while not trial.enough():
        if not left or len(chosen) >= most:
            return None
        best = _next(left, gains, trial.missing)
        chosen.append(left.pop(best))
        trial.end(chosen[-1])
        for at in {at for row in chosen[-1].rows.tolist() for at in on[row] if at in left}:
            gains[at] = trial.gain(left[at])
    return _needed(trial, chosen)


def _next(left: dict[int, _Freed], gains: dict[int, tuple[int, int]], missing: int) -> int:
    """The gang that frees least of those that free enough; where none does, the one that frees most."""
    enough = [at for at in left if gains[at][0] >= missing]
    return min(enough, key=gains.__getitem__) if enough else max(left, key=gains.__getitem__)


def _needed(trial: _Trial, chosen: list[_Freed]) -> list[_Freed]:
    for gang in list(chosen) if len(chosen) > 1 else []:
        fewer = [each for each in chosen if each is not gang]
        again = _Trial(trial.room, trial.request, trial.root, trial.inside)
        for each in fewer:
            again.end(each)
        if again.enough():
            chosen = fewer
    return chosen
