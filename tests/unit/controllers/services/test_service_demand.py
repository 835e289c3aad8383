"""Demand of all services: asked for in one round, whatever was before."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from berth.controllers.services.demand import AGAIN_SECONDS, DemandBook, Known, slo_met
from berth.controllers.services.forecaster import Forecaster
from berth.controllers.services.plans import pod_facts
from berth.controllers.services.supply import Choice, Market
from berth.controllers.services.view import ServiceView
from berth.fleet.fleet import Fleet
from berth.inference.records import DemandState
from berth.inference.room import Rooms
from berth.inference.service import Seen
from berth.telemetry.readings import Reading, ServiceQuery, SourceName, Telling
from tests.builders.fleet import make_fleet, make_node
from tests.unit.cluster.fakes import eventually
from tests.unit.controllers.services.views import make_view


class Source:
    """Tells 3 requests in flight of every service, and of the past what ``past`` gives once ``may_read`` is set."""

    def __init__(self) -> None:
        self.histories, self.may_read = list[str](), asyncio.Event()
        self.past: list[tuple[float, float | None]] | str = [(0.0, 2.0)]
        self.may_read.set()

    async def poll(
        self, services: Sequence[ServiceQuery], percentile: Mapping[Any, int]
    ) -> Mapping[tuple[str, str], Telling]:
        telling = Telling({"engine": Reading("Value", 3.0, 60.0)}, {"p": 3.0}, seconds={"ttft": 0.2})
        return {service.key: telling for service in services}

    async def history(self, service: ServiceQuery, *_: object) -> list[tuple[float, float | None]] | str:
        self.histories.append(service.name)
        await self.may_read.wait()
        return self.past


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

    async def history(self, service: ServiceQuery, *_: object) -> list[tuple[float, float | None]] | str:
        return [(0.0, "many")] if service.name == self.odd else await super().history(service)  # type: ignore[list-item]


async def test_what_cannot_be_read_of_one_is_unknown_and_harms_no_other() -> None:
    fleet, asked = services(3)
    source = Odd()
    book = DemandBook(source, fleet)
    await book.poll(asked, {view.key: {"p": None} for view, _ in asked}, 60.0)
    source.odd = "s1"
    await book.poll(asked, {view.key: {"p": None} for view, _ in asked}, 75.0)
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
    pods = {view.key: {"p": None} for view, _ in asked}
    for source.failing, state in ((False, "Value"), (True, "Unknown"), (False, "Value")):
        await book.poll(asked, pods, 60.0)
        assert {str(book.of(view).seen.state) for view, _ in asked} == {state}


async def test_who_is_gone_is_not_remembered_though_it_was_asked_for_once_more() -> None:
    fleet, asked = services(2)
    (here, _), (gone, _) = asked
    book = DemandBook(Source(), fleet)
    await book.poll(asked, {}, 60.0)
    kept, lost = book.of(here), book.of(gone)
    book.forget(gone.uid)
    again = book.of(gone)
    book.forget_all_but({here.uid})
    assert book.of(here) is kept
    assert book.of(gone) not in (lost, again)


async def test_promised_times_outlast_rounds_that_fail_until_they_are_too_old() -> None:
    fleet, asked = services(1, slo={"ttft": "100ms"})
    source, view = Odd(), asked[0][0]
    book = DemandBook(source, fleet)
    met, loads = [], []
    for source.failing, now in ((False, 60.0), (True, 75.0), (True, 150.0), (True, 151.0), (False, 165.0)):
        await book.poll(asked, {view.key: {"p": None}}, now)
        met.append(slo_met(view, book.of(view).telling))
        loads.append(bool(book.of(view).telling.in_flight))
    assert met == [False, False, False, None, False]
    assert loads == [True, False, False, False, True]


async def test_no_round_waits_for_the_past_which_is_read_of_one_service_after_the_other() -> None:
    fleet, asked = services(5)
    source = Source()
    source.may_read.clear()
    book = DemandBook(source, fleet, patience=0.01)
    for now in (60.0, 75.0):
        await book.poll(asked, {view.key: {"p": None} for view, _ in asked}, now)
        assert all(book.of(view).seen.state is DemandState.VALUE for view, _ in asked)
        assert source.histories == ["s0"]
    source.may_read.set()
    await eventually(lambda: all(book.of(view).read_history for view, _ in asked))
    await book.poll(asked, {}, 90.0)
    assert source.histories == [view.key[1] for view, _ in asked]


async def test_a_source_that_did_not_answer_is_asked_again_until_it_does() -> None:
    fleet, asked = services(1)
    source, read = Source(), []
    source.past = "store a: no such host"
    book = DemandBook(source, fleet)
    for now in (0.0, AGAIN_SECONDS - 1, AGAIN_SECONDS, 2 * AGAIN_SECONDS, 9 * AGAIN_SECONDS):
        await book.poll(asked, {}, now)
        read.append(len(source.histories))
        source.past = "store a: no such host" if now < AGAIN_SECONDS else []
    assert read == [1, 1, 2, 3, 3]


async def test_a_clock_that_was_ahead_keeps_no_source_from_being_asked_and_no_time_standing() -> None:
    fleet, asked = services(1, slo={"ttft": "100ms"})
    source, view = Odd(), asked[0][0]
    source.past = "store a: no such host"
    book = DemandBook(source, fleet)
    await book.poll(asked, {view.key: {"p": None}}, 3600.0)
    assert slo_met(view, book.of(view).telling) is False
    source.failing = True
    await book.poll(asked, {view.key: {"p": None}}, 60.0)
    assert slo_met(view, book.of(view).telling) is None
    assert len(source.histories) == 2
    assert book.of(view).lost_at == 60.0


async def test_why_the_past_is_not_known_is_said_until_it_is() -> None:
    fleet, asked = services(1)
    source = Source()
    book = DemandBook(source, fleet)
    known = book.of(asked[0][0])
    for past, said in (("store a: no such host", True), ([], False)):
        source.past = past  # type: ignore[assignment]
        known.asked = -math.inf
        await book.poll(asked, {}, 60.0)
        assert ("from before this process: store a: no such host" in known.trusted.message) is said
        assert known.read_history is not said


async def test_a_reading_that_fails_is_that_of_one_service() -> None:
    fleet, asked = services(3)
    source = Odd()
    source.odd = "s1"
    book = DemandBook(source, fleet)
    await book.poll(asked, {}, 60.0)
    assert [book.of(view).read_history for view, _ in asked] == [True, False, True]


async def test_who_stops_reads_no_further() -> None:
    fleet, asked = services(2)
    source = Source()
    source.may_read.clear()
    book = DemandBook(source, fleet, patience=0.01)
    await book.poll(asked, {}, 60.0)
    book.stop()
    source.may_read.set()
    await asyncio.sleep(0)
    assert source.histories == ["s0"]
    assert not book.of(asked[0][0]).read_history


@pytest.mark.parametrize("source", ["Prometheus", "Pods"])
async def test_a_service_without_signals_asks_the_source_that_there_is(source: SourceName) -> None:
    fleet, asked = services(1, runtime={"engine": "vLLM"})
    book = DemandBook(Source(), fleet, default_source=source)
    await book.poll(asked, {}, 60.0)
    assert [(signal.source, signal.preset) for signal in book.of(asked[0][0]).signals] == [(source, "vLLM")]


def test_a_doubt_is_told_once_it_has_lasted_and_not_when_it_is_over() -> None:
    known, seen = Known(Forecaster(60.0)), Seen(DemandState.VALUE, 2.0)
    told = [known.doubted(seen, why, now).doubt for why, now in
            (("why", 0.0), ("why", 899.0), ("why", 900.0), ("", 915.0), ("why", 930.0))]  # fmt: skip
    assert told == ["", "", "why", "", ""]


@pytest.mark.parametrize(
    ("preset", "stated", "own", "told"),
    [
        ("vLLM", "1000000", (), True),
        ("vLLM", "1", (), False),
        ("vLLM", "Auto", (), False),
        ("Istio", "1000000", (), False),
        ("vLLM", "5", ("--max-num-seqs=4",), True),
        ("vLLM", "5", ("--max_num_seqs", "4"), True),
        ("vLLM", "4", ("--max-num-seqs", "4"), False),
        ("vLLM", "5", ("--max-num-seqs",), False),
    ],
)
async def test_a_load_that_no_replica_holds_at_once_is_told_with_the_fix(
    preset: str, stated: str, own: tuple[str, ...], told: bool
) -> None:
    signal = {"name": "engine", "source": "Prometheus", "preset": preset, "perReplica": stated}
    fleet, asked = services(1, scaling={"demand": {"signals": [signal]}}, runtime={"engine": "vLLM", "args": list(own)})
    book, view = DemandBook(Source(), fleet), asked[0][0]
    await book.poll(asked, {view.key: {"p": None}}, 60.0)
    assert (f"signal engine asks for a replica more only at {stated} " in book.of(view).seen.doubt) is told
