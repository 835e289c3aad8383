"""Statuses of AcceleratorPools: what the fleet holds, written on change, never twice within ten seconds."""

from __future__ import annotations

from typing import Any

import pytest

from berth.api.acceleratorpool import AcceleratorPoolStatus
from berth.cluster import kinds
from berth.cluster.errors import Unavailable
from berth.controllers.pools import WRITE_SECONDS, Pools
from tests.unit.controllers.harness import Operator, add_node, make_server

SPEC = {
    "accelerator": "H100",
    "nodeSelector": {"matchLabels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}},
    "capacityType": {"value": "OnDemand"},
    "fabric": {"kind": "InfiniBand", "gbps": 400},
    "topology": [{"name": "host", "nodeLabel": "kubernetes.io/hostname"}],
}


class Desk:
    """The writer of pool statuses, and a pool ``ib`` that has every node."""

    def __init__(self) -> None:
        self.server = make_server(nodes=2)
        self.server.put(kinds.ACCELERATOR_POOLS, {"metadata": {"name": "ib"}, "spec": SPEC})
        self.operator = Operator(self.server)
        client: Any = self.server
        self.pools = Pools(client, self.operator.observer, wall=self.server.now, monotonic=self.server.clock.now)

    async def consider(self) -> bool:
        self.operator.see()
        pool = self.operator.caches.pools.get("ib")
        assert pool is not None
        return await self.pools.consider(pool)

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.server.objects["acceleratorpools", "", "ib"]["status"]
        return found


async def test_a_pool_says_what_it_has_and_then_keeps_still() -> None:
    desk = Desk()
    assert await desk.consider()
    status = desk.status()
    assert (status["nodes"], status["accelerators"], status["free"]) == (2, 16, 16)
    assert AcceleratorPoolStatus.parse(status).dump() == status
    for _ in range(3):
        await desk.server.clock.advance(60)
        assert not await desk.consider()


async def test_a_change_is_written_but_not_within_ten_seconds_of_the_last() -> None:
    desk = Desk()
    await desk.consider()
    since = {entry["type"]: entry["lastTransitionTime"] for entry in desk.status()["conditions"]}
    add_node(desk.server, "n9")
    await desk.server.clock.advance(WRITE_SECONDS - 1)
    assert not await desk.consider()
    await desk.server.clock.advance(1)
    assert await desk.consider()
    assert desk.status()["nodes"] == 3
    assert {entry["type"]: entry["lastTransitionTime"] for entry in desk.status()["conditions"]} == since


@pytest.mark.parametrize("phase", ["promised", "running"])
async def test_room_that_a_gang_holds_is_not_free(phase: str) -> None:
    desk = Desk()
    await desk.operator.look()
    if phase == "running":
        desk.server.bind()
        await desk.operator.look()
    assert await desk.consider()
    assert desk.status()["free"] == 0
    assert desk.status()["usedBy"]["Training"] == 16


async def test_a_write_that_failed_is_tried_again() -> None:
    desk = Desk()
    desk.server.refuse = lambda verb, plural, name: Unavailable(503, "", "no") if verb == "apply" else None
    with pytest.raises(Unavailable):
        await desk.consider()
    desk.server.refuse = lambda verb, plural, name: None
    await desk.server.clock.advance(WRITE_SECONDS)
    assert await desk.consider()
