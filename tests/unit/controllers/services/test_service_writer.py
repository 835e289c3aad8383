"""Moving figures of many services go out in turn, and none is looked at again before its turn."""

from __future__ import annotations

import json
from typing import Any

from berth.cluster.ratelimit import TokenBucket
from berth.controllers.services.view import ServiceKey, ServiceView
from berth.controllers.services.writer import COUNT_SECONDS, MOVING_SECONDS, ServiceWriter
from berth.controllers.services.writeturns import LEFT, WriteTurns
from tests.unit.cluster.fakes import FakeClock
from tests.unit.controllers.services.views import make_view


class World:
    """A writer with a budget of one a second, of others with ``spare`` a second, and what it asked for."""

    def __init__(self, services: int, spare: float = 0.0) -> None:
        self.clock, self.looks = FakeClock(), list[tuple[ServiceKey, float]]()
        self.called: list[str] = []
        self.behind = 0.0  # seconds, the wall clock
        self.spare = TokenBucket(spare, LEFT + 1, self.clock) if spare else None
        self.written: list[str] = []
        self.views = [self._view(number) for number in range(services)]
        here: Any = self
        self.writer = ServiceWriter(
            here, here,
            WriteTurns(TokenBucket(1.0, 1, self.clock), self.clock, call=self._called, spare=self.spare),
            again=lambda key, seconds: self.looks.append((key, seconds)), wall=lambda: self.clock.now() - self.behind,
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

    def _called(self, key: ServiceKey) -> None:
        self.called.append(key[1])

    async def look(self, load: float, *, called: bool = False) -> None:
        """Every service is looked at, with figures that moved; ``called``: those whose turn it is."""
        self.looks.clear()
        names, self.called = self.called, []
        for view in self.views:
            if called and view.key[1] not in names:
                continue
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
    await world.look(1.0)
    assert (world.written, world.looks, world.called) == (["s0"], [], []), "looks in between take no turn"
    for number in (1, 2, 3):
        await world.clock.advance(1)
        assert world.called == [f"s{number}"], "one after the other"
        await world.look(1.0, called=True)
        assert world.written[-1] == f"s{number}"
    assert len(world.written) == 4


async def test_what_others_leave_is_used_and_some_is_left_to_them() -> None:
    world, seconds = World(50, spare=4.0), 8
    await world.look(1.0)
    await world.clock.advance(MOVING_SECONDS)
    assert world.spare is not None
    await world.look(1.0)
    for _ in range(10 * seconds):
        await world.clock.advance(0.1)
        assert world.spare.ready(LEFT) == 0, "whoever owns it finds some"
        await world.look(1.0, called=True)
    assert 4.5 * seconds <= len(world.written) <= 5.5 * seconds


async def test_counts_have_their_turn_before_figures() -> None:
    world = World(3)
    await world.look(1.0)
    await world.clock.advance(MOVING_SECONDS)
    await world.look(1.0)
    assert not await world.writer.consider(world.views[2], status(1.0, replicas=2))
    await world.clock.advance(2)
    assert world.called == ["s2", "s1"]


async def test_who_has_nothing_to_write_any_more_takes_no_turn() -> None:
    world = World(3)
    await world.look(1.0)
    await world.clock.advance(MOVING_SECONDS)
    await world.look(1.0)
    assert not await world.writer.consider(world.views[1], status(0.1)), "the figure is what it was"
    await world.clock.advance(1)
    assert world.called == ["s2"]


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


async def test_that_all_replicas_of_a_decision_are_ready_waits_for_no_turn_the_first_time() -> None:
    world = World(1)
    view = world.views[0]

    def of_two(ready: int) -> dict[str, Any]:
        return {**status(0.1, replicas=2), "readyReplicas": ready, "variants": [{"name": "a", "replicas": 2}]}

    view.persisted = of_two(1)
    assert await world.writer.consider(view, of_two(2))
    view.persisted = of_two(1)
    assert not await world.writer.consider(view, of_two(2)), "one that comes and goes has its turn"


async def test_a_clock_that_was_ahead_and_is_set_back_puts_no_figure_off_for_longer() -> None:
    world = World(1)
    await world.look(0.2)
    world.behind = 3600.0
    await world.look(0.3)
    assert max((seconds for _, seconds in world.looks), default=0.0) <= MOVING_SECONDS
