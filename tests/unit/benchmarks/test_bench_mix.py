"""The pieces of the comparison of fleets that could quietly be wrong."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.mix import busiest_day, fleet, serve, supplies
from benchmarks.mix_replica import simulate
from benchmarks.mix_shared import Job, _finish
from benchmarks.requests import DAY, Trace
from berth.catalogue.load import load
from berth.inference.capacity import Speed

CATALOGUE = load()


def test_a_constant_load_costs_its_replicas_price():
    found = fleet(CATALOGUE, "hourly", "7B", base_only=True)
    capacity = found[0].capacity
    assert capacity is not None
    day = serve(found, np.full(DAY, 1.9 * capacity.requests_per_second), tokens_out=100)
    tokens = 1.9 * capacity.requests_per_second * 86_400 * 100
    assert day.usd_per_million_tokens == pytest.approx(2 * 6.88 * 24 / tokens * 1e6)
    assert day.uncarried == 0


def test_list_prices_are_spread_over_three_years():
    prices = {pool.accelerator: pool.usd_per_device_hour for pool in supplies(CATALOGUE, "list", base_only=False)}
    assert set(prices) == {"L40S", "L4", "Gaudi2"}
    assert float(prices["L40S"] or 0) == pytest.approx(15_000 / (3 * 8_760))


def test_the_day_with_the_highest_peak_is_taken_with_its_peak_at_one():
    loads = np.concatenate([np.full(DAY, 1.0), np.full(DAY, 4.0), np.full(DAY, 2.0)])
    loads[DAY + 5] = 8.0
    day = busiest_day(Trace("made", loads))
    assert (len(day), day[0], day[5]) == (DAY, 0.5, 1.0)


def test_a_replica_with_little_to_do_answers_at_the_speed_of_one():
    roof = Speed(fixed=0.001, weights=0.009, cache=0.0, compute=0.0001, prompt=0.04, tokens_out=20)
    first, between, flying = simulate(roof, held=8, rate=0.01, answers=200)
    assert np.median(first) == pytest.approx(0.05)
    assert np.median(between) == pytest.approx(0.01)
    assert flying < 0.01


@pytest.mark.parametrize(
    ("jobs", "nodes", "end"),
    [
        ([Job(0, 8, 2.0), Job(1, 8, 2.0)], 1, 4.0),
        ([Job(0, 8, 2.0), Job(1, 8, 2.0)], 2, 3.0),
        ([Job(0, 1, np.inf), Job(1, 8, 2.0)], 1, None),
        ([Job(0, 4, 2.0), Job(0, 4, 1.0), Job(0, 2, 1.0)], 1, 2.0),
    ],
)
def test_gangs_wait_in_order_for_whole_nodes(jobs: list[Job], nodes: int, end: float | None):
    assert _finish(jobs, nodes) == end
