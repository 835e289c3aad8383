"""Times at a percentile: how they are measured, and how long they stand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from berth.telemetry.times import TIMES_EXPIRE_SECONDS, TIMES_SECONDS
from tests.unit.telemetry.asking import ERROR, NOW, RUNNING, asking, by_metric, poll, query, refusing, series, success
from tests.unit.telemetry.servers import Heard


def timed(bound: str) -> Callable[[Heard], Any]:
    """All waited for their first token for at most ``bound`` seconds."""
    buckets = [series(10, le=bound), series(10, le="+Inf")]
    return by_metric({RUNNING: [series(3)], "vllm:time_to_first_token_seconds_bucket": buckets})


async def test_times_are_measured_again_as_soon_as_loads_are_told() -> None:
    async with asking(timed("1")) as (source, server, _):
        told = []
        for server.answer in (timed("1"), refusing(503, ERROR), timed("2")):
            told.append((await source.poll([query()], {}))["serving", "chat"].seconds)
    assert told == [{"ttft": pytest.approx(seconds)} for seconds in (0.99, 0.99, 1.98)]


def failing(metric: str, otherwise: Callable[[Heard], Any]) -> Callable[[Heard], Any]:
    refused = refusing(503, ERROR)
    return lambda heard: (refused if metric in heard.form["query"] else otherwise)(heard)


@pytest.mark.parametrize("lost", ["time_to_first_token", "vllm:num_requests"], ids=["the times", "the loads"])
async def test_a_time_that_is_not_told_again_stands_until_it_is_too_old(lost: str) -> None:
    async with asking(timed("1")) as (source, server, wall):
        await source.poll([query()], {})
        server.answer = failing(lost, timed("1"))
        told = []
        for later in (TIMES_SECONDS, TIMES_EXPIRE_SECONDS, TIMES_EXPIRE_SECONDS + 1):
            wall.at = NOW + later
            told.append((await source.poll([query()], {}))["serving", "chat"].seconds)
    assert told == [{"ttft": pytest.approx(0.99)}] * 2 + [{}]


async def test_a_time_that_nothing_was_counted_for_is_known_no_more() -> None:
    async with asking(timed("1")) as (source, server, wall):
        await source.poll([query()], {})
        server.answer, wall.at = by_metric({RUNNING: [series(3)]}), NOW + TIMES_SECONDS
        assert (await source.poll([query()], {}))["serving", "chat"].seconds == {}


@pytest.mark.parametrize("count", [-5, "NaN", "+Inf", 1e300])
async def test_counts_that_can_be_none_are_left_out(count: Any) -> None:
    buckets = [series(10, le="1"), series(count, le="2"), series(10, le="+Inf"), series(count, pod="chat-2", le="+Inf")]
    told = await poll(by_metric({RUNNING: [series(3)], "vllm:time_to_first_token_seconds_bucket": buckets}))
    assert told.seconds == {"ttft": pytest.approx(0.99)}


async def test_times_of_an_answer_that_is_not_whole_are_those_of_services_shown_in_full() -> None:
    buckets = [series(10, le="1"), series(10, le="+Inf")]
    lost = success(*buckets) | {"warnings": ["store b: connection refused"]}
    answer = lambda heard: lost if "_bucket" in heard.form["query"] else success(series(3))  # noqa: E731
    async with asking(answer) as (source, _, _):
        shown, partly = query(name="shown", pods=("chat-1",)), query(name="partly", pods=("chat-2",))
        told = await source.poll([shown, partly], {})
    assert [told[each.key].seconds.get("ttft") for each in (shown, partly)] == [pytest.approx(0.99), None]


async def test_times_are_quantiles_over_all_pods_asked_for_now_and_then() -> None:
    buckets = [series(count, le=bound, pod=pod) for pod in ("chat-1", "chat-2")
               for bound, count in (("0.5", 40), ("1", 50), ("+Inf", 50))]  # fmt: skip
    answers = {"vllm:time_to_first_token_seconds_bucket": buckets}
    async with asking(by_metric(answers)) as (source, server, wall):
        told = (await source.poll([query()], {("serving", "chat"): 90}))["serving", "chat"]
        assert told.seconds == {"ttft": pytest.approx(0.75)}
        asked = len(server.heard)
        wall.at += 15
        again = (await source.poll([query()], {("serving", "chat"): 90}))["serving", "chat"]
        assert again.seconds == told.seconds
        assert sum("_bucket" in heard.form["query"] for heard in server.heard[asked:]) == 0
        wall.at += TIMES_SECONDS
        await source.poll([query()], {})
        assert any("_bucket" in heard.form["query"] for heard in server.heard[asked:])


@pytest.mark.parametrize("odd", [{}, {"le": "many"}, {"le": "NaN"}], ids=["no bound", "no number", "NaN"])
async def test_a_bucket_without_a_bound_is_nobodys_trouble(odd: dict[str, str]) -> None:
    buckets = [series(10, le="1"), series(10, le="+Inf"), series(5, **odd)]
    answers = {RUNNING: [series(3)], "vllm:time_to_first_token_seconds_bucket": buckets}
    told = await poll(by_metric(answers))
    assert told.readings["engine"].load == 3.0
    assert told.seconds == {"ttft": pytest.approx(0.99)}


async def test_a_clock_that_was_ahead_neither_keeps_times_nor_keeps_from_asking() -> None:
    async with asking(timed("1")) as (source, server, wall):
        wall.at, told = NOW + 3600, []
        for server.answer in (timed("1"), failing("_bucket", timed("2")), timed("2")):
            told.append((await source.poll([query()], {}))["serving", "chat"].seconds)
            wall.at = NOW if wall.at > NOW + TIMES_SECONDS else wall.at + TIMES_SECONDS
    assert told == [{"ttft": pytest.approx(0.99)}, {}, {"ttft": pytest.approx(1.98)}]
