"""Statuses of AcceleratorPools: what a pool is, soon after it changed; what moves, rarely and out of the budget."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from berth.api.acceleratorpool import AcceleratorPoolStatus
from berth.cluster import kinds
from berth.cluster.errors import Unavailable
from berth.controllers import pools as pools_module
from berth.controllers.pools import MOVING_SECONDS, WRITE_SECONDS, Pools
from tests.builders.fleet import make_claim
from tests.unit.cluster.fakes import eventually
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

    def __init__(self, nodes: int = 2) -> None:
        self.server = make_server(nodes=nodes)
        self.server.put(kinds.ACCELERATOR_POOLS, {"metadata": {"name": "ib"}, "spec": SPEC})
        self.restart()

    def restart(self) -> None:
        """Another process leads."""
        self.operator = Operator(self.server)
        self.budget = self.operator.writer.budget
        client: Any = self.server
        observer, clock = self.operator.observer, self.server.clock
        self.pools = Pools(client, observer, self.budget, wall=self.server.now, monotonic=clock.now)

    def hold(self, *nodes: str, devices: int = 8) -> None:
        """Something holds devices of each of ``nodes``."""
        self.operator.fleet.claim(make_claim(f"on {node}", node, devices) for node in nodes)

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


NODES = [f"n{number}" for number in range(20)]


@pytest.mark.parametrize(("more", "written"), [(0, False), (1, False), (2, True)])
async def test_moving_numbers_are_written_once_a_minute_and_only_when_they_moved_by_more_than_a_tenth(
    more: int, written: bool
) -> None:
    desk = Desk(nodes=20)
    desk.hold(*NODES[:10])
    assert await desk.consider()
    desk.hold(*NODES[: 10 + more])
    await desk.server.clock.advance(MOVING_SECONDS - 1)
    assert not await desk.consider()
    await desk.server.clock.advance(1)
    assert await desk.consider() is written
    await desk.server.clock.advance(10 * MOVING_SECONDS)
    assert not await desk.consider()


async def test_the_last_free_device_gone_is_a_move_however_few_there_were() -> None:
    desk = Desk(nodes=20)
    desk.hold(*NODES[:19])
    desk.hold("n19", devices=7)
    await desk.consider()
    assert desk.status()["free"] == 1
    desk.hold("n19", devices=8)
    await desk.server.clock.advance(MOVING_SECONDS)
    assert await desk.consider()
    assert desk.status()["free"] == 0


async def test_pools_share_the_budget_of_moving_figures_but_transitions_do_not_wait_for_it() -> None:
    desk = Desk(nodes=2)
    await desk.consider()
    await desk.server.clock.advance(MOVING_SECONDS)
    while desk.budget.try_take():
        pass
    desk.hold("n0")
    assert not await desk.consider()
    add_node(desk.server, "n9")
    assert await desk.consider()
    assert (desk.status()["nodes"], desk.status()["free"]) == (3, 16)


async def test_a_new_leader_takes_moving_numbers_for_just_written() -> None:
    desk = Desk(nodes=2)
    await desk.consider()
    await desk.server.clock.advance(10 * MOVING_SECONDS)
    desk.restart()
    desk.hold("n0")
    assert not await desk.consider()
    await desk.server.clock.advance(MOVING_SECONDS)
    assert await desk.consider()


async def test_a_status_that_somebody_scribbled_on_is_put_right() -> None:
    desk = Desk(nodes=2)
    await desk.consider()
    desk.server.objects["acceleratorpools", "", "ib"]["status"]["fragmentation"] = "a lot"
    desk.server.put(kinds.ACCELERATOR_POOLS, desk.server.objects["acceleratorpools", "", "ib"] | {})
    await desk.server.clock.advance(MOVING_SECONDS)
    add_node(desk.server, "n9")
    assert await desk.consider()
    assert desk.status()["fragmentation"] == "0%"


async def test_a_write_that_failed_is_tried_again() -> None:
    desk = Desk()
    desk.server.refuse = lambda verb, plural, name: Unavailable(503, "", "no") if verb == "apply" else None
    with pytest.raises(Unavailable):
        await desk.consider()
    desk.server.refuse = lambda verb, plural, name: None
    await desk.server.clock.advance(WRITE_SECONDS)
    assert await desk.consider()


async def test_a_defect_over_one_pool_stops_neither_the_loop_nor_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pools_module, "LOOK_SECONDS", 0.001)
    desk = Desk()
    desk.server.put(kinds.ACCELERATOR_POOLS, {"metadata": {"name": "a-bad-one"}, "spec": SPEC})
    desk.operator.see()
    fleet, report = desk.operator.fleet, desk.operator.fleet.report

    def reporting(name: str) -> Any:
        return report(name) if name == "ib" else 1 // 0

    monkeypatch.setattr(fleet, "report", reporting)
    loop = asyncio.create_task(desk.pools.run())
    try:
        await eventually(lambda: "status" in desk.server.objects["acceleratorpools", "", "ib"])
        assert not loop.done()
    finally:
        loop.cancel()
        with suppress(asyncio.CancelledError):
            await loop
    assert [record.message for record in caplog.records] == ["acceleratorpool a-bad-one: no status"]


async def test_a_pool_that_cannot_be_read_says_why_and_takes_it_back() -> None:
    desk = Desk()
    await desk.consider()
    for generation, spec in (
        (2, {**SPEC, "nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}),
        (3, SPEC),
    ):
        await desk.server.clock.advance(WRITE_SECONDS)
        body = dict(desk.server.objects["acceleratorpools", "", "ib"])
        body["metadata"] = {**body["metadata"], "generation": generation}
        desk.server.put(kinds.ACCELERATOR_POOLS, {**body, "spec": spec})
        assert await desk.consider()
        status = desk.status()
        assert AcceleratorPoolStatus.parse(status).dump() == status
        ready = next(entry for entry in status["conditions"] if entry["type"] == "Ready")
        if generation == 2:
            assert (ready["status"], ready["reason"]) == ("False", "SpecInvalid")
            assert "spec.nodeSelector.matchExpressions" in ready["message"]
            assert "pools discovered by their labels" in ready["message"]
            assert "nodes" not in status
            await desk.server.clock.advance(700)
            assert not await desk.consider()
            desk.restart()
            assert not await desk.consider()
        else:
            assert (ready["status"], status["nodes"]) == ("True", 2)
