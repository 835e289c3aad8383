"""Where replicas fit: how many of a variant the free devices of its pool can hold, and which nodes to hold for them.

Usage is derived: claims of live pods and of what is reserved are in the pool's columns already. In a pool of both
roles a node that holds training is closed to replicas. A thousand services ask about the same few places, so answers
are kept for as long as the pool is what it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from berth.catalogue.records import Catalogue
from berth.fleet.arrays import Bools, Ints64
from berth.fleet.fleet import Fleet
from berth.fleet.pool import Pool
from berth.inference.access import ANYWHERE, SELECTOR, Access, never
from berth.inference.misfit import misfit
from berth.inference.records import Variant
from berth.inference.supply import places_of
from berth.values import CPU, MEMORY, MOST_AMOUNT, CapacityType, Resources, plural

MOST_TOTALS: Final = 10_000
"""Answers kept; past it they begin anew, so that services that come and go leave nothing."""
MOST_MASKS: Final = 256
"""The same of nodes that may be used: a byte for each node of the pool."""
OWN_LIMIT: Final = 1000
"""Nodes that a pool may grow by where only its provisioner knows the limit."""


class Rooms:
    """Answers about the free room of ``fleet``; a cache that never outlives what it was computed from."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._places: dict[str, tuple[int, Mapping[int, tuple[CapacityType, str]]]] = {}
        self._rows: dict[tuple[str, CapacityType, str], tuple[int, Bools]] = {}
        self._masks: dict[tuple[str, CapacityType, str, Access], tuple[int, Bools]] = {}
        self._totals: dict[tuple[object, ...], tuple[int, int]] = {}
        self._misfits: dict[tuple[object, ...], tuple[tuple[int, int], str]] = {}
        self._shapes: dict[str, int] = {}  # pool -> devices of the smallest node that it has, or had last
        self._growing: dict[tuple[str, str], tuple[str, int]] = {}  # holder, variant -> pool, nodes to come

    def free(self, variant: Variant, needs: Resources, access: Access = ANYWHERE) -> int:
        """How many more pods of ``needs`` fit into the place of ``variant`` now, where they may go; 0 where its pool is
        gone."""
        pool = self._fleet.pools.get(variant.pool)
        if pool is None:
            return 0
        key = (variant.pool, variant.capacity_type, variant.zone, access, tuple(sorted(needs.items())))
        known = self._totals.get(key)
        if known is None or known[0] != pool.version:
            total = int(fits(pool, self._open(pool, variant, access), needs).sum())
            if len(self._totals) >= MOST_TOTALS:
                self._totals.clear()
            known = self._totals[key] = (pool.version, total)
        return known[1]

    def misfit(self, variant: Variant, needs: Resources, access: Access) -> str:
        """Why no node of the variant's place would ever take such a pod; see :func:`berth.inference.misfit.misfit`.

        Where the pool grows, only what is so of every node that would join: see :func:`berth.inference.access.never`.
        """
        pool = self._fleet.pools.get(variant.pool)
        if pool is None:
            return ""
        if pool.spec.growth is not None:
            return never(pool, variant, access.terms, self._catalogue)
        key = (variant.pool, variant.capacity_type, variant.zone, access, tuple(sorted(needs.items())))
        known, state = self._misfits.get(key), (pool.structure, pool.daemons)  # pods come and go
        if known is None or known[0] != state:
            if len(self._misfits) >= MOST_TOTALS:
                self._misfits.clear()
            known = self._misfits[key] = (state, misfit(pool, self._place(pool, variant), needs, access))
        return known[1]

    def outside(self, variant: Variant, access: Access) -> str:
        """How many nodes of the variant's place the template's own terms leave; empty where they leave all or none."""
        pool = self._fleet.pools.get(variant.pool)
        if pool is None or not access.terms:
            return ""
        place = self._place(pool, variant)
        every, met = int(place.sum()), int((place & pool.matching(access.terms)).sum())
        return (
            f"{met} of its {plural(every, 'node')} {'meets' if met == 1 else 'meet'} {SELECTOR}"
            if 0 < met < every
            else ""
        )

    def nodes(self, variant: Variant, needs: Resources, wanted: int, access: Access = ANYWHERE) -> list[str]:
        """Nodes for up to ``wanted`` more pods, a node as often as it fits; see :func:`choose`."""
        pool = self._fleet.pools.get(variant.pool)
        if pool is None:
            return []
        return choose(pool, fits(pool, self._open(pool, variant, access), needs), wanted)

    def per_node(self, variant: Variant, needs: Resources, access: Access = ANYWHERE) -> int:
        """How many pods of ``needs`` an empty node takes like those of the variant's place that ``access`` asks for, by
        the smallest of them; of all of them where it asks for others, which may join.

        Taints do not count: nodes carry some while they start. Where the pool has no node, of one that would join: as
        far as is known what it holds. 0 where no node can be what ``access`` asks for.
        """
        pool = self._fleet.pools.get(variant.pool)
        if pool is None or never(pool, variant, access.terms, self._catalogue):
            return 0
        if not len(pool.row):
            return self._per_joining(pool, needs)
        place = self._place(pool, variant)
        met = place & pool.matching(access.terms)
        rows = np.flatnonzero(met if met.any() else place)
        if not len(rows):
            return 0
        wanted = [(resource, min(amount, MOST_AMOUNT)) for resource, amount in needs.items() if amount > 0]
        fit = [np.maximum(pool.bare_of(resource)[rows], 0) // amount for resource, amount in wanted]
        each = np.minimum.reduce(fit) if fit else np.zeros(len(rows), np.int64)
        return int(each[each > 0].min(initial=MOST_AMOUNT)) if (each > 0).any() else 0

    def _place(self, pool: Pool, variant: Variant) -> Bools:
        """The rows of the variant's place, whether they can be used now or not."""
        kind, zone = variant.capacity_type, variant.zone
        key = (pool.spec.name, kind, zone)
        known = self._rows.get(key)
        if known is None or known[0] != pool.structure:
            rows = np.zeros(len(pool), np.bool_)
            rows[[row for row, found in self.places(pool).items() if found[0] == kind and zone in ("", found[1])]] = (
                True
            )
            known = self._rows[key] = (pool.structure, rows)
        return known[1]

    def _per_joining(self, pool: Pool, needs: Resources) -> int:
        devices = needs.get(pool.resource, 0)
        if devices <= 0:
            return 0
        most = self.shape(pool) * pool.unit // devices
        grows = pool.spec.growth
        for resource, held in ((CPU, grows.cpu_per_node), (MEMORY, grows.memory_per_node)) if grows is not None else ():
            asked = needs.get(resource, 0)
            most = min(most, held // asked) if held and asked > 0 else most
        return most

    def growth(self, variant: Variant, needs: Resources, access: Access = ANYWHERE) -> int:
        """Pods for which the variant's pool may still get nodes, those that somebody waits for already left out."""
        pool = self._fleet.pools.get(variant.pool)
        grows = pool.spec.growth if pool is not None else None
        if pool is None or grows is None:
            return 0
        left = OWN_LIMIT if grows.max_nodes is None else grows.max_nodes - len(pool.row)
        left -= sum(nodes for name, nodes in self._growing.values() if name == variant.pool)
        return max(0, left) * self.per_node(variant, needs, access)

    def shape(self, pool: Pool) -> int:
        """Devices of a node that would join ``pool``: as it says, else as its smallest has or had; 0 not known."""
        grows, held = pool.spec.growth, pool.total_devices[pool.total_devices > 0]
        if len(held):
            self._shapes[pool.spec.name] = int(held.min()) // pool.unit
        return (grows.devices_per_node if grows is not None else 0) or self._shapes.get(pool.spec.name, 0)

    def forget(self, pool: str) -> None:
        """The pool of that name is gone."""
        for known in (self._places, self._shapes):
            known.pop(pool, None)
        self._rows = {key: rows for key, rows in self._rows.items() if key[0] != pool}
        self._masks = {key: mask for key, mask in self._masks.items() if key[0] != pool}
        self._totals = {key: total for key, total in self._totals.items() if key[0] != pool}
        self._misfits = {key: known for key, known in self._misfits.items() if key[0] != pool}

    def grow(self, holder: str, variant: Variant, needs: Resources, wanted: int, access: Access = ANYWHERE) -> None:
        """``holder`` waits for nodes for ``wanted`` pods of ``variant``; others do not have them."""
        pool = self._fleet.pools.get(variant.pool)
        if wanted <= 0 or pool is None or pool.spec.growth is None:
            return
        if each := self.per_node(variant, needs, access):
            self._growing[holder, variant.name] = (variant.pool, -(-wanted // each))

    def settled(self, holder: str) -> None:
        """``holder`` waits for no nodes."""
        for key in [key for key in self._growing if key[0] == holder]:
            del self._growing[key]

    def _open(self, pool: Pool, variant: Variant, access: Access) -> Bools:
        key = (pool.spec.name, variant.capacity_type, variant.zone, access)
        known = self._masks.get(key)
        if known is None or known[0] != pool.structure:
            if len(self._masks) >= MOST_MASKS:
                self._masks.clear()
            rows = self._place(pool, variant) & pool.usable & pool.admitting(*access)
            known = self._masks[key] = (pool.structure, rows)
        return known[1] & ~pool.held_by_other_role("Inference")

    def places(self, pool: Pool) -> Mapping[int, tuple[CapacityType, str]]:
        """Capacity type and zone of every node, by row; see :func:`berth.inference.supply.places_of`."""
        known = self._places.get(pool.spec.name)
        if known is None or known[0] != pool.structure:
            known = self._places[pool.spec.name] = (pool.structure, places_of(pool, self._catalogue))
        return known[1]

    @property
    def _catalogue(self) -> Catalogue:
        return self._fleet.catalogue


def fits(pool: Pool, rows: Bools, needs: Resources) -> Ints64:
    """By row, how many more pods of ``needs`` it takes; 0 outside ``rows``."""
    count = np.where(rows, np.maximum(pool.free_pods, 0).astype(np.int64), 0)
    for resource, amount in needs.items():
        if amount > 0:
            count = np.minimum(count, np.maximum(pool.free_of(resource), 0) // min(amount, MOST_AMOUNT))
    return count


def choose(pool: Pool, count_by_row: Ints64, wanted: int) -> list[str]:
    """Nodes for up to ``wanted`` more pods, fullest first, so that whole nodes stay free; a node as often as it fits.

    Ties go by name, so that the same state always gives the same nodes.
    """
    chosen: list[str] = []
    rows = sorted(np.flatnonzero(count_by_row).tolist(), key=lambda row: (int(pool.free_devices[row]), pool.names[row]))
    for row in rows:
        chosen += [pool.names[row]] * min(wanted - len(chosen), int(count_by_row[row]))
        if len(chosen) >= wanted:
            break
    return chosen
