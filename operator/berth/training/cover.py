"""Which k domains need the fewest members one level down: bounds by a price, choices by exchange.

Given domains with members (racks with hosts, blocks with racks), take k domains so that the fewest of their members
hold the gang. At a price t per member a domain is worth v(t) = Σ max(member − t, 0), and for any choice S

    members(S) = max over t of ceil((need − Σ v(t)) / t)        (linear programming duality; S given, it is exact)

so ceil((need − sum of the k largest v(t)) / t) is a bound for every S and every t > 0 (Lagrangian relaxation; prices
between two sizes weigh capacity against the larger members). The choice that is best at the best price is improved by
exchanging domains until it meets the bound, which proves it, or no exchange helps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import Final

import numpy as np
from numpy.typing import NDArray

from berth.training.counts import value_counts

Ints = NDArray[np.int64]

PARTS: Final = 8  # prices tried between two neighbouring sizes
_MOST_SIZES: Final = 256
FEW_SUBSETS: Final = 2000
MOST_SUBSETS: Final = 20_000
_NEVER: Final = 1 << 40


@dataclass(slots=True)
class Choice:
    """``taken`` positions of domains, the ``members`` they need and what they hold in all."""

    taken: Ints
    members: int
    capacity: int


class Cover:
    """``m`` domains and their members. ``worth[i, d]`` is what domain ``d`` is worth at the price ``price[i]``.

    ``price[0]`` is 0: there the worth is the capacity. ``exact`` says that prices cover all sizes, so that the
    members of a choice follow from its worths.
    """

    def __init__(self, owner: Ints, sizes: Ints, domains: int, need: int) -> None:
        self.need, self.domains = need, domains
        price, _ = value_counts(sizes)
        self.exact = len(price) <= _MOST_SIZES
        if not self.exact:
            price = np.unique(price[np.linspace(0, len(price) - 1, _MOST_SIZES // 4).astype(np.int64)])
        self.price: Ints = np.concatenate(([0], price))
        self.worth = self._worths(owner, sizes)

    def _worths(self, owner: Ints, sizes: Ints) -> Ints:
        top = int(self.price[-1])
        if self.domains * (top + 1) > 1 << 22 or len(sizes) < 4 * len(self.price):
            rows = [np.bincount(owner, np.maximum(sizes - price, 0), self.domains) for price in self.price.tolist()]
            return np.array(rows).astype(np.int64)
        members = np.bincount(owner * (top + 1) + sizes, minlength=self.domains * (top + 1))
        more = np.cumsum(members.reshape(self.domains, top + 1)[:, ::-1], axis=1)[:, ::-1]  # members >= size
        above = np.zeros((self.domains, top + 2), np.int64)
        above[:, :top] = more[:, 1:]
        return np.ascontiguousarray(np.cumsum(above[:, ::-1], axis=1)[:, ::-1][:, self.price].T)

    def members(self, sums: Ints) -> Ints:
        """Members needed by choices whose worths add up to ``sums`` (prices first); huge where they do not hold it."""
        price = self.price[1:].reshape(-1, *([1] * (sums.ndim - 1)))
        needed = np.max(-((sums[1:] - self.need) // price), axis=0)
        return np.where(sums[0] >= self.need, needed, _NEVER)

    def bounds_by_group(self, group: Ints, groups: int, count: int) -> Ints:
        """A bound on members for ``count`` domains of each of ``groups``; ``group`` (ascending) is each domain's."""
        most = int(self.worth.max()) + 1
        ordered = np.sort(group * most - self.worth, axis=1)  # by group, the largest worth first
        starts = np.searchsorted(group, np.arange(groups))
        inside = np.arange(self.domains) - starts[group] < count
        sums = np.add.reduceat(np.where(inside, group * most - ordered, 0), starts, axis=1)
        least: Ints = np.max(-((sums[1:] - self.need) // self.price[1:, None]), axis=0)
        return least

    def part(self, low: int, high: int) -> Cover:
        """The domains from ``low`` to ``high`` alone."""
        part = object.__new__(Cover)
        part.need, part.domains, part.exact, part.price = self.need, high - low, self.exact, self.price
        part.worth = self.worth[:, low:high]
        return part

    def between(self) -> tuple[Ints, Ints]:
        """Prices in parts of ``PARTS`` and the worths at them, in the same parts, all sizes and what lies between."""
        parts = np.arange(PARTS)[:, None, None]
        low, high = self.worth[None, :-1], self.worth[None, 1:]
        worth = ((PARTS - parts) * low + parts * high).transpose(1, 0, 2).reshape(-1, self.domains)
        steps = np.arange(PARTS)
        price = (PARTS * self.price[:-1, None] + steps * np.diff(self.price)[:, None]).reshape(-1)
        last = PARTS * self.price[-1:]
        return np.concatenate((price, last))[1:], np.concatenate((worth, PARTS * self.worth[-1:]))[1:]


def top_sums(worth: Ints, count: int) -> Ints:
    """Per row the sum of the ``count`` largest."""
    rest = max(worth.shape[1] - count, 0)
    sums: Ints = (np.partition(worth, rest, axis=1)[:, rest:] if rest else worth).sum(axis=1)
    return sums


def top_places(worth: Ints, count: int) -> Ints:
    """Per row the positions of the ``count`` largest, the earlier among equals."""
    return np.argsort(-worth, axis=1, kind="stable")[:, :count]


def distinct(choices: Ints) -> Ints:
    """``choices`` (rows of positions) in ascending order of positions, each once."""
    ordered = np.sort(choices, axis=1)
    first = {row.tobytes(): at for at, row in reversed(list(enumerate(ordered)))}
    return ordered[sorted(first.values())]


def bound(price: Ints, worth: Ints, need: int, count: int, parts: int = 1) -> tuple[int, int]:
    """The best bound on members for ``count`` domains over all prices, and the row that gives it."""
    needed = -((top_sums(worth, count) - parts * need) // price)
    at = int(np.argmax(needed))
    return max(int(needed[at]), 1), at


@lru_cache(maxsize=64)
def _subsets(domains: int, count: int) -> Ints:
    return np.array(list(combinations(range(domains), count)), np.int64)


def all_subsets(cover: Cover, domains: Ints, count: int, most: int) -> Ints | None:
    """Every choice of ``count`` among the positions ``domains`` where they are at most ``most``: rows of positions."""
    if not cover.exact or count > len(domains) or comb(len(domains), count) > most:
        return None
    return domains[_subsets(len(domains), count)]


def best_of(cover: Cover, choices: Ints, *, lean: bool, most: int | None) -> list[Choice]:
    """``choices`` (rows of positions) that need the fewest members, the leanest first if ``lean``, up to ``most``."""
    sums = cover.worth[:, choices].sum(axis=2)
    members = cover.members(sums)
    least = int(members.min())
    kept = np.flatnonzero(members == least)
    if lean:
        kept = kept[np.argsort(sums[0, kept], kind="stable")]
    return [Choice(np.sort(choices[at]), least, int(sums[0, at])) for at in kept[:most].tolist()]


def exchange(cover: Cover, start: Ints, target: int, rounds: int = 40) -> Ints | None:
    """From ``start`` exchange single domains until ``target`` members suffice; ``None`` when stuck before."""
    wanted = cover.need - cover.price * target
    rows = _binding(cover, start, target)
    worth, wanted = cover.worth[rows], wanted[rows]
    weight = 1.0 / np.maximum(cover.price[rows], 1)
    taken = start.copy()
    for _ in range(rounds):
        have = worth[:, taken].sum(axis=1)
        short = float((np.maximum(wanted - have, 0) * weight).sum())
        if short == 0:
            done = cover.members(cover.worth[:, taken].sum(axis=1)) <= target
            return np.sort(taken) if done else None
        after = (have[:, None] - worth[:, taken])[:, :, None] + worth[:, None, :]
        missing = np.einsum("ijk,i->jk", np.maximum(wanted[:, None, None] - after, 0), weight)
        missing[:, taken] = np.inf
        out, into = np.unravel_index(int(np.argmin(missing)), missing.shape)
        if missing[out, into] >= short - 1e-9:
            return None
        taken[out] = into
    return None


def _binding(cover: Cover, taken: Ints, target: int) -> Ints:
    """Capacity and the few prices that ask most of ``taken``."""
    if len(cover.price) <= 10:
        return np.arange(len(cover.price))
    asked = (cover.need - cover.worth[:, taken].sum(axis=1)) / np.maximum(cover.price, 1)
    asked[0] = np.inf
    return np.sort(np.argsort(-asked, kind="stable")[:10])


def shrink(cover: Cover, start: Ints, members: int, rounds: int = 40) -> Ints:
    """From ``start`` exchange single domains for smaller ones while ``members`` still suffice."""
    wanted = (cover.need - cover.price * members)[:, None, None]
    taken = start.copy()
    for _ in range(rounds):
        have = cover.worth[:, taken].sum(axis=1)
        if have[0] == cover.need:
            break
        after = (have[:, None] - cover.worth[:, taken])[:, :, None] + cover.worth[:, None, :]
        capacity = np.where((after >= wanted).all(axis=0), after[0], _NEVER)
        capacity[:, taken] = _NEVER
        out, into = np.unravel_index(int(np.argmin(capacity)), capacity.shape)
        if capacity[out, into] >= have[0]:
            break
        taken[out] = into
    return np.sort(taken)


def reduce(cover: Cover, count: int, members: int) -> Ints:
    """The domains that can be among ``count`` which need at most ``members``; fewer than ``count``: there are none.

    A domain whose forced choice costs more than the target at any price is out; with it gone the others' bound rises.
    """
    price, worth = cover.between()
    wanted = PARTS * cover.need - price * members
    wanted = np.concatenate(([PARTS * cover.need], wanted))
    worth = np.concatenate((PARTS * cover.worth[:1], worth))
    kept = np.arange(cover.domains)
    while len(kept) >= count:
        part = worth[:, kept]
        if count < len(kept):
            largest = np.partition(part, len(kept) - count, axis=1)[:, len(kept) - count :]
            last, others = largest.min(axis=1), largest.sum(axis=1) - largest.min(axis=1)
        else:
            last, others = part.min(axis=1), part.sum(axis=1) - part.min(axis=1)
        forced = np.where(part >= last[:, None], (others + last)[:, None], others[:, None] + part)
        fits = (forced >= wanted[:, None]).all(axis=0)
        if fits.all():
            break
        kept = kept[fits]
    return kept
