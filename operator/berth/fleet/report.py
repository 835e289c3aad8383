"""What a pool has and lacks, for its status, for metrics and for people.

Numbers say what a gang could use now: ``free`` leaves out nodes that are cordoned, not ready or share their devices.
Taints are counted but take nothing away, because workloads may tolerate them.

Fragmentation is the share of the free accelerators that are not on wholly free nodes, 0 when none is free. It is the
measure of Weng et al., "Beware of Fragmentation" (USENIX ATC 2023), for the one workload that gangs are made of here:
workers that take whole nodes. What such a worker cannot use is a fragment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from heapq import nsmallest
from typing import Final

import numpy as np

from berth.fleet.arrays import Bools
from berth.fleet.membership import Membership
from berth.fleet.pool import Pool, Unusable
from berth.values import CPU, Role

_EXAMPLES: Final = 3


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a condition should say: ``met`` is its status, ``None`` for Unknown."""

    met: bool | None
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class PoolReport:
    """A pool in numbers. Accelerators are devices; time-sliced and other shared ones are none.

    ``used_by`` counts the devices that claims of each role hold and ``used_by_others`` those of any other pod.
    ``largest_gang`` maps a level's name, the host level left out, to the most wholly free nodes in one domain;
    ``whole_nodes_free`` counts them in the pool. ``unusable`` counts nodes by :class:`Unusable`, ``tainted`` those
    that a pod without tolerations cannot use, ``incomplete`` by level the nodes that lack its label. ``oversold``
    names nodes on which more is claimed than there is. ``mixed_roles``: both roles are allowed.
    """

    pool: str
    discovered: bool
    nodes: int
    usable_nodes: int
    accelerators: int
    free: int
    used_by: Mapping[Role, int]
    used_by_others: int
    whole_nodes_free: int
    largest_gang: Mapping[str, int]
    fragmentation: float
    unusable: Mapping[str, int]
    tainted: int
    incomplete: Mapping[str, int]
    oversold: tuple[str, ...]
    mixed_roles: bool
    ready: Verdict
    topology: Verdict


def report(pool: Pool, membership: Membership, accelerators: Collection[str]) -> PoolReport:
    """The report of ``pool``; ``accelerators`` are the names that the catalogue knows."""
    held = pool.domain[-1] >= 0
    counted = held & ~pool.shared
    total, free = pool.total_devices[counted], pool.free_devices[counted]
    training, inference = (int(devices[counted].sum()) for devices in (pool.training_devices, pool.inference_devices))
    free_now = int(np.maximum(pool.free_devices[pool.usable], 0).sum())
    whole = wholly_free(pool)
    in_whole = int(pool.free_devices[whole].sum())
    unusable = {
        reason.name: int((held & (pool.reason == reason)).sum()) for reason in Unusable if reason is not Unusable.No
    }
    short = (pool.free_devices < 0) | (pool.free_cpu < 0) | (pool.free_memory < 0) | (pool.free_pods < 0)
    missing = {level.name: pool.tree.missing(index) for index, level in enumerate(pool.levels)}
    return PoolReport(
        pool=pool.spec.name,
        discovered=pool.spec.discovered,
        nodes=pool.nodes,
        usable_nodes=int(pool.usable.sum()),
        accelerators=int(total.sum()) // pool.unit,
        free=free_now // pool.unit,
        used_by={"Training": training // pool.unit, "Inference": inference // pool.unit},
        used_by_others=(int((total - free).sum()) - training - inference) // pool.unit,
        whole_nodes_free=int(whole.sum()),
        largest_gang=largest_gang(pool, whole),
        fragmentation=1 - in_whole / free_now if free_now else 0.0,
        unusable={name: nodes for name, nodes in unusable.items() if nodes},
        tainted=int((held & (pool.taint_class > 0)).sum()),
        incomplete={name: len(rows) for name, rows in missing.items() if len(rows)},
        oversold=tuple(sorted(pool.names[row] for row in np.flatnonzero(held & short))),
        mixed_roles=len(set(pool.spec.roles)) > 1,
        ready=_ready(pool, membership, accelerators, unusable),
        topology=_topology(pool),
    )


def wholly_free(pool: Pool) -> Bools:
    """The rows that a gang may use and of which no accelerator is held; daemons' CPU does not count as one."""
    by_daemons = pool.daemon_cpu if pool.resource == CPU else 0
    free: Bools = pool.free_devices + by_daemons == pool.total_devices
    return pool.usable & free


def largest_gang(pool: Pool, rows: Bools) -> dict[str, int]:
    """By level name, the host left out: the most of ``rows`` that one domain has."""
    return {
        level.name: int(np.bincount(domains[rows], minlength=1).max())
        for level, domains in zip(pool.levels[:-1], pool.domain[:-1], strict=True)
    }


def _ready(pool: Pool, membership: Membership, accelerators: Collection[str], unusable: Mapping[str, int]) -> Verdict:
    name, wanted = pool.spec.name, pool.spec.accelerator
    if pool.accelerator is None:
        close = get_close_matches(wanted, accelerators, n=1)
        hint = f"; did you mean {close[0]}?" if close else "; an overlay of the catalogue can add it"
        return Verdict(False, "UnknownAccelerator", f"The catalogue has no accelerator {wanted}{hint}")
    if not pool.resource:
        message = f"The catalogue knows no device resource of {wanted}; an overlay can name it"
        return Verdict(False, "UnknownAccelerator", message)
    shared = membership.shared(name)
    if shared:
        others = ", ".join(sorted({other for owners in shared.values() for other in owners if other != name}))
        here = sum(owners[0] == name for owners in shared.values())
        message = (
            f"Shares {_nodes(len(shared))} with {others} ({_some(shared)}); "
            f"a node belongs to the oldest pool that selects it, so {here} of them count here"
        )
        return Verdict(False, "NodesShared", message)
    if not pool.nodes:
        return Verdict(False, "NoNodes", "No node matches the selector")
    lost = ", ".join(f"{nodes} {reason}" for reason, nodes in unusable.items() if nodes)
    message = _nodes(pool.nodes) + (f", not usable for gangs: {lost}" if lost else "")
    if len(set(pool.spec.roles)) > 1:
        message += "; both roles are allowed, and mixing them costs: a node serves one role at a time"
    return Verdict(True, "NodesMatched", message)


def _topology(pool: Pool) -> Verdict:
    if not pool.nodes:
        return Verdict(None, "NoNodes", "No node matches the selector")
    split = [pool.names[row] for row in np.flatnonzero(pool.reason == Unusable.HostInTwoDomains)]
    if split:
        message = f"{_nodes(len(split))} name a host that is in two domains at once and take no part: {_some(split)}"
        return Verdict(False, "HostInTwoDomains", message)
    parts = [
        f"{len(rows)} of {pool.nodes} nodes lack {level.node_label} ({_some(pool.names[row] for row in rows)})"
        for index, level in enumerate(pool.levels)
        if len(rows := pool.tree.missing(index))
    ]
    if parts:
        return Verdict(False, "LabelsMissing", "; ".join(parts) + "; without it a node is near no other")
    return Verdict(True, "LabelsFound", f"Every node has every label of {len(pool.levels)} levels")


def _nodes(number: int) -> str:
    return f"{number} node" if number == 1 else f"{number} nodes"


def _some(names: Iterable[str]) -> str:
    found = nsmallest(_EXAMPLES + 1, names)
    return ", ".join(found[:_EXAMPLES]) + (", …" if len(found) > _EXAMPLES else "")
