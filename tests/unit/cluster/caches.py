"""Caches that watch a test server, and what tests expect of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from berth.cluster.cache import Cache
from berth.cluster.kinds import PODS
from berth.cluster.wire import Pod
from tests.unit.cluster.fakes import ApiServer, FakeClock, client_of, eventually


@asynccontextmanager
async def watching(pods: ApiServer, clock: FakeClock | None = None, **settings: object) -> AsyncIterator[Cache[Pod]]:
    cache = Cache(client_of(pods.connection, clock or FakeClock(hasty=True)), PODS, **settings)
    task = asyncio.create_task(cache.run())
    try:
        yield cache
        assert not task.done(), "nothing may end a watch"
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def names(cache: Cache[Pod]) -> set[str]:
    return {pod.metadata.name for pod in cache}


async def expect_names(cache: Cache[Pod], *expected: str) -> None:
    await eventually(lambda: names(cache) == set(expected))


def changes_of(cache: Cache[Pod]) -> list[tuple[str | None, str | None]]:
    """Records (old uid, new uid) of every change."""
    seen: list[tuple[str | None, str | None]] = []
    cache.subscribe(lambda old, new: seen.append((old and old.metadata.uid, new and new.metadata.uid)))
    return seen


def pod(name: str, version: int, uid: str = "") -> Pod:
    meta = {"name": name, "namespace": "n", "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return PODS.decode(json.dumps({"metadata": meta}).encode())
