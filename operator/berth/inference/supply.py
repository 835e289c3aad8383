"""Where replicas could run: pools as the choice among accelerators sees them, by capacity type and zone.

A replica asks for whole devices of one node, so what matters of a place is its largest node. How many replicas it has
room for now is asked of the ledger, see :mod:`berth.inference.room`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from berth.catalogue.records import Catalogue
from berth.fleet.pool import Pool
from berth.values import CapacityType, Role


@dataclass(frozen=True, slots=True)
class Place:
    """Nodes of one pool, capacity type and, on spot, zone. ``devices_per_node`` of the largest of ``nodes`` nodes."""

    capacity_type: CapacityType
    zone: str
    devices_per_node: int
    nodes: int


@dataclass(frozen=True, slots=True)
class Supply:
    """A pool; ``grows`` where somebody adds nodes.

    ``usd_per_device_hour`` is its own price, on demand unless all of it is spot (``price_is_spot``).

    ``spot_discount`` is the share off for spot nodes where the price is on demand; so is the catalogue's, always.
    """

    pool: str
    accelerator: str
    roles: tuple[Role, ...]
    places: tuple[Place, ...]
    usd_per_device_hour: Decimal | None = None
    price_is_spot: bool = False
    spot_discount: float = 0.0
    grows: bool = False

    @property
    def devices_per_node(self) -> int:
        """Of its largest node."""
        return max((place.devices_per_node for place in self.places), default=0)


def supply(pool: Pool, catalogue: Catalogue, devices: int = 0) -> Supply | None:
    """What ``pool`` offers, ``None`` where its accelerator is not known. Nodes that cannot be used now count.

    ``devices`` of a node that would join: where the pool has none yet, that is what it offers. O(nodes); the result
    holds as long as ``pool.structure`` and ``devices``.
    """
    if pool.accelerator is None:
        return None
    spot_labels: Mapping[str, str] = {}
    largest: dict[tuple[CapacityType, str], tuple[int, int]] = {}
    for row, (kind, zone) in places_of(pool, catalogue).items():
        devices, nodes = largest.get((kind, zone), (0, 0))
        largest[kind, zone] = max(devices, int(pool.total_devices[row]) // pool.unit), nodes + 1
        spot_labels = pool.labels[row] if kind == "Spot" and not spot_labels else spot_labels
    if not largest and pool.spec.growth is not None and devices:
        largest[pool.spec.capacity_type or "OnDemand", ""] = devices, 0
    return Supply(
        pool=pool.spec.name,
        accelerator=pool.accelerator.name,
        roles=pool.spec.roles,
        places=tuple(Place(*key, *value) for key, value in sorted(largest.items())),
        usd_per_device_hour=pool.spec.usd_per_accelerator_hour,
        price_is_spot=pool.spec.capacity_type == "Spot" and pool.spec.usd_per_accelerator_hour is not None,
        spot_discount=catalogue.serving.spot_prior(spot_labels).discount,
        grows=pool.spec.growth is not None,
    )


def places_of(pool: Pool, catalogue: Catalogue) -> dict[int, tuple[CapacityType, str]]:
    """Capacity type (on demand where nothing says) and zone (spot only, else empty) of every node, by row."""
    found: dict[int, tuple[CapacityType, str]] = {}
    site, table = pool.site_level, catalogue.labels
    zone_label = pool.levels[site].node_label if site is not None else ""
    for row in range(len(pool)):
        if pool.facts(row) is None:
            continue
        labels = pool.labels[row]
        kind = pool.spec.capacity_type or (
            table.capacity_type_by(pool.spec.capacity_label, labels)
            if pool.spec.capacity_label is not None
            else table.capacity_type(labels)
        )
        found[row] = (kind or "OnDemand", labels.get(zone_label, "") if kind == "Spot" else "")
    return found


def by_accelerator(supplies: Iterable[Supply]) -> Mapping[str, tuple[Supply, ...]]:
    """The pools of each accelerator, by name."""
    found: dict[str, list[Supply]] = defaultdict(list)
    for entry in sorted(supplies, key=lambda entry: entry.pool):
        found[entry.accelerator].append(entry)
    return {name: tuple(entries) for name, entries in found.items()}
