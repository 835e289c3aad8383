"""A clock that tests move by hand, and a small API server that really listens.

The server speaks HTTP over a real socket, because what breaks watches in practice (half-open connections, chunk
borders, long lines, refusals with headers) does not exist in a mock. Its storage is a dictionary with a version
counter and the history of changes, enough for lists, pages, watches and bookmarks.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import web

from berth.cluster.client import ApiClient
from berth.cluster.session import Connection
from berth.cluster.transport import Transport

Json = dict[str, Any]


@dataclass(order=True)
class FakeTimer:
    """A call that is due at a moment of the fake clock."""

    due: float
    order: int
    call: Callable[[], object] = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        self.cancelled = True


class FakeClock:
    """Stands still until :meth:`advance`; with ``hasty`` a sleep moves it at once. ``slept`` records every sleep."""

    def __init__(self, *, hasty: bool = False) -> None:
        self.at, self.hasty, self.slept = 1000.0, hasty, list[float]()
        self._timers: list[FakeTimer] = []
        self._orders = itertools.count()

    def now(self) -> float:
        return self.at

    def wall(self) -> datetime:
        return datetime(2026, 12, 1, 10, tzinfo=UTC) + timedelta(seconds=self.at - 1000.0)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if self.hasty:
            self.at += max(seconds, 0.0)
            await asyncio.sleep(0)
            return
        woken = asyncio.get_running_loop().create_future()
        self.call_later(seconds, lambda: woken.done() or woken.set_result(None))
        await woken

    def call_later(self, seconds: float, call: Callable[[], object]) -> FakeTimer:
        timer = FakeTimer(self.at + max(seconds, 0.0), next(self._orders), call)
        heapq.heappush(self._timers, timer)
        return timer

    async def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass, timer by timer, with time for tasks to react between them."""
        end = self.at + seconds
        await settle()
        while self._timers and self._timers[0].due <= end:
            timer = heapq.heappop(self._timers)
            self.at = max(self.at, timer.due)
            if not timer.cancelled:
                timer.call()
                await settle()
        self.at = end
        await settle()


async def settle() -> None:
    """Give every task that can run its turns."""
    for _ in range(20):
        await asyncio.sleep(0)


async def eventually(condition: Callable[[], object], within: float = 60.0) -> None:
    """Wait until ``condition`` holds, for what takes real time because it crosses a socket."""
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110 - the condition lies in another task or behind a socket
            await asyncio.sleep(0.002)


@dataclass
class Seen:
    """A request as the server saw it."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def answer(status: int = 200, body: Any = None, **headers: str) -> Answer:
    """An answer with a JSON body; keyword headers are written with underscores."""

    async def send(_: web.Request) -> web.StreamResponse:
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        return web.json_response({} if body is None else body, status=status, headers=named)

    return send


def failure(status: int, reason: str, message: str = "no", **headers: str) -> Answer:
    """A failure with a Status body."""
    body = {"kind": "Status", "status": "Failure", "code": status, "reason": reason, "message": message}
    return answer(status, body, **headers)


async def hang_up(request: web.Request) -> web.StreamResponse:
    """Close the connection without an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


class Server:
    """A real HTTP server with scripted answers; the last script entry repeats. ``seen`` has every request."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.script: list[Answer] = [answer()]
        self.url = ""
        self.connection = Connection("")

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.seen.append(Seen(request.method, request.path, dict(request.query), dict(request.headers), body))
        return await self.answer(request)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        return await (self.script.pop(0) if len(self.script) > 1 else self.script[0])(request)


@asynccontextmanager
async def listening(server: Server, tls: Any = None) -> AsyncIterator[Connection]:
    """Serve on a free port and yield a connection to it."""
    app = web.Application(client_max_size=1 << 24)
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    port = runner.addresses[0][1]
    server.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    server.connection = Connection(server.url)
    try:
        yield server.connection
    finally:
        await server.connection.close()
        await runner.cleanup()


def client_of(connection: Connection, clock: FakeClock, **settings: Any) -> ApiClient:
    """A client over ``connection`` on a fake clock."""
    return ApiClient(Transport(connection, clock=clock, **settings))


class ApiServer(Server):
    """Keeps pods: lists in pages, watches from a version, with the faults that tests switch on.

    ``expire`` answers every watch with 410 until switched off, ``silent`` opens watches and then says nothing,
    ``refuse`` answers everything with one failure. ``forget`` drops the watch history, so that resuming fails.
    """

    def __init__(self) -> None:
        super().__init__()
        self.version = 10
        self.pods: dict[str, Json] = {}
        self.history: list[tuple[int, Json]] = []
        self.oldest = 0
        self.expire, self.silent, self.refuse = False, False, None
        self.changed = asyncio.Event()
        self.streams: list[web.StreamResponse] = []
        self.snapshots: dict[int, list[Json]] = {}

    def add(self, name: str, uid: str = "", **labels: str) -> Json:
        """Create a pod, or change it when the uid is the one that it has."""
        self.version += 1
        meta = {"name": name, "namespace": "n", "uid": uid or f"uid-{name}", "labels": labels}
        pod = {"metadata": meta | {"resourceVersion": str(self.version)}}
        known = self.pods.get(name)
        self.pods[name] = pod
        self._tell("MODIFIED" if known and known["metadata"]["uid"] == pod["metadata"]["uid"] else "ADDED", pod)
        return pod

    def delete(self, name: str) -> None:
        self.version += 1
        pod = json.loads(json.dumps(self.pods.pop(name)))
        pod["metadata"]["resourceVersion"] = str(self.version)
        self._tell("DELETED", pod)

    def bookmark(self) -> None:
        self._tell("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(self.version)}})

    def forget(self) -> None:
        self.oldest = self.version + 1

    def cut(self) -> None:
        """Break every open stream in the middle."""
        for stream in self.streams:
            if stream._req is not None and stream._req.transport is not None:
                stream._req.transport.abort()
        self.streams.clear()

    def lists(self) -> list[Seen]:
        return [seen for seen in self.seen if "watch" not in seen.query]

    def watches(self) -> list[Seen]:
        return [seen for seen in self.seen if "watch" in seen.query]

    def _tell(self, type_: str, pod: Json) -> None:
        self.history.append((self.version, {"type": type_, "object": pod}))
        self.changed.set()
        self.changed = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self.refuse is not None:
            return await self.refuse(request)
        if "watch" in request.query:
            return await self._watch(request)
        return await self._list(request)

    async def _list(self, request: web.Request) -> web.StreamResponse:
        token, limit = request.query.get("continue", ""), int(request.query.get("limit", "0"))
        version, start = (int(part) for part in token.split("-")) if token else (self.version, 0)
        items = self.snapshots.setdefault(version, list(self.pods.values()))
        stop = start + limit if limit else len(items)
        meta = {"resourceVersion": str(version)} | ({"continue": f"{version}-{stop}"} if stop < len(items) else {})
        return web.json_response({"kind": "PodList", "metadata": meta, "items": items[start:stop]})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        stream = web.StreamResponse()
        await stream.prepare(request)
        self.streams.append(stream)
        if self.expire or since < self.oldest - 1:
            gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
            await stream.write(json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n")
            return stream
        sent = 0
        while True:
            changed = self.changed
            for version, event in self.history[sent:]:
                if not self.silent and version >= since + (event["type"] != "BOOKMARK"):
                    await stream.write(json.dumps(event).encode() + b"\n")
            sent = len(self.history)
            await changed.wait()
