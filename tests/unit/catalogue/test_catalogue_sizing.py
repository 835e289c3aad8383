"""How many devices a model takes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.catalogue.load import load
from berth.catalogue.records import Accelerator
from berth.catalogue.sizing import (
    SERVING_OVERHEAD_BYTES,
    ServedModel,
    Unfit,
    serving_devices,
    serving_fits,
    training_bytes,
    training_devices,
)

ACCELERATORS = load().accelerators
GB = 10**9
LLAMA_70B = ServedModel(70 * GB, bits=16, kv_bytes_per_token=327_680, context_tokens=8192)
accelerators = st.builds(
    lambda memory: replace(ACCELERATORS["H100"], memory_bytes=memory), st.integers(4 * GB, 300 * GB)
)  # fmt: skip
models = st.builds(
    ServedModel, st.integers(1, 2000 * GB), st.sampled_from([4, 8, 16]), st.integers(0, 10**6), st.integers(0, 10**6)
)


def expect_refusal(found: int | Unfit | None, *parts: str) -> None:
    assert isinstance(found, Unfit)
    for part in parts:
        assert part in found.reason


def test_training_takes_twelve_bytes_a_parameter_or_what_is_said():
    assert [training_bytes(70 * GB), training_bytes(70 * GB, 16)] == [840 * GB, 1120 * GB]


@pytest.mark.parametrize(("name", "needed", "devices"), [
    ("H100", 840 * GB, 11),
    ("H200", 840 * GB, 6),
    ("MI300X", 840 * GB, 5),
    ("H100", 1120 * GB, 14),
    ("H100", 80 * GB, 1),
    ("H100", 80 * GB + 1, 2),
    ("H100", 0, 1),
    ("CS-2", 40 * GB, 1),
])  # fmt: skip
def test_training_counts_nominal_memory(name, needed, devices):
    assert training_devices(ACCELERATORS[name], needed) == devices


@pytest.mark.parametrize(("name", "devices"), [("MI300X", 1), ("H100", 2), ("L40S", 4), ("H200", 2), ("L4", 8)])
def test_serving_70b_takes_the_smallest_power_of_two_that_holds_it(name, devices):
    assert serving_devices(ACCELERATORS[name], LLAMA_70B) == devices


def test_one_h200_is_refused_with_its_arithmetic():
    reason = "1 × H200 is 141 GB, but 140 GB of weights, 2.684 GB of KV cache for one full request and 3.5 GB a device"
    expect_refusal(serving_fits(ACCELERATORS["H200"], LLAMA_70B, 1), reason, "are 146.2 GB; use 2")
    assert serving_fits(ACCELERATORS["H200"], LLAMA_70B, 2) is None


def test_a_lower_precision_takes_fewer():
    quarter = replace(LLAMA_70B, bits=4)
    assert [serving_devices(ACCELERATORS[name], quarter) for name in ("L40S", "H100")] == [1, 1]


def test_a_wafer_refuses_models_over_its_limit():
    found = training_devices(ACCELERATORS["CS-2"], training_bytes(int(3.4 * GB)))
    expect_refusal(found, "CS-2 takes models of up to 40 GB; this one is 40.8 GB")


@pytest.mark.parametrize(("parameters", "fits"), [(6_900_000_000, True), (7_000_000_000, False)])
def test_a_cpu_serves_models_below_seven_billion(parameters, fits):
    found = serving_devices(ACCELERATORS["CPU"], ServedModel(parameters))
    if fits:
        assert found == 1
    else:
        expect_refusal(found, "CPU takes models below 7B parameters; this one has 7B")


def test_too_little_memory_for_the_engine_is_said():
    expect_refusal(serving_devices(ACCELERATORS["GroqLPU"], ServedModel(10**6)), "0.23 GB a device", "3.5 GB")


def test_memory_that_is_not_known_is_asked_for():
    unknown = replace(ACCELERATORS["H100"], memory_bytes=0)
    expect_refusal(training_devices(unknown, GB), "does not know the memory of H100", "overlay")
    expect_refusal(serving_devices(unknown, ServedModel(10**6)), "does not know the memory of H100")


@settings(max_examples=60, deadline=None)
@given(accelerators, st.integers(0, 10**16))
def test_training_devices_hold_it_and_one_fewer_would_not(accelerator: Accelerator, needed: int):
    devices = training_devices(accelerator, needed)
    assert isinstance(devices, int)
    assert devices * accelerator.memory_bytes >= needed
    assert devices == 1 or (devices - 1) * accelerator.memory_bytes < needed


@settings(max_examples=60, deadline=None)
@given(accelerators, st.integers(0, 10**15), st.integers(0, 10**15))
def test_more_bytes_never_take_fewer_devices(accelerator: Accelerator, needed: int, more: int):
    fewer, rather = training_devices(accelerator, needed), training_devices(accelerator, needed + more)
    assert isinstance(fewer, int)
    assert isinstance(rather, int)
    assert fewer <= rather


@settings(max_examples=60, deadline=None)
@given(accelerators, models)
def test_serving_devices_hold_it_and_half_of_them_would_not(accelerator: Accelerator, model: ServedModel):
    def held_by(devices: int) -> bool:
        return model.weights + model.kv_cache + devices * SERVING_OVERHEAD_BYTES <= devices * accelerator.memory_bytes

    devices = serving_devices(accelerator, model)
    assert isinstance(devices, int)
    assert devices.bit_count() == 1
    assert held_by(devices)
    assert serving_fits(accelerator, model, devices) is None
    if devices > 1:
        assert not held_by(devices // 2)
        assert serving_fits(accelerator, model, devices // 2) is not None


@settings(max_examples=40, deadline=None)
@given(accelerators, models, st.integers(0, 10**6))
def test_a_longer_context_never_takes_fewer_devices(accelerator: Accelerator, model: ServedModel, more: int):
    longer = serving_devices(accelerator, replace(model, context_tokens=model.context_tokens + more))
    shorter = serving_devices(accelerator, model)
    assert isinstance(longer, int)
    assert isinstance(shorter, int)
    assert shorter <= longer
