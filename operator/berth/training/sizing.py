"""How much CPU and which devices a rank gets where the template leaves it open.

One value for the whole gang: ranks that differ in CPU differ in speed, and the slowest one is the gang's.
"""

from __future__ import annotations

import numpy as np

from berth.catalogue.records import FabricKind
from berth.fleet.pool import Pool
from berth.fleet.shares import cpu_per_accelerator
from berth.training.candidates import devices_per_worker
from berth.training.records import GangRequest
from berth.values import CPU, Resources


def worker_cpu(pool: Pool, request: GangRequest, nodes: tuple[str, ...]) -> int:
    """Millicores for each rank of a gang on ``nodes`` (in rank order), before the gang itself holds room there.

    The least, over the nodes, of 32 cores or (allocatable − daemons) / accelerators of the node for each accelerator;
    and never more than what is free there, shared among the free accelerators, so that what is chosen can be bound.
    What the template's other containers ask for is taken out of it. 0 where the accelerators are CPUs themselves.
    """
    rows = np.fromiter((pool.row[node] for node in nodes if node in pool.row), dtype=np.int64)
    if rows.size == 0 or pool.resource == CPU:
        return 0
    share = cpu_per_accelerator(pool, rows)
    devices = np.maximum(pool.free_devices[rows].astype(np.int64), 1)
    free = int((np.maximum(pool.free_cpu[rows], 0) // devices).min())
    return _beside_others(min(share, free), request)


def nominal_share(pool: Pool, kind: FabricKind | None, request: GangRequest) -> tuple[int, dict[str, int]]:
    """Millicores and RDMA devices that a rank gets on ``pool`` in the usual case, while no placement is known.

    The CPU is the least that any node of the pool gives, so that it does not change with what runs where.
    """
    fitting = pool.total_devices >= request.accelerators_per_worker * pool.unit
    usable = np.flatnonzero(fitting & pool.usable)
    rows = usable if usable.size else np.flatnonzero(fitting)
    names = [known.name for row in rows[:1] if (known := pool.facts(int(row))) is not None]
    cpu = 0 if pool.resource == CPU else _beside_others(cpu_per_accelerator(pool, rows), request)
    return cpu, worker_rdma(pool, kind, request, tuple(names))


def _beside_others(per_accelerator: int, request: GangRequest) -> int:
    return max(per_accelerator * request.accelerators_per_worker - request.per_worker.get(CPU, 0), 0)


def worker_amounts(request: GangRequest, pool: Pool | None, cpu_millicores: int) -> Resources:
    """All that one rank holds: the template's needs, its devices, and its CPU where Berth chooses it.

    While the ``pool`` is not known, neither are the devices.
    """
    amounts = dict(request.per_worker)
    if pool is not None and pool.resource:
        amounts[pool.resource] = devices_per_worker(pool, request)
    if cpu_millicores:
        amounts[CPU] = amounts.get(CPU, 0) + cpu_millicores
    return amounts


def worker_rdma(pool: Pool, kind: FabricKind | None, request: GangRequest, nodes: tuple[str, ...]) -> dict[str, int]:
    """RDMA devices of each rank: its share of a node's rails, by the first resource that all of its nodes offer.

    A rank with all devices of a node gets every rail; one with a part of them the same part, rounded down, so that
    the ranks of a node never ask for more rails than it has.
    """
    fabric = pool.spec.fabric
    if fabric is None or kind is None or not kind.rdma or request.workers < 2:
        return {}
    rows = [pool.row[node] for node in nodes if node in pool.row]
    if not rows:
        return {}
    offered: dict[str, int] | None = None
    for row in set(rows):
        known = pool.facts(row)
        room = {name: amount for name, amount in known.allocatable.items() if amount > 0} if known is not None else {}
        offered = room if offered is None else {name: min(offered[name], room[name]) for name in offered.keys() & room}
    devices = int(pool.total_devices[rows].max())
    rails = _rails(pool, kind, offered or {}) * request.accelerators_per_worker // max(devices, 1)
    return kind.request(rails, offered or {})


def _rails(pool: Pool, kind: FabricKind, offered: Resources) -> int:
    """Rails of a node: as its AcceleratorPool states them; in a discovered pool as many as it offers devices for."""
    assert pool.spec.fabric is not None
    stated = pool.spec.fabric.rails
    if not pool.spec.discovered:
        return stated
    per_rail = (offered.get(entry.name, 0) for entry in kind.rdma_resources if entry.count == "PerRail")
    return max(stated, *per_rail, 0)
