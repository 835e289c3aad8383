"""A TCP relay before the API server that a test can cut or freeze, since real ones cannot be asked to fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit


class WireCutter:
    """Relays bytes, TLS included, between whoever connects and ``server``; ``refusing`` turns new connections away."""

    def __init__(self, server: str) -> None:
        parts = urlsplit(server)
        self._host, self._port = parts.hostname or "", parts.port or 443
        self._relays: set[asyncio.Task[None]] = set()
        self._flow = asyncio.Event()
        self._flow.set()
        self.connections = 0
        self.refusing = False

    def cut(self) -> None:
        """Break every connection in the middle."""
        for relay in self._relays:
            relay.cancel()

    def freeze(self) -> None:
        """Let what is open look alive and say nothing; new connections work."""
        self._flow.clear()
        self._flow = asyncio.Event()
        self._flow.set()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take a connection."""
        if self.refusing:
            writer.transport.abort()
            return
        self.connections += 1
        relay = asyncio.create_task(self._serve(reader, writer, self._flow))
        self._relays.add(relay)
        relay.add_done_callback(self._relays.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flow: asyncio.Event) -> None:
        there_reader, there_writer = await asyncio.open_connection(self._host, self._port)
        try:
            await asyncio.gather(_relay(reader, there_writer, flow), _relay(there_reader, writer, flow))
        finally:
            for end in (writer, there_writer):
                end.transport.abort()


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flow: asyncio.Event) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            await flow.wait()
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


@asynccontextmanager
async def cutting(server: str) -> AsyncIterator[tuple[WireCutter, str]]:
    """A relay to ``server`` and the URL at which it listens."""
    cutter = WireCutter(server)
    listener = await asyncio.start_server(cutter.accept, "127.0.0.1", 0)
    try:
        yield cutter, f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    finally:
        listener.close()
        cutter.cut()
