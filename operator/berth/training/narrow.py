"""The hard part: several domains are needed, and which ones decides how few are needed further down.

Good choices first: the domains that a price finds best, improved by exchange. Bounds next. Where they meet, the choice
is proven. Where they do not, domains that no better choice can contain are struck out; the choices among the rest are
looked at one by one where they are few, and composed exactly where they are many, if the budget allows. Else the
difference is stated.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from berth.training import cover
from berth.training.compose import ITEM_STEPS, NEVER, Budget, Composer, OutOfBudget, Selection, Weights, weights
from berth.training.counts import fewest, tight
from berth.training.cover import Choice, Cover
from berth.training.deep import DeepBounds
from berth.training.hosts import pick
from berth.training.tree import Ints, Tree

_STARTS: Final = 4  # choices from which exchanges start
_WIDTH: Final = 4  # choices completed downwards when they are too many for all of them
_MANY: Final = 64  # equal choices that are all followed down


@dataclass(slots=True)
class Narrowed:
    """Chosen domains by level, numbers of domains from the first level searched down, and the bounds on them.

    ``shares`` are the groups that each domain of the bond level takes, where groups are bound to one above the host.
    ``complete``: every choice was looked at, so that nothing better is left, spare room included.
    """

    counts: list[int]
    bounds: list[int]
    sets: dict[int, Ints]
    capacity: int
    shares: dict[int, int] = field(default_factory=dict)
    complete: bool = False

    @property
    def proven(self) -> bool:
        """Whether the bounds meet the numbers."""
        return self.counts == self.bounds

    @property
    def rank(self) -> tuple[list[int], int]:
        """Orders results, the best first."""
        return self.counts, self.capacity


@dataclass(slots=True)
class _Choices:
    """Choices at one level that need equally few members, the leanest first, and the bound on members.

    ``complete``: there are no others that need as few, and none that needs fewer.
    """

    best: list[Choice]
    bound: int
    complete: bool


@dataclass(slots=True)
class Narrowing:
    """One gang's search below its candidates. Levels after ``last`` follow from those above.

    ``lean_level`` is the level whose spare room counts, where it is among those searched.
    """

    tree: Tree
    last: int
    lean_level: int
    budget: Budget

    def solve(self, level: int, ids: Ints, number: int, cov: Cover | None = None) -> Narrowed:
        """The best choice among ``ids`` of ``level`` (in order), of which ``number`` are needed; ``cov`` is theirs."""
        cov = cov or self.cover(level, ids)
        if self.tree.split and level == self.tree.bond:
            best = self._bound_groups(ids, number, cov)
        else:
            best = self._free_choice(level, ids, number, cov)
        return self._exact(level, ids, number, cov, best)

    def cover(self, level: int, ids: Ints) -> Cover:
        """``ids`` of ``level`` with the domains one level down as members, in the unit of those."""
        below, owner = self.tree.down(level, ids, level + 1)
        return Cover(owner, self.tree.capacity[level + 1][below], len(ids), self.tree.need[level + 1])

    def _free_choice(self, level: int, ids: Ints, number: int, cov: Cover) -> Narrowed:
        choices = self._choices(level, ids, number, cov)
        if level + 1 == self.last:
            best = self._completed(level, ids, number, choices.best[0], cov)
            best.bounds = [number, choices.bound]
            best.complete = choices.complete and self.tree.penalised is None
            return best
        if choices.complete:
            return self._followed(level, ids, number, choices.best)
        best = min((self._completed(level, ids, number, choice, cov) for choice in choices.best[:_WIDTH]), key=_by_rank)
        best.bounds = self._bounds(level, ids, number, choices.bound, best.counts)
        return best

    def _followed(self, level: int, ids: Ints, number: int, choices: list[Choice]) -> Narrowed:
        """The best below any of ``choices``, the most promising first, with proof where the budget allows."""
        best: Narrowed | None = None
        bounds: list[list[int]] = []
        least = self._promise(level, ids, choices)
        for place, at in enumerate(np.argsort(least, kind="stable").tolist()):
            choice = choices[at]
            below = self._below(level, ids[choice.taken])
            leaner = level == self.lean_level and best is not None and choice.capacity < best.capacity
            if best is not None and self._hopeless(level + 1, below, choice.members, int(least[at]), best, leaner):
                continue
            if best is not None and place >= _MANY:
                bounds.append([number, choice.members, int(least[at])])
                break
            inner = self.solve(level + 1, below, choice.members)
            bounds.append([number, *inner.bounds])
            if best is None or ([number, *inner.counts], choice.capacity) < best.rank:
                sets = {level: ids[choice.taken], **inner.sets}
                best = Narrowed([number, *inner.counts], [], sets, choice.capacity, inner.shares)
        assert best is not None
        best.bounds = [*min(bounds), *([1] * len(best.counts))][: len(best.counts)]
        return best

    def _promise(self, level: int, ids: Ints, choices: list[Choice]) -> Ints:
        """By choice a bound on the numbers two levels down."""
        if len(choices) == 1:
            return np.ones(1, np.int64)
        taken = np.array([choice.taken for choice in choices])
        domains, places = np.unique(taken, return_inverse=True)
        middle, owner = self.tree.down(level, ids[domains], level + 1)
        inner = self.cover(level + 1, middle)
        places = places.reshape(taken.shape)
        return DeepBounds(inner, owner, len(domains), choices[0].members, places[0]).of(places)

    def _hopeless(self, level: int, ids: Ints, number: int, bound: int, best: Narrowed, leaner: bool) -> bool:
        """Whether a bound says that ``ids`` lead to no better counts than ``best``; ``leaner``: equal ones count."""
        least = best.counts[2]
        ends = level + 1 == self.last and not leaner
        if bound > least or (bound == least and ends):
            return True
        if self.tree.split and level == self.tree.bond:
            return False
        cov = self.cover(level, ids)
        price, worth = cov.between()
        bound, _ = cover.bound(price, worth, cov.need, number, cover.PARTS)
        if bound > least or (bound == least and ends):
            return True
        return ends and len(cover.reduce(cov, number, least - 1)) < number

    def _completed(self, level: int, ids: Ints, number: int, choice: Choice, cov: Cover) -> Narrowed:
        """Something good below ``choice``, without proof."""
        sets = {level: ids[choice.taken]}
        if level + 1 == self.tree.host and cov.exact:
            return Narrowed([number, choice.members], [], sets, choice.capacity)
        counts, shares = [number], dict[int, int]()
        while level < self.last:
            chosen = sets[level]
            if self.tree.split and level == self.tree.bond:
                inner = self._shared(chosen)
                return Narrowed(counts + inner.counts, [], {**sets, **inner.sets}, choice.capacity, inner.shares)
            below = self._below(level, chosen)
            level += 1
            number = fewest(self.tree.capacity[level][below], self.tree.need[level])
            counts.append(number)
            if level < self.last:
                found = self._promising(level, below, number, self.cover(level, below))[0][0]
                sets[level] = below[found.taken]
            elif level < self.tree.host:
                sets[level] = pick(self.tree, level, below, number, self.tree.need[level])
        return Narrowed(counts, [], sets, choice.capacity, shares)

    def _below(self, level: int, chosen: Ints) -> Ints:
        """The domains under ``chosen``, in order; hosts as they come, as only their sizes matter here."""
        below, owner = self.tree.down(level, chosen, level + 1)
        if level + 1 == self.tree.host:
            return below
        return below[np.lexsort((self.tree.ranker(level + 1, below), owner))]

    def _bound_groups(self, ids: Ints, number: int, cov: Cover) -> Narrowed:
        """At the level to which groups are bound: what lies below is composed for each promising choice."""
        best = min((self._grouped(ids, number, choice) for choice in self._holding(ids, number, cov)), key=_by_rank)
        price, worth = cov.between()
        least, _ = cover.bound(price, worth, cov.need, number, cover.PARTS)
        best.bounds = self._bounds(self.tree.bond, ids, number, least, best.counts)
        return best

    def _grouped(self, ids: Ints, number: int, choice: Choice) -> Narrowed:
        inner = self._shared(ids[choice.taken])
        sets = {self.tree.bond: ids[choice.taken], **inner.sets}
        return Narrowed([number, *inner.counts], [], sets, choice.capacity, inner.shares)

    def _holding(self, ids: Ints, number: int, cov: Cover) -> list[Choice]:
        """Choices at the bond level: promising by workers, possible by whole groups."""
        groups = self.tree.capacity[self.tree.bond][ids]
        _, worth = cov.between()
        rows = np.concatenate((groups[None, :], worth[:: max(len(worth) // _WIDTH, 1)]))
        lean = tight(groups, number, self.tree.need[self.tree.bond])
        choices = cover.distinct(np.concatenate((cover.top_places(rows, number), lean[None, :])))
        held = groups[choices].sum(axis=1)
        possible = np.flatnonzero(held >= self.tree.need[self.tree.bond])
        return [Choice(choices[at], 0, int(held[at])) for at in possible.tolist()]

    def _shared(self, chosen: Ints) -> Narrowed:
        """How the domains of the bond level share the groups, exactly: few domains, cheap even for large gangs."""
        tree = self.tree
        how = self._weights(tree.bond, chosen, len(chosen), range(tree.bond + 1, self.last + 1), spare=False)
        assert how is not None
        cost, selection = Composer(tree, how, Budget(1 << 62), {}).cheapest(tree.bond, chosen)
        sets = {level: np.array(ids) for level, ids in selection.sets.items() if level > tree.bond}
        return Narrowed(how.counts(cost), [], sets, 0, selection.shares)

    def _choices(self, level: int, ids: Ints, number: int, cov: Cover) -> _Choices:
        lean = level == self.lean_level
        if number == len(ids):
            whole = _all(cov)
            return _Choices([whole], whole.members, cov.exact)
        every = cover.all_subsets(cov, np.arange(len(ids)), number, cover.FEW_SUBSETS)
        if every is None:
            found, bound = self._promising(level, ids, number, cov)
            settled = cov.exact and found[0].members == bound and level + 1 == self.last
            if settled and (not lean or found[0].capacity == self.tree.need[level]):
                return _Choices(found, bound, complete=True)
            kept = cover.reduce(cov, number, found[0].members)
            every = cover.all_subsets(cov, kept, number, cover.FEW_SUBSETS if settled else cover.MOST_SUBSETS)
            if every is None:
                while bound < found[0].members and len(cover.reduce(cov, number, bound)) < number:
                    bound += 1
                return _Choices(found, bound, complete=False)
        best = cover.best_of(cov, every, lean=lean, most=1 if level + 1 == self.last else None)
        return _Choices(best, best[0].members, complete=True)

    def _promising(self, level: int, ids: Ints, number: int, cov: Cover) -> tuple[list[Choice], int]:
        """Good choices that need equally few members, and a bound on members."""
        lean = level == self.lean_level
        if number == len(ids):
            return [_all(cov)], 1
        price, worth = cov.between()
        bound, at = cover.bound(price, worth, cov.need, number, cover.PARTS)
        rows = np.unique(np.clip(np.arange(at - 12, at + 13), 0, len(price) - 1))
        starts = np.concatenate((cover.top_places(worth[rows], number), cover.top_places(cov.worth[:1], number)))
        starts = cover.distinct(starts)
        found = cover.best_of(cov, starts, lean=lean, most=_STARTS)
        if found[0].members > bound:
            found = _exchanged(cov, starts, bound) or found
        if lean:
            found = [_shrunk(cov, choice) for choice in found[:2]]
            found.sort(key=lambda choice: choice.capacity)
        return found, bound

    def _bounds(self, level: int, ids: Ints, number: int, first: int, counts: list[int]) -> list[int]:
        """Bounds from ``level`` down, each given that all above it are at their least; ``first`` is the second one."""
        bounds = [number, min(first, counts[1])]
        for deeper in range(level + 2, self.last + 1):
            if bounds != counts[: len(bounds)]:
                bounds.append(1)
                continue
            middle, owner = self.tree.down(level, ids, deeper - 1)
            inner = self.cover(deeper - 1, middle)
            like = np.argsort(-self.tree.capacity[level][ids], kind="stable")[:number]
            bound = DeepBounds(inner, owner, len(ids), counts[deeper - 1 - level], like).of_any(number)
            bounds.append(min(bound, counts[deeper - level]))
        return bounds

    def _exact(self, level: int, ids: Ints, number: int, cov: Cover, best: Narrowed) -> Narrowed:
        """The composition over the domains still in question, where it is needed and the budget allows it."""
        if best.complete:
            return best
        whole = self._cost(level, ids, cov)
        if whole <= self.budget.small and (
            level == self.lean_level or self.tree.penalised is not None or not best.proven
        ):
            return self._composed(level, ids, number, best, whole)
        if best.proven:
            return best
        target = best.counts[1] - (1 if level + 1 == self.last else 0)
        kept = ids[cover.reduce(cov, number, target)]
        if len(kept) < number:
            best.bounds = list(best.counts)
            return best
        return self._composed(level, kept, number, best, self._cost(level, kept, cov))

    def _cost(self, level: int, ids: Ints, cov: Cover) -> int:
        """About how many steps a composition over ``ids`` takes."""
        tree, total = self.tree, 0
        share = len(ids) / len(tree.active(level))
        room = int(cov.worth[0].sum()) // cov.domains
        for each in range(level, self.last):
            domains = len(tree.active(each)) * share
            steps = min(len(tree.active(self.last)) / len(tree.active(each)), room)
            states = min(tree.need[each], room) if each > level else tree.need[each]
            total += int(domains * ((states + 1) * (steps + 1) + ITEM_STEPS))
        return total

    def _composed(self, level: int, ids: Ints, number: int, best: Narrowed, cost: int) -> Narrowed:
        how = self._weights(level, ids, number, range(level, self.last + 1), spare=level == self.lean_level)
        if how is None or cost > self.budget.left:
            return best
        try:
            composer = Composer(self.tree, how, self.budget, {level: number})
            least, selection = composer.cheapest(level, ids)
        except OutOfBudget:
            return best
        if least >= NEVER or how.counts(least) > best.counts:
            best.bounds = list(best.counts)
            return best
        return self._from(level, selection, how, least)

    def _from(self, level: int, selection: Selection, how: Weights, cost: int) -> Narrowed:
        counts = how.counts(cost)
        sets = {each: np.array(ids) for each, ids in selection.sets.items()}
        capacity = int(self.tree.capacity[level][sets[level]].sum())
        return Narrowed(counts, list(counts), sets, capacity, selection.shares)

    def _weights(self, level: int, ids: Ints, number: int, counted: range, *, spare: bool) -> Weights | None:
        tree = self.tree
        most = {each: tree.need[-1] if each > tree.bond else tree.need[each] for each in counted}
        largest = int(np.sort(tree.capacity[level][ids])[::-1][:number].sum())
        bad = 0 if tree.penalised is None or self.last < tree.host else int(tree.penalised.sum())
        return weights(most, tree.depth, (level, largest) if spare else None, min(bad, tree.need[-1]))


def _by_rank(result: Narrowed) -> tuple[list[int], int]:
    return result.rank


def _all(cov: Cover) -> Choice:
    sums = cov.worth.sum(axis=1)
    return Choice(np.arange(cov.domains), int(cov.members(sums)), int(sums[0]))


def _exchanged(cov: Cover, starts: Ints, target: int) -> list[Choice]:
    """One choice that needs fewer members than all of ``starts``, if exchanges lead to any."""
    members = cov.members(cov.worth[:, starts].sum(axis=2))
    order = np.argsort(members, kind="stable")[:_STARTS]
    for wanted in range(target, int(members[order[0]])):
        for start in order.tolist():
            taken = cover.exchange(cov, starts[start], wanted)
            if taken is not None:
                return [Choice(taken, wanted, int(cov.worth[0, taken].sum()))]
    return []


def _shrunk(cov: Cover, choice: Choice) -> Choice:
    taken = cover.shrink(cov, choice.taken, choice.members)
    return Choice(taken, choice.members, int(cov.worth[0, taken].sum()))
