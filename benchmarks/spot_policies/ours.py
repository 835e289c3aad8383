"""Our policy: the same functions as in the operator, with the simulation's view put into their terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.spot_policies.base import (
    COLD_STEPS,
    NOTICE_STEPS,
    ON_DEMAND,
    ON_DEMAND_PRICE,
    SPOT_PRICE,
    Rules,
    View,
)
from benchmarks.spot_policies.base import Replica as Simulated
from benchmarks.spot_traces import STEP_SECONDS
from berth.catalogue.load import load
from berth.inference.mix import cheapest_mix
from berth.inference.plan import urgent
from berth.inference.records import Mix, MixBounds, Offer, Variant
from berth.inference.retire import settle, staying
from berth.inference.service import Replica
from berth.inference.spot import Outlook, SpotBook, hedged, penalty, trusted

POOL = "pool"
_OFFER = Offer(Variant(ON_DEMAND, "any", "OnDemand", POOL, 1, ON_DEMAND_PRICE, 1.0), 1000)
_COLD = COLD_STEPS * STEP_SECONDS


class Ours:
    """One setting: the share of the work that may be unserved, and the label that tells the catalogue the provider."""

    patience = 5

    def __init__(self, promise: float = 0.001, provider_label: str = "topology.k8s.aws/zone-id") -> None:
        self.name = f"ours {promise:.1%}"
        self._promise = promise
        self._prior = load().serving.spot_prior({provider_label: ""})

    def reset(self, zones: Sequence[str], rules: Rules, notice: bool) -> None:
        """Nothing is known of any zone but the catalogue's prior."""
        self._zones, self._rules = tuple(zones), rules
        self._missing = _COLD - (NOTICE_STEPS * STEP_SECONDS if notice else 0.0)
        self._book = SpotBook()
        self._there = dict.fromkeys(zones, 0)
        self._variants = {ON_DEMAND: _OFFER.variant} | {
            zone: Variant(zone, "any", "Spot", POOL, 1, SPOT_PRICE, 1.0, zone) for zone in zones
        }
        self._mixes: dict[object, Mix] = {}
        self._settled: tuple[object, Mapping[str, int]] | None = None

    def decide(self, view: View) -> Mapping[str, int]:
        """The cheapest hedged mix, and of the way there what may be done now."""
        now = view.step * STEP_SECONDS
        rooms = {zone: view.nodes[zone] - view.going[zone] for zone in self._zones}
        for zone, room in rooms.items():
            self._book.observe((POOL, zone), self._prior, now, room, max(0, self._there[zone] - room))
        self._there = rooms
        risks = {zone: risk for zone in self._zones if (risk := self._book.risk((POOL, zone), now)) is not None}
        outlook = Outlook(risks, self._missing, penalty(self._promise, ON_DEMAND_PRICE))
        replicas = tuple(_replica(each, view.step) for place in view.replicas.values() for each in place)
        wanted = {place: len(each) for place, each in view.replicas.items()}
        goal = self._goal(view.needed, rooms, staying(wanted, replicas), outlook)
        safe = min(float(view.needed), float(goal.replicas))
        return settle(
            goal.counts, wanted, replicas, self._variants, safe, {**view.nodes, ON_DEMAND: 1000},
            urgent=urgent(replicas, now),
        )  # fmt: skip

    def _goal(self, needed: int, rooms: Mapping[str, int], stays: Mapping[str, int], outlook: Outlook) -> Mix:
        losses = tuple(outlook.loss(self._variants[zone]) for zone in self._zones)
        worth = tuple(outlook.risks[zone].worth(_COLD) for zone in self._zones)
        together = round(self._book.together(POOL), 2)
        key = (needed, together, tuple(rooms.items()), tuple(stays.items()), losses, worth)
        if key not in self._mixes:
            offers = [_OFFER] + [
                trusted(Offer(self._variants[zone], rooms[zone], 0, _COLD), outlook.risks[zone], stays[zone])
                for zone in self._zones
            ]
            bounds = MixBounds(
                needed, 1, 1000, on_demand_floor=min(self._rules.floor, needed), max_zone_loss=self._rules.max_zone_loss
            )
            self._mixes[key] = hedged(cheapest_mix, outlook)(offers, bounds, stays)
        return self._mixes[key]


def _replica(each: Simulated, step: int) -> Replica:
    ready = each.ready_at <= step
    leaving = None if each.leaves_at is None else each.leaves_at * STEP_SECONDS
    return Replica(
        str(each.number), str(each.number), each.zone, 0.0, zone=each.zone, ready=ready, ever_ready=ready,
        leaving_at=leaving,
    )  # fmt: skip
