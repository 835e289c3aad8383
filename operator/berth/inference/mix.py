"""The cheapest mix of variants that carries the work within the bounds.

What a mix costs is what its replicas cost an hour and what their start costs: a replica that starts is paid for its
cold start before it serves, and the one that it replaces is kept for as long, spread over a planning period. Without
that, a cent's difference would move a service back and forth. What is expected to be lost with spot
(:class:`~berth.inference.records.Batch`) is a part of the price, so that one search weighs all of it.

The search is complete but for a budget of nodes, which few questions of up to a dozen variants use up; then the best
mix found is taken and the certificate says that, and how far from it a cheaper one may be. No clock is read, so that a
decision never hangs on how fast the machine is. A solver library is asked where the budget found no mix at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, inf
from typing import Final

from berth.inference.answers import Answers
from berth.inference.exact import GaveUp, enumerate_mix
from berth.inference.integer import solve_mix
from berth.inference.program import TINY, Column, Program, Row, Soft, Solution, pieces, rounded_up
from berth.inference.records import Mix, MixBounds, Offer
from berth.inference.zones import needed_offers

_HOUR: Final = 3600.0
_FEW_ZONES: Final = 4
"""So many are searched as they are."""
_RANK, _START, _NAME = 1e-5, 1e-6, 1e-7
"""Of the price of the work, added to order what costs the same: rank, then what exists, then the name."""

ZONE_LOSS: Final = "MaxZoneLoss"
SURVIVE: Final = "ZoneSurvival"
SPOT_SHARE: Final = "MaxSpotShare"
FLOOR: Final = "OnDemandFloor"
MOST: Final = "MaxReplicas"
LEAST: Final = "MinReplicas"
WORK: Final = "Work"
CAPACITY: Final = "Capacity"


@dataclass(frozen=True, slots=True)
class Switching:
    """What a start costs: its cold start at its price, and ``overlap`` times that for the replica kept meanwhile.

    Both are spread over ``period_seconds``, how long a plan is thought to last.
    """

    period_seconds: float = _HOUR
    overlap: float = 1.0

    def per_hour(self, usd_per_hour: float, seconds: float) -> float:
        """Dollars per hour of the period for one start that takes ``seconds``."""
        return usd_per_hour * (1 + self.overlap) * seconds / self.period_seconds


def cheapest_mix(
    offers: Sequence[Offer],
    bounds: MixBounds,
    current: Mapping[str, int] | None = None,
    switching: Switching | None = None,
    answers: Answers | None = None,
) -> Mix:
    """The cheapest mix of ``offers`` within ``bounds``, from ``current`` replicas by variant.

    Where no mix keeps all bounds, the one that carries the most: room, ``max_replicas`` and ``keep`` always hold; the
    floor and ``min_replicas`` as far as they can; then spot's share and zones, then the zone's survival, then the work.
    Deterministic: equal arguments give equal mixes. With ``answers``, which remembers earlier searches, a mix may be
    another one that is as good: as cheap where it is ``Optimal``, within the bound that it tells where it is not.
    """
    there = dict(current or {})
    model = _Model(offers, bounds, there, switching or Switching(), answers)
    most = model.most_on_spot()
    needed = offers if most is None else needed_offers(offers, bounds.batches, {**bounds.keep, **there}, most)
    if len(needed) < len(offers):
        model = _Model(needed, bounds, there, model.switching, answers)
    return model.solve()


class _Model:
    """One question and the ways to relax it."""

    def __init__(
        self,
        offers: Sequence[Offer],
        bounds: MixBounds,
        current: Mapping[str, int],
        switching: Switching,
        answers: Answers | None,
    ) -> None:
        self.bounds, self.current, self.switching, self.answers = bounds, current, switching, answers
        self.offers = sorted((offer for offer in offers if self._allowed(offer)), key=lambda offer: offer.variant.name)
        self.kept = [max(0, bounds.keep.get(offer.variant.name, 0)) for offer in self.offers]
        self.most = max(bounds.max_replicas, sum(self.kept))
        self.highs = [
            max(kept, min(offer.room + offer.growth, self.most) if self._permitted(offer) else 0)
            for offer, kept in zip(self.offers, self.kept, strict=True)
        ]
        self.caps = [offer.variant.capacity for offer in self.offers]
        self.columns = self._columns()
        self.groups = self._groups()

    def _allowed(self, offer: Offer) -> bool:
        return self.bounds.keep.get(offer.variant.name, 0) > 0 or self._permitted(offer)

    def _permitted(self, offer: Offer) -> bool:
        """Whether there may be more of it than what is kept."""
        return self.bounds.spot_allowed if offer.variant.spot else self.bounds.on_demand_allowed

    def solve(self) -> Mix:
        """The mix, see :func:`cheapest_mix`."""
        rows = self._rows()
        softs = self._softs()
        full, found = rows, self._answer(rows, softs=softs)
        bound_by = self._clamped()
        if found is None and any(row.name == SURVIVE for row in rows):
            full, bound_by = [row for row in rows if row.name != SURVIVE], SURVIVE
            found = self._answer(full, softs=softs)
        if found is None:
            found, bound_by = self._most_work(full), self._what_binds()
        return self._mix(found, bound_by)

    def most_on_spot(self) -> int | None:
        """Replicas that the cheapest mix has on spot at most, by the price of what is known to do; None: not known."""
        cheapest = min(
            (self._price(offer) for offer in self.offers if offer.variant.spot and offer.variant.usd_per_hour > 0),
            default=0.0,
        )
        if cheapest <= 0 or len({offer.variant.zone for offer in self.offers if offer.variant.spot}) <= _FEW_ZONES:
            return None
        program = Program(self.columns, tuple(self._rows()), (), self._softs())
        known = [min(self.current.get(offer.variant.name, 0), high)
                 for offer, high in zip(self.offers, self.highs, strict=True)]  # fmt: skip
        trials = [[max(count, low) for count, low in zip(known, self.kept, strict=True)]]
        for i, offer in enumerate(self.offers):
            if not offer.variant.spot and offer.variant.capacity > 0:
                work = max(self.bounds.work, self.bounds.survive)
                count = max(ceil(work / offer.variant.capacity - TINY), self._least, self._floor)
                trials.append([*self.kept[:i], max(self.kept[i], min(count, self.highs[i])), *self.kept[i + 1 :]])
        base = sum(self._spent(offer, low) for offer, low in zip(self.offers, self.kept, strict=True))
        costs = [base + program.cost(trial) for trial in trials if program.feasible(trial)]
        return floor(min(costs) / cheapest) + 1 if costs else None

    def _columns(self) -> tuple[Column, ...]:
        unit = max(
            (self._price(offer) / offer.variant.capacity for offer in self.offers if offer.variant.capacity > 0),
            default=0.0,
        )
        lowest = min((offer.rank for offer in self.offers), default=0)
        columns = []
        for number, (offer, low, high) in enumerate(zip(self.offers, self.kept, self.highs, strict=True)):
            weight = unit * max(offer.variant.capacity, TINY)
            tie = weight * (_RANK * (offer.rank - lowest) + _NAME * number / max(1, len(self.offers)))
            price = self._price(offer) + tie
            start = price + self._start(offer) + _START * weight
            added = start + self._growth(offer)
            current = self.current.get(offer.variant.name, 0)
            columns.append(replace(pieces(low, high, current, offer.room, (price, start, added)),
                                   name=offer.variant.name))  # fmt: skip
        return tuple(columns)

    def _groups(self) -> tuple[tuple[int, ...], ...]:
        """All columns, those of each accelerator, and each accelerator's on spot; the same group once."""
        everything = range(len(self.offers))
        found: dict[tuple[int, ...], None] = {tuple(everything): None}
        for spot_only in (False, True):
            for name in sorted({offer.variant.accelerator for offer in self.offers}):
                alike = [i for i in everything if self.offers[i].variant.accelerator == name]
                found[tuple(i for i in alike if not spot_only or self.offers[i].variant.spot)] = None
        return tuple(group for group in found if len(group) > 1)

    def _price(self, offer: Offer) -> float:
        return offer.variant.usd_per_hour * offer.preference

    def _start(self, offer: Offer) -> float:
        return self.switching.per_hour(offer.variant.usd_per_hour, offer.cold_start_seconds)

    def _growth(self, offer: Offer) -> float:
        return self.switching.per_hour(offer.variant.usd_per_hour, offer.growth_seconds)

    def _rows(self) -> list[Row]:
        bounds, caps = self.bounds, self.caps
        work = rounded_up(bounds.work, [cap for cap, high in zip(caps, self.highs, strict=True) if cap > 0 and high])
        biggest = max(caps, default=0.0)
        least = max(self._least, ceil(bounds.work / biggest - TINY) if biggest > 0 else 0)
        spot = [offer.variant.spot for offer in self.offers]
        rows = [
            Row(WORK, tuple(caps), work),
            Row(LEAST, (1.0,) * len(caps), least),
            Row(MOST, (-1.0,) * len(caps), -self.most),
            Row(FLOOR, tuple(0.0 if is_spot else 1.0 for is_spot in spot), self._floor),
        ]
        if bounds.max_spot_share < 1 and any(spot):
            rows.append(Row(SPOT_SHARE, tuple(bounds.max_spot_share - is_spot for is_spot in spot), 0.0))
        for zone in sorted({offer.variant.zone for offer in self.offers if offer.variant.spot}):
            lost = [
                offer.variant.capacity if offer.variant.spot and offer.variant.zone == zone else 0.0
                for offer in self.offers
            ]
            if bounds.max_zone_loss < 1:
                coefficients = tuple(bounds.max_zone_loss * cap - gone for cap, gone in zip(caps, lost, strict=True))
                rows.append(Row(ZONE_LOSS, coefficients, 0.0))
            left = tuple(cap - gone for cap, gone in zip(caps, lost, strict=True))
            rows.append(Row(SURVIVE, left, bounds.survive))
        if not any(spot):
            rows.append(Row(SURVIVE, tuple(caps), bounds.survive))
        return [row for row in rows if row.least > min(0.0, self._least_sum(row)) or row.name == MOST]

    def _least_sum(self, row: Row) -> float:
        """The least that a row can be within room; below its bound it does nothing."""
        ends = zip(row.coefficients, self.kept, self.highs, strict=True)
        return sum(a * (low if a > 0 else high) for a, low, high in ends)

    @property
    def _floor(self) -> int:
        columns = list(zip(self.offers, self.kept, self.highs, strict=True))
        room = sum(high for offer, _, high in columns if not offer.variant.spot)
        kept = sum(kept for offer, kept, _ in columns if offer.variant.spot)
        return min(self.bounds.on_demand_floor, self.most - kept, room)

    @property
    def _least(self) -> int:
        return min(self.bounds.min_replicas, self.most, sum(self.highs))

    def _clamped(self) -> str:
        """The bound that room does not let be kept, where there is one."""
        if self._floor < self.bounds.on_demand_floor:
            return FLOOR
        return CAPACITY if self._least < min(self.bounds.min_replicas, self.most) else ""

    def _softs(self, most: float = inf) -> tuple[Soft, ...]:
        """What is expected to be lost of the work, of which no more than ``most`` can be carried."""
        found = []
        for batch in self.bounds.batches:
            takes = [batch.takes.get(offer.variant.name, 0.0) for offer in self.offers]
            if not any(gone and high for gone, high in zip(takes, self.highs, strict=True)):
                continue
            work = min(batch.work, self.bounds.work, most)
            for times, share in ((1, 1 - batch.twice), (2, batch.twice / 2)):
                left = tuple(cap - times * gone for cap, gone in zip(self.caps, takes, strict=True))
                found.append(Soft(left, work, batch.usd_per_hour * share))
        return tuple(soft for soft in found if soft.price > 0)

    def _answer(
        self,
        rows: Sequence[Row],
        columns: tuple[Column, ...] | None = None,
        softs: tuple[Soft, ...] = (),
        *,
        first: bool = False,
    ) -> Solution | None:
        program = Program(columns or self.columns, tuple(rows), self.groups, softs)
        if self.answers is None:
            return self._search(program, first=first)
        kind = "first" if first else "cheapest"
        return self.answers.answer(program, lambda: self._search(program, first=first), kind=kind)

    def _search(self, program: Program, *, first: bool) -> Solution | None:
        try:
            return enumerate_mix(program, first=first)
        except GaveUp as gave_up:
            if gave_up.best is not None:
                return replace(gave_up.best, bound=gave_up.bound)
        found = solve_mix(program)
        return self._simple(program) if isinstance(found, bool) else found

    @staticmethod
    def _simple(program: Program) -> Solution | None:
        """Any solution: everything that there is room for, taken back one by one while the rows hold."""
        counts = [column.high for column in program.columns]
        order = sorted(range(len(counts)), key=lambda i: -program.columns[i].cost(counts[i]))
        for i in order:
            low, high = program.columns[i].low, counts[i]
            while low < high:
                middle = (low + high) // 2
                trial = [*counts[:i], middle, *counts[i + 1 :]]
                low, high = (low, middle) if program.feasible(trial) else (middle + 1, high)
            counts[i] = high
        if not program.feasible(counts):
            return None
        return Solution(tuple(counts), program.cost(counts), 0.0, proven=False)

    def _most_work(self, rows: Sequence[Row]) -> Solution:
        """The cheapest of those that carry the most; rules on spot go where nothing keeps them."""
        bare = [
            replace(row, least=self._least) if row.name == LEAST else row for row in rows if row.name != WORK
        ]  # fmt: skip
        for dropped in ((), (ZONE_LOSS,), (ZONE_LOSS, SPOT_SHARE), (ZONE_LOSS, SPOT_SHARE, FLOOR, LEAST, MOST)):
            held = [row for row in bare if row.name not in dropped]
            most = self._answer(*self._reversed(held))
            if most is None:
                continue
            counts = [high - left for high, left in zip(self.highs, most.counts, strict=True)]
            carried = sum(cap * count for cap, count in zip(self.caps, counts, strict=True))
            target = min(self.bounds.work, carried)
            found = self._answer([*held, Row(WORK, tuple(self.caps), target * (1 - TINY))], softs=self._softs(target))
            if found is not None:
                return replace(found, proven=found.proven and most.proven)
            return Solution(tuple(counts), Program(self.columns, ()).cost(counts), 0.0, proven=False)
        counts_kept = tuple(self.kept)
        return Solution(counts_kept, Program(self.columns, ()).cost(counts_kept), 0.0, proven=False)

    def _reversed(self, rows: Iterable[Row]) -> tuple[list[Row], tuple[Column, ...]]:
        """The same choice told by how many of each are left out, at the price of the work that they would carry."""
        columns = tuple(
            Column(column.name, 0, high - low, ((high - low, cap),) if high > low else ())
            for column, low, high, cap in zip(self.columns, self.kept, self.highs, self.caps, strict=True)
        )
        turned = [
            Row(
                row.name,
                tuple(-a for a in row.coefficients),
                row.least - sum(a * high for a, high in zip(row.coefficients, self.highs, strict=True)),
            )
            for row in rows
        ]
        return turned, columns

    def _what_binds(self) -> str:
        """The first bound without which the work could be carried, else what there is room for."""
        rows = [row for row in self._rows() if row.name != SURVIVE]
        for name in (MOST, ZONE_LOSS, SPOT_SHARE, FLOOR):
            held = [row for row in rows if row.name != name]
            if len(held) == len(rows):
                continue
            columns = self.columns
            if name == MOST:
                columns = tuple(
                    Column(column.name, low, (top := max(low, offer.room + offer.growth)), ((top - low, 1.0),))
                    for column, offer, low in zip(self.columns, self.offers, self.kept, strict=True)
                )
            if self._answer(held, columns, first=True) is not None:
                return name
        return CAPACITY

    def _mix(self, found: Solution, bound_by: str) -> Mix:
        chosen = list(zip(self.offers, found.counts, strict=True))
        carried = sum(offer.variant.capacity * count for offer, count in chosen)
        objective = sum(self._spent(offer, count) for offer, count in chosen) + self._lost(found.counts, carried)
        short = max(0.0, self.bounds.work - carried)
        base = sum(self._spent(offer, low) for offer, low in zip(self.offers, self.kept, strict=True))
        return Mix(
            counts={offer.variant.name: count for offer, count in chosen if count},
            usd_per_hour=sum(offer.variant.usd_per_hour * count for offer, count in chosen),
            certificate="Optimal" if found.proven else "Bounded",
            lower_bound=objective if found.proven else min(objective, base + max(0.0, found.bound)),
            short=short if short > TINY * max(1.0, self.bounds.work) else 0.0,
            bound_by=bound_by,
            objective=objective,
        )

    def _lost(self, counts: Sequence[int], carried: float) -> float:
        """Dollars an hour that losses cost by expectation."""
        amounts = {offer.variant.name: count for offer, count in zip(self.offers, counts, strict=True)}
        total = 0.0
        for batch in self.bounds.batches:
            lost = sum(gone * amounts.get(name, 0) for name, gone in batch.takes.items())
            total += batch.missed(lost, max(0.0, carried - min(batch.work, self.bounds.work)))
        return total

    def _spent(self, offer: Offer, count: int) -> float:
        started = max(0, count - self.current.get(offer.variant.name, 0))
        grown = max(0, count - max(offer.room, self.current.get(offer.variant.name, 0)))
        return count * self._price(offer) + started * self._start(offer) + grown * self._growth(offer)
