"""What a Prometheus server remembers of demand: ranges in parts, gaps, and no history beside no answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from berth.telemetry.answers import FIX
from berth.telemetry.prometheus import MOST_POINTS, Prometheus, PrometheusSettings
from berth.telemetry.readings import SignalQuery
from tests.unit.telemetry.asking import ENGINE, ERROR, RUNNING, asking, by_metric, query, refusing, success
from tests.unit.telemetry.servers import Heard, serving

CUSTOM = SignalQuery("own", "Prometheus", "Custom", "sum(jobs)")


async def test_a_long_range_is_asked_for_in_parts_that_the_server_allows() -> None:
    def answer(heard: Heard) -> Any:
        start, end, step = (float(heard.form[name]) for name in ("start", "end", "step"))
        assert (end - start) / step < MOST_POINTS
        points = [[start, "1"], [end, "2"]]
        return success({"metric": {"a": "b"}, "values": points}, kind="matrix")

    async with serving(answer) as server:
        client = Prometheus(PrometheusSettings(server.url))
        found = await client.range("x", 0.0, 60.0 * (2 * MOST_POINTS + 4), 60.0)
        await client.close()
    starts = [float(heard.form["start"]) for heard in server.heard]
    assert starts == [0.0, 60.0 * MOST_POINTS, 120.0 * MOST_POINTS]
    assert len(found) == 1
    assert [at for at, _ in found[0].points] == sorted({at for at, _ in found[0].points})


async def test_history_is_the_sum_of_figures_on_a_grid_with_gaps_unknown() -> None:
    def answer(heard: Heard) -> Any:
        values = [[0, "1"], [60, "2"], [240, "4"]] if RUNNING in heard.form["query"] else [[0, "1"], [60, "NaN"]]
        return success({"metric": {"namespace": "serving"}, "values": values}, kind="matrix")

    async with asking(answer) as (source, _, _):
        found = await source.history(query(), ENGINE, 0.0, 300.0, 60.0)
    assert found == [(0.0, 2.0), (60.0, 2.0), (120.0, None), (180.0, None), (240.0, 4.0)]


async def test_history_of_another_time_than_was_asked_for_is_left_out() -> None:
    values = [[-1e18, "1"], [60, "2"], [120, "-5"], [180, "3"], [1e300, "4"]]
    async with asking(lambda _: success({"metric": {}, "values": values}, kind="matrix")) as (source, _, _):
        found = await source.history(query(), ENGINE, 0.0, 300.0, 60.0)
    assert found == [(60.0, 4.0), (120.0, None), (180.0, 6.0)]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (by_metric({}), []),
        (refusing(503, ERROR), "Prometheus refuses the query (503): parse error"),
        (refusing(200, success({"metric": {}, "values": [[60, "2"]]}, kind="matrix") | {"warnings": ["no store a"]}),
         f"Prometheus' answer is not whole: no store a; {FIX}"),
    ],
    ids=["knows nothing", "refuses", "is not whole"],
)  # fmt: skip
async def test_no_history_is_another_thing_than_no_answer(
    answer: Callable[[Heard], Any], expected: list[Any] | str
) -> None:
    async with asking(answer) as (source, _, _):
        assert await source.history(query(), ENGINE, 0.0, 300.0, 60.0) == expected
        assert await source.history(query(), CUSTOM, 0.0, 300.0, 60.0) == []
