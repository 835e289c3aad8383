"""One request to the API server: the gates it must pass, how often it is tried, and what its failure means.

Every request passes, in this order, a token bucket, a bound on requests in flight and, when it writes, the fence:
a check made at the last moment that this replica still leads. Repeating stays inside when it is harmless: reads,
applies, deletes and updates after 5xx or silence; anything after 429 or a connection that never opened. A create
without an answer is not repeated: the caller is level-triggered and looks first.

Urgent requests are those that keep the lease. They pass no gate and are tried once, with a short timeout: work that
queues for the API server must never cost the leadership that it needs.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Final, NoReturn

import aiohttp

from berth import __version__
from berth.cluster.clock import SYSTEM_CLOCK, Clock
from berth.cluster.errors import ApiError, TooManyRequests, Unavailable, Unreachable, api_error
from berth.cluster.ratelimit import TokenBucket
from berth.cluster.session import Connection

JSON: Final = "application/json"
QPS: Final = 300.0
BURST: Final = 500
IN_FLIGHT: Final = 64
_HEADERS: Final = {"Accept": JSON, "Accept-Encoding": "identity", "User-Agent": f"berth/{__version__}"}
"""The agent's name is the field manager of what is created, and what an audit log shows."""
_LONGEST_WAIT: Final = 60.0  # seconds; a longer Retry-After is the caller's business
_LONGEST_BACKOFF: Final = 10.0
_CONNECT_TIMEOUT: Final = 10.0

OnCall = Callable[[str, str, str, float], object]
"""Told of every request: verb and resource as RBAC names them (``patch``, ``trainingjobs/status``), the outcome (HTTP
code or ``unreachable``), and seconds; for a watch the seconds until it was established."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to send. ``writes`` must pass the fence; ``repeatable`` may be sent again when nobody answered."""

    verb: str
    resource: str
    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = JSON
    writes: bool = False
    repeatable: bool = True
    urgent: bool = False
    timeout: float = 30.0


class Transport:
    """Sends requests over the session of ``connection``.

    ``attempts`` bounds the tries of one request, ``backoff`` is the first wait in seconds, doubled and jittered.
    ``fence`` raises NotLeading when writing is not allowed; ``on_call`` feeds metrics.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        limiter: TokenBucket | None = None,
        in_flight: int = IN_FLIGHT,
        attempts: int = 4,
        backoff: float = 0.2,
        on_call: OnCall | None = None,
        fence: Callable[[], object] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.connection, self.clock, self.fence, self.on_call = connection, clock, fence, on_call
        self._limiter = limiter or TokenBucket(QPS, BURST, clock)
        self._in_flight = asyncio.Semaphore(in_flight)
        self._attempts, self._backoff = max(attempts, 1), backoff

    async def send(self, request: Request, attempts: int | None = None) -> bytes:
        """The body of the answer. Raises: ApiError, Unreachable, NotLeading."""
        left = 1 if request.urgent else attempts or self._attempts
        backoff = self._backoff
        while True:
            left -= 1
            try:
                return await self._once(request)
            except (Unreachable, ApiError) as problem:
                wait = _wait_before_repeating(problem, request.repeatable, backoff)
                if wait is None or left <= 0:
                    raise
            backoff = min(backoff * 2, _LONGEST_BACKOFF)
            await self.clock.sleep(wait)

    @asynccontextmanager
    async def stream(self, request: Request, silence: float) -> AsyncIterator[aiohttp.StreamReader]:
        """An answer to read while it arrives; ``silence`` seconds without a byte break it. One try.

        Raises:
            ApiError: the server refused.
            Unreachable: no connection, or it broke, also while the caller reads.
        """
        await self._limiter.take()
        started = self.clock.now()
        try:
            async with self._open(request, silence) as response:
                self._report(request, str(response.status), started)
                if response.status >= 400:
                    self._refused(request, response, await response.read())
                yield response.content
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            self._unreachable(request, started, problem)

    async def _once(self, request: Request) -> bytes:
        if not request.urgent:
            await self._limiter.take()
        async with nullcontext() if request.urgent else self._in_flight:
            if request.writes and not request.urgent and self.fence is not None:
                self.fence()
            started = self.clock.now()
            try:
                async with self._open(request) as response:
                    data = await response.read()
            except (aiohttp.ClientError, TimeoutError, OSError) as problem:
                self._unreachable(request, started, problem)
        self._report(request, str(response.status), started)
        if response.status >= 400:
            self._refused(request, response, data)
        return data

    def _open(
        self, request: Request, silence: float | None = None
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Begin; answers come uncompressed, because inside a cluster bandwidth is cheaper than either side's CPU."""
        return self.connection.session().request(
            request.method,
            self.connection.server + request.path,
            params=request.params,
            data=request.body,
            headers={**_HEADERS, "Content-Type": request.content_type},
            timeout=aiohttp.ClientTimeout(request.timeout, sock_connect=_CONNECT_TIMEOUT, sock_read=silence),
        )

    def _refused(self, request: Request, response: aiohttp.ClientResponse, data: bytes) -> NoReturn:
        failure = api_error(response.status, data, response.headers)
        if isinstance(failure, TooManyRequests) and not request.urgent:
            self._limiter.hold(min(failure.retry_after or 0.0, _LONGEST_WAIT))
        raise failure

    def _unreachable(self, request: Request, started: float, problem: Exception) -> NoReturn:
        self._report(request, "unreachable", started)
        words = str(problem) or type(problem).__name__
        unsent = isinstance(problem, aiohttp.ClientConnectorError)
        raise Unreachable(f"{request.method} {request.path}: {words}", unsent=unsent) from problem

    def _report(self, request: Request, outcome: str, started: float) -> None:
        if self.on_call is not None:
            self.on_call(request.verb, request.resource, outcome, self.clock.now() - started)


def _wait_before_repeating(problem: Unreachable | ApiError, repeatable: bool, backoff: float) -> float | None:
    """Seconds to wait before the request may be sent again, or None when it must not be."""
    jittered = backoff * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing
    match problem:
        case TooManyRequests():
            asked = problem.retry_after or 0.0
            return max(asked, jittered) if asked <= _LONGEST_WAIT else None
        case Unreachable():
            return jittered if repeatable or problem.unsent else None
        case Unavailable():
            return max(problem.retry_after or 0.0, jittered) if repeatable else None
    return None
