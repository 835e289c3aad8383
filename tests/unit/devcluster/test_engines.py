"""What the simulated engines report follows from the traffic and from the replicas that are ready."""

from __future__ import annotations

import pytest

from berth.devcluster.engines import Traffic, replay


def after(traffic: Traffic, ready: list[str], ticks: int, tick: float = 0.25) -> Traffic:
    for number in range(ticks):
        traffic.flow(ready, traffic.began + number * tick, tick)
    return traffic


@pytest.mark.parametrize(
    ("demand", "replicas", "running", "waits"),
    [(6.0, 2, 3.0, False), (16.0, 2, 8.0, False), (40.0, 2, 8.0, True), (40.0, 5, 8.0, False)],
)
def test_requests_beyond_the_slots_wait(demand: float, replicas: int, running: float, waits: bool) -> None:
    traffic = after(Traffic(lambda _: demand, slots=8), [f"p{i}" for i in range(replicas)], 200)
    assert [pod.running for pod in traffic.pods.values()] == pytest.approx([running] * replicas, abs=0.1)
    assert (traffic.waiting > 1.0) is waits


def test_the_queue_grows_while_nobody_is_ready_and_is_worked_off() -> None:
    traffic = after(Traffic(lambda _: 10.0, slots=8), [], 40)
    assert traffic.waiting == pytest.approx(100.0)
    late = after(traffic, ["a", "b", "c"], 4).pods["a"]
    assert late.first_token_sum / late.served > 1.0
    assert after(traffic, ["a", "b", "c"], 200).waiting == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("seconds", "demand"), [(-1.0, 4.0), (0.0, 4.0), (3.0, 22.0), (6.0, 40.0), (9.0, 25.0), (99.0, 10.0)]
)
def test_a_trace_is_linear_between_its_steps_and_stays_at_its_end(seconds: float, demand: float) -> None:
    assert replay([4.0, 40.0, 10.0], 6.0)(seconds) == pytest.approx(demand)


def test_what_has_waited_is_counted_beside_what_was_asked_for() -> None:
    traffic = after(Traffic(lambda _: 8.0, slots=8), ["a"], 40)
    assert (traffic.asked, traffic.waited) == (pytest.approx(80.0), 0.0)
    short = after(Traffic(lambda _: 16.0, slots=8), ["a"], 40)
    assert short.waited > 0.2 * short.asked


def test_an_engine_that_nobody_asks_is_empty_in_the_end() -> None:
    traffic = Traffic(lambda seconds: 4.0 if seconds < 5 else 0.0, slots=8)
    assert after(traffic, ["a"], 60).in_system == 0.0
