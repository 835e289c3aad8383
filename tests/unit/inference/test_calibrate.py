"""Capacity learned from trials: it is found, it stays where nothing is learned, and single trials do little."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from berth.inference.calibrate import (
    MOST_MOVED,
    STEPS_PER_DOUBLING,
    WINDOW_SECONDS,
    Capacities,
    Curve,
    Kind,
    Load,
    Trial,
    judge,
)

L4 = Kind("L4", 1)
L40S = Kind("L40S", 1)
PERIOD = WINDOW_SECONDS / 2
LOOKS = 3
seeds = st.integers(0, 2**32 - 1)
capacities = st.floats(0.25, 4.0)


def load(each: float, *, queued: bool | None = False, running: float | None = None, share: float = 1.0) -> Load:
    return Load(each, each if running is None else running, queued, share)


def windows(
    learned: Capacities, count: int, each: float, kept: bool | None, *, kinds: dict[Kind, Load] | None = None,
    start: float = 0.0, timed: bool = True,
) -> float:  # fmt: skip
    """``count`` windows of a steady load; when they end."""
    now = start
    for _ in range(count * LOOKS):
        learned.hear(now, kinds or {L4: load(each)}, kept, timed=timed)
        now += PERIOD
    return now


def live(learned: Capacities, rng: Random, capacity: float, trials: int, *, noise: float = 0.0) -> None:
    """Windows of service: loads from idle to a third above what is believed, and ``noise`` of the verdicts wrong."""
    now = 0.0
    for _ in range(trials):
        aim = 0.0 if rng.random() < 0.3 else learned.factor(L4) * rng.uniform(0.3, 1.35)
        kept = (aim * rng.uniform(0.93, 1.07) <= capacity) != (rng.random() < noise)
        for _ in range(LOOKS):
            each = aim * rng.uniform(0.85, 1.15)
            running = min(each, 1.2 * capacity)
            learned.hear(now, {L4: load(each, queued=each > running, running=running)}, kept, timed=True)
            now += PERIOD


@settings(max_examples=60, deadline=None)
@given(capacities, seeds, st.sampled_from([0.0, 0.05, 0.1]))
@example(0.25, 0, 0.1)
@example(4.0, 0, 0.1)
def test_the_true_capacity_is_found(capacity: float, seed: int, noise: float) -> None:
    learned = Capacities()
    live(learned, Random(seed), capacity, 300, noise=noise)
    assert 0.7 * capacity < learned.factor(L4) < 1.35 * capacity


@settings(max_examples=30, deadline=None)
@given(capacities, capacities, seeds)
def test_a_capacity_that_changes_is_followed(before: float, after: float, seed: int) -> None:
    learned, rng = Capacities(), Random(seed)
    live(learned, rng, before, 300)
    live(learned, rng, after, 500)
    assert 0.7 * after < learned.factor(L4) < 1.35 * after


@settings(max_examples=30, deadline=None)
@given(capacities, seeds, st.floats(0.0, 0.49), st.booleans())
def test_idle_days_teach_and_forget_nothing(capacity: float, seed: int, idle: float, kept: bool) -> None:
    learned = Capacities()
    live(learned, Random(seed), capacity, 100)
    before = learned.record()
    windows(learned, 500, idle * learned.factor(L4), kept, start=1e6)
    assert learned.record() == before


@settings(max_examples=30, deadline=None)
@given(capacities, seeds, st.floats(0.01, 8.0), st.booleans())
@example(capacity=3.0, seed=144, at=3.0, kept=False)
def test_one_bad_trial_does_little(capacity: float, seed: int, at: float, kept: bool) -> None:
    learned = Capacities()
    live(learned, Random(seed), capacity, 200)
    before = learned.factor(L4)
    windows(learned, 1, at, kept, start=1e6)
    assert before * 0.91 < learned.factor(L4) < before * 1.1


@given(st.lists(st.builds(Trial, st.floats(0.0, 20.0), st.booleans()), max_size=60))
def test_steps_are_bounded_and_a_record_restores(trials: list[Trial]) -> None:
    curve = Curve()
    for trial in trials:
        before = curve.step
        curve.learn(trial)
        assert abs(curve.step - before) <= MOST_MOVED
    again = Curve.restore(curve.record())
    assert (again.step, again.trials, again.record()) == (curve.step, curve.trials, curve.record())
    assert len(curve.record()) < 1024


@pytest.mark.parametrize(
    ("loads", "kept", "timed", "expected"),
    [
        ([load(1.2)] * 4, True, True, Trial(1.2, True)),
        ([load(0.3)] * 4, True, True, None),
        ([load(0.9)] * 4, False, True, Trial(0.9, False)),
        ([load(0.5)] * 4, False, True, None),
        ([load(3.0, queued=True, running=0.5)] * 4, False, True, Trial(0.5, False)),
        ([load(3.0, queued=True, running=0.6)] * 4, None, True, Trial(0.6, False)),
        ([load(1.2)] * 4, None, True, None),
        ([load(1.2)] * 4, None, False, Trial(1.2, True)),
        ([load(1.2, queued=None)] * 4, None, False, None),
        ([], True, True, None),
    ],
    ids=["kept", "kept-idle", "missed", "missed-idle", "missed-queued", "queued-unmeasured", "unmeasured",
         "backlog-keeps-up", "backlog-unseen", "no-look"],
)  # fmt: skip
def test_what_a_window_says(loads: list[Load], kept: bool | None, timed: bool, expected: Trial | None) -> None:
    assert judge(loads, kept, 1.0, timed=timed) == expected


def test_no_more_is_believed_than_was_carried() -> None:
    learned = Capacities()
    windows(learned, 400, 0.95, True)
    assert learned.factor(L4) == 1.0


def test_a_miss_is_blamed_on_no_one_of_several_kinds() -> None:
    learned = Capacities()
    windows(learned, 50, 0.0, False, kinds={L4: load(1.0, share=0.5), L40S: load(1.0, share=0.5)})
    assert learned.record() == []


def test_a_promise_kept_speaks_for_every_kind_with_a_part_in_it() -> None:
    learned = Capacities()
    both = {L4: load(1.5, share=0.5), L40S: load(1.5, share=0.4), Kind("H100", 1): load(1.5, share=0.1)}
    windows(learned, 50, 0.0, True, kinds=both)
    assert {kind: learned.factor(kind) > 1.3 for kind in both} == {L4: True, L40S: True, Kind("H100", 1): False}


def test_another_basis_begins_anew() -> None:
    learned = Capacities("one")
    windows(learned, 50, 1.5, True)
    version = learned.version
    learned.concern("two")
    assert (learned.factor(L4), learned.record(), learned.version > version) == (1.0, [], True)


def test_a_window_with_a_gap_says_nothing() -> None:
    learned = Capacities()
    for at in (0.0, WINDOW_SECONDS, 2 * WINDOW_SECONDS):
        learned.hear(at, {L4: load(2.0)}, True, timed=True)
    assert learned.record() == []


@pytest.mark.parametrize("record", ["", "x", "0", "0/1 2", "0/1 2:3", "0/1 1:nan:0", "0/1 1:99:0", 7])
def test_a_record_that_cannot_be_read_is_left_out(record: object) -> None:
    good = {"accelerator": "L4", "devices": 1, "basis": "b", "record": f"{STEPS_PER_DOUBLING}/9 8:3.0:0.0"}
    found = Capacities.restore([{**good, "accelerator": "T4", "record": record}, good, {"devices": 1}])
    assert (list(found.curves), found.factor(L4), found.trials(L4), found.basis) == ([L4], 2.0, 9, "b")
