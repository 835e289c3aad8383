"""An HTTP server on loopback whose answers tests write."""

from __future__ import annotations

import asyncio
import inspect
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Form = dict[str, str]


@dataclass
class Heard:
    """One request as the server saw it."""

    path: str
    form: Form
    headers: dict[str, str]


@dataclass
class Server:
    """``answer`` makes of each request a JSON value, a text, or whole response; it may be a coroutine function."""

    answer: Callable[[Heard], Any] = lambda heard: ""
    heard: list[Heard] = field(default_factory=list)
    slow: float = 0.0
    url: str = ""
    port: int = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        form = {str(name): str(value) for name, value in (await request.post()).items()}
        heard = Heard(request.path, form, dict(request.headers))
        self.heard.append(heard)
        if self.slow:
            await asyncio.sleep(self.slow)
        made = self.answer(heard)
        if inspect.isawaitable(made):
            made = await made
        if isinstance(made, web.StreamResponse):
            return made
        return web.Response(text=made) if isinstance(made, str) else web.json_response(made)


@asynccontextmanager
async def serving(
    answer: Callable[[Heard], Any], *, secure: ssl.SSLContext | None = None, **fields: Any
) -> AsyncIterator[Server]:
    """A server while the block runs; ``secure``: by TLS."""
    server = Server(answer, **fields)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=secure)
    await site.start()
    server.port = runner.addresses[0][1]
    server.url = f"http{'s' if secure else ''}://127.0.0.1:{server.port}"
    try:
        yield server
    finally:
        await runner.cleanup()
