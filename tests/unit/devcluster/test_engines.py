"""What the simulated engines report follows from the traffic and from the replicas that are ready."""

from __future__ import annotations

import pytest

from berth.devcluster.engines import Traffic


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
