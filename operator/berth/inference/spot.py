"""What spot capacity is worth: how soon it will be taken back, and how much of it to hold against that.

Providers take spot back in batches: most nodes of one type and zone that go, go within minutes. And zones differ from
one hour to the next: one that has just come back is often taken again soon, one that has stood for a day stands on. So
each stand of a zone is taken to have a rate of its own, drawn from a gamma distribution, which makes its hazard fall
with its age, ``a / (b + age)`` (a Lomax lifetime). Its shape ``a`` is learned per pool and zone from the batches seen;
the catalogue's rate is the prior.

What is held follows from that by expected cost. A replica that is lost is missing until its replacement has started,
less the notice; work that is not served meanwhile is priced by the promise. Capacity beyond the work covers a loss of
as much in any zone, and costs its price. :func:`hedged` puts the price of losses beside those of replicas and of
starts, so that one search weighs them all: what runs has no start to pay, and a hazard that falls moves a replica only
where that saves more than the start costs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from berth.catalogue.serving import SpotPrior
from berth.inference.records import Batch, Mix, MixBounds, Offer, Variant
from berth.inference.service import Verdict

Cheapest = Callable[[Sequence[Offer], MixBounds, Mapping[str, int]], Mix]
"""Finds the cheapest mix within bounds, given the counts there are."""

SCALE_SECONDS: Final = 1800.0
"""``b``: within so long after its start a stand's hazard halves."""
PRIOR_STANDS: Final = 3.0
"""The prior weighs as much as so many batches seen."""
PRIOR_SHARES: Final = 1.0
"""The prior of a batch's size, which is the whole zone, weighs as much as so many batches seen."""
PRIOR_PAIRS: Final = 10.0
PRIOR_TOGETHER: Final = 0.1
"""Of ten batches one is thought to take a given other zone too, with the weight of ten batches seen."""
HALF_LIFE_SECONDS: Final = 14 * 86400.0
"""After so long what was seen counts half."""
RETURN_STARTS: Final = 3.0
"""A zone is worth starting in while it stands for so many starts with an even chance."""
PENALTY: Final = 0.1
"""Price of work not served, in prices of the same work on demand, times the promise. Not theory: the least with which
losses alone stayed within the promise on recorded traces (``make bench-spot``)."""
_STEP: Final = 1.5
"""Prices of risk are rounded to powers of this, so that a hazard that falls by the minute moves nothing."""
OTHERS: Final = 2
"""A batch is taken to find replicas in at most so many other zones of its pool."""
_DIGITS: Final = 2
"""Shares of batches are rounded to so many: what was seen of them fades by the minute."""
_PARTS: Final = 8
"""The work that losses are reckoned from is rounded down to such parts of the smallest replica: it drifts."""
_QUANTILES: Final = 64
_HOUR: Final = 3600.0
_DAY: Final = 86400.0
_TINY: Final = 1e-9

Place = tuple[str, str]
"""(pool, zone)."""


def shape_of(reclaims_per_node_day: float, scale: float = SCALE_SECONDS) -> float:
    """The ``a`` that would be fitted to stands of this mean rate: 1 / E[ln(1 + T/b)] of an exponential T."""
    mean = _DAY / max(reclaims_per_node_day, 1e-3)
    lifetimes = (-mean * math.log(1 - (i + 0.5) / _QUANTILES) for i in range(_QUANTILES))
    return _QUANTILES / sum(math.log1p(lifetime / scale) for lifetime in lifetimes)


@dataclass(frozen=True, slots=True)
class Risk:
    """What is to be expected of a place now.

    ``batches_per_hour``: the hazard of a batch; ``share`` of the nodes that one takes; ``median_seconds``: within how
    long, with an even chance, the next one comes. ``settled``: the last one is over. ``together``: the probability that
    a batch also takes another zone of the pool.
    """

    batches_per_hour: float
    share: float
    median_seconds: float
    settled: bool = True
    together: float = 0.0

    def worth(self, cold_start_seconds: float) -> bool:
        """Whether a start there is likely to pay."""
        return self.settled and self.median_seconds >= RETURN_STARTS * cold_start_seconds


@dataclass(slots=True)
class Stand:
    """What was seen of one place. ``exposure`` is the sum of ln(1 + lifetime / b) over its stands.

    ``since``: when the present stand began, None while no node is held; ``counted``: up to when it is in ``exposure``.
    """

    prior: SpotPrior
    batches: float = 0.0
    exposure: float = 0.0
    shares: float = 0.0
    since: float | None = None
    counted: float = 0.0
    last_batch: float | None = None
    held: int = 0

    def observe(self, now: float, held: int, reclaimed: int = 0) -> bool:
        """``held`` nodes are there at ``now``, after ``reclaimed`` of them were taken. Whether that is a new batch.

        Times must not fall; an earlier one counts as the latest.
        """
        now = max(now, self.counted)
        self._age(now)
        fresh = False
        if reclaimed > 0:
            share = min(1.0, reclaimed / max(held + reclaimed, 1))
            if self.last_batch is None or now - self.last_batch > self.prior.group_window_seconds:
                self.batches += 1
                fresh = True
                self.shares += share
            else:
                self.shares = min(self.batches, self.shares + share)
            self.last_batch = now
            self.since = now
        if held <= 0:
            self.since = None
        elif self.since is None:
            self.since = now
        self.held, self.counted = max(held, 0), now
        return fresh

    def risk(self, now: float, together: float = 0.0) -> Risk:
        """What is to be expected at ``now``; ``together`` as in :class:`Risk`."""
        prior = shape_of(self.prior.reclaims_per_node_day)
        shape = (PRIOR_STANDS + self.batches) / (PRIOR_STANDS / prior + self.exposure)
        age = max(0.0, now - self.since) if self.since is not None else 0.0
        span = SCALE_SECONDS + age
        settled = self.last_batch is None or now - self.last_batch >= self.prior.group_window_seconds
        share = (PRIOR_SHARES + self.shares) / (PRIOR_SHARES + self.batches)
        median = span * math.expm1(min(math.log(2) / shape, 50.0))
        return Risk(shape * _HOUR / span, min(1.0, share), median, settled, together)

    def taken_lately(self, now: float) -> bool:
        """Whether a batch of this place is not over yet."""
        return self.last_batch is not None and now - self.last_batch <= self.prior.group_window_seconds

    def _age(self, now: float) -> None:
        passed = now - self.counted
        if self.since is not None and self.counted >= self.since:
            self.exposure += math.log((SCALE_SECONDS + now - self.since) / (SCALE_SECONDS + self.counted - self.since))
        if passed > 0:
            kept = 0.5 ** (passed / HALF_LIFE_SECONDS)
            self.batches *= kept
            self.exposure *= kept
            self.shares *= kept


@dataclass(slots=True)
class SpotBook:
    """All places, and how often a batch of one zone is also one of another zone of its pool."""

    stands: dict[Place, Stand] = field(default_factory=dict)
    pairs: dict[str, tuple[float, float]] = field(default_factory=dict)

    def observe(self, place: Place, prior: SpotPrior, now: float, held: int, reclaimed: int = 0) -> bool:
        """See :meth:`Stand.observe`."""
        stand = self.stands.get(place)
        if stand is None:
            stand = self.stands[place] = Stand(prior, counted=now)
        fresh = stand.observe(now, held, reclaimed)
        if fresh:
            hits, trials = self.pairs.get(place[0], (0.0, 0.0))
            for other, its in self.stands.items():
                if other[0] != place[0] or other == place:
                    continue
                lately = its.taken_lately(now)
                if lately or its.held > 0:
                    trials += 1
                    hits += 2 * lately  # when the earlier one was counted, this one had not come
            self.pairs[place[0]] = (hits, trials)
        return fresh

    def risk(self, place: Place, now: float) -> Risk | None:
        """What is to be expected of ``place``, None where nothing was ever seen of it."""
        stand = self.stands.get(place)
        return None if stand is None else stand.risk(now, self.together(place[0]))

    def rename(self, places: Mapping[Place, Place]) -> None:
        """The nodes of a place are another one's now: what was seen of them goes on there."""
        for old, new in places.items():
            if old in self.stands:
                self.stands[new] = self.stands.pop(old)
        for pool, known in {(before[0], after[0]) for before, after in places.items()}:
            if pool in self.pairs and not any(place[0] == pool for place in self.stands):
                self.pairs[known] = self.pairs.pop(pool)

    def together(self, pool: str) -> float:
        """The probability that a batch of one zone is also one of a given other zone of ``pool``."""
        hits, trials = self.pairs.get(pool, (0.0, 0.0))
        return min(1.0, (PRIOR_PAIRS * PRIOR_TOGETHER + hits) / (PRIOR_PAIRS + trials))


def trusted(offer: Offer, risk: Risk | None, staying: int) -> Offer:
    """``offer`` with the room that may be planned with: no more than what stays while starts there would not pay.

    ``staying``: the variant's replicas there that no notice is about to take.
    """
    if risk is None or not offer.variant.spot or risk.worth(offer.cold_start_seconds):
        return offer
    return replace(offer, room=min(offer.room, staying), growth=0)


def spot_verdict(offers: Sequence[Offer], risks: Mapping[str, Risk]) -> Verdict:
    """The condition SpotAvailable, from the spot offers as they were before :func:`trusted`; ``risks`` by variant."""
    spot = [offer for offer in offers if offer.variant.spot]
    if not spot:
        return Verdict(False, "NoSpotPool", "no pool that fits has spot nodes")
    rooms = [offer for offer in spot if offer.room + offer.growth > 0]
    if not rooms:
        return Verdict(False, "NoSpotRoom", "the spot nodes that fit are taken or gone")
    waiting = sorted(
        {
            offer.variant.zone or offer.variant.pool
            for offer in rooms
            if (risk := risks.get(offer.variant.name)) is not None and not risk.worth(offer.cold_start_seconds)
        }
    )
    places = {offer.variant.zone or offer.variant.pool for offer in rooms}
    if len(waiting) == len(places):
        return Verdict(
            False, "Recovering", f"reclaims in {', '.join(waiting)} are too recent or too frequent to return"
        )
    return Verdict(True, "Available", f"not in {', '.join(waiting)}" if waiting else "")


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the choice of a mix goes by: the risk of each spot variant, by its name.

    ``missing_seconds``: from the loss of a replica until its replacement is ready, the notice taken off. ``penalty``:
    dollars for an hour of one replica's work not served.
    """

    risks: Mapping[str, Risk]
    missing_seconds: float
    penalty: float

    def loss(self, variant: Variant) -> float:
        """Dollars an hour that one unit of work lost with the next batch costs, by expectation."""
        risk = self.risks.get(variant.name)
        if risk is None or not variant.spot:
            return 0.0
        exact = risk.batches_per_hour * self.missing_seconds / _HOUR * self.penalty
        return _STEP ** round(math.log(exact, _STEP)) if exact > _TINY else 0.0

    def share(self, variant: Variant) -> float:
        """Of a variant's replicas, what one batch takes."""
        risk = self.risks.get(variant.name)
        return round(risk.share, _DIGITS) if risk is not None else 1.0

    def together(self, variant: Variant) -> float:
        """See :class:`Risk`."""
        risk = self.risks.get(variant.name)
        return round(risk.together, _DIGITS) if risk is not None else 0.0


def penalty(promise: float, usd_per_work: float) -> float:
    """Dollars for an hour of work not served, where the share ``promise`` of it may be so.

    The stricter the promise, the dearer: at 0.1 % an hour not served costs as much as 100 hours served on demand.
    """
    return PENALTY * usd_per_work / max(promise, 1e-5)


def batches(offers: Sequence[Offer], work: float, outlook: Outlook) -> tuple[Batch, ...]:
    """What each place may lose of ``work``, and the price of that."""
    part = min((offer.variant.capacity for offer in offers if offer.variant.capacity > 0), default=1.0) / _PARTS
    places: dict[Place, list[Variant]] = {}
    for offer in offers:
        variant = offer.variant
        if variant.spot and offer.room + offer.growth > 0 and outlook.loss(variant) > 0:
            places.setdefault((variant.pool, variant.zone), []).append(variant)
    zones = Counter(pool for pool, _ in places)
    return tuple(
        Batch(
            takes={variant.name: variant.capacity * outlook.share(variant) for variant in variants},
            work=part * math.floor(work / part + _TINY),
            usd_per_hour=max(map(outlook.loss, variants)),
            twice=min(1.0, max(map(outlook.together, variants)) * min(zones[pool] - 1, OTHERS)),
        )
        for (pool, _), variants in sorted(places.items())
    )


def hedged(cheapest: Cheapest, outlook: Outlook) -> Cheapest:
    """``cheapest`` with what losses are expected to cost weighed in."""

    def choose(offers: Sequence[Offer], bounds: MixBounds, current: Mapping[str, int]) -> Mix:
        if not bounds.spot_allowed:
            return cheapest(offers, bounds, current)
        return cheapest(offers, replace(bounds, batches=batches(offers, bounds.work, outlook)), current)

    return choose
