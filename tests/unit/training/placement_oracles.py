"""What a placement should be, found by other means: every possibility in turn, and a solver for integer programs.

Questions are trees and capacities as the search takes them. Both oracles answer with the numbers of domains from the
preferred level down, the room left in the touched domains of that level, and how many penalised hosts are used.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from berth.training.search import Found
from berth.training.tree import Tree

Answer = tuple[tuple[int, ...], int, int]


@dataclass(frozen=True)
class Question:
    """``parent[level][domain]``; ``fits`` by host; ``bond`` binds groups of ``group`` workers where ``group`` > 1."""

    parent: tuple[tuple[int, ...], ...]
    fits: tuple[int, ...]
    workers: int
    confine: int = -1
    prefer: int = 0
    group: int = 1
    bond: int = 0
    penalised: frozenset[int] = frozenset()

    @property
    def depth(self) -> int:
        return len(self.parent)

    @property
    def hosts(self) -> range:
        return range(len(self.fits))

    def above(self, host: int) -> list[int]:
        """The domain of ``host`` at every level."""
        path = [host]
        for level in range(self.depth - 1, 0, -1):
            path.append(self.parent[level][path[-1]])
        return path[::-1]

    def tree(self) -> Tree:
        """The question as the search takes it; ids are names."""
        bad = np.array([host in self.penalised for host in self.hosts])
        return Tree(
            [np.array(level, np.int32) for level in self.parent],
            np.array(self.fits, np.int64),
            lambda _level, ids: ids,
            workers=self.workers,
            group=self.group,
            bond=self.bond,
            penalised=bad if self.penalised else None,
        )

    def room(self, level: int, domain: int) -> int:
        """Workers that fit in a domain, whole groups only where they are bound."""
        inside = [host for host in self.hosts if self.above(host)[level] == domain]
        if self.group == 1:
            return sum(self.fits[host] for host in inside)
        bonds: dict[int, int] = {}
        for host in self.hosts:
            bonds[self.above(host)[self.bond]] = bonds.get(self.above(host)[self.bond], 0) + self.fits[host]
        if level <= self.bond:
            own = {self.above(host)[self.bond] for host in inside}
            return sum(bonds[bond] // self.group * self.group for bond in own)
        return sum(self.fits[host] for host in inside if bonds[self.above(host)[self.bond]] >= self.group)


def random_question(rng: random.Random, most_hosts: int, most_fits: int, levels: int = 4) -> Question:
    """An irregular tree with some room, and a gang that mostly fits."""
    sizes = [rng.randint(1 + most_hosts // 2, most_hosts)]
    for _ in range(rng.choice((0, 1, 1, 2, 2, 3)) if levels > 3 else levels - 1):
        sizes.append(rng.randint(1, max(1, sizes[-1] // rng.choice((1, 2, 4)))))
    sizes.reverse()
    depth = len(sizes)
    parent = [(-1,) * sizes[0]]
    parent += [tuple(rng.randrange(sizes[level - 1]) for _ in range(sizes[level])) for level in range(1, depth)]
    fits = tuple(rng.randint(0, most_fits) if rng.random() < 0.8 else 0 for _ in range(sizes[-1]))
    confine = rng.choice((-1, -1, rng.randint(-1, depth - 1)))
    prefer, bond = rng.choice((max(confine, 0), rng.randint(0, depth - 1))), rng.randint(0, depth - 1)
    group = rng.choice((1, 1, 1, 2, 3)) if confine < bond else 1
    bad = frozenset(host for host in range(sizes[-1]) if rng.random() < 0.2) if rng.random() < 0.4 else frozenset()
    empty = Question(tuple(parent), fits, 0, confine, prefer, group, bond, bad)
    room = sum(fits) if confine < 0 else max(empty.room(confine, domain) for domain in range(sizes[confine]))
    most = max(1, room // group) + (rng.random() < 0.1)
    return replace(empty, workers=group * rng.randint(min(2, most), most))


def by_brute_force(question: Question) -> Answer | None:
    """The best over every way to spread the workers."""
    paths = [question.above(host) for host in question.hosts]
    room: dict[int, int] = {}
    best: Answer | None = None
    for spread in itertools.product(*(range(fits + 1) for fits in question.fits)):
        if sum(spread) != question.workers:
            continue
        used = [host for host in question.hosts if spread[host]]
        if question.confine >= 0 and len({paths[host][question.confine] for host in used}) > 1:
            continue
        if question.group > 1 and any(_shares(spread, paths, question.bond, bond) % question.group for bond in used):
            continue
        counts = tuple(len({paths[host][level] for host in used}) for level in range(question.prefer, question.depth))
        touched = {paths[host][question.prefer] for host in used}
        for domain in touched - room.keys():
            room[domain] = question.room(question.prefer, domain)
        spare = sum(room[domain] for domain in touched) - question.workers
        answer = counts, spare, len(question.penalised & set(used))
        best = answer if best is None else min(best, answer)
    return best


def _shares(spread: tuple[int, ...], paths: list[list[int]], level: int, host: int) -> int:
    domain = paths[host][level]
    return sum(share for share, path in zip(spread, paths, strict=True) if path[level] == domain)


def by_integer_program(question: Question) -> Answer | None:
    """The same by a solver: one number after the other made least, the ones before held."""
    program = _Program(question)
    counts: list[int] = []
    for level in range(question.prefer, question.depth):
        least = program.least(program.domains(level))
        if least is None:
            return None
        counts.append(least)
    spare = program.least(program.touched_room())
    bad = program.least(program.penalised())
    assert spare is not None
    assert bad is not None
    return tuple(counts), spare - question.workers, bad


class _Program:
    """Workers by host, a switch by domain, groups by bond domain, and a switch by domain that may confine the gang."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.sizes = [len(level) for level in question.parent]
        self.offset = [len(question.fits) + sum(self.sizes[:level]) for level in range(question.depth)]
        switches = len(question.fits) + sum(self.sizes)
        bonds = self.sizes[question.bond] if question.group > 1 else 0
        self.groups, self.width = switches, switches + bonds
        self.rows: list[np.ndarray] = []
        self.low: list[float] = []
        self.high: list[float] = []
        self.upper = np.array([*question.fits, *([1] * sum(self.sizes)), *([question.workers] * bonds)], float)
        self._state()

    def _state(self) -> None:
        q, hosts = self.question, len(self.question.fits)
        self._row(dict.fromkeys(range(hosts), 1.0), q.workers, q.workers)
        for level in range(q.depth):
            for domain in range(self.sizes[level]):
                inside = [host for host in range(hosts) if q.above(host)[level] == domain]
                limit = min(sum(q.fits[host] for host in inside), q.workers)
                self._row({**dict.fromkeys(inside, 1.0), self.offset[level] + domain: -float(limit)}, -np.inf, 0)
                if level == q.bond and q.group > 1:
                    self._row({**dict.fromkeys(inside, 1.0), self.groups + domain: -float(q.group)}, 0, 0)
        if q.confine >= 0:
            self._row(self.domains(q.confine), -np.inf, 1)

    def _row(self, terms: dict[int, float], low: float, high: float) -> None:
        row = np.zeros(self.width)
        for place, factor in terms.items():
            row[place] = factor
        self.rows.append(row)
        self.low.append(low)
        self.high.append(high)

    def domains(self, level: int) -> dict[int, float]:
        return {self.offset[level] + domain: 1.0 for domain in range(self.sizes[level])}

    def touched_room(self) -> dict[int, float]:
        level = self.question.prefer
        return {self.offset[level] + d: float(self.question.room(level, d)) for d in range(self.sizes[level])}

    def penalised(self) -> dict[int, float]:
        return {self.offset[-1] + host: 1.0 for host in self.question.penalised}

    def least(self, terms: dict[int, float]) -> int | None:
        """The least value of ``terms``, which is held from then on."""
        cost = np.zeros(self.width)
        for place, factor in terms.items():
            cost[place] = factor
        found = milp(
            cost,
            constraints=LinearConstraint(np.array(self.rows), np.array(self.low), np.array(self.high)),
            bounds=Bounds(np.zeros(self.width), self.upper),
            integrality=np.ones(self.width),
            options={"mip_rel_gap": 0.0},
        )
        if found.x is None:
            return None
        least = round(float(cost @ np.round(found.x)))
        self._row(terms, -np.inf, least)
        return least


def expect_valid(question: Question, found: Found) -> None:
    """The placement keeps every rule and counts what it uses."""
    hosts, workers = found.hosts.tolist(), found.workers.tolist()
    assert len(set(hosts)) == len(hosts)
    assert sum(workers) == question.workers
    assert all(0 < share <= question.fits[host] for host, share in zip(hosts, workers, strict=True))
    paths = [question.above(host) for host in hosts]
    counts = [len({path[level] for path in paths}) for level in range(question.depth)]
    assert found.counts == tuple(counts[question.prefer :])
    assert question.confine < 0 or counts[question.confine] == 1
    assert found.penalised == len(question.penalised & set(hosts))
    if question.group > 1:
        shares: dict[int, int] = {}
        for path, share in zip(paths, workers, strict=True):
            shares[path[question.bond]] = shares.get(path[question.bond], 0) + share
        assert all(share % question.group == 0 for share in shares.values())
