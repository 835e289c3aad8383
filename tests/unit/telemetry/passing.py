"""Time that passes when a test says so, for what waits for answers within bounds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

import httpx

from tests.unit.telemetry.servers import Heard

T = TypeVar("T")

TURNS = 500
"""More than anything takes that waits for neither time nor a socket."""


class Passing:
    """Within its block the running loop's clock stands still but for :meth:`pass_on`, however slow the machine is."""

    seconds = 0.0

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._time, start = self._loop.time, self._loop.time()
        self._loop.time = lambda: start + self.seconds  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.time = self._time  # type: ignore[method-assign]

    def pass_on(self, seconds: float) -> None:
        self.seconds += seconds

    async def until(self, work: Coroutine[Any, Any, T], *, step: float = 1.0) -> T:
        """The result of ``work``, which crosses no socket: a step passes when nothing is left but to wait."""
        task = asyncio.create_task(work)
        while True:
            for _ in range(TURNS):
                await asyncio.sleep(0)
            if task.done():
                return task.result()
            self.pass_on(step)


def in_process(answer: Callable[[Heard], Coroutine[Any, Any, Any]]) -> httpx.MockTransport:
    """Servers without a socket: every request is answered by ``answer``, a text or a JSON value, when it is ready."""

    async def handle(request: httpx.Request) -> httpx.Response:
        form = dict(httpx.QueryParams(request.content.decode()))
        made = await answer(Heard(request.url.path, form, dict(request.headers)))
        text = made if isinstance(made, str) else json.dumps(made)
        return httpx.Response(200, stream=httpx.ByteStream(text.encode()))

    return httpx.MockTransport(handle)
