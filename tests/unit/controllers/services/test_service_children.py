"""Children that somebody else has changed or deleted come back, and each is read no more than it must be."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from berth.cluster.cache import Cache
from berth.cluster.kinds import DISRUPTION_BUDGETS, SERVICES, Kind
from berth.cluster.wire import Object
from tests.unit.controllers.services.test_service_refusals import KEY, Desk, Json

WATCHED = (SERVICES, DISRUPTION_BUDGETS)


def watched(desk: Desk, kind: Kind[Object]) -> Cache[Object]:
    """What the operator has heard of ``kind``, which is what the server has."""
    (cache,) = (cache for cache in desk.loop.every_cache() if cache.kind is kind)
    cache.observe(kind.decode(json.dumps(desk.server.objects[kind.kind, "chat"]).encode()))
    return cache


async def woken(desk: Desk) -> bool:
    """Whether the service is to be looked at."""
    await desk.server.transport.clock.advance(1)
    found = bool(desk.loop.queue.depth)
    while desk.loop.queue.depth:
        desk.loop.queue.done(await desk.loop.queue.get())
    return found


def deleted(desk: Desk, kind: Kind[Object], cache: Cache[Object]) -> None:
    known = cache.get("chat", "serving")
    assert known is not None
    del desk.server.objects[kind.kind, "chat"]
    cache.remove(known)


def relabelled(desk: Desk, kind: Kind[Object], cache: Cache[Object]) -> None:
    body: Json = desk.server.objects[kind.kind, "chat"]
    body["metadata"]["labels"] = {"berth.dev/service-name": "chat"}
    body["metadata"]["resourceVersion"] = "999"
    cache.observe(kind.decode(json.dumps(body).encode()))


@pytest.mark.parametrize("kind", WATCHED, ids=lambda kind: kind.kind)
@pytest.mark.parametrize("spoil", [deleted, relabelled])
async def test_a_child_is_put_right_at_once(
    kind: Kind[Object], spoil: Callable[[Desk, Kind[Object], Cache[Object]], None]
) -> None:
    desk = Desk()
    await desk.look()
    desk.loop.leading = True
    cache = watched(desk, kind)
    await woken(desk)
    before = len(desk.server.written)
    assert not await woken(desk), "what was applied here wakes nobody"
    spoil(desk, kind, cache)
    assert await woken(desk)
    await desk.loop.services.reconcile(KEY)
    assert desk.server.written[before:].count(kind.kind) == 1
    again = len(desk.server.written)
    watched(desk, kind)
    await desk.loop.services.reconcile(KEY)
    assert kind.kind not in desk.server.written[again:]


async def test_a_child_that_goes_while_it_is_read_is_read_again() -> None:
    desk = Desk()
    await desk.look()
    desk.loop.leading = True
    cache = watched(desk, SERVICES)
    relabelled(desk, SERVICES, cache)
    find = desk.server.find

    async def slow(kind: Kind[Object], name: str, namespace: str) -> Object | None:
        found: Object | None = await find(kind, name, namespace)
        if kind.kind == SERVICES.kind:
            deleted(desk, kind, cache)
            desk.server.find = find
        return found

    relabelled_body = desk.server.objects["Service", "chat"]
    relabelled_body["metadata"]["labels"]["berth.dev/applied-hash"] = desk.loop.observer.view(KEY).applied["Service"]  # type: ignore[union-attr]
    desk.server.find = slow
    await desk.loop.services.reconcile(KEY)
    assert ("Service", "chat") not in desk.server.objects
    await desk.loop.services.reconcile(KEY)
    assert ("Service", "chat") in desk.server.objects
