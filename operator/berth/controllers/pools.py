"""When the status of an AcceleratorPool is written, and that it is not written otherwise.

What a pool is (its conditions, its nodes, its accelerators) is written soon after it changed. What moves by itself as
gangs come and go (free devices, who holds how many, fragmentation) is in metrics at once, and in the status at most
once a minute, when it moved by more than a tenth, and out of the budget that all objects share.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from berth.api.acceleratorpool import AcceleratorPoolStatus, parse_status
from berth.api.common import Condition, ContractProblem
from berth.api.conditions import PoolCondition, Status, set_condition
from berth.api.names import ACCELERATOR_POOL, API_VERSION, FIELD_MANAGER
from berth.cluster import wire
from berth.cluster.client import ApiClient
from berth.cluster.errors import ClusterError
from berth.cluster.kinds import ACCELERATOR_POOLS
from berth.cluster.ratelimit import TokenBucket
from berth.controllers.observe import Observer
from berth.fleet.report import PoolReport, Verdict
from berth.telemetry.defects import Defects
from berth.values import ValueProblem, parse_share

_LOG: Final = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
WRITE_SECONDS: Final = 10.0
"""No status is written twice within this time."""
MOVING_SECONDS: Final = 60.0
"""Moving numbers of one pool are written at most so often."""


@dataclass(slots=True)
class _Memory:
    """What is remembered of a pool: when it was written, and the state that needs no write. Seconds of one clock."""

    written: float
    moved: float
    settled: tuple[int, str] | None = None  # versions of pool and object


class Pools:
    """Writes the statuses, while this replica leads; ``budget`` is the one that moving figures of jobs share too."""

    def __init__(
        self,
        client: ApiClient,
        observer: Observer,
        budget: TokenBucket,
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._observer, self._budget = client, observer, budget
        self._wall, self._monotonic = wall, monotonic
        self._memory: dict[str, _Memory] = {}
        self._defects = Defects(_LOG)

    async def run(self) -> None:
        """Look once a second, write what is due."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            pools = list(self._observer.caches.pools)
            there = {pool.metadata.uid for pool in pools}
            self._memory = {uid: memory for uid, memory in self._memory.items() if uid in there}
            self._defects.forget_all_but(there)
            for pool in pools:
                try:
                    await self.consider(pool)
                except ClusterError as problem:
                    _LOG.warning("acceleratorpool %s: status not written: %s", pool.metadata.name, problem)
                except Exception as problem:  # one bad pool must not stop the others, and all that lead with them
                    self._defects.note(pool.metadata.uid, f"acceleratorpool {pool.metadata.name}: no status", problem)
                else:
                    self._defects.over(pool.metadata.uid)

    async def consider(self, pool: wire.AcceleratorPool) -> bool:
        """Write the status of ``pool`` if that is due; whether it was. Raises: ClusterError."""
        name, meta = pool.metadata.name, pool.metadata
        problem = self._observer.refused_pools.get(name)
        if problem is not None and not meta.deleting:
            return await self._refuse(pool, problem)
        found = self._observer.fleet.pools.get(name)
        if found is None or meta.deleting:
            return False
        now, versions = self._monotonic(), (found.version, meta.resource_version)
        memory = self._remember(pool, now)
        if memory.settled == versions or now - memory.written < WRITE_SECONDS:
            return False
        before = _read(pool)
        after = status(before, self._observer.fleet.report(name), meta.generation, self._wall())
        if _outline(before) == _outline(after):
            if not _moved(before, after):
                memory.settled = versions
                return False
            if now - memory.moved < MOVING_SECONDS or not self._budget.try_take():
                return False
        memory.written = memory.moved = now
        await self._write(pool, after)
        return True

    async def _refuse(self, pool: wire.AcceleratorPool, problem: str) -> bool:
        """Say why ``pool`` is none: its spec cannot be read, though the API server took it. It has no figures then."""
        before, now = _read(pool), self._monotonic()
        after = refused(before, problem, pool.metadata.generation, self._wall())
        memory = self._remember(pool, now)
        if before == after or now - memory.written < WRITE_SECONDS:
            return False
        memory.written = memory.moved = now
        await self._write(pool, after)
        return True

    async def _write(self, pool: wire.AcceleratorPool, after: AcceleratorPoolStatus) -> None:
        meta = pool.metadata
        body = {
            "apiVersion": API_VERSION,
            "kind": ACCELERATOR_POOL.kind,
            "metadata": {"name": meta.name, "uid": meta.uid},
            "status": after.dump(),
        }
        answer = await self._client.apply(
            ACCELERATOR_POOLS, meta.name, body, manager=FIELD_MANAGER, subresource="status"
        )
        self._observer.caches.pools.put(answer)

    def _remember(self, pool: wire.AcceleratorPool, now: float) -> _Memory:
        """What an earlier leader wrote counts as written when this one first saw it."""
        new = _Memory(written=now - WRITE_SECONDS, moved=now if pool.status else now - MOVING_SECONDS)
        return self._memory.setdefault(pool.metadata.uid, new)


def _read(pool: wire.AcceleratorPool) -> AcceleratorPoolStatus:
    try:
        return parse_status(msgspec.json.decode(pool.status) if pool.status else None)
    except (ContractProblem, msgspec.DecodeError):
        return AcceleratorPoolStatus()


def status(before: AcceleratorPoolStatus, report: PoolReport, generation: int, now: float) -> AcceleratorPoolStatus:
    """The status that says what ``report`` found; times of conditions move only with their status."""
    conditions: tuple[Condition, ...] = before.conditions
    for kind, verdict in ((PoolCondition.READY, report.ready), (PoolCondition.TOPOLOGY_COMPLETE, report.topology)):
        conditions = set_condition(
            conditions, kind, _status_of(verdict), verdict.reason, verdict.message, now=now, generation=generation
        )
    return AcceleratorPoolStatus(
        observed_generation=generation,
        conditions=conditions,
        nodes=report.nodes,
        accelerators=report.accelerators,
        free=report.free,
        used_by={str(role): devices for role, devices in report.used_by.items()},
        largest_gang=dict(report.largest_gang),
        fragmentation=f"{round(report.fragmentation * 100)}%",
    )


def refused(before: AcceleratorPoolStatus, problem: str, generation: int, now: float) -> AcceleratorPoolStatus:
    """The status of a pool whose spec cannot be read for ``problem``: what it was found to hold once is dropped."""
    words = f"{problem}; until then the pool is left out, and its nodes are in pools discovered by their labels"
    conditions = set_condition(
        before.conditions, PoolCondition.READY, "False", "SpecInvalid", words, now=now, generation=generation
    )
    kept = tuple(each for each in conditions if each.type == PoolCondition.READY)
    return AcceleratorPoolStatus(observed_generation=generation, conditions=kept)


def _status_of(verdict: Verdict) -> Status:
    return "Unknown" if verdict.met is None else "True" if verdict.met else "False"


def _outline(status: AcceleratorPoolStatus) -> tuple[object, ...]:
    """What the pool is, but for figures and words that move by themselves."""
    conditions = tuple((each.type, each.status, each.reason) for each in status.conditions)
    return (status.observed_generation, conditions, status.nodes, status.accelerators)


def _moved(before: AcceleratorPoolStatus, after: AcceleratorPoolStatus) -> bool:
    """Whether a figure changed by more than a tenth, a share by more than ten points, or what a condition says."""
    if [each.message for each in before.conditions] != [each.message for each in after.conditions]:
        return True
    old, new = dict(_figures(before)), dict(_figures(after))
    return old.keys() != new.keys() or any(_far(old[name], new[name]) for name in old) or _far_shares(before, after)


def _figures(status: AcceleratorPoolStatus) -> Iterator[tuple[tuple[str, str], int]]:
    groups: tuple[tuple[str, Mapping[str, int]], ...] = (
        ("free", {"": status.free or 0}),
        ("usedBy", status.used_by or {}),
        ("largestGang", status.largest_gang or {}),
    )
    for group, figures in groups:
        for name, figure in figures.items():
            yield (group, name), figure


def _far(old: int, new: int) -> bool:
    return abs(new - old) * 10 > old


def _far_shares(before: AcceleratorPoolStatus, after: AcceleratorPoolStatus) -> bool:
    old, new = _percent(before.fragmentation), _percent(after.fragmentation)
    return abs(new - old) > 10 or (old == 0) != (new == 0)


def _percent(share: str | None) -> int:
    """0 where there is none; -100, far from every share, where it cannot be read."""
    try:
        return round(parse_share(share) * 100) if share else 0
    except ValueProblem:
        return -100
