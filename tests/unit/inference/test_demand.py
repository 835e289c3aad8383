"""From samples to demand: the largest answer wins, what is missing or old is not known, and nothing is made a zero."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.inference.demand import EXPIRES_SECONDS, Sample, SignalFacts, combine, phantom, still
from berth.inference.records import DemandState
from berth.inference.service import Seen

NOW = 1000.0
ENGINE = SignalFacts("engine", 10.0, counts_at_zero=False)
GATEWAY = SignalFacts("gateway", 4.0, counts_at_zero=True)


def value(load: float, at: float = NOW) -> Sample:
    return Sample(DemandState.VALUE if load else DemandState.IDLE, load, at)


LOST = Sample(DemandState.UNKNOWN, reason="status 503")


@pytest.mark.parametrize(
    ("engine", "gateway", "replicas", "state", "work"),
    [
        (value(20), value(4), 2, "Value", 2.0),
        (value(20), value(12), 2, "Value", 3.0),
        (value(0), value(0), 2, "Idle", 0.0),
        (value(0), value(2), 2, "Value", 0.5),
        (None, value(2), 0, "Value", 0.5),
        (None, value(0), 0, "Idle", 0.0),
        (None, value(0), 2, "Unknown", None),
        (LOST, value(0), 2, "Unknown", None),
        (value(20), None, 2, "Value", 2.0),
        (None, LOST, 0, "Unknown", None),
        (value(20, NOW - EXPIRES_SECONDS), value(0), 2, "Value", 2.0),
        (value(20, NOW - EXPIRES_SECONDS - 1), value(0), 2, "Unknown", None),
    ],
    ids=["engine", "gateway", "idle", "one is not", "at zero the gateway", "idle at zero", "no sample is no zero",
         "no answer is no zero", "what is known counts", "nobody at zero", "just fresh", "a dead source expires"],
)  # fmt: skip
def test_two_signals(
    engine: Sample | None, gateway: Sample | None, replicas: int, state: str, work: float | None
) -> None:
    samples = {name: sample for name, sample in (("engine", engine), ("gateway", gateway)) if sample is not None}
    seen = combine([ENGINE, GATEWAY], samples, replicas, NOW)
    assert (seen.state, seen.work) == (state, work)
    assert seen.at_zero


@pytest.mark.parametrize(
    ("sample", "why"),
    [(None, "no sample yet"), (LOST, "status 503"), (value(1, NOW - 120), "the last sample is 2m old")],
)
def test_the_reason_names_the_signal_that_is_lost_though_others_are_known(sample: Sample | None, why: str) -> None:
    samples = {"gateway": value(8)} | ({"engine": sample} if sample else {})
    seen = combine([ENGINE, GATEWAY], samples, 1, NOW)
    assert seen.state is DemandState.VALUE
    assert seen.reason == f"engine: {why}"
    assert seen.lost


def test_without_replicas_their_own_signals_say_nothing() -> None:
    seen = combine([ENGINE], {"engine": value(0)}, 0, NOW)
    assert (seen.state, seen.at_zero) == (DemandState.UNKNOWN, False)
    assert seen.reason == "no signal counts demand without a replica"


@pytest.mark.parametrize("state", [DemandState.VALUE, DemandState.IDLE])
def test_demand_that_is_not_renewed_comes_to_be_unknown(state: DemandState) -> None:
    seen = Seen(state, 2.0 if state is DemandState.VALUE else 0.0, NOW, at_zero=True)
    assert still(seen, NOW + EXPIRES_SECONDS) is seen
    late = still(seen, NOW + 120)
    assert (late.state, late.work, late.at_zero) == (DemandState.UNKNOWN, None, True)
    assert late.reason == "demand was last heard of 2m ago"
    assert still(late, NOW + 999) is late


samples = st.none() | st.builds(value, st.floats(0, 100), st.floats(0, NOW)) | st.just(LOST)


@given(engine=samples, gateway=samples, replicas=st.integers(0, 3))
def test_work_is_none_exactly_when_demand_is_unknown_and_zero_exactly_when_idle(
    engine: Any, gateway: Any, replicas: int
) -> None:
    known = {name: sample for name, sample in (("engine", engine), ("gateway", gateway)) if sample is not None}
    seen = combine([ENGINE, GATEWAY], known, replicas, NOW)
    assert (seen.work is None) == (seen.state is DemandState.UNKNOWN)
    assert (seen.work == 0) == (seen.state is DemandState.IDLE)
    assert seen.lost or not seen.reason


ARRIVALS = SignalFacts("arrivals", 4.0, counts_at_zero=True, arrivals=True)


@pytest.mark.parametrize(
    ("engine", "arrivals", "doubted"),
    [
        (value(2), value(0), True),
        (value(2), value(1), False),
        (value(0), value(0), False),
        (value(2), LOST, False),
        (value(2), value(0, NOW - EXPIRES_SECONDS - 1), False),
        (LOST, value(0), False),
    ],
    ids=["a load that nothing came in for", "requests", "idle", "arrivals lost", "arrivals old", "load lost"],
)
def test_load_that_nothing_has_come_in_for_is_doubted_and_counts(
    engine: Sample, arrivals: Sample, doubted: bool
) -> None:
    samples = {"engine": engine, "arrivals": arrivals}
    why = phantom([ENGINE, ARRIVALS], samples, NOW)
    assert why.startswith("arrivals has counted no request for 15m while engine reports load") is doubted
    if doubted:
        assert combine([ENGINE, ARRIVALS], samples, 1, NOW).work == 0.2
