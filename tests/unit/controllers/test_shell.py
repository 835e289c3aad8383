"""kopf as the operator runs it: what an API server does to its watch costs wake-ups for a while and nothing else."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any

import kopf
import pytest
from aiohttp import web

from berth.api.names import KINDS
from berth.controllers import shell
from tests.unit.cluster.fakes import Answer, Server, eventually, failure, listening

Json = dict[str, Any]
GROUPS = ("berth.dev/v1alpha1", "apiextensions.k8s.io/v1")


class KindServer(Server):
    """Serves our three kinds: empty lists, and watches that say what :meth:`say` is given until :meth:`hang_up`."""

    def __init__(self) -> None:
        super().__init__()
        self.refuse: Answer | None = None
        self.refused = 0
        self.watches: dict[str, asyncio.Queue[bytes]] = {}
        self._transports: list[Any] = []

    def say(self, plural: str, kind: str, body: Json) -> None:
        self.watches[plural].put_nowait(json.dumps({"type": kind, "object": body}).encode() + b"\n")

    def hang_up(self) -> None:
        """End all watches, as a server that stops does."""
        watches, self.watches = self.watches, {}
        for lines in watches.values():
            lines.put_nowait(b"")

    @property
    def open(self) -> int:
        """Watches that somebody still listens to."""
        return sum(not transport.is_closing() for transport in self._transports)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self.refuse is not None:
            self.refused += 1
            return await self.refuse(request)
        if "watch" not in request.query:
            return web.json_response(self._page(request.path))
        stream = web.StreamResponse()
        stream.force_close()
        await stream.prepare(request)
        self._transports.append(request.transport)
        lines = self.watches[request.path.rpartition("/")[2]] = asyncio.Queue[bytes]()
        while line := await lines.get():
            await stream.write(line)
        return stream

    def _page(self, path: str) -> Json:
        if path == "/api":
            return {"versions": ["v1"]}
        if path == "/apis":
            groups = [group.split("/") for group in GROUPS]
            versions = [(name, {"version": version}) for name, version in groups]
            return {"groups": [{"name": name, "versions": [at], "preferredVersion": at} for name, at in versions]}
        if path in ("/api/v1", *(f"/apis/{group}" for group in GROUPS)):
            core = [] if "apis" in path else [_resource("namespaces", "Namespace")]
            return {"resources": core + [_resource(each.plural, each.kind) for each in KINDS if "berth" in path]}
        return {"kind": "List", "metadata": {"resourceVersion": "10"}, "items": []}


def _resource(plural: str, kind: str) -> Json:
    return {"name": plural, "kind": kind, "singularName": "", "namespaced": True, "verbs": ["list", "watch", "patch"]}


def job(name: str, version: int) -> Json:
    return {"metadata": {"name": name, "namespace": "n", "uid": f"u-{name}", "resourceVersion": str(version)}}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes seconds in earnest."""
    monkeypatch.setattr(shell, "BACKOFFS", shell.Backoffs(0.01, 0.02))


class Shell:
    """The shell on a server: what woke whom, and how often kopf began."""

    def __init__(self, server: KindServer) -> None:
        self.server, self.lives, self.stop = server, 0, asyncio.Event()
        self.woken: list[tuple[str, tuple[str, str]]] = []
        self.seen: list[tuple[str, tuple[str, str], int]] = []
        self.known = 0  # the version that our caches have
        self.takes: Callable[[], object] = lambda: None
        registry = shell.build_registry(lambda: server.connection, lambda *what: self.woken.append(what), self.knows)
        self.task = asyncio.create_task(shell.run(registry, self.stop, self.started))

    def knows(self, plural: str, key: tuple[str, str], version: int) -> bool:
        self.seen.append((plural, key, version))
        return version <= self.known

    def started(self) -> None:
        self.lives += 1
        self.takes()

    async def watches(self) -> None:
        """All kinds are watched."""
        await eventually(lambda: len(self.server.watches) == len(KINDS))

    async def expect_woken_by(self, name: str, version: int) -> None:
        self.woken.clear()
        self.server.say("trainingjobs", "MODIFIED", job(name, version))
        await eventually(lambda: ("trainingjobs", ("n", name)) in self.woken)
        assert ("trainingjobs", ("n", name), version) in self.seen


@asynccontextmanager
async def running() -> AsyncIterator[Shell]:
    server = KindServer()
    async with listening(server):
        found = Shell(server)
        try:
            await found.watches()
            yield found
        finally:
            found.stop.set()
            await asyncio.wait({found.task}, timeout=60)
        assert found.task.done()
        assert found.task.exception() is None
        assert not shell._of_kopf()


async def test_what_changes_wakes_by_kind_and_name() -> None:
    async with running() as found:
        found.server.say("inferenceservices", "ADDED", job("chat", 20))
        await eventually(lambda: ("inferenceservices", ("n", "chat")) in found.woken)
        await found.expect_woken_by("llm", 21)
        assert found.lives == 1


async def test_a_version_that_is_known_wakes_nobody() -> None:
    async with running() as found:
        found.known = 21
        found.server.say("trainingjobs", "MODIFIED", job("early", 21))
        await found.expect_woken_by("late", 22)
        assert ("trainingjobs", ("n", "early"), 21) in found.seen
        assert found.woken == [("trainingjobs", ("n", "late"))]


async def test_an_outage_longer_than_all_of_kopf_s_own_tries_ends_nothing() -> None:
    async with running() as found:
        found.server.refuse = failure(503, "ServiceUnavailable")
        found.server.hang_up()
        await eventually(lambda: found.server.refused > 3 * 20)
        found.server.refuse = None
        await found.watches()
        await found.expect_woken_by("llm", 30)
        assert found.lives == 1


@pytest.mark.parametrize("times", [1, 3])
async def test_an_error_event_has_kopf_begin_anew_and_ends_no_other_task(times: int) -> None:
    async with running() as found:
        bystander = asyncio.create_task(asyncio.Event().wait())
        for life in range(1, times + 1):
            watches, found.server.watches = found.server.watches, {}
            error = {"kind": "Status", "code": 500, "message": "etcdserver: leader changed"}
            watches["trainingjobs"].put_nowait(json.dumps({"type": "ERROR", "object": error}).encode() + b"\n")
            await found.watches()
            assert found.lives == life + 1
        await eventually(lambda: found.server.open == len(KINDS))
        await found.expect_woken_by("llm", 40)
        assert not bystander.done()
        bystander.cancel()


async def test_a_kind_that_is_not_served_for_a_moment_ends_nothing() -> None:
    async with running() as found:
        found.server.refuse = failure(404, "NotFound")
        found.server.hang_up()
        await eventually(lambda: found.lives > 2)
        found.server.refuse = None
        await found.watches()
        await found.expect_woken_by("llm", 50)


async def test_whoever_takes_the_signals_at_each_beginning_has_them() -> None:
    async with running() as found:
        caught = asyncio.Event()
        found.takes = lambda: asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, caught.set)
        watches, found.server.watches = found.server.watches, {}
        watches["trainingjobs"].put_nowait(b'{"type": "ERROR", "object": {"code": 500}}\n')
        await found.watches()
        signal.raise_signal(signal.SIGTERM)
        await eventually(caught.is_set)
        await found.expect_woken_by("llm", 60)
        assert found.lives == 2


def test_backoffs_have_no_end_stay_within_their_limit_and_begin_anew_each_time() -> None:
    waits = shell.Backoffs(1.0, 30.0)
    for _ in range(2):
        delays = list(islice(waits, 500))
        assert 0.5 <= delays[0] <= 1.0
        assert all(15.0 <= delay <= 30.0 for delay in delays[5:])
    settings = kopf.OperatorSettings()
    shell.configure_settings(settings)
    assert isinstance(settings.networking.error_backoffs, shell.Backoffs)
