"""Moving figures of many services go out in turn, and none is looked at again before its turn."""

from __future__ import annotations

import json
from typing import Any

from berth.cluster.ratelimit import TokenBucket
from berth.controllers.services.view import ServiceKey, ServiceView
from berth.controllers.services.writer import COUNT_SECONDS, MOVING_SECONDS, ServiceWriter
from tests.unit.cluster.fakes import FakeClock
from tests.unit.controllers.services.views import make_view


class World:
    """A writer with a budget of one a second, and what it asked for."""

    def __init__(self, services: int) -> None:
        self.clock, self.looks = FakeClock(), list[tuple[ServiceKey, float]]()
        self.written: list[str] = []
        self.views = [self._view(number) for number in range(services)]
        here: Any = self
        self.writer = ServiceWriter(
            here, here, TokenBucket(1.0, 1, self.clock),
            again=lambda key, seconds: self.looks.append((key, seconds)), wall=self.clock.now,
        )  # fmt: skip

    @staticmethod
    def _view(number: int) -> ServiceView:
        view = make_view(f"s{number}")
        view.persisted = status(0.1)
        return view

    async def apply(self, kind: Any, name: str, body: Any, namespace: str, **_: Any) -> Any:
        self.written.append(name)
        return json.dumps(body)

    def absorb(self, answer: Any) -> None:
        """The cache is not looked at."""

    async def look(self, load: float) -> None:
        """Every service is looked at, with figures that moved."""
        self.looks.clear()
        for view in self.views:
            if await self.writer.consider(view, status(load)):
                view.persisted = status(load)


def status(load: float, *, phase: str = "Ready", replicas: int = 1) -> dict[str, Any]:
    return {"phase": phase, "replicas": replicas, "demand": {"current": f"{load}"}}


async def test_every_service_gets_a_turn_of_its_own_and_keeps_it() -> None:
    world = World(4)
    await world.look(1.0)
    assert not world.written, "just written as far as this writer knows"
    await world.clock.advance(MOVING_SECONDS)
    await world.look(1.0)
    assert world.written == ["s0"]
    assert [round(seconds, 6) for _, seconds in world.looks] == [1, 2, 3], "one after the other"
    await world.look(1.0)
    assert [round(seconds, 6) for _, seconds in world.looks][-3:] == [1, 2, 3], "looks in between take no turn anew"
    for number in (1, 2, 3):
        await world.clock.advance(1)
        await world.look(1.0)
        assert world.written[-1] == f"s{number}"
    assert len(world.written) == 4


async def test_a_transition_waits_for_no_turn() -> None:
    world = World(2)
    view = world.views[1]
    assert await world.writer.consider(view, status(0.1, phase="Degraded"))


async def test_counts_follow_sooner_than_figures() -> None:
    world = World(1)
    view = world.views[0]
    assert not await world.writer.consider(view, status(0.1, replicas=2))
    await world.clock.advance(COUNT_SECONDS)
    assert await world.writer.consider(view, status(0.1, replicas=2))
