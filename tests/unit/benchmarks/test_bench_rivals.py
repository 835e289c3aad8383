"""The rivals do what their own code does: rules by hand, windows, panic, forecasts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.policies.arima import AutoRegression, kpss
from benchmarks.policies.base import Floats, Ints, Limits, Panel
from benchmarks.policies.dynamo import Arima, Constant, DynamoPanel, Kalman
from benchmarks.policies.hpa import HpaPanel, raised, replicas
from benchmarks.policies.reactive import AibrixPanel, KnativePanel, WvaPanel
from benchmarks.policies.rivals import RIVALS
from benchmarks.policies.seasonal import DAY, HOUR, AwsPanel, CraneSignal


def one(value: int) -> Ints:
    return np.array([value])


def ask(panel: Panel, asked: Sequence[tuple[float, int, int]]) -> list[int]:
    """Answers of the only setting of ``panel`` to (seen, ready, starting), one step after another."""
    panel.reset(1, Limits(1, 80))
    return [int(panel.decide(step, s, one(r), one(u))[0]) for step, (s, r, u) in enumerate(asked, start=1)]


def day(days: int) -> Floats:
    phase = np.arange(days * DAY) / DAY
    return 10 + 8 * np.cos(2 * np.pi * phase)


@pytest.mark.parametrize(
    ("load", "ready", "starting", "wanted"),
    [
        (5.4, 10, 0, 10),  # 1.08 of the target: within the tolerance
        (4.6, 10, 0, 10),
        (6.0, 10, 0, 12),
        (4.0, 10, 0, 8),
        (6.0, 10, 5, 15),  # 1.2 by the ready ones, 0.8 by all: the ratio crosses 1
        (8.0, 10, 5, 15),  # 1.07 by all: within the tolerance
        (8.5, 10, 5, 17),
        (4.0, 10, 5, 8),  # a decrease leaves those that start out
        (0.0, 10, 0, 0),
    ],
)
def test_hpa_replicas_at_a_target_of_half(load: float, ready: int, starting: int, wanted: int) -> None:
    assert replicas(load, np.array([0.5]), one(ready), one(starting)).tolist() == [wanted]


@pytest.mark.parametrize(("current", "most"), [(1, 40), (4, 64), (10, 160)])
def test_hpa_grows_by_its_policy_four_times_a_step(current: int, most: int) -> None:
    assert raised(one(current)).tolist() == [most]


@pytest.mark.parametrize(("window", "steps"), [(0, 0), (60, 1), (300, 5)])
def test_hpa_goes_down_to_the_highest_answer_of_its_window(window: int, steps: int) -> None:
    panel = HpaPanel([1.0], [window])
    answers = ask(panel, [(10.0, 10, 0), *[(2.0, 10, 0)] * 7])
    assert answers == [10] * (1 + steps) + [2] * (7 - steps)


def test_hpa_never_goes_up_by_an_old_answer() -> None:
    assert ask(HpaPanel([1.0], [300]), [(10.0, 10, 0), (2.0, 4, 0)]) == [10, 4]


def test_the_hpa_has_all_settings_of_the_rules() -> None:
    panel = HpaPanel()
    assert len(panel.settings) == 423
    assert (panel.targets.min(), panel.targets.max()) == (0.1, 1.5)


def test_knative_does_not_shrink_in_panic_and_leaves_it_after_a_stable_window() -> None:
    answers = ask(KnativePanel([1.0], [0]), [(9.0, 4, 0), (3.0, 9, 0), (3.0, 9, 0)])
    assert answers == [9, 9, 3]
    assert ask(KnativePanel([1.0], [0]), [(7.0, 4, 0), (3.0, 7, 0)]) == [7, 3]  # less than twice: no panic


@pytest.mark.parametrize(("load", "wanted"), [(10.9, 10), (11.1, 12), (9.1, 10), (8.9, 9)])
def test_aibrix_keeps_within_its_tolerance(load: float, wanted: int) -> None:
    assert ask(AibrixPanel([1.0], [0]), [(load, 10, 0)]) == [wanted]


@pytest.mark.parametrize(
    ("load", "ready", "starting", "wanted"),
    [(8.4, 10, 0, 10), (9.4, 10, 0, 12), (6.9, 10, 0, 10), (6.2, 10, 0, 9), (9.4, 6, 6, 12)],
)
def test_wva_grows_above_one_threshold_and_shrinks_below_another(
    load: float, ready: int, starting: int, wanted: int
) -> None:
    assert ask(WvaPanel([0.85], [0]), [(load, ready, starting)]) == [wanted]


@pytest.mark.parametrize(
    ("load", "ready", "starting", "forecast_only", "with_loop"),
    [
        (10.0, 10, 0, 5, 10),  # the floor is at 200 %; 10 / 0.8 proves no decrease
        (10.5, 10, 0, 6, 11),  # every engine misses: one more
        (10.5, 10, 1, 6, 11),  # not while one is starting
        (4.0, 30, 0, 2, 18),  # down one per tick of 5 s
        (4.0, 10, 0, 2, 5),  # down to what is proven
    ],
)
def test_dynamo_forecast_is_a_floor_under_the_load_loop(
    load: float, ready: int, starting: int, forecast_only: int, with_loop: int
) -> None:
    panel = DynamoPanel(Constant, [2.0])
    panel.reset(1, Limits(1, 80))
    both = np.array([1, 1])
    assert panel.decide(1, load, both * ready, both * starting).tolist() == [forecast_only, with_loop]


def test_dynamo_forecasts_a_series_again_only_where_it_differs() -> None:
    told = list[float]()

    class Told:
        def update(self, value: float) -> float:
            told.append(value)
            return value

    panel = DynamoPanel(Told, [1.0])
    both = np.array([9, 9])
    for series in ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [1.0, 5.0]):
        panel.reset(1, Limits())
        answers = [int(panel.decide(step, seen, both, both * 0)[0]) for step, seen in enumerate(series)]
        assert answers == series
    assert told == [1.0, 2.0, 3.0, 1.0, 5.0]


def test_kalman_follows_a_line_and_waits_for_the_first_value() -> None:
    model = Kalman()
    assert model.update(0.0) == 0.0
    forecasts = [model.update(3.0 + 2.0 * step) for step in range(80)]
    assert forecasts[0] == 3.0
    assert forecasts[-1] == pytest.approx(3.0 + 2.0 * 80, abs=0.05)


def test_arima_finds_an_autoregression() -> None:
    rng = np.random.default_rng(3)
    series = [0.0, 0.0]
    for shock in rng.normal(0, 0.1, 1500):
        series.append(1.0 + 0.5 * series[-1] - 0.3 * series[-2] + shock)
    model = AutoRegression.fit(np.array(series[100:]))
    assert model.differences == 0
    assert model.coefficients[:2] == pytest.approx((0.5, -0.3), abs=0.1)
    assert model.next([1.0, 2.0] if len(model.coefficients) == 2 else series[-model.reach :]) > 0


@pytest.mark.parametrize(
    ("series", "following"), [([5.0] * 30, 5.0), ([float(x) for x in range(40)], 40.0), ([0.0] * 30, 0.0)]
)
def test_arima_continues_a_constant_and_a_line(series: list[float], following: float) -> None:
    model = Arima()
    assert [model.update(value) for value in series][-1] == pytest.approx(following, abs=0.2)


def test_kpss_tells_a_level_from_a_walk() -> None:
    shocks = np.random.default_rng(5).normal(size=1000)
    assert kpss(shocks) < 0.463 < kpss(np.cumsum(shocks))


def test_crane_forecasts_the_highest_of_the_next_hour_once_a_day_has_repeated() -> None:
    load, signal = day(4), CraneSignal()
    answers = [signal.update(value) for value in load[: 3 * DAY].tolist()]
    assert max(answers[: 2 * DAY - 1]) == 0.0
    truth = load[3 * DAY : 3 * DAY + HOUR].max()
    assert answers[-1] == pytest.approx(truth, rel=0.1)


def test_crane_forecasts_nothing_where_nothing_repeats() -> None:
    signal = CraneSignal()
    walk = 20 + np.cumsum(np.random.default_rng(1).normal(0, 0.1, 3 * DAY))
    assert max(signal.update(value) for value in walk.tolist()) == 0.0


def test_aws_raises_ahead_of_the_hour_it_has_seen_the_day_before_and_only_then() -> None:
    hours = [2.0] * 12 + [12.0] + [2.0] * 11
    panel = AwsPanel([1.0], [300])
    panel.reset(3, Limits(1, 80))
    answers = [int(panel.decide(step, hours[(step - 1) // HOUR % 24], one(2), one(0))[0]) for step in range(1, 2 * DAY)]
    first, second = 12 * HOUR - 1, DAY + 12 * HOUR - 1  # answers begin with step 1
    assert set(answers[:first]) == {2}
    lead = 3 + 5
    assert answers[second - lead - 1] == 2
    assert set(answers[second - lead : second + HOUR]) == {12}


@pytest.mark.parametrize("name", RIVALS)
def test_every_rival_starts_without_having_seen_anything(name: str) -> None:
    panel = RIVALS[name]()
    panel.reset(3, Limits(1, 80))
    count = len(panel.settings)
    ready, starting = np.full(count, 4), np.zeros(count, dtype=np.int64)
    assert panel.decide(0, None, ready, starting).tolist() == [4] * count
    assert panel.decide(1, 0.0, ready, starting).shape == (count,)
