"""What the roofline and the queue say of a replica."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from berth.catalogue.load import load
from berth.catalogue.sizing import ServedModel
from berth.inference.capacity import Capacity, Promise, Requests, Speed, at_promise, capacity, memory_share, speed

CATALOGUE = load()
SIZING = CATALOGUE.serving.sizing
LLAMA = ServedModel(8 * 10**9, 16, 131_072, 8_192)
CHAT = Promise(99, 0.5, 0.05)


def carried(name: str, devices: int = 1, promise: Promise = CHAT, model: ServedModel = LLAMA) -> Capacity:
    found = capacity(CATALOGUE.accelerators[name], devices, model, promise, SIZING)
    assert found is not None
    return found


@pytest.mark.parametrize(("batch", "measured"), [(1, 118), (16, 1307), (32, 1990)])
def test_two_a100_decode_as_fast_as_was_measured(batch: int, measured: int):
    roof = speed(CATALOGUE.accelerators["A100"], 2, LLAMA, Requests(512, 256), SIZING)
    assert roof is not None
    assert batch / roof.step(batch) == pytest.approx(measured, rel=0.2)


def test_memory_limits_the_requests_at_once():
    assert carried("H100").concurrency == int((80 - 3.5 - 16) * 10**9 // (131_072 * 8_192))


def test_an_accelerator_too_slow_for_one_request_carries_nothing_and_says_which_time_it_misses():
    found = carried("L4")
    assert (found.requests_per_second, found.batch, found.bound_by) == (0.0, 0, "Itl")
    assert found.itl > CHAT.itl


def test_unknown_speed_is_no_capacity():
    assert capacity(CATALOGUE.accelerators["CPU"], 1, LLAMA, CHAT, SIZING) is None


def test_the_utilisation_follows_from_the_promise():
    promises = [Promise(99, itl=bound) for bound in (0.028, 0.03, 0.035)]
    shares = [carried("L40S", promise=promise).utilisation for promise in promises]
    assert shares == sorted(shares)
    assert shares[0] < 0.45 < shares[-1]


def test_a_backlog_without_promise_fills_the_replica():
    assert carried("L40S", promise=Promise()).utilisation == pytest.approx(SIZING.backlog_utilisation)


def test_speculation_helps_while_memory_is_what_one_waits_for():
    engine = CATALOGUE.serving.engines["vLLM"]
    plain, fast = (
        capacity(CATALOGUE.accelerators["H100"], 1, LLAMA, CHAT, SIZING, engine, speculates=flag)
        for flag in (False, True)
    )
    assert plain is not None
    assert fast is not None
    assert fast.itl < plain.itl


def test_static_batches_carry_less():
    engine = replace(CATALOGUE.serving.engines["vLLM"], continuous_batching=False)
    static = capacity(CATALOGUE.accelerators["H100"], 1, LLAMA, CHAT, SIZING, engine)
    assert static is not None
    assert static.requests_per_second < carried("H100").requests_per_second


@pytest.mark.parametrize(("name", "share"), [("L4", 0.85), ("H100", 0.95), ("GroqLPU", 0.0)])
def test_the_engine_leaves_a_share_of_memory(name: str, share: float):
    assert memory_share(CATALOGUE.accelerators[name]) == share


SPEEDS = st.builds(
    Speed,
    fixed=st.floats(0.0001, 0.01),
    weights=st.floats(0.001, 0.03),
    cache=st.floats(0, 0.0005),
    compute=st.floats(0.00001, 0.001),
    prompt=st.floats(0.001, 0.1),
    tokens_out=st.floats(1, 500),
)
HELD = st.integers(1, 128)
BOUNDS = st.sampled_from([0.02, 0.05, 0.2, 1.0, 5.0, inf])
PROMISES = st.builds(Promise, st.sampled_from([50.0, 90.0, 99.0]), BOUNDS, BOUNDS, BOUNDS)
SLACK = 1 + 1e-6


@settings(max_examples=120, deadline=None)
@given(SPEEDS, HELD, PROMISES)
@example(Speed(0.0001, 0.017554689068381663, 0.0, 0.001, 0.001953125, 1.0), 1, Promise(90.0, 0.2, 0.02, 0.2))
def test_the_promise_is_kept_at_the_percentile_and_the_queue_is_stable(roof: Speed, held: int, promise: Promise):
    found = at_promise(roof, held, promise, SIZING)
    assert 0 <= found.batch <= held
    assert 0 <= found.utilisation <= SIZING.backlog_utilisation * SLACK
    if found.requests_per_second and promise.timed:
        assert found.itl <= promise.itl * SLACK
        assert found.ttft <= promise.ttft * SLACK
        assert found.latency <= promise.latency * SLACK


@settings(max_examples=120, deadline=None)
@given(SPEEDS, HELD, PROMISES, st.floats(1, 4))
def test_slack_bandwidth_and_speed_never_lower_what_is_carried(roof: Speed, held: int, promise: Promise, more: float):
    def rate(roof: Speed, promise: Promise) -> float:
        return at_promise(roof, held, promise, SIZING).requests_per_second

    before = rate(roof, promise)
    looser = Promise(promise.percentile, promise.ttft * more, promise.itl * more, promise.latency * more)
    wider = replace(roof, weights=roof.weights / more, cache=roof.cache / more)
    stronger = replace(roof, compute=roof.compute / more, prompt=roof.prompt / more)
    rarer = replace(promise, percentile=50.0)
    for better in (rate(roof, looser), rate(wider, promise), rate(stronger, promise), rate(roof, rarer)):
        assert better * SLACK >= before


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["A100", "H100", "H200", "MI300X", "L40S"]),
    st.sampled_from([2, 4]),
    st.integers(8, 40).map(lambda billions: ServedModel(billions * 10**9, 16, 131_072, 8_192)),
)
def test_more_devices_carry_more(name: str, devices: int, model: ServedModel):
    fewer, more = (carried(name, number, model=model) for number in (devices, 2 * devices))
    assert more.concurrency >= fewer.concurrency
    assert more.requests_per_second >= fewer.requests_per_second
