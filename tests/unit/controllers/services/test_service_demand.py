"""Demand of all services: asked for in one round, whatever was before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from berth.controllers.services.demand import READING_SECONDS, DemandBook
from berth.controllers.services.plans import pod_facts
from berth.controllers.services.supply import Choice, Market
from berth.controllers.services.view import ServiceView
from berth.fleet.fleet import Fleet
from berth.inference.records import DemandState
from berth.inference.room import Rooms
from berth.telemetry.readings import Reading, ServiceQuery, Telling
from tests.builders.fleet import make_fleet, make_node
from tests.unit.controllers.services.views import make_view


class Source:
    """Tells 3 requests in flight of every service; a question about what was before takes ``seconds``."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds, self.now, self.histories = seconds, 0.0, list[str]()

    async def poll(
        self, services: Sequence[ServiceQuery], percentile: Mapping[Any, int]
    ) -> Mapping[tuple[str, str], Telling]:
        return {service.key: Telling({"engine": Reading("Value", 3.0, 60.0)}) for service in services}

    async def history(self, service: ServiceQuery, *_: object) -> list[tuple[float, float | None]]:
        self.histories.append(service.name)
        self.now += self.seconds
        return [(0.0, 2.0)]


def services(count: int) -> tuple[Fleet, list[tuple[ServiceView, Choice]]]:
    fleet = make_fleet([make_node("n", pool=None, labels={"nvidia.com/gpu.product": "NVIDIA-L40S"})], pools=())
    market = Market(fleet, Rooms(fleet), pod_facts(fleet))
    views = [make_view(f"s{number}") for number in range(count)]
    return fleet, [(view, market.choice(view)) for view in views]


async def test_a_round_waits_for_no_more_of_the_past_than_it_has_time_for() -> None:
    fleet, asked = services(5)
    source = Source(seconds=READING_SECONDS * 0.6)
    book = DemandBook(source, fleet, clock=lambda: source.now)
    pods = {view.key: ["p"] for view, _ in asked}
    read = []
    for _ in range(4):
        await book.poll(asked, pods, 60.0)
        read.append(len(source.histories))
        assert all(book.of(view).seen.state is DemandState.VALUE for view, _ in asked)
    assert read == [2, 4, 5, 5]
    assert source.histories == [view.key[1] for view, _ in asked]
