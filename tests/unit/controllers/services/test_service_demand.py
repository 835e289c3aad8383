"""Demand of all services: asked for in one round, whatever was before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

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


def services(count: int, **spec: Any) -> tuple[Fleet, list[tuple[ServiceView, Choice]]]:
    fleet = make_fleet([make_node("n", pool=None, labels={"nvidia.com/gpu.product": "NVIDIA-L40S"})], pools=())
    market = Market(fleet, Rooms(fleet), pod_facts(fleet))
    views = [make_view(f"s{number}", **spec) for number in range(count)]
    return fleet, [(view, market.choice(view)) for view in views]


class Odd(Source):
    """Answers about one service what cannot be read, or fails altogether."""

    failing, odd = False, ""

    async def poll(
        self, services: Sequence[ServiceQuery], percentile: Mapping[Any, int]
    ) -> Mapping[tuple[str, str], Telling]:
        if self.failing:
            raise KeyError("le")
        told = dict(await super().poll(services, percentile))
        return told | {key: Telling({"engine": Reading("Odd")}) for key in told if key[1] == self.odd}  # type: ignore[arg-type]


async def test_what_cannot_be_read_of_one_is_unknown_and_harms_no_other() -> None:
    fleet, asked = services(3)
    source = Odd()
    book = DemandBook(source, fleet)
    await book.poll(asked, {view.key: ["p"] for view, _ in asked}, 60.0)
    source.odd = "s1"
    await book.poll(asked, {view.key: ["p"] for view, _ in asked}, 75.0)
    assert [str(book.of(view).seen.state) for view, _ in asked] == ["Value", "Unknown", "Value"]
    assert book.of(asked[1][0]).seen.reason == "the answer cannot be read (ValueError)"


@pytest.mark.parametrize(("stated", "work"), [({"perReplica": "1.5"}, 2.0), ({"perReplica": "Auto"}, None), ({}, None)])
async def test_a_load_of_unknown_unit_is_no_demand(stated: dict[str, str], work: float | None) -> None:
    signal = {"name": "engine", "source": "Prometheus", "preset": "Custom", "query": "sum(jobs)", **stated}
    fleet, asked = services(1, scaling={"demand": {"signals": [signal]}})
    book = DemandBook(Source(), fleet)
    await book.poll(asked, {}, 60.0)
    seen = book.of(asked[0][0]).seen
    assert seen.work == work
    assert ("perReplica" in seen.reason) == (work is None)


async def test_nothing_old_stands_after_a_round_that_failed() -> None:
    fleet, asked = services(2)
    source = Odd()
    book = DemandBook(source, fleet)
    pods = {view.key: ["p"] for view, _ in asked}
    for source.failing, state in ((False, "Value"), (True, "Unknown"), (False, "Value")):
        await book.poll(asked, pods, 60.0)
        assert {str(book.of(view).seen.state) for view, _ in asked} == {state}


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
