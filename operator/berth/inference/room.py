"""Where replicas fit: how many of a variant the free devices of its pool can hold, and which nodes to hold for them.

Usage is derived: claims of live pods and of what is reserved are in the pool's columns already. In a pool of both
roles a node that holds training is closed to replicas.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import numpy as np

from berth.catalogue.matching import LabelTable
from berth.fleet.arrays import Bools, Ints64
from berth.fleet.pool import Pool
from berth.values import CapacityType, Resources, Toleration, tolerated

ZONE_LABEL: Final = "topology.kubernetes.io/zone"
_NO_NODES: Final = frozenset[str]()


def capacity_type_of(pool: Pool, table: LabelTable, labels: Mapping[str, str]) -> CapacityType:
    """How a node of ``pool`` is paid for: as the pool states, else by its label, else on demand."""
    if pool.spec.capacity_type is not None:
        return pool.spec.capacity_type
    if pool.spec.capacity_label is not None:
        found = table.capacity_type_by(pool.spec.capacity_label, labels)
    else:
        found = table.capacity_type(labels)
    return found or "OnDemand"


def open_rows(
    pool: Pool,
    table: LabelTable,
    capacity_type: CapacityType,
    zone: str = "",
    tolerations: Collection[Toleration] = (),
    closed: Collection[str] = _NO_NODES,
) -> Bools:
    """The rows that may take replicas of this capacity type and, if given, zone; ``closed`` nodes never do."""
    rows = pool.usable & ~pool.held_by_other_role("Inference")
    for row in np.flatnonzero(rows).tolist():
        labels = pool.labels[row]
        rows[row] = (
            pool.names[row] not in closed
            and (not zone or labels.get(ZONE_LABEL, "") == zone)
            and capacity_type_of(pool, table, labels) == capacity_type
        )
    for number, taints in enumerate(pool.taint_classes):
        if taints and not tolerated(taints, tolerations):
            rows &= pool.taint_class != number
    return rows


def fits(pool: Pool, rows: Bools, needs: Resources) -> Ints64:
    """By row, how many more pods of ``needs`` it takes; 0 outside ``rows``."""
    count = np.where(rows, np.maximum(pool.free_pods, 0).astype(np.int64), 0)
    for resource, amount in needs.items():
        if amount > 0:
            count = np.minimum(count, np.maximum(pool.free_of(resource), 0) // amount)
    return count


def choose(pool: Pool, count_by_row: Ints64, devices: int, wanted: int) -> list[str]:
    """Nodes for up to ``wanted`` more pods, fullest first, so that whole nodes stay free; a node as often as it fits.

    ``devices`` per pod. Ties go by name, so that the same state always gives the same nodes.
    """
    chosen: list[str] = []
    left = count_by_row.copy()
    rows = sorted(np.flatnonzero(left).tolist(), key=lambda row: (int(pool.free_devices[row]), pool.names[row]))
    for row in rows:
        take = min(wanted - len(chosen), int(left[row]))
        chosen += [pool.names[row]] * take
        if len(chosen) >= wanted:
            break
    return chosen
