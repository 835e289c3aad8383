"""The bound is a bound: it serves everything, and no other schedule that does is cheaper."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.policies.base import Floats, Limits, Outcome, simulate_together
from benchmarks.policies.clairvoyant import clairvoyant, first_ready, schedule
from tests.unit.benchmarks.test_bench_simulation import Scripted

LIMITS = Limits(1, 3)


def replay(wanted: list[int], load: Floats, cold_steps: int, first: int) -> Outcome:
    return simulate_together([(Scripted(wanted), cold_steps)], load, LIMITS, first)[0]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=5), st.integers(1, 3))
def test_no_schedule_that_serves_everything_is_cheaper(needs: list[int], cold_steps: int) -> None:
    load = np.array([*needs, 0.5])
    scripts = product(range(1, 4), repeat=len(load))
    every = [replay(list(script), load, cold_steps, first) for script in scripts for first in (1, 2, 3)]
    cheapest = min(outcome.cost for outcome in every if outcome.unserved == 0)
    assert clairvoyant(load, cold_steps, LIMITS) == Outcome(0.0, cheapest)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0, 3), min_size=1, max_size=40), st.integers(1, 8))
def test_its_schedule_serves_everything_in_the_simulation(needs: list[float], cold_steps: int) -> None:
    load = np.array(needs)
    wanted = schedule(load, cold_steps, LIMITS).tolist()
    outcome = replay(wanted, load, cold_steps, first_ready(load, cold_steps, LIMITS))
    assert outcome == Outcome(pytest.approx(0.0, abs=1e-6), clairvoyant(load, cold_steps, LIMITS).cost)


@pytest.mark.parametrize(("cold_steps", "cost"), [(1, 2 + 1 + 2 + 6), (3, 2 + 3 + 2 + 6), (6, 2 + 4 + 2 + 6)])
def test_a_pause_costs_the_cold_start_or_itself_whichever_is_less(cold_steps: int, cost: int) -> None:
    load = np.array([2.0, 2, 1, 1, 1, 1, 2, 2]) - 0.5
    assert clairvoyant(load, cold_steps, LIMITS).cost == cost + 2
