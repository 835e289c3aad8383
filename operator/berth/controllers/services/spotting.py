"""Spot capacity of the cluster: what each pool and zone has lost lately, and what a plan should make of it.

Counted by the leader once a control period. A restart forgets it and begins with the catalogue's rates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from berth.catalogue.serving import SpotPrior
from berth.cluster import wire
from berth.cluster.cache import Cache
from berth.controllers.services.elapsed import Elapsed
from berth.controllers.services.notices import node_signs
from berth.controllers.services.supply import Choice
from berth.fleet.fleet import Fleet
from berth.inference.answers import Answers
from berth.inference.mix import cheapest_mix
from berth.inference.reclaim import Census, SpotNode
from berth.inference.records import Offer
from berth.inference.room import Rooms
from berth.inference.service import Rules, Verdict
from berth.inference.spot import Cheapest, Outlook, Risk, SpotBook, hedged, penalty, spot_verdict, trusted


class SpotWatch:
    """Learns from the spot nodes there are, and answers for the places of a service's variants."""

    def __init__(self, fleet: Fleet, nodes: Cache[wire.Node], rooms: Rooms) -> None:
        self._fleet, self._nodes, self._rooms = fleet, nodes, rooms
        self._book, self._census, self._elapsed = SpotBook(), Census(), Elapsed()
        self._mixed: Cheapest = partial(cheapest_mix, answers=Answers())
        self._priors: dict[tuple[str, str], SpotPrior] = {}

    def look(self, now: float) -> None:
        """Count what is held and what was taken since the last look."""
        at, nodes = self._elapsed.at(now), self._spot_nodes()
        self._book.rename(self._census.renamed(nodes))
        for place, (held, reclaimed) in self._census.look(nodes).items():
            if place in self._priors:
                self._book.observe(place, self._priors[place], at, held, reclaimed)

    def risks(self, choice: Choice, now: float) -> dict[str, Risk]:
        """The risk of each spot variant of a service, as far as its place was ever seen."""
        at = self._elapsed.at(now)
        found = {
            name: self._book.risk((variant.pool, variant.zone), at)
            for name, variant in choice.variants.items()
            if variant.spot
        }
        return {name: risk for name, risk in found.items() if risk is not None}

    def offers(self, offers: Iterable[Offer], risks: Mapping[str, Risk], stays: Mapping[str, int]) -> tuple[Offer, ...]:
        """``offers`` with the room of places that are not worth starting in cut to what is there."""
        return tuple(
            trusted(offer, risks.get(offer.variant.name), stays.get(offer.variant.name, 0))
            if offer.variant.spot
            else offer
            for offer in offers
        )

    def cheapest(self, choice: Choice, risks: Mapping[str, Risk], rules: Rules, cold: float, period: float) -> Cheapest:
        """How the mix is chosen: by price alone, or, with spot, by price and what a loss would cost."""
        variants = choice.variants.values()
        if not rules.spot.allowed or not any(variant.spot for variant in variants):
            return self._mixed
        firm = [v.usd_per_hour / v.capacity for v in variants if not v.spot and v.capacity > 0]
        own = [v.usd_per_hour / v.capacity for v in variants if v.capacity > 0]
        notice = min((p.notice_seconds for (pool, _), p in self._priors.items() if pool in _pools(choice)), default=0)
        price = min(firm or own, default=0.0)
        return hedged(self._mixed, Outlook(risks, max(0.0, cold - notice) + period, penalty(rules.promise, price)))

    def verdict(self, offers: Iterable[Offer], risks: Mapping[str, Risk]) -> Verdict:
        """The condition SpotAvailable."""
        return spot_verdict(tuple(offers), risks)

    def _spot_nodes(self) -> list[SpotNode]:
        found: list[SpotNode] = []
        for name, pool in self._fleet.pools.items():
            for row, (kind, zone) in self._rooms.places(pool).items():
                node = self._nodes.get(pool.names[row]) if kind == "Spot" else None
                if node is not None:
                    place = (name, zone)
                    if place not in self._priors:
                        self._priors[place] = self._fleet.catalogue.serving.spot_prior(node.metadata.labels)
                    found.append(SpotNode(node.metadata.uid, place, tuple(node_signs(node, self._fleet))))
        return found


def _pools(choice: Choice) -> set[str]:
    return {variant.pool for variant in choice.variants.values() if variant.spot}
