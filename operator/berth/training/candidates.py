"""Which pools a gang may use, and how many of its workers fit on every node of one.

What does not depend on free room is settled here: accelerators, roles, memory for the model, fabric, levels. What is
left is arithmetic on columns, one pass over each for the whole pool.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from berth.catalogue.sizing import Unfit, training_devices
from berth.fleet.arrays import Bools
from berth.fleet.fleet import Fleet
from berth.fleet.pool import Pool
from berth.training.names import NameOrder, natural
from berth.training.records import GangRequest, Refusal
from berth.training.tree import Ints, Tree
from berth.values import CPU, PODS, plural

Held = Mapping[str, Bools]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pool that may take the gang.

    ``confine``: the level of which one domain holds the whole gang, -1 for none. ``prefer``: the level whose domains
    are counted first; ``prefers`` is false where the pool lacks the level that the gang prefers. ``bond``: the level
    within whose domains a slice stays. ``group``: workers of a slice, 1 where nothing more than ``confine`` binds them.
    """

    pool: Pool
    confine: int
    prefer: int
    prefers: bool
    bond: int
    group: int

    @property
    def host(self) -> int:
        """The index of the host level."""
        return len(self.pool.levels) - 1


def candidates(fleet: Fleet, request: GangRequest) -> list[list[Candidate]] | Refusal:
    """The pools that may take the gang, those with the first type first, equals together; or why there is none."""
    fitting, unfit = _by_accelerator(fleet, request)
    if not any(fitting):
        return Refusal("MemoryUnsatisfied" if unfit else "NoPool", _no_pool(fleet, request, unfit))
    linked = [[pool for pool in group if _linked(pool, request)] for group in fitting]
    if not any(linked):
        return Refusal("FabricUnsatisfied", _no_fabric([pool for group in fitting for pool in group], request))
    every = [pool for group in linked for pool in group]
    for asked, level in (("required", request.required_level), ("preferred", request.preferred_level)):
        if level is not None and not any(_level(pool, level) is not None for pool in every):
            return Refusal("UnknownLevel", _no_level(every, asked, level))
    required = request.required_level
    confined = [[pool for pool in group if required is None or _level(pool, required) is not None] for group in linked]
    return [[_candidate(pool, request) for pool in group] for group in confined if group]


def _by_accelerator(fleet: Fleet, request: GangRequest) -> tuple[list[list[Pool]], list[str]]:
    """Pools by preference that have the accelerator, the role and the devices; and why others hold no such model."""
    wanted = list(request.types) or [""]
    groups: list[list[Pool]] = [[] for _ in wanted]
    unfit: list[str] = []
    for name in sorted(fleet.pools, key=natural):
        pool = fleet.pools[name]
        kind = pool.accelerator
        if kind is None or "Training" not in pool.spec.roles or not _named(pool, request):
            continue
        if not len(pool) or int(pool.total_devices.max()) < devices_per_worker(pool, request):
            continue
        reason = _holds_model(pool, request)
        if reason:
            unfit.append(reason)
            continue
        groups[wanted.index(kind.name) if request.types else 0].append(pool)
    return groups, unfit


def _named(pool: Pool, request: GangRequest) -> bool:
    """Whether the gang may use the pool's accelerators by their name."""
    kind = pool.accelerator
    if kind is None or not kind.resource:
        return False
    return kind.name in request.types if request.types else not kind.opt_in


def devices_per_worker(pool: Pool, request: GangRequest) -> int:
    """Units of the pool's device resource in one worker.

    Where CPU itself is the accelerator, other containers' cores come out of the same room, and a worker's own are in
    the pod's needs already once admission has made it.
    """
    devices = request.accelerators_per_worker * pool.unit
    return max(devices, request.per_worker.get(CPU, 0)) if pool.resource == CPU else devices


def _holds_model(pool: Pool, request: GangRequest) -> str:
    """Why the gang's accelerators do not hold its model; empty when they do, or nothing is known."""
    assert pool.accelerator is not None
    if not request.memory_bytes:
        return ""
    devices = training_devices(pool.accelerator, request.memory_bytes)
    if isinstance(devices, Unfit):
        return devices.reason
    have = request.workers * request.accelerators_per_worker
    if devices <= have:
        return ""
    slices = -(-devices // (request.accelerators_per_worker * request.slice_workers))
    return (
        f"spec.model needs {devices} {pool.accelerator.name}, and {plural(request.workers, 'worker')} of "
        f"{request.accelerators_per_worker} are {have}; set spec.workers to {slices * request.slice_workers} or more"
    )


def _linked(pool: Pool, request: GangRequest) -> bool:
    fabric = pool.spec.fabric
    if not (request.fabric_kinds or request.min_gbps or request.min_rails):
        return True
    return (
        fabric is not None
        and (not request.fabric_kinds or fabric.kind in request.fabric_kinds)
        and fabric.gbps >= request.min_gbps
        and fabric.rails >= request.min_rails
    )


def _level(pool: Pool, name: str) -> int | None:
    return next((at for at, level in enumerate(pool.levels) if level.name == name), None)


def _candidate(pool: Pool, request: GangRequest) -> Candidate:
    host = len(pool.levels) - 1
    required = _level(pool, request.required_level) if request.required_level is not None else None
    confine = max(-1 if required is None else required, -1 if pool.site_level is None else pool.site_level)
    named = _level(pool, request.preferred_level) if request.preferred_level is not None else None
    prefer = named if named is not None else min(confine + 1, host)
    bond = host if pool.nvlink_level is None else pool.nvlink_level
    group = request.slice_workers if confine < bond or bond == host else 1
    prefers = request.preferred_level is None or named is not None
    return Candidate(pool, confine, prefer, prefers, bond, group)


def loosened(candidate: Candidate, request: GangRequest, confine: int) -> Candidate:
    """The same pool with the gang confined to a domain of level ``confine`` only."""
    bound = max(confine, -1 if candidate.pool.site_level is None else candidate.pool.site_level)
    group = request.slice_workers if bound < candidate.bond or candidate.bond == candidate.host else 1
    prefer = min(candidate.prefer, bound + 1) if request.preferred_level is None else candidate.prefer
    return Candidate(candidate.pool, bound, prefer, candidate.prefers, candidate.bond, group)


def allowed_rows(pool: Pool, request: GangRequest) -> Bools:
    """Rows the gang may use as far as their nodes are concerned, whatever is on them."""
    allowed = pool.usable & pool.admitting(request.tolerations, request.node_terms)
    rows = [pool.row[name] for name in request.excluded_nodes if name in pool.row]
    allowed[rows] = False
    return allowed


def workers_now(pool: Pool, request: GangRequest, held: Held | None) -> Ints:
    """By row how many workers fit into what is free."""
    fits = pool.free_devices.astype(np.int64) // devices_per_worker(pool, request)
    np.minimum(fits, pool.free_pods, out=fits)
    for resource, amount in beside_devices(pool, request):
        np.minimum(fits, pool.free_of(resource) // amount, out=fits)
    allowed = allowed_rows(pool, request) & ~pool.held_by_other_role("Training")
    if held is not None and (barred := held.get(pool.spec.name)) is not None:
        allowed &= ~barred
    return np.maximum(fits, 0, out=fits) * allowed


def workers_if_empty(pool: Pool, request: GangRequest) -> Ints:
    """By row how many workers would fit if nothing but its daemons were on the node; no less than can ever fit."""
    fits = pool.bare_of(pool.resource) // devices_per_worker(pool, request)
    np.minimum(fits, pool.bare_of(PODS), out=fits)
    for resource, amount in beside_devices(pool, request):
        np.minimum(fits, pool.bare_of(resource) // amount, out=fits)
    return np.maximum(fits, 0, out=fits) * allowed_rows(pool, request)


def beside_devices(pool: Pool, request: GangRequest) -> list[tuple[str, int]]:
    """What one worker asks for besides its devices and its place among the node's pods."""
    asked = request.per_worker.items()
    return [(name, amount) for name, amount in asked if amount > 0 and name not in (PODS, pool.resource)]


class _Names:
    """The orders of one pool's domain names, kept while its structure stays."""

    def __init__(self, pool: Pool) -> None:
        self._orders = [NameOrder() for _ in pool.levels]
        self._seen = [-1] * len(pool.levels)

    def ranks(self, pool: Pool, level: int, ids: Ints) -> Ints:
        changed = self._seen[level] != pool.structure
        self._seen[level] = pool.structure
        return self._orders[level].ranks(pool.domain_names[level], ids, changed=changed)


_ORDERS: Final[WeakKeyDictionary[Pool, _Names]] = WeakKeyDictionary()


def tree_of(candidate: Candidate, request: GangRequest, workers: Ints) -> Tree:
    """The candidate's tree with ``workers`` fitting on each row."""
    pool = candidate.pool
    names = _ORDERS.get(pool)
    if names is None:
        names = _ORDERS[pool] = _Names(pool)
    orders = names
    rows = np.flatnonzero(workers)
    hosts = len(pool.parent[-1])
    by_host = np.bincount(pool.domain[-1][rows], workers[rows], hosts).astype(np.int64)
    return Tree(
        pool.parent,
        by_host,
        lambda level, ids: orders.ranks(pool, level, ids),
        workers=request.workers,
        group=candidate.group,
        bond=candidate.bond,
        penalised=_penalised(pool, request, hosts),
    )


def _penalised(pool: Pool, request: GangRequest, hosts: int) -> NDArray[np.bool_] | None:
    rows = [pool.row[name] for name in request.penalised_nodes if name in pool.row]
    if not rows:
        return None
    penalised = np.zeros(hosts, np.bool_)
    penalised[pool.domain[-1][rows]] = True
    return penalised


def _no_pool(fleet: Fleet, request: GangRequest, unfit: list[str]) -> str:
    kinds = " or ".join(request.types) or "accelerators"
    if unfit:
        return f"No pool of {kinds} holds the gang: {unfit[0]}"
    training, mine, closed = set[str](), list[Pool](), list[str]()
    for pool in fleet.pools.values():
        trains, named = "Training" in pool.spec.roles, _named(pool, request)
        if trains and pool.nodes:
            training.add(pool.spec.accelerator)
        if trains and named:
            mine.append(pool)
        elif named and not pool.spec.discovered:
            closed.append(pool.spec.name)
    most = max((int(pool.total_devices.max(initial=0)) // pool.unit for pool in mine), default=0)
    if most:
        return (
            f"spec.accelerators.perWorker: no node for training has {request.accelerators_per_worker} {kinds}, the "
            f"largest has {most}; ask for at most {most} for each worker, and for more workers"
        )
    there = f"pools for training have {', '.join(sorted(training, key=natural))}" if training else "there are none"
    fix = f"give nodes with {kinds} to an AcceleratorPool with roles: [Training]"
    if closed:
        fix = f"add Training to spec.roles of AcceleratorPool {closed[0]}"
    if training:
        fix = f"name one of these in spec.accelerators.types, or {fix}"
    field = "spec.accelerators.types: no" if request.types else "No"
    return f"{field} pool for training has {kinds}; {there}: {fix}"


def _no_fabric(pools: list[Pool], request: GangRequest) -> str:
    asked = []
    if request.fabric_kinds:
        asked.append(" or ".join(request.fabric_kinds))
    if request.min_gbps:
        asked.append(f"{request.min_gbps} Gbps per rail")
    if request.min_rails:
        asked.append(plural(request.min_rails, "rail"))
    have = ", ".join(f"{pool.spec.name} has {_fabric(pool)}" for pool in pools[:3])
    return f"No pool has the fabric that spec.fabric asks for ({', '.join(asked)}): {have}"


def _fabric(pool: Pool) -> str:
    fabric = pool.spec.fabric
    if fabric is None:
        return "none stated"
    return f"{fabric.kind} of {fabric.gbps} Gbps and {plural(fabric.rails, 'rail')}"


def _no_level(pools: list[Pool], asked: str, level: str) -> str:
    there = "; ".join(f"{pool.spec.name} has {', '.join(known.name for known in pool.levels)}" for pool in pools[:3])
    return f"No pool has the level {level!r} that spec.topology.{asked} names: {there}"
