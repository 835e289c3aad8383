"""How far a gang is from fitting, and the sentence that says so.

Whether it fits is arithmetic: in each domain that may hold it whole, the workers that fit either reach its size or
do not. So a refusal is always a proof, and the numbers in its sentence are the proof.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from berth.fleet.arrays import Bools
from berth.training.candidates import Candidate, Held, tree_of, workers_if_empty, workers_now
from berth.training.records import GangRequest, Refusal
from berth.training.shortage import few_workers, no_worker
from berth.training.tree import Ints, Tree
from berth.values import plural


@dataclass(frozen=True, slots=True)
class Room:
    """The roomiest domain for the whole gang in a pool: level ``candidate.confine``, id ``domain``, -1 for the pool.

    ``workers`` of the gang fit there, by whole slices. ``name`` is the domain's, "" for the pool.
    """

    candidate: Candidate
    domain: int
    name: str
    workers: int
    tree: Tree
    fits: Ints

    @property
    def level(self) -> str:
        """The level's name, "" for the pool."""
        return self.candidate.pool.levels[self.candidate.confine].name if self.domain >= 0 else ""

    @property
    def place(self) -> str:
        """In words: the domain, or the pool."""
        pool = self.candidate.pool.spec.name
        return f"{self.level} {self.name} of {pool}" if self.domain >= 0 else pool


def roomiest(candidate: Candidate, request: GangRequest, fits: Ints) -> Room:
    """Where in the candidate the most workers fit; among equals the first by name."""
    tree = tree_of(candidate, request, fits)
    level = candidate.confine
    if level < 0:
        return Room(candidate, -1, "", int(tree.capacity[0].sum()) * tree.unit(0), tree, fits)
    capacity = tree.capacity[level]
    if not len(capacity):
        return Room(candidate, -1, "", 0, tree, fits)
    most = int(capacity.max())
    domain = tree.first_by_path(level, np.flatnonzero((capacity == most) & _in_use(candidate, level)))
    return Room(candidate, domain, candidate.pool.domain_names[level][domain], most * tree.unit(level), tree, fits)


def _in_use(candidate: Candidate, level: int) -> Bools:
    return np.array([bool(name) for name in candidate.pool.domain_names[level]], np.bool_)


def rooms(groups: list[list[Candidate]], request: GangRequest, held: Held | None) -> Iterator[Room]:
    """The roomiest domain of every candidate, as things are."""
    for candidate in (each for group in groups for each in group):
        yield roomiest(candidate, request, workers_now(candidate.pool, request, held))


def refuse(groups: list[list[Candidate]], request: GangRequest, held: Held | None = None) -> Refusal:
    """Why none of the candidates takes the gang: never, or not now."""
    every = [each for group in groups for each in group]
    empty = [roomiest(each, request, workers_if_empty(each.pool, request)) for each in every]
    most = max(empty, key=lambda room: room.workers)
    if most.workers < request.workers:
        alone = no_worker([each.pool for each in every], request)
        return Refusal("TooLarge", alone or _too_large(most, request, len(every)))
    best = max(rooms(groups, request, held), key=lambda room: room.workers)
    return Refusal("NoCapacity", _no_capacity(best, most, request, len(every)))


def per_node(room: Room, request: GangRequest) -> int:
    """Workers on an empty node like most of those in the room (of the pool, where it has none); 0 for none."""
    pool, candidate = room.candidate.pool, room.candidate
    fits = workers_if_empty(pool, request)
    inside = fits
    if room.domain >= 0:
        inside = fits[pool.domain[candidate.confine] == room.domain]
    for some in (inside, fits):
        often = np.bincount(some[some > 0])
        if len(often):
            each = int(np.argmax(often))
            return each if room.tree.split else each // candidate.group * candidate.group
    return 0


def shape(request: GangRequest) -> str:
    """The gang in words."""
    words = f"{plural(request.workers, 'worker')} of {plural(request.accelerators_per_worker, 'device')}"
    return words if request.slice_workers == 1 else f"{words} in NVLink groups of {request.slice_workers}"


def _where(room: Room, pools: int) -> str:
    pool = room.candidate.pool.spec.name if pools == 1 else "one pool"
    level = room.candidate.pool.levels[room.candidate.confine].name if room.candidate.confine >= 0 else ""
    return f"one {level} of {pool}" if level else pool


def _no_capacity(best: Room, most: Room, request: GangRequest, pools: int) -> str:
    nodes = per_node(most, request) == 1
    need = plural(request.workers, "free node") if nodes else f"room for {request.workers}"
    have = f"{best.workers}" if nodes else f"room for {best.workers}"
    if best.domain >= 0:
        name = best.name if pools == 1 else f"{best.name} of {best.candidate.pool.spec.name}"
        there = f"the best {best.level}, {name}, has {have}"
    elif pools > 1:
        there = f"the best, {best.candidate.pool.spec.name}, has {have}"
    else:
        there = f"it has {have}"
    return f"Waiting for capacity: {shape(request)} need {need} in {_where(best, pools)}; {there}"


def _too_large(most: Room, request: GangRequest, pools: int) -> str:
    largest = f"the largest, {most.place}," if most.domain >= 0 or pools > 1 else "it"
    clauses = few_workers(most.candidate, request)
    return "; ".join(
        (
            f"{shape(request)} would not fit in {_where(most, pools)} even if it were empty",
            f"{largest} would hold {most.workers}",
            *clauses,
        )
    )
