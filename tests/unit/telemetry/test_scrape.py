"""Replicas asked for their own metrics, over real sockets: what they say, and what is made of silence."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from berth.telemetry.counters import Counter
from berth.telemetry.readings import Reading, ServiceQuery, SignalQuery, Telling
from berth.telemetry.scrape import Bounds, Endpoint, PodSource, Silent, totals
from tests.unit.telemetry.passing import Passing, in_process
from tests.unit.telemetry.servers import Heard, Server, serving

ENGINE = SignalQuery("engine", "Pods", "vLLM")
REQUESTS = SignalQuery("requests", "Pods", "Requests")
PATIENT = Bounds(seconds=60.0, round_seconds=60.0)


def vllm(running: float, waiting: float = 0.0, tokens: float = 0.0) -> str:
    return (
        "# HELP vllm:num_requests_running Requests in execution.\n"
        "# TYPE vllm:num_requests_running gauge\n"
        f'vllm:num_requests_running{{engine="0",model_name="a b {{c}}"}} {running}\n'
        f'vllm:num_requests_waiting{{engine="0"}} {waiting}\n'
        f"vllm:generation_tokens_total {tokens}\n"
        "vllm:num_requests_running_of_another_kind 99\n"
    )


class Wall:
    at = 1000.0

    def __call__(self) -> float:
        return self.at


@asynccontextmanager
async def asking(
    pods: Mapping[str, Any], bounds: Bounds | None = None, *, slow: float = 0.0
) -> AsyncIterator[tuple[PodSource, Server, Wall]]:
    """A source whose pods are paths of one server; a pod that is None has not started, ``nobody`` is a closed port."""

    def answer(heard: Heard) -> Any:
        made = pods[heard.path.split("/")[1]]
        return made() if callable(made) else made

    async with serving(answer, slow=slow) as server:

        def resolve(namespace: str, pod: str) -> Endpoint | None:
            if pods[pod] is None:
                return None
            return Endpoint("127.0.0.1", 1 if pods[pod] == "nobody" else server.port, f"/{pod}/metrics")

        wall = Wall()
        source = PodSource(resolve, bounds or PATIENT, wall=wall)
        try:
            yield source, server, wall
        finally:
            await source.close()


async def told(source: PodSource, pods: Any, *signals: SignalQuery) -> Telling:
    query = ServiceQuery("serving", "chat", signals or (ENGINE,), tuple(pods))
    return (await source.poll([query], {}))[query.key]


async def read(pods: Mapping[str, Any], bounds: Bounds | None = None, **more: Any) -> Reading:
    async with asking(pods, bounds, **more) as (source, _, _):
        return (await told(source, pods)).readings["engine"]


async def test_gauges_are_summed_over_figures_and_pods() -> None:
    pods = {"a": vllm(3, 2), "b": vllm(4)}
    async with asking(pods) as (source, _, wall):
        found = await told(source, pods)
    assert found.readings["engine"] == Reading("Value", 9.0, wall.at)
    assert (found.in_flight, found.waiting) == ({"a": 5.0, "b": 4.0}, {"a": 2.0, "b": 0.0})


async def test_a_measured_nothing_is_idle() -> None:
    assert (await read({"a": vllm(0)})).state == "Idle"


def whole(status: int, text: str = "", **headers: str) -> Callable[[], web.Response]:
    return lambda: web.Response(status=status, text=text, headers={k.replace("_", "-"): v for k, v in headers.items()})


def labelled(labels: str, value: float = 1) -> str:
    return f"vllm:num_requests_running{{{labels}}} {value}\nvllm:num_requests_waiting 0\n"


SILENT = {
    "a closed port": ("nobody", "no answer"),
    "an error": (whole(500), "status 500"),
    "a redirect": (whole(302, Location="http://127.0.0.1:1/"), "status 302"),
    "no exposition": ("vllm:num_requests_running{ 1\n", "no exposition text"),
    "another engine": ("up 1\n", "does not show vllm:num_requests_running"),
    "half of the figures": ("vllm:num_requests_running 1\n", "does not show vllm:num_requests_waiting"),
    "no number": (vllm(float("nan")), "is nan"),
    "less than nothing": (vllm(-1), "is -1"),
    "too much": (vllm(1) + "#" * 5000, "longer than 4 KiB"),
    "beyond all bounds": (vllm(1e300), "is 1e+300"),
    "labels that take long to parse": (labelled(",".join(f'a{i}="1"' for i in range(200_000))), "too many"),
    "series without end": (vllm(1) * 6000, "too many"),
    "compressed": (whole(200, Content_Encoding="x-none"), "compressed"),
}


@pytest.mark.parametrize("name", sorted(SILENT))
async def test_what_cannot_be_used_is_unknown_and_says_why(name: str) -> None:
    made, why = SILENT[name]
    reading = await read({"a": made}, Bounds(seconds=60.0, bytes=4096 if name == "too much" else 4 << 20))
    assert (reading.state, reading.load) == ("Unknown", None)
    assert why in reading.reason


async def test_a_pod_that_does_not_answer_in_time_holds_nobody_up() -> None:
    reading = await read({"a": vllm(1)}, Bounds(seconds=0.05), slow=0.5)
    assert reading.reason == "1 of 1 replicas are silent: no answer in time"


@asynccontextmanager
async def dripping(drip: bytes) -> AsyncIterator[int]:
    """The port of a server that answers ``drip`` again and again, without end."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            writer.write(b"HTTP/1.1 200 OK\r\n")
            while not writer.is_closing():
                writer.write(drip)
                await writer.drain()
                await asyncio.sleep(0.001)

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize("drip", [b"", b"a: b\r\n", b"a: b\r\n\r\n# x\n"], ids=["nothing", "headers", "a body"])
async def test_an_answer_without_end_is_given_up(drip: bytes) -> None:
    async with dripping(drip) as port:
        source = PodSource(lambda *_: Endpoint("127.0.0.1", port), Bounds(seconds=0.2))
        reading = (await told(source, ["a"])).readings["engine"]
        await source.close()
    assert reading.state == "Unknown"


@pytest.mark.parametrize("odd", ["\u2028", "\x0c", "\r", "\\n", '\\"} 9', "\x00"], ids=repr)
async def test_a_label_may_hold_anything(odd: str) -> None:
    assert (await read({"a": labelled(f'model="{odd}vllm:num_requests_running 5"', 3)})).load == 3.0


@pytest.mark.parametrize("tokens", [-100, float("nan"), float("inf"), 1e300])
async def test_one_pod_that_counts_what_cannot_be_harms_no_service(tokens: float) -> None:
    """Sums of such figures overflow, or are none."""
    odd: dict[str, Any] = {"a": vllm(1e15), "b": vllm(1e15), "c": vllm(2)}
    async with asking(odd) as (source, _, wall):
        services = [ServiceQuery("serving", "odd", (ENGINE,), ("a", "b")), ServiceQuery("x", "chat", (ENGINE,), ("c",))]
        await source.poll(services, {})
        wall.at += 10
        odd |= {"a": vllm(1e15, tokens=tokens), "b": vllm(1e15, tokens=-tokens)}
        found = await source.poll(services, {})
    assert found["serving", "odd"].readings["engine"].state == "Unknown"
    assert found["x", "chat"].readings["engine"].load == 2.0


async def test_what_a_counter_cannot_have_counted_is_no_rate() -> None:
    pods: dict[str, Any] = {"a": vllm(1, tokens=5), "b": vllm(1, tokens=5)}
    async with asking(pods) as (source, _, wall):
        await told(source, pods)
        wall.at += 10
        pods |= {"a": vllm(1, tokens=-1e9), "b": vllm(1, tokens=105)}
        assert (await told(source, pods)).tokens_per_second == 10.0


@given(st.text(st.sampled_from('wanted{}="\\,# \t\n\r1.e+-naif\u2028')).map(lambda text: f"wanted{text}"))
def test_a_text_is_summed_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError, Silent):
        assert totals(text, frozenset({"wanted"})).keys() <= {"wanted"}


def waiting(answer: Callable[[Heard], Coroutine[Any, Any, str]], bounds: Bounds, wall: Wall) -> PodSource:
    """A source whose pods are answered for by ``answer``, without a socket."""
    place = Endpoint("127.0.0.1", 80)
    return PodSource(lambda _, pod: replace(place, path=f"/{pod}/metrics"), bounds, in_process(answer), wall=wall)


async def test_a_round_ends_whatever_is_left_to_ask() -> None:
    async def answer(_: Heard) -> str:
        await asyncio.sleep(4)
        return vllm(1)

    source = waiting(answer, Bounds(parallel=1, seconds=100.0, round_seconds=10.0), Wall())
    with Passing() as passing:
        reading = (await passing.until(told(source, [f"p{i}" for i in range(20)]))).readings["engine"]
    assert reading.reason == "18 of 20 replicas are silent: no time was left to ask it"
    assert passing.seconds == 10.0


async def test_pods_that_let_their_time_pass_leave_some_to_all_others() -> None:
    asked: list[str] = []

    async def answer(heard: Heard) -> str:
        asked.append(heard.path.split("/")[1])
        if "a" in asked[-1]:
            await asyncio.Event().wait()
        return vllm(1)

    pods = [*(f"a{i}" for i in range(8)), *(f"b{i}" for i in range(3))]
    services = [ServiceQuery("x", name, (ENGINE,), tuple(p for p in pods if p[0] == name)) for name in "ab"]
    wall = Wall()
    source = waiting(answer, Bounds(parallel=2, seconds=20.0, round_seconds=70.0), wall)
    with Passing() as passing:
        for _ in range(3):
            readings = await passing.until(source.poll(services, {}))
            wall.at += 15.0
    assert readings["x", "b"].readings["engine"].load == 3.0
    assert {each for each in asked if "a" in each} == {f"a{i}" for i in range(8)}, "those have their turns too"


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ({"a": vllm(3), "b": vllm(5), "c": "nobody"}, 12.0),
        ({"a": vllm(3), "b": "nobody"}, 6.0),
        ({"a": vllm(3), "b": "nobody", "c": "nobody"}, None),
        ({"a": vllm(3), "b": None, "c": None}, 3.0),
        ({"a": None}, None),
    ],
    ids=["the others make up for it", "half is enough", "more than half are silent", "starting is not silent", "none"],
)
async def test_partial_answers(pods: dict[str, Any], expected: float | None) -> None:
    assert (await read(pods)).load == expected


async def test_no_more_pods_are_asked_than_allowed_and_they_stand_for_all() -> None:
    pods = {f"p{i}": vllm(2) for i in range(10)}
    async with asking(pods, replace(PATIENT, pods=4)) as (source, server, _):
        assert (await told(source, pods)).readings["engine"].load == 20.0
        assert len(server.heard) == 4


async def test_one_request_answers_all_signals_of_a_service() -> None:
    pods = {"a": vllm(2) + "http_requests_total 5\n"}
    async with asking(pods) as (source, server, _):
        await told(source, pods, ENGINE, REQUESTS)
        assert len(server.heard) == 1


async def test_counters_become_rates_with_the_second_round_and_survive_a_reset() -> None:
    pods: dict[str, Any] = {"a": 'http_requests_total{code="200"} 100\nhttp_requests_total{code="500"} 10\n'}
    async with asking(pods) as (source, _, wall):
        first = (await told(source, pods, REQUESTS)).readings["requests"]
        assert "two rounds" in first.reason
        for total, expected in ((170, 4.0), (170, 0.0), (30, 2.0)):
            wall.at += 15
            pods["a"] = f"http_requests_total {total}\n"
            assert (await told(source, pods, REQUESTS)).readings["requests"].load == expected


async def test_the_first_name_that_a_pod_shows_is_taken_and_never_two() -> None:
    pods: dict[str, Any] = {"a": "http_server_requests_total 0\nhttp_server_request_duration_seconds_count 0\n"}
    async with asking(pods) as (source, _, wall):
        await told(source, pods, REQUESTS)
        wall.at += 10
        pods["a"] = "http_server_requests_total 50\nhttp_server_request_duration_seconds_count 50\n"
        assert (await told(source, pods, REQUESTS)).readings["requests"].load == 5.0


async def test_tokens_are_told_as_a_rate() -> None:
    pods = {"a": vllm(1, tokens=0), "b": vllm(1, tokens=0)}
    async with asking(pods) as (source, _, wall):
        assert (await told(source, pods)).tokens_per_second is None
        wall.at += 10
        pods |= {"a": vllm(1, tokens=100), "b": vllm(1, tokens=300)}
        assert (await told(source, pods)).tokens_per_second == 40.0


@pytest.mark.parametrize("preset", ["Custom", "EnvoyGateway"])
async def test_what_replicas_do_not_report_is_not_asked_of_them(preset: str) -> None:
    async with asking({"a": vllm(1)}) as (source, server, _):
        reading = (await told(source, ["a"], SignalQuery("x", "Pods", preset))).readings["x"]
        assert reading.state == "Unknown"
        assert f"do not report {preset}" in reading.reason
        assert not server.heard


async def test_signals_of_prometheus_are_left_to_it_and_there_is_no_history() -> None:
    async with asking({"a": vllm(1)}) as (source, server, _):
        other = SignalQuery("x", "Prometheus", "vLLM")
        assert not (await told(source, ["a"], other)).readings
        query = ServiceQuery("serving", "chat", (ENGINE,), ("a",))
        assert await source.history(query, ENGINE, 0, 100, 10) == []
        assert not server.heard


def test_only_lines_of_the_names_are_parsed() -> None:
    text = 'wanted 1\nwanted{a="x # y"} 2 1700000000\nwanted_not 4\nthis is no line\n# wanted 9\n'
    assert totals(text, frozenset({"wanted"})) == {"wanted": 3.0}


@pytest.mark.parametrize(
    ("total", "at", "expected"), [(30, 20, 2.0), (10, 20, 0.0), (4, 20, 0.4), (30, 10, None), (30, 5, None)]
)
def test_the_rate_of_a_counter(total: float, at: float, expected: float | None) -> None:
    assert Counter(10.0, 10.0).rate(total, at) == expected
