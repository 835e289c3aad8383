"""The interval against the paper's formula computed anew, the contract's example, what is said where figures lack."""

from __future__ import annotations

import math
from decimal import Decimal, getcontext

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from berth.training.checkpoint import (
    PRIOR_FAILURES_PER_NODE_DAY,
    UNKNOWN_SIZE_INTERVAL_SECONDS,
    CheckpointPolicy,
    daly_interval,
    initial_policy,
    mtbf_seconds,
)

GB = 10**9

stalls = st.floats(0.01, 3600)
mtbfs = st.floats(60, 10**7)


def paper(stall: float, mtbf: float) -> float:
    """Daly 2006, equation 37, as printed, in decimal arithmetic: δ is the dump time, M the mean time to interrupt."""
    getcontext().prec = 40
    delta, m = Decimal(stall), Decimal(mtbf)
    if delta >= 2 * m:
        return float(m)
    half = delta / (2 * m)
    return float((2 * delta * m).sqrt() * (1 + half.sqrt() / 3 + half / 9) - delta)


def wasted(interval: float, stall: float, mtbf: float) -> float:
    """Expected time per second of work in Daly's model (equation 20), restart time left out."""
    return mtbf * (math.exp((interval + stall) / mtbf) - 1) / interval


def policy(**fields: float) -> CheckpointPolicy:
    known = {"nodes": 64, "size_bytes": 840 * GB, "write_bytes_per_second": 100 * GB}
    return initial_policy(**{**known, **fields})


@settings(max_examples=200)
@given(stalls, mtbfs)
def test_the_interval_is_the_paper_s(stall: float, mtbf: float) -> None:
    assert daly_interval(stall, mtbf) == pytest.approx(paper(stall, mtbf), rel=1e-9)


@pytest.mark.parametrize(("stall", "mtbf"), [(8.4, 207_692.3), (60.0, 6490.4), (300.0, 20_000.0)])
def test_no_interval_a_tenth_shorter_or_longer_wastes_less(stall: float, mtbf: float) -> None:
    best = daly_interval(stall, mtbf)
    waste = wasted(best, stall, mtbf)
    assert waste < wasted(best * 0.9, stall, mtbf)
    assert waste < wasted(best * 1.1, stall, mtbf)


def test_the_contract_s_example() -> None:
    found = policy()
    assert (found.interval_seconds, round(found.mtbf_seconds), found.stall_seconds) == (1862, 207_692, 8.4)
    assert found.size_bytes == 840 * GB
    assert found.reason == (
        "Daly: 840G at 100G/s stall 8.4 s, 64 nodes at 6.5 failures per 1,000 node-days fail every 57h41m"
    )


def test_the_example_of_the_published_failure_rate() -> None:
    """2,048 nodes and a stall of a minute: a failure each 1.80 h; √(2CM) is 14.7 minutes, Daly's terms shorten it."""
    mtbf = mtbf_seconds(2048)
    assert mtbf == pytest.approx(6490.4, rel=1e-4)
    assert math.sqrt(2 * 60 * mtbf) == pytest.approx(14.7 * 60, rel=1e-2)
    assert 0.9 < daly_interval(60, mtbf) / math.sqrt(2 * 60 * mtbf) < 1


@given(stalls, mtbfs, st.floats(1.01, 10))
def test_a_longer_mean_time_between_failures_never_shortens_the_interval(
    stall: float, mtbf: float, more: float
) -> None:
    assume((stall < 2 * mtbf) == (stall < 2 * mtbf * more))  # Daly's formula and his bound beyond it do not quite meet
    assert daly_interval(stall, mtbf * more) >= daly_interval(stall, mtbf) * (1 - 1e-9)


@given(st.integers(1, 4000), st.integers(1, 4000))
def test_more_nodes_save_more_often(one: int, other: int) -> None:
    fewer, more = sorted((one, other))
    assert policy(nodes=more).interval_seconds <= policy(nodes=fewer).interval_seconds
    assert policy(nodes=more).mtbf_seconds <= policy(nodes=fewer).mtbf_seconds


@given(st.integers(1, 10**13), st.integers(1, 10**13))
def test_larger_checkpoints_are_saved_less_often(one: int, other: int) -> None:
    smaller, larger = sorted((one, other))
    assert policy(size_bytes=smaller).interval_seconds <= policy(size_bytes=larger).interval_seconds


def test_a_stall_longer_than_two_failures_apart_saves_once_a_failure() -> None:
    assert daly_interval(200.0, 100.0) == 100.0
    assert daly_interval(500.0, 100.0) == 100.0


def test_a_save_that_costs_next_to_nothing_still_has_a_second_between() -> None:
    assert policy(size_bytes=1, write_bytes_per_second=10**12).interval_seconds == 1


def test_the_user_s_own_interval_always_wins() -> None:
    found = policy(fixed_interval_seconds=1800.0)
    assert (found.interval_seconds, found.reason) == (1800, "spec.checkpoint.interval")
    assert found.stall_seconds == 8.4
    assert policy(fixed_interval_seconds=90.0, size_bytes=0).interval_seconds == 90


@pytest.mark.parametrize(
    ("fields", "asks_for"),
    [
        ({"size_bytes": 0}, "spec.model or spec.checkpoint.size"),
        ({"write_bytes_per_second": 0}, "spec.checkpoint.writeBandwidth"),
        ({"size_bytes": 0, "write_bytes_per_second": 0}, "spec.model or spec.checkpoint.size"),
    ],
)
def test_without_a_figure_it_is_one_an_hour_and_says_what_to_set(fields: dict[str, float], asks_for: str) -> None:
    found = policy(**fields)
    assert found.interval_seconds == UNKNOWN_SIZE_INTERVAL_SECONDS
    assert found.stall_seconds == 0.0
    assert found.reason == f"one an hour: the stall of a save is unknown; set {asks_for}"
    assert found.mtbf_seconds > 0


@pytest.mark.parametrize("call", [lambda: mtbf_seconds(0), lambda: mtbf_seconds(1, 0.0), lambda: daly_interval(0, 1)])
def test_figures_that_are_not_positive_are_refused(call) -> None:
    with pytest.raises(ValueError, match="positive"):
        call()


def test_one_node_is_spoken_of_in_the_singular() -> None:
    assert "1 node at" in policy(nodes=1).reason
    assert mtbf_seconds(1) == pytest.approx(86_400 / PRIOR_FAILURES_PER_NODE_DAY)
