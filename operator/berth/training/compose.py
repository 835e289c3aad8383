"""Exact composition of costs up the tree, for the domains that bounds leave in question.

``cost[w]`` is the cheapest way in which some domains hold at least ``w`` units, a cost being the numbers of domains at
each level, most important first, packed into one integer, so that comparing costs compares the numbers one after the
other. Costs add up over domains, so the best way for one more domain is a minimum over what it takes:

    cost'[w] = min over (a, c) of cost[max(w - a, 0)] + c

where (a, c) are the steps of the domain's own table: the most it holds for each cost. Every operation counts against
the budget; none looks at a clock, so that the same question always has the same answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from berth.training.tree import Ints, Tree

NEVER: Final = 1 << 62
ITEM_STEPS: Final = 4000
"""What one more domain costs beside its additions, in steps."""
SMALL: Final = 400_000
_BITS: Final = 62


class OutOfBudget(Exception):
    """The composition would take more elementary steps than there are left."""


@dataclass(slots=True)
class Budget:
    """Elementary steps: additions with comparison on one element of a table.

    Up to ``small`` at once are spent on an exact answer, spare room and penalised hosts included, even where bounds
    already prove the counts.
    """

    left: int
    small: int = SMALL

    def take(self, steps: int) -> None:
        """Count ``steps``. Raises: OutOfBudget."""
        if steps > self.left:
            raise OutOfBudget
        self.left -= steps


@dataclass(frozen=True, slots=True)
class Weights:
    """What one domain of a level costs, spare units of the preferred level and penalised hosts included.

    ``of[level]`` is 0 for levels that do not count. ``shifts`` places the numbers, most important first.
    """

    of: tuple[int, ...]
    spare: int
    spare_level: int
    penalty: int
    shifts: tuple[tuple[int, int], ...]  # level, shift; in order of importance

    def counts(self, cost: int) -> list[int]:
        """The numbers of domains that ``cost`` packs, level by level."""
        numbers, above = [], _BITS
        for _, shift in self.shifts:
            numbers.append((cost & ((1 << above) - 1)) >> shift)
            above = shift
        return numbers

    def spare_of(self, cost: int) -> int:
        """The sum of the capacities of the preferred level's domains that ``cost`` packs; 0 where it has no place."""
        return (cost & ((1 << self.shifts[-1][1]) - 1)) // self.spare if self.spare else 0


def weights(levels: dict[int, int], depth: int, spare: tuple[int, int] | None, hosts: int) -> Weights | None:
    """Weights for counting ``levels`` (level to the most that can occur, in order of importance).

    ``spare`` is the level whose free units count after that and the most of them; ``hosts`` the most penalised hosts.
    The less important numbers are left out when there is no room for them; ``None`` when there is none for the levels.
    """
    counted = sum(most.bit_length() for most in levels.values())
    room = _BITS - counted
    if room < 0:
        return None
    spare_bits = spare[1].bit_length() if spare is not None else 0
    with_spare = spare is not None and spare_bits <= room
    host_bits = hosts.bit_length()
    with_hosts = hosts > 0 and spare_bits + host_bits <= room
    low = (spare_bits if with_spare else 0) + (host_bits if with_hosts else 0)
    shift, shifts, of = counted + low, [], [0] * depth
    for level, most in levels.items():
        shift -= most.bit_length()
        shifts.append((level, shift))
        of[level] = 1 << shift
    return Weights(
        of=tuple(of),
        spare=1 << (host_bits if with_hosts else 0) if with_spare else 0,
        spare_level=spare[0] if spare is not None and with_spare else -1,
        penalty=1 if with_hosts else 0,
        shifts=tuple(shifts),
    )


@dataclass(slots=True)
class _Item:
    """A domain's steps: ``amounts`` ascending and the cost of each. Equal hosts may come as a bundle of one step."""

    domains: list[int]
    amounts: Ints
    costs: Ints


@dataclass(slots=True)
class Selection:
    """Chosen domains by level, and how many units each domain of the bond level takes."""

    sets: dict[int, list[int]] = field(default_factory=dict)
    shares: dict[int, int] = field(default_factory=dict)


class Composer:
    """Tables over ``tree`` with ``weights``. ``penalised`` hosts cost their penalty when there is one."""

    def __init__(self, tree: Tree, how: Weights, budget: Budget, most: dict[int, int]) -> None:
        self.tree, self.how, self.budget = tree, how, budget
        self.most = most  # by level, the most equal domains that one choice can use
        self._steps: dict[tuple[int, bytes], tuple[Ints, Ints]] = {}
        self._below: list[dict[int, Ints]] = [{} for _ in range(tree.depth)]

    def cheapest(self, level: int, ids: Ints) -> tuple[int, Selection]:
        """The least cost of holding the gang in ``ids`` of ``level``, and the choice. Raises: OutOfBudget."""
        need = self.tree.need[level]
        items = self._items(level, ids, need)
        tables = self._tables(items, need)
        chosen = Selection()
        if tables[-1][need] < NEVER:
            self._trace(level, items, tables, need, chosen)
        return int(tables[-1][need]), chosen

    def _items(self, level: int, ids: Ints, need: int) -> list[_Item]:
        """The steps of ``ids``, each kind kept as often as one choice can use it."""
        if level == self.tree.host:
            return self._hosts(ids, need)
        self._load(level, ids)
        items, used = [], dict[bytes, int]()
        most = self.most.get(level, 1 << 30)
        for domain in ids.tolist():
            kind = self._kind(level, domain)
            used[kind] = used.get(kind, 0) + 1
            if used[kind] <= most:
                items.append(_Item([domain], *self._domain(level, domain, kind)))
        return items

    def _hosts(self, ids: Ints, need: int) -> list[_Item]:
        """Hosts of one size and health in bundles of 1, 2, 4, …, of which any number of them can be made."""
        tree, how, items = self.tree, self.how, list[_Item]()
        ids = tree.by_path(tree.host, ids)
        bad = np.zeros(len(ids), np.int64)
        if how.penalty and tree.penalised is not None:
            bad = tree.penalised[ids].astype(np.int64)
        kinds, kind_of = np.unique(2 * tree.capacity[tree.host][ids] + bad, return_inverse=True)
        for at, kind in enumerate(kinds.tolist()):
            size = kind // 2
            cost = how.of[tree.host] + kind % 2 * how.penalty
            cost += how.spare * size if how.spare_level == tree.host else 0
            members = ids[kind_of == at][: -(-need // size)].tolist()
            bundle = 1
            while members:
                part, members = members[:bundle], members[bundle:]
                items.append(_Item(part, np.array([min(len(part) * size, need)]), np.array([len(part) * cost])))
                bundle *= 2
        return items

    def _load(self, level: int, ids: Ints) -> None:
        """Look up the domains below ``ids``, all at once, down to the hosts."""
        known = self._below[level]
        if level == self.tree.host or not len(ids) or int(ids[0]) in known:
            return
        below, owner = self.tree.down(level, ids, level + 1)
        if level + 1 < self.tree.host:
            below = below[np.lexsort((self.tree.ranker(level + 1, below), owner))]
        parts = np.split(below, np.searchsorted(owner, np.arange(1, len(ids))))
        known.update(zip(ids.tolist(), parts, strict=True))
        self._load(level + 1, below)

    def _kind(self, level: int, domain: int) -> bytes:
        """What a domain is made of; equal for domains that can stand for each other."""
        tree = self.tree
        if level == tree.host:
            return int(tree.capacity[level][domain]).to_bytes(8, "big") + bytes([self._bad(domain)])
        below = self._below[level][domain]
        if level + 1 == tree.host and not self.how.penalty:
            inside = np.sort(tree.capacity[level + 1][below]).tobytes()
        else:
            inside = b"".join(sorted(self._kind(level + 1, child) for child in below.tolist()))
        return len(inside).to_bytes(4, "big") + inside

    def _bad(self, host: int) -> bool:
        penalised = self.tree.penalised
        return bool(self.how.penalty) and penalised is not None and bool(penalised[host])

    def _domain(self, level: int, domain: int, kind: bytes) -> tuple[Ints, Ints]:
        known = self._steps.get((level, kind))
        if known is None:
            known = self._steps[level, kind] = self._build(level, domain)
        return known

    def _build(self, level: int, domain: int) -> tuple[Ints, Ints]:
        tree, how = self.tree, self.how
        capacity = int(tree.capacity[level][domain])
        most = min(capacity, tree.need[level])
        own = how.of[level] + (how.spare * capacity if level == how.spare_level else 0)
        below = self._below[level][domain]
        unit = tree.group if tree.split and level == tree.bond else 1
        table = self._inside(level + 1, below, most * unit)[::unit][: most + 1]
        last = np.flatnonzero(np.append(table[1:] != table[:-1], True))
        last = last[(last > 0) & (table[last] < NEVER)]
        return last, table[last] + own

    def _inside(self, level: int, ids: Ints, most: int) -> Ints:
        tree, how = self.tree, self.how
        if level == tree.host and not how.penalty and how.spare_level != level:
            sums = np.cumsum(np.sort(tree.capacity[level][ids])[::-1])
            self.budget.take(len(ids) + most)
            return np.searchsorted(sums, np.arange(most + 1)) * how.of[level] + np.where(
                np.arange(most + 1) > 0, how.of[level], 0
            )
        return self._tables(self._items(level, ids, most), most)[-1]

    def _tables(self, items: list[_Item], need: int) -> list[Ints]:
        table = np.full(need + 1, NEVER, np.int64)
        table[0] = 0
        tables = [table]
        for item in items:
            self.budget.take(len(item.amounts) * (need + 1) + ITEM_STEPS)
            table = np.minimum(table, _shifted(table, item.amounts, item.costs).min(axis=0))
            tables.append(table)
        return tables

    def _trace(self, level: int, items: list[_Item], tables: list[Ints], amount: int, into: Selection) -> None:
        """Read the choice back out of the tables, from the last item to the first, and down the tree."""
        tree = self.tree
        for at in range(len(items) - 1, -1, -1):
            if amount == 0:
                break
            if tables[at][amount] == tables[at + 1][amount]:
                continue
            item = items[at]
            rest = np.maximum(amount - item.amounts, 0)
            step = int(np.argmax(tables[at][rest] + item.costs == tables[at + 1][amount]))
            into.sets.setdefault(level, []).extend(item.domains)
            share = min(int(item.amounts[step]), amount)
            if level == tree.bond:
                into.shares[item.domains[0]] = share
            if level < tree.host:
                below = self._below[level][item.domains[0]]
                self._descend(level, below, share, into)
            amount = int(rest[step])

    def _descend(self, level: int, below: Ints, share: int, into: Selection) -> None:
        tree = self.tree
        wanted = share * (tree.group if tree.split and level == tree.bond else 1)
        if level + 1 == tree.host and not self.how.penalty and self.how.spare_level != tree.host:
            return
        items = self._items(level + 1, below, wanted)
        self._trace(level + 1, items, self._tables(items, wanted), wanted, into)


def _shifted(table: Ints, amounts: Ints, costs: Ints) -> NDArray[np.int64]:
    """Row ``i``, column ``w``: ``table[max(w - amounts[i], 0)] + costs[i]``, never above ``NEVER``."""
    most = int(amounts[-1])
    padded = np.concatenate((np.full(most, table[0]), table))
    rows = np.lib.stride_tricks.sliding_window_view(padded, len(table))[most - amounts]
    return np.minimum(rows + costs[:, None], NEVER)
