"""One leader at a time, whatever happens to it, and a successor soon after."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from aiohttp import web

from berth.cluster.errors import NotLeading
from berth.cluster.lease import Election
from tests.unit.cluster.fakes import FakeClock, Server, client_of, eventually, failure, hang_up, listening, settle


class LeaseServer(Server):
    """Keeps one lease with optimistic locking; ``refuse`` answers everything with a failure."""

    def __init__(self) -> None:
        super().__init__()
        self.lease: dict[str, Any] | None = None
        self.version, self.refuse = 0, None

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self.refuse is not None:
            return await self.refuse(request)
        if request.method == "POST":
            return await self._store(request) if self.lease is None else await failure(409, "AlreadyExists")(request)
        if self.lease is None:
            return await failure(404, "NotFound")(request)
        if request.method == "GET":
            return web.json_response(self.lease)
        sent = self.seen[-1].json["metadata"].get("resourceVersion")
        if sent != self.lease["metadata"]["resourceVersion"]:
            return await failure(409, "Conflict")(request)
        return await self._store(request)

    async def _store(self, request: web.Request) -> web.StreamResponse:
        self.version += 1
        body = self.seen[-1].json
        body["metadata"] |= {"uid": "lease", "resourceVersion": str(self.version)}
        self.lease = body
        return web.json_response(body)

    def take_over(self, holder: str) -> None:
        """Have somebody else write the lease."""
        self.version += 1
        self.lease["spec"]["holderIdentity"] = holder
        self.lease["metadata"]["resourceVersion"] = str(self.version)

    @property
    def holder(self) -> str | None:
        return self.lease["spec"].get("holderIdentity") if self.lease else None

    @property
    def writes(self) -> int:
        return sum(seen.method != "GET" for seen in self.seen)


class Replica:
    """A candidate on the shared clock, and what it was told."""

    def __init__(self, name: str, server: LeaseServer, clock: FakeClock) -> None:
        self.told: list[str] = []
        self.server, self.clock = server, clock
        self.election = Election(
            client_of(server.connection, clock),
            "berth",
            "berth-system",
            name,
            on_started=lambda: self.told.append("started"),
            on_stopped=lambda: self.told.append("stopped"),
            end=lambda: self.told.append("ended"),
        )
        self.task = asyncio.create_task(self.election.run())

    async def crash(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task

    async def stop_cleanly(self) -> None:
        await self.crash()
        await self.election.release()


@pytest.fixture
async def leases() -> AsyncIterator[LeaseServer]:
    keeper = LeaseServer()
    async with listening(keeper):
        yield keeper


@pytest.fixture
async def replicas(leases: LeaseServer, clock: FakeClock) -> AsyncIterator[tuple[Replica, Replica]]:
    """Two replicas, of which the first leads."""
    first = Replica("first", leases, clock)
    await eventually(lambda: first.election.leading)
    second = Replica("second", leases, clock)
    await eventually(lambda: len(clock.slept) == 2)
    yield first, second
    await first.crash()
    await second.crash()


async def pass_time(clock: FakeClock, seconds: float, step: float = 0.5) -> None:
    """Let time pass in steps with room for real requests between them."""
    for _ in range(int(seconds / step)):
        await clock.advance(step)
        for _ in range(10):
            await asyncio.sleep(0.0005)
        await settle()


async def test_the_first_leads_and_the_second_waits(replicas, clock: FakeClock, leases: LeaseServer):
    first, second = replicas
    await pass_time(clock, 60)
    assert (first.told, second.told, leases.holder) == (["started"], [], "first")
    assert first.election.elected.is_set()
    first.election.fence()
    with pytest.raises(NotLeading):
        second.election.fence()


async def test_a_released_lease_is_taken_at_the_next_look(replicas, clock: FakeClock, leases: LeaseServer):
    """azure-service-operator#4226, agent-sandbox#1249: no gap of 15 s at every rollout."""
    first, second = replicas
    await first.stop_cleanly()
    assert (leases.holder, first.told) == (None, ["started", "stopped"])
    await pass_time(clock, 3.5)
    assert (leases.holder, second.told) == ("second", ["started"])
    assert leases.lease["spec"]["leaseTransitions"] == 1


async def test_a_dead_leader_is_replaced_after_the_duration(replicas, clock: FakeClock, leases: LeaseServer):
    first, second = replicas
    await first.crash()
    await pass_time(clock, 12)
    assert second.told == []
    await pass_time(clock, 8)
    assert (leases.holder, second.told) == ("second", ["started"])


async def test_who_cannot_renew_ends_before_anybody_may_take_over(replicas, clock: FakeClock, leases: LeaseServer):
    """cilium#42920, kyverno#14984, controller-runtime#1132."""
    first, second = replicas
    leases.refuse = failure(503, "ServiceUnavailable")
    await pass_time(clock, 9)
    assert first.told == ["started"]
    await pass_time(clock, 1.5)
    assert first.told == ["started", "stopped", "ended"]
    assert second.told == []
    leases.refuse = None
    await pass_time(clock, 20)
    assert (leases.holder, first.told[-1]) == ("second", "ended")


async def test_a_short_outage_costs_nothing(replicas, clock: FakeClock, leases: LeaseServer):
    first, second = replicas
    leases.refuse = failure(503, "ServiceUnavailable")
    await pass_time(clock, 6)
    leases.refuse = None
    await pass_time(clock, 60)
    assert (first.told, second.told) == (["started"], [])


async def test_a_paused_leader_may_not_write_when_it_wakes(replicas, clock: FakeClock, leases: LeaseServer):
    first, _ = replicas
    leases.take_over("another")
    clock.at += 40  # no task of it ran meanwhile
    assert not first.election.leading
    with pytest.raises(NotLeading):
        first.election.fence()
    await pass_time(clock, 1)
    assert first.told == ["started", "stopped", "ended"]


async def test_who_was_replaced_by_force_ends(replicas, clock: FakeClock, leases: LeaseServer):
    first, _ = replicas
    leases.take_over("an administrator")
    await pass_time(clock, 5)
    assert first.told == ["started", "stopped", "ended"]


async def test_a_deleted_lease_is_made_again(replicas, clock: FakeClock, leases: LeaseServer):
    first, second = replicas
    leases.lease = None
    await pass_time(clock, 6)
    assert leases.holder in ("first", "second")
    await pass_time(clock, 20)
    leading = [replica for replica in (first, second) if replica.election.leading]
    assert [replica.election.identity for replica in leading] == [leases.holder]


async def test_of_two_that_start_together_one_leads(leases: LeaseServer, clock: FakeClock):
    both = [Replica(name, leases, clock) for name in ("first", "second")]
    await pass_time(clock, 10)
    assert sorted(replica.told for replica in both) == [[], ["started"]]
    for replica in both:
        await replica.crash()


async def test_a_renewal_is_one_write(replicas, clock: FakeClock, leases: LeaseServer):
    before = leases.writes
    await pass_time(clock, 60)
    assert 28 <= leases.writes - before <= 31


async def test_a_renewal_under_way_does_not_spoil_the_release(replicas, clock: FakeClock, leases: LeaseServer):
    first, _ = replicas
    await first.crash()
    leases.version += 1
    leases.lease["metadata"]["resourceVersion"] = str(leases.version)  # the cancelled renewal arrived after all
    await first.election.release()
    assert leases.holder is None


async def test_a_release_survives_a_connection_that_closes(replicas, leases: LeaseServer):
    """kopf closes the shared session at about the time when the lease is released."""
    first, _ = replicas
    await first.crash()
    refusals = iter([hang_up, hang_up])

    async def once(request: web.Request) -> web.StreamResponse:
        leases.refuse = None
        return await next(refusals)(request)

    leases.refuse = once
    await first.election.release()
    assert leases.holder is None


async def test_releasing_what_cannot_be_released_is_no_failure(replicas, leases: LeaseServer):
    first, _ = replicas
    await first.crash()
    leases.refuse = failure(503, "ServiceUnavailable")
    await first.election.release()
    assert first.told == ["started", "stopped"]


async def test_periods_that_cannot_work_are_refused(leases: LeaseServer, clock: FakeClock):
    with pytest.raises(ValueError, match="duration > renew deadline"):
        Election(client_of(leases.connection, clock), "l", "n", "i", end=lambda: None, duration=10, renew_deadline=10)
