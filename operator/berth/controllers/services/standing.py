"""A service's Deployments as :mod:`berth.inference.adopt` sees them: where the nodes are that their templates select.

Asked at every decision, so that those of an unchanged pool, which are nearly all, cost a look at their labels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, cast

import numpy as np

from berth.api.names import LABEL_CAPACITY_TYPE, LABEL_POOL
from berth.cluster import wire
from berth.controllers.services.view import Kept, NodeTerms, ServiceView
from berth.fleet.fleet import Fleet
from berth.inference.adopt import Adoption, Place, Standing, adopt
from berth.inference.records import Variant
from berth.inference.room import Rooms
from berth.render.service.placing import added_terms
from berth.training.request import RequestProblem, node_terms
from berth.values import CapacityType

STUCK_SECONDS: Final = 60.0
"""Longer than a scheduler takes to bind a pod for which there is room."""
MOST_KEPT: Final = 10_000
"""Answers kept; past it they begin anew."""


class Deployments(Protocol):
    """What is asked of the observer."""

    def deployments(self, view: ServiceView) -> dict[str, wire.Deployment]:
        """By variant."""

    def unplaced(self, view: ServiceView, seconds: float) -> dict[str, int]:
        """Pods that have waited for a node for so long, by variant."""


class Standings:
    """Reads the Deployments of services; what their templates select is kept as long as pools are what they were."""

    def __init__(self, fleet: Fleet, rooms: Rooms, observer: Deployments) -> None:
        self._fleet, self._rooms, self._observer = fleet, rooms, observer
        self._pools: tuple[tuple[str, int], ...] = ()
        self._places: dict[NodeTerms, frozenset[Place]] = {}
        self._touches: dict[tuple[NodeTerms, Place], tuple[int, bool]] = {}

    def foreign(
        self, view: ServiceView, variants: Mapping[str, Variant], recorded: Callable[[str], tuple[str, str]]
    ) -> tuple[Standing, ...]:
        """Those with replicas that are not plainly what their name says.

        Plainly is: ``variants`` has the name, the template names that variant's pool, and selects nodes of its place.
        ``recorded``: accelerator and zone last told of a Deployment.
        """
        found, live = [], self._observer.deployments(view)
        view.selects = {name: _read(view, name, deployment) for name, deployment in live.items()}
        for name, deployment in live.items():
            if not (deployment.spec.replicas or deployment.status.replicas):
                continue
            variant, labels = variants.get(name), deployment.metadata.labels
            terms = view.selects[name][1]
            if variant is not None and labels.get(LABEL_POOL) == variant.pool and self._touch(terms, variant):
                continue
            found.append(self._standing(view, name, deployment, terms, recorded(name)))
        return tuple(found)

    def adoption(self, variants: Mapping[str, Variant], standing: tuple[Standing, ...]) -> Adoption:
        """See :func:`berth.inference.adopt.adopt`."""
        return adopt(variants.values(), standing, {name: pool.spec.roles for name, pool in self._fleet.pools.items()})

    def _standing(
        self, view: ServiceView, name: str, deployment: wire.Deployment, terms: NodeTerms, recorded: tuple[str, str]
    ) -> Standing:
        labels, places = deployment.metadata.labels, self._places_of(terms)
        waits = self._observer.unplaced(view, STUCK_SECONDS).get(name, 0) > 0
        return Standing(
            name=name,
            replicas=deployment.spec.replicas,
            pool=labels.get(LABEL_POOL, ""),
            capacity_type=cast(CapacityType, labels.get(LABEL_CAPACITY_TYPE, "OnDemand")),
            places=places,
            accelerator=recorded[0],
            zone=recorded[1],
            stuck=waits and any(self._has_others(place, terms) for place in places),
        )

    def _places_of(self, terms: NodeTerms) -> frozenset[Place]:
        state = tuple((name, pool.structure) for name, pool in self._fleet.pools.items())
        if state != self._pools or len(self._places) > MOST_KEPT:
            self._pools, self._places = state, {}
        known = self._places.get(terms)
        if known is None:
            known = self._places[terms] = frozenset(
                (name, *places[row])
                for name, pool in self._fleet.pools.items()
                if len(rows := np.flatnonzero(pool.matching(terms)).tolist())
                for places in (self._rooms.places(pool),)
                for row in rows
            )
        return known

    def _touch(self, terms: NodeTerms, variant: Variant) -> bool:
        """Whether the template selects a node of the variant's place."""
        pool, place = self._fleet.pools[variant.pool], (variant.pool, variant.capacity_type, variant.zone)
        known = self._touches.get((terms, place))
        if known is None or known[0] != pool.structure:
            places, rows = self._rooms.places(pool), np.flatnonzero(pool.matching(terms)).tolist()
            if len(self._touches) > MOST_KEPT:
                self._touches.clear()
            known = self._touches[terms, place] = (pool.structure, any(places[row] == place[1:] for row in rows))
        return known[1]

    def _has_others(self, place: Place, terms: NodeTerms) -> bool:
        """Whether a place has nodes for replicas that the template does not select."""
        pool = self._fleet.pools[place[0]]
        rows = np.flatnonzero(pool.usable & ~pool.matching(terms)).tolist()
        return any(self._rooms.places(pool)[row] == place[1:] for row in rows)


def _read(view: ServiceView, name: str, deployment: wire.Deployment) -> tuple[str, NodeTerms]:
    known, version = view.selects.get(name), deployment.metadata.resource_version
    return known if known is not None and known[0] == version else (version, selected(deployment))


def selected(deployment: wire.Deployment) -> NodeTerms:
    """The nodes that a Deployment's template selects: ORed terms; none, or what cannot be read here: every node."""
    pod = deployment.spec.template.spec
    try:
        return node_terms({"nodeSelector": pod.node_selector, "affinity": pod.affinity})
    except (RequestProblem, KeyError, TypeError, AttributeError):
        return ()


def kept(view: ServiceView, deployments: Mapping[str, wire.Deployment], names: frozenset[str]) -> dict[str, Kept]:
    """Of the Deployments in ``names``, what their templates say of their pool and its nodes."""
    own: Any = view.spec.template if view.spec is not None else None
    found = {}
    for name in names & deployments.keys():
        entry = deployments[name]
        try:
            nodes = added_terms((own or {}).get("spec") or {}, entry.spec.template.spec.affinity)
        except (KeyError, TypeError, AttributeError):
            continue  # the user's template is none that anything could run with
        found[name] = Kept(entry.metadata.labels.get(LABEL_POOL, ""), nodes)
    return found
