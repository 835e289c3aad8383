"""Statuses of AcceleratorPools: what the fleet holds, written only on change and at most once in ten seconds each."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from berth.api.acceleratorpool import AcceleratorPoolStatus, parse_status
from berth.api.common import Condition, ContractProblem
from berth.api.conditions import PoolCondition, Status, set_condition
from berth.api.names import ACCELERATOR_POOL, API_VERSION, FIELD_MANAGER
from berth.cluster import wire
from berth.cluster.client import ApiClient
from berth.cluster.errors import ClusterError
from berth.cluster.kinds import ACCELERATOR_POOLS
from berth.controllers.observe import Observer
from berth.fleet.report import PoolReport, Verdict

_LOG: Final = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
WRITE_SECONDS: Final = 10.0


class Pools:
    """Writes the statuses, while this replica leads."""

    def __init__(
        self,
        client: ApiClient,
        observer: Observer,
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._observer = client, observer
        self._wall, self._monotonic = wall, monotonic
        self._written: dict[str, float] = {}
        self._seen: dict[str, tuple[int, str]] = {}

    async def run(self) -> None:
        """Look once a second, write what changed."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for pool in list(self._observer.caches.pools):
                try:
                    await self.consider(pool)
                except ClusterError as problem:
                    _LOG.warning("acceleratorpool %s: status not written: %s", pool.metadata.name, problem)

    async def consider(self, pool: wire.AcceleratorPool) -> bool:
        """Write the status of ``pool`` if something of it changed and it was not written just now."""
        name, meta = pool.metadata.name, pool.metadata
        found = self._observer.fleet.pools.get(name)
        if found is None or meta.deleting:
            return False
        seen = (found.version, meta.resource_version)
        now = self._monotonic()
        if self._seen.get(name) == seen or now - self._written.get(name, -WRITE_SECONDS) < WRITE_SECONDS:
            return False
        before = _read(pool)
        after = status(before, self._observer.fleet.report(name), meta.generation, self._wall())
        if after == before.dump():
            self._seen[name] = seen
            return False
        body = {
            "apiVersion": API_VERSION,
            "kind": ACCELERATOR_POOL.kind,
            "metadata": {"name": name, "uid": meta.uid},
            "status": after,
        }
        self._written[name] = now
        answer = await self._client.apply(ACCELERATOR_POOLS, name, body, manager=FIELD_MANAGER, subresource="status")
        self._seen[name] = seen
        self._observer.caches.pools.put(answer)
        return True


def _read(pool: wire.AcceleratorPool) -> AcceleratorPoolStatus:
    try:
        return parse_status(msgspec.json.decode(pool.status) if pool.status else None)
    except (ContractProblem, msgspec.DecodeError):
        return AcceleratorPoolStatus()


def status(before: AcceleratorPoolStatus, report: PoolReport, generation: int, now: float) -> dict[str, Any]:
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
    ).dump()


def _status_of(verdict: Verdict) -> Status:
    return "Unknown" if verdict.met is None else "True" if verdict.met else "False"
