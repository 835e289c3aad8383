"""The operator as one object, its beat driven by hand: what metrics show, what only the leader counts, what expires."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from berth.catalogue.overlay import LiveCatalogue
from berth.cluster.kinds import TRAINING_JOBS
from berth.controllers.app import (
    CATCH_UP_SECONDS,
    DRIFT_SECONDS,
    PROMISE_SECONDS,
    App,
    CannotLead,
    Identity,
    elect_and_lead,
)
from berth.controllers.gangs import Settings
from berth.telemetry.metrics import Metrics
from tests.unit.cluster.fakes import settle
from tests.unit.controllers.harness import JOB, Server, add_node, make_server, show


def make_app(server: Server) -> App:
    """An operator whose caches hold what the server has."""
    client: Any = server
    app = App(client, LiveCatalogue(), Identity("me", "berth-system", "berth"), Metrics(), Settings())
    show(server, app.caches)
    app.observer.settle()
    return app


@asynccontextmanager
async def beating(app: App) -> AsyncIterator[None]:
    async with going(app._beat()):
        yield


@asynccontextmanager
async def going(loop: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """One of the loops that go on for ever, for the length of a block."""
    task = asyncio.create_task(loop)
    await asyncio.sleep(0)
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def sample(app: App, name: str, **labels: str) -> float | None:
    return app.metrics.registry.get_sample_value(name, labels)


async def place(app: App) -> None:
    """The job is looked at and a placement promised, which nobody carries out."""
    await app.jobs.reconcile(JOB)
    app.scheduler.decide()
    assert app.observer.promises


async def test_a_scrape_sees_pictures_and_never_the_fleet_itself() -> None:
    server = make_server(nodes=4)
    app = make_app(server)
    (pool,) = app.fleet.pools
    async with beating(app):
        assert sample(app, "berth_pool_nodes", pool=pool) is None
        for expected in (4, 5):
            await server.clock.advance(1)
            assert sample(app, "berth_pool_nodes", pool=pool) == expected
            assert sample(app, "berth_pool_accelerators", pool=pool) == 8 * expected
            assert sample(app, "berth_gangs", phase="New") == 1
            add_node(server, "n9")
            show(server, app.caches)
            assert sample(app, "berth_pool_nodes", pool=pool) == expected


async def test_room_that_is_taken_shows_although_nothing_new_fits_because_of_it() -> None:
    server = make_server(nodes=4)
    app = make_app(server)
    (pool,) = app.fleet.pools
    async with beating(app):
        await server.clock.advance(1)
        assert sample(app, "berth_pool_accelerators_free", pool=pool) == 32
        await place(app)
        await server.clock.advance(1)
        assert sample(app, "berth_pool_accelerators_free", pool=pool) == 16


async def test_a_pool_that_did_not_change_is_not_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    server, counted = make_server(nodes=4), list[str]()
    app = make_app(server)
    report = app.fleet.report
    monkeypatch.setattr(app.fleet, "report", lambda name: counted.append(name) or report(name))
    async with beating(app):
        await server.clock.advance(10)
        assert len(counted) == 1
        add_node(server, "n9")
        show(server, app.caches)
        await server.clock.advance(10)
        assert len(counted) == 2


async def test_events_are_counted_by_what_became_of_them() -> None:
    server = make_server()
    app = make_app(server)
    app.recorder.counts.written, app.recorder.counts.dropped = 3, 1
    async with beating(app):
        await server.clock.advance(1)
    counts = {fate: sample(app, "berth_events_total", fate=fate) for fate in ("written", "dropped", "repeated")}
    assert counts == {"written": 3, "dropped": 1, "repeated": 0}


async def test_how_stale_each_watch_is_shows_for_every_kind_that_readiness_waits_for() -> None:
    server = make_server()
    app = make_app(server)
    await server.clock.advance(7)
    stale = {cache.kind.plural: sample(app, "berth_watch_staleness_seconds", resource=cache.kind.plural)
             for cache in app.every_cache()}  # fmt: skip
    assert stale.keys() >= {"trainingjobs", "pods", "inferenceservices"}
    assert set(stale.values()) == {7.0}


@pytest.mark.parametrize("leading", [True, False])
async def test_idle_nodes_are_counted_by_the_leader_alone(leading: bool) -> None:
    server = make_server(nodes=4)
    app = make_app(server)
    (pool,) = app.fleet.pools
    app.leading = leading
    async with beating(app):
        await server.clock.advance(10)
    assert sample(app, "berth_idle_node_seconds_total", pool=pool, queue="empty") == (40 if leading else None)


async def test_a_promise_that_nobody_can_record_gives_its_nodes_back() -> None:
    server = make_server(nodes=4)
    app = make_app(server)
    app.leading = True
    async with beating(app):
        await place(app)
        await server.clock.advance(PROMISE_SECONDS - 1)
        assert len(app.fleet.claims) == 2
        await server.clock.advance(3)
        assert not app.fleet.claims
        assert sample(app, "berth_gang_promises_expired_total") == 1
        assert await app.queue.get() == JOB
        await place(app)


async def test_a_promise_that_is_being_carried_out_stays() -> None:
    server = make_server(nodes=4)
    app = make_app(server)
    app.leading = True
    async with beating(app):
        app.queue.add(JOB)
        assert await app.queue.get() == JOB
        await place(app)
        await server.clock.advance(10 * PROMISE_SECONDS)
        assert len(app.fleet.claims) == 2
        app.queue.done(JOB)
        await server.clock.advance(2)
        assert not app.fleet.claims


async def test_a_large_gang_is_looked_at_less_often() -> None:
    server = make_server(nodes=4)
    server.objects["trainingjobs", *JOB]["status"] = {"phase": "Starting"}
    app = make_app(server)
    (view,) = app.observer.views.values()
    view.held = {f"rank {number}" for number in range(400)}
    app.leading = True
    app._wake(JOB)
    await server.clock.advance(0.2)
    assert (app.queue.depth, app.queue.planned) == (0, 1)
    await server.clock.advance(0.06)
    assert (app.queue.depth, app.queue.planned) == (1, 0)


async def test_a_fleet_that_drifted_is_put_right_and_decided_on_again(caplog: pytest.LogCaptureFixture) -> None:
    server = make_server(nodes=4)
    app = make_app(server)
    (pool,) = app.fleet.pools.values()
    pool.free_devices[0] = 0
    version = app.fleet.version
    async with going(app._audit()):
        await server.clock.advance(2 * DRIFT_SECONDS)
    assert app.fleet.check() == []
    assert app.fleet.version > version
    assert app.scheduler._wake.is_set()
    assert sample(app, "berth_fleet_drifts_total") == 1
    assert "node n0: free_devices is 0, should be 8" in caplog.text


class Lease:
    """An election that this replica wins at once; ``breaks`` ends the candidacy instead."""

    def __init__(self, breaks: Exception | None = None) -> None:
        self.elected, self.released, self._breaks = asyncio.Event(), False, breaks

    async def run(self) -> None:
        if self._breaks is not None:
            raise self._breaks
        self.elected.set()
        await asyncio.Event().wait()

    async def release(self) -> None:
        self.released = True


async def test_a_leader_that_cannot_list_gives_the_lease_back_and_says_what_it_could_not_list() -> None:
    server = make_server()
    app, lease = make_app(server), Lease()
    lead = asyncio.create_task(elect_and_lead(app, lease))  # type: ignore[arg-type]
    await server.clock.advance(CATCH_UP_SECONDS - 1)
    assert not lead.done()
    assert not app.leading
    await server.clock.advance(1)
    with pytest.raises(CannotLead, match=r"could not list trainingjobs \(no answer\), pods"):
        await lead
    assert lease.released


async def test_a_candidacy_that_breaks_ends_the_process_instead_of_waiting_for_ever() -> None:
    lease = Lease(breaks=RuntimeError("a lease that nobody can read"))
    with pytest.raises(RuntimeError, match="nobody can read"):
        await elect_and_lead(make_app(make_server()), lease)  # type: ignore[arg-type]
    assert lease.released


async def test_the_lease_is_not_released_under_a_writer_that_does_not_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth.controllers.app.STOP_SECONDS", 0.01)
    app, lease, stop = make_app(make_server()), Lease(), asyncio.Event()

    async def stubborn() -> None:
        while not stop.is_set():
            with suppress(asyncio.CancelledError):
                await stop.wait()

    monkeypatch.setattr(app, "lead", stubborn)
    leading = asyncio.create_task(elect_and_lead(app, lease))  # type: ignore[arg-type]
    await lease.elected.wait()
    await settle()
    leading.cancel()
    with pytest.raises(CannotLead, match="did not stop"):
        await leading
    assert not lease.released
    stop.set()


async def test_a_job_that_has_just_been_created_is_looked_at_at_once_and_changes_are_gathered() -> None:
    server = make_server(nodes=4)
    app = make_app(server)
    app.leading = True
    app.queue.done(JOB)
    found = server.objects["trainingjobs", *JOB]
    server.put(TRAINING_JOBS, {**found, "metadata": {**found["metadata"], "labels": {"team": "a"}}})
    show(server, app.caches)
    assert app.queue.depth == 1
    assert await app.queue.get() == JOB
    app.queue.done(JOB)
    server.put(TRAINING_JOBS, {**found, "status": {"phase": "Queued"}})
    show(server, app.caches)
    assert (app.queue.depth, app.queue.planned) == (0, 1)
