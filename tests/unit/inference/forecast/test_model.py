"""The forecaster as its users see it: what it hears, what it answers."""

from __future__ import annotations

import math
import zlib

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.inference.forecast.model import DemandModel
from berth.inference.forecast.record import LIMIT_BYTES, VERSION, BadRecord
from berth.inference.target import Target

MINUTE = 60.0
DAY = 1440
COLD = 180.0


def feed(model: DemandModel, series: np.ndarray, *, promise: float = 0.01, begin: int = 0) -> list[Target]:
    """A sample a minute from minute ``begin`` on (NaN: unknown), and the answer after each."""
    answers = []
    for minute, work in enumerate(series.tolist(), start=begin):
        model.observe(minute * MINUTE, None if math.isnan(work) else work)
        answers.append(model.target((minute + 1) * MINUTE, COLD, promise))
    return answers


def unserved(series: np.ndarray, answers: list[Target], since: int = 0) -> float:
    """Share of the work from minute ``since`` on for which there was no room, cold starts and all."""
    cold = round(COLD / MINUTE)
    asked = np.array([answer.work or 0.0 for answer in answers])
    late = [max(0.0, series[at] - asked[at - cold - 1 : at].min()) for at in range(max(since, cold + 1), len(series))]
    return sum(late) / float(series[max(since, cold + 1) :].sum())


def days(count: float, *, low: float = 4.0, high: float = 30.0, shift: int = 0, steep: float = 4) -> np.ndarray:
    """A day that repeats, with a morning and an evening; ``shift`` in minutes."""
    phase = (np.arange(int(count * DAY)) + shift) % DAY / DAY
    return low + (high - low) * np.clip(steep * np.sin(2 * np.pi * (phase - 0.3)), 0, 1)


def noise(count: int, mean: float, spread: float, seed: int = 3) -> np.ndarray:
    return np.maximum(np.random.default_rng(seed).normal(mean, spread, count), 0.0)


def test_nothing_is_answered_before_anything_was_measured() -> None:
    model = DemandModel()
    assert model.target(0.0, COLD, 0.01).work is None
    model.observe(0.0, None)
    assert model.target(60.0, COLD, 0.01).work is None


def test_the_first_sample_counts_at_once() -> None:
    model = DemandModel()
    model.observe(0.0, 3.5)
    answer = model.target(1.0, COLD, 0.01)
    assert answer.work == pytest.approx(3.5)
    assert answer.method == "Persistence"
    assert not answer.trusted


@pytest.mark.parametrize("promise", [0.002, 0.01, 0.05])
def test_the_promised_share_is_served_under_stationary_noise(promise: float) -> None:
    series = noise(4 * DAY, 12.0, 3.0)
    answers = feed(DemandModel(), series, promise=promise)
    assert unserved(series, answers) <= 1.2 * promise
    assert answers[-1].trusted
    assert answers[-1].coverage > 1 - 20 * promise


def test_a_looser_promise_costs_less() -> None:
    series = noise(3 * DAY, 12.0, 3.0)
    cost = {p: sum(a.work or 0 for a in feed(DemandModel(), series, promise=p)) for p in (0.002, 0.05)}
    assert cost[0.05] < 0.9 * cost[0.002]


def test_a_day_that_repeats_is_foreseen_from_the_third_day_on() -> None:
    series = days(4, steep=1e3) + noise(4 * DAY, 0.0, 0.2)
    answers = feed(DemandModel(), series, promise=0.002)
    last = answers[-1]
    assert last.method == "SeasonalDay"
    assert last.wape is not None
    assert last.persistence_wape is not None
    assert unserved(series, answers, since=2 * DAY) <= 0.002
    cost = sum(answer.work or 0.0 for answer in answers[2 * DAY :])
    assert cost < 1.25 * series[2 * DAY :].sum()


def test_persistence_is_named_where_nothing_beats_it() -> None:
    assert feed(DemandModel(), np.full(4 * DAY, 7.3))[-1].method == "Persistence"


@pytest.mark.parametrize("factor", [0.4, 2.5])
def test_a_new_level_is_followed_within_the_hour(factor: float) -> None:
    series = days(3)
    shifted = np.concatenate([series, days(1) * factor])
    answers = feed(DemandModel(), shifted, promise=0.01)
    after = slice(3 * DAY + 60, 4 * DAY)
    cost = sum(answer.work or 0.0 for answer in answers[after])
    assert unserved(shifted, answers, since=3 * DAY + 60) <= 0.03
    assert cost < 1.7 * shifted[after].sum()


@pytest.mark.parametrize("before", [60, 120, 1440])
@pytest.mark.parametrize("promise", [0.005, 0.02])
def test_a_jump_of_a_young_service_leaves_no_plateau(before: int, promise: float) -> None:
    series = np.concatenate([np.full(before, 2.0), np.full(300, 7.3)])
    after = [answer.work or 0.0 for answer in feed(DemandModel(), series, promise=promise)[before:]]
    assert min(after) >= 7.3
    assert max(after) <= 16
    assert after[240] <= 10


@settings(max_examples=10, deadline=None)
@given(
    levels=st.lists(st.floats(1.0, 30.0), min_size=2, max_size=5),
    spread=st.sampled_from([0.0, 0.05, 0.1]),
    seed=st.integers(0, 2**16),
)
def test_the_promise_holds_at_every_level_once_its_cold_start_is_over(
    levels: list[float], spread: float, seed: int
) -> None:
    lasts, promise = 200, 0.02
    noisy = np.exp(np.random.default_rng(seed).normal(0.0, spread, lasts * len(levels)))
    series = np.repeat(levels, lasts) * noisy
    asked = np.array([answer.work for answer in feed(DemandModel(), series, promise=promise)], dtype=float)
    assert np.isfinite(asked).all()
    assert asked.min() >= 1.0
    cold = round(COLD / MINUTE)
    settled = [at for at in range(lasts, len(series)) if at % lasts > cold]
    late = sum(max(0.0, series[at] - asked[at - cold - 1 : at].min()) for at in settled)
    assert late <= 1.2 * promise * series[settled].sum()


@pytest.mark.parametrize("shift", [-60, 60])
def test_summer_time_is_made_up_for_within_days(shift: int) -> None:
    series = np.concatenate([days(4), days(4, shift=shift)])
    answers = feed(DemandModel(), series, promise=0.005)
    assert unserved(series, answers, since=6 * DAY) <= 0.005
    assert sum(answer.work or 0.0 for answer in answers[6 * DAY :]) < 1.3 * series[6 * DAY :].sum()


def test_growth_is_followed() -> None:
    series = days(5) * np.linspace(1.0, 2.0, 5 * DAY)
    assert unserved(series, feed(DemandModel(), series, promise=0.01), since=DAY) <= 0.01


@pytest.mark.parametrize("gap", [1, 7, 90, 2 * DAY + 17])
def test_a_gap_shifts_nothing(gap: int) -> None:
    series = days(6) + noise(6 * DAY, 0.0, 0.2)
    hole = 3 * DAY
    series[hole : hole + gap] = np.nan
    model = DemandModel()
    answers = feed(model, series, promise=0.005)
    held = {answer.work for answer in answers[hole + 2 : hole + gap]}
    assert len(held) <= 1
    served = np.nan_to_num(series)
    assert unserved(served, answers, since=hole + gap + DAY // 2) <= 0.01


def test_samples_of_one_step_count_by_their_mean_and_late_ones_not_at_all() -> None:
    one, other = DemandModel(), DemandModel()
    for minute in range(300):
        for second, work in ((0, 2.0), (15, 6.0), (30, 2.0), (45, 6.0)):
            one.observe(minute * MINUTE + second, work)
        one.observe(minute * MINUTE - 90.0, 1000.0)
        other.observe(minute * MINUTE, 4.0)
    assert one.target(300 * MINUTE, COLD, 0.01) == other.target(300 * MINUTE, COLD, 0.01)


def test_a_longer_cold_start_keeps_what_was_learned() -> None:
    model = DemandModel()
    feed(model, days(3))
    before = model.race.cost.copy() if model.race is not None else None
    answer = model.target(3 * DAY * MINUTE, 2.0 * COLD, 0.01)
    assert model.span == 7
    assert answer.work is not None
    assert model.race is not None
    assert before is not None
    assert np.allclose(model.race.cost, before / 2)
    same = model.race
    model.target(3 * DAY * MINUTE, 2.1 * COLD, 0.01)
    assert model.race is same


@pytest.mark.parametrize("minutes", [0, 1, 5, 200, 3 * DAY + 123, 9 * DAY])
def test_a_record_gives_the_same_answer_and_goes_on_alike(minutes: int) -> None:
    series = days(10) + np.abs(noise(10 * DAY, 0.0, 1.0))
    model = DemandModel(highest=60)
    feed(model, series[:minutes])
    packed = model.pack()
    assert len(packed) <= LIMIT_BYTES
    twin = DemandModel.unpack(packed)
    now = minutes * MINUTE
    first, again = model.target(now, COLD, 0.01), twin.target(now, COLD, 0.01)
    assert (first.work, first.method, first.trusted) == (again.work, again.method, again.trusted)
    assert again.point == pytest.approx(first.point, abs=1e-3)
    ahead = series[minutes : minutes + 300]
    asked = [sum(answer.work or 0.0 for answer in feed(each, ahead, begin=minutes)) for each in (model, twin)]
    assert asked[1] == pytest.approx(asked[0], rel=0.15)


@pytest.mark.parametrize("restored", [False, True])
def test_a_replayed_history_counts_as_if_it_had_been_heard(restored: bool) -> None:
    series = days(4, steep=1e3) + noise(4 * DAY, 0.0, 0.2)
    heard = DemandModel()
    asked = feed(heard, series)[-1]
    model = DemandModel.unpack(heard.pack()) if restored else DemandModel()
    model.replay((minute * MINUTE, work) for minute, work in enumerate(series.tolist()))
    first = model.target(len(series) * MINUTE, COLD, 0.01)
    assert np.array_equal(model.history.days, heard.history.days, equal_nan=True)
    assert first.work == pytest.approx(asked.work, abs=2)
    assert math.isfinite(first.point)
    assert first.trusted is restored
    ahead = days(1, steep=1e3) + noise(DAY, 0.0, 0.2, seed=4)
    assert unserved(ahead, feed(model, ahead, begin=len(series))) <= 0.02


@pytest.mark.parametrize("record", [b"", b"nothing", DemandModel().pack()[:-4]])
def test_a_damaged_record_is_refused(record: bytes) -> None:
    with pytest.raises(BadRecord):
        DemandModel.unpack(record)


def test_a_record_of_an_older_version_is_refused() -> None:
    fields = msgspec.msgpack.decode(zlib.decompress(DemandModel().pack()))
    older = zlib.compress(msgspec.msgpack.encode({**fields, "version": VERSION - 1}))
    with pytest.raises(BadRecord, match="another version"):
        DemandModel.unpack(older)


WORK = st.one_of(st.none(), st.floats(0.0, 1e6), st.sampled_from([0.0, math.nan, math.inf, -1.0]))


@settings(max_examples=40, deadline=None)
@given(
    samples=st.lists(st.tuples(st.floats(0.0, 5e5), WORK), max_size=60),
    cold=st.floats(0.0, 20_000.0),
    promise=st.floats(0.0, 1.0),
)
def test_answers_are_finite_and_within_bounds_whatever_is_heard(
    samples: list[tuple[float, float | None]], cold: float, promise: float
) -> None:
    model = DemandModel(lowest=2, highest=500)
    now = 1.7e9
    for pause, work in samples:
        now += pause
        model.observe(now, work)
        answer = model.target(now, cold, promise)
        if answer.work is not None:
            assert math.isfinite(answer.work)
            assert answer.work >= 0.0
            assert math.isfinite(answer.point)
            assert answer.point >= 0.0
            assert not model.history.count or 2 <= answer.work <= 500


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**16), kind=st.sampled_from(["noise", "walk", "days", "bursts", "jumps"]))
def test_a_stricter_promise_never_asks_for_less(seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    series = {
        "noise": lambda: rng.gamma(2.0, 3.0, 400),
        "walk": lambda: np.abs(np.cumsum(rng.normal(0, 1, 400))),
        "days": lambda: days(1)[:400] * rng.uniform(0.5, 2),
        "jumps": lambda: np.repeat(rng.gamma(2.0, 4.0, 8), 50) * rng.uniform(0.9, 1.1, 400),
        "bursts": lambda: np.where(rng.random(400) < 0.02, 50.0, 1.0),
    }[kind]()
    model = DemandModel()
    feed(model, series)
    now = len(series) * MINUTE
    fresh = [model.target(now, COLD, promise).work or 0.0 for promise in (0.2, 0.02, 0.001)]
    assert fresh == sorted(fresh)


def test_a_repeating_day_tells_of_its_peak_long_before_and_changes_nothing() -> None:
    model = DemandModel()
    series = days(3)
    feed(model, series)
    before = model.pack()
    night, noon = model.peak(10 * MINUTE), model.peak(12 * 60 * MINUTE)
    assert night is not None
    assert noon is not None
    assert noon >= 0.9 * series.max() > night
    assert model.pack() == before


def test_a_peak_is_unknown_before_anything_was_measured() -> None:
    assert DemandModel().peak(600.0) is None


def test_a_trend_is_followed_no_further_than_the_own_horizon() -> None:
    model = DemandModel()
    series = np.linspace(5.0, 25.0, 400)
    feed(model, series)
    peak = model.peak(60 * MINUTE)
    assert peak is not None
    assert peak < series[-1] + 20 * (series[-1] - series[-2])


@pytest.mark.parametrize("again", [False, True], ids=["runs on", "is restored from its record"])
@pytest.mark.parametrize("hours", [1, 30])
def test_a_clock_that_was_ahead_and_is_set_back_holds_nothing_up(hours: int, again: bool) -> None:
    model, ahead = DemandModel(), hours * 60
    feed(model, np.full(DAY, 5.0))
    feed(model, np.full(10, 5.0), begin=DAY + ahead)
    if again:
        model = DemandModel.unpack(model.pack())
    back = feed(model, np.full(20, 20.0), begin=DAY + 10)
    assert (back[0].work or 0.0) < 15.0
    assert min(answer.work or 0.0 for answer in back[6:]) >= 20.0


def test_samples_that_come_late_one_by_one_set_no_clock_back() -> None:
    late, plain = DemandModel(), DemandModel()
    for minute in range(60):
        for model in (late, plain):
            model.observe(minute * MINUTE, 5.0)
        late.observe((minute - 30) * MINUTE, 90.0)
    assert late.target(60 * MINUTE, COLD, 0.01) == plain.target(60 * MINUTE, COLD, 0.01)
