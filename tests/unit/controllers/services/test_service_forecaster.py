"""The forecaster of a service speaks in work and reckons in the service's smallest replica."""

from __future__ import annotations

import pytest

from berth.controllers.services.forecaster import Forecaster
from berth.controllers.services.measure import Measure
from berth.inference.service import Rules
from tests.builders.services import make_variant

SMALL = {"small": make_variant(capacity=0.05), "large": make_variant("MI300X", capacity=1.0)}
RULES = Rules(min_replicas=1, max_replicas=20)


def heard(forecaster: Forecaster, work: float, minutes: int = 90) -> Forecaster:
    for minute in range(minutes):
        forecaster.observe(60.0 * minute, work)
    return forecaster


def test_little_demand_asks_for_a_small_replica_and_not_for_a_reference_one() -> None:
    forecaster = Forecaster(60.0)
    assert forecaster.fit(SMALL, RULES)
    target = heard(forecaster, 0.04).target(90 * 60.0, 60.0, 0.005)
    assert target.work == pytest.approx(0.05, abs=0.051)
    assert target.point == pytest.approx(0.04, rel=0.2)


def test_no_more_is_asked_for_than_may_be_had() -> None:
    forecaster = Forecaster(60.0)
    forecaster.fit(SMALL, Rules(max_replicas=3))
    target = heard(forecaster, 50.0).target(90 * 60.0, 60.0, 0.005)
    assert target.work == pytest.approx(3.0)


def test_a_record_is_taken_up_in_its_own_size_only() -> None:
    first = Forecaster(60.0)
    first.fit(SMALL, RULES)
    record = heard(first, 0.3).record()
    again = Forecaster(60.0, record)
    assert not again.fit(SMALL, RULES), "the same size begins anew"
    assert again.target(90 * 60.0, 60.0, 0.005).work == first.target(90 * 60.0, 60.0, 0.005).work
    assert Forecaster(60.0, record).fit({"other": make_variant(capacity=0.5)}, RULES), "another size is taken for it"
    assert Forecaster(15.0, record).unit == 0.0, "another step is taken for it"
    assert Forecaster(60.0, "0.05:nonsense").unit == 0.0


def test_nothing_is_remembered_before_the_size_is_known() -> None:
    forecaster = heard(Forecaster(60.0), 3.0)
    assert forecaster.target(90 * 60.0, 60.0, 0.005).work is None
    assert forecaster.record() == ""


def test_with_persistence_nothing_is_foreseen() -> None:
    forecaster = Forecaster(60.0)
    forecaster.fit(SMALL, RULES)
    heard(heard(forecaster, 9.0, 10), 0.3).observe(5401.0, None)
    target = forecaster.target(90 * 60.0, 60.0, 0.005, "Persistence")
    assert target.work == 0.3
    assert target.basis == "as there is now, nothing is foreseen"


def test_seasonal_naive_has_what_came_at_this_time_yesterday_and_no_less_than_there_is_now() -> None:
    forecaster = Forecaster(60.0)
    forecaster.fit(SMALL, RULES)
    for minute in range(24 * 60):
        forecaster.observe(minute * 60.0, 8.0 if 540 <= minute < 600 else 1.0)
    at = {"before": 86400 + 537 * 60.0, "after": 86400 + 601 * 60.0}
    wanted = {}
    for name, now in at.items():
        forecaster.observe(now, 2.0)
        wanted[name] = forecaster.target(now, 300.0, 0.005, "SeasonalNaive")
    assert wanted["before"].work == pytest.approx(8.0)
    assert wanted["after"].work == pytest.approx(2.0)
    assert wanted["before"].method == "SeasonalNaive"
    assert wanted["before"].basis == "as there was at this time yesterday, and no less than there is now"


def test_seasonal_naive_without_a_yesterday_is_persistence() -> None:
    forecaster = heard(Forecaster(60.0), 9.0, 10)
    forecaster.fit(SMALL, RULES)
    forecaster.observe(700.0, 3.0)
    target = forecaster.target(700.0, 60.0, 0.005, "SeasonalNaive")
    assert (target.work, target.method) == (3.0, "Persistence")
    assert target.basis == "as there is now: what there was at this time yesterday is not known yet"


def test_a_replica_that_carries_another_amount_leaves_the_last_hour_known() -> None:
    forecaster = Forecaster(60.0)
    assert forecaster.fit({"only": make_variant(capacity=1.0)}, RULES)
    heard(forecaster, 6.0)
    assert not forecaster.fit({"only": make_variant(capacity=1.3)}, RULES)
    assert forecaster.fit({"only": make_variant(capacity=0.5)}, RULES)
    assert forecaster.target(90 * 60.0, 60.0, 0.005).work == pytest.approx(6.0, rel=0.3)


@pytest.mark.parametrize(
    ("now", "work"),
    [
        (Measure("rps", 10.0), 6.0),
        (Measure("rps", 40.0), 1.5),
        (Measure("rps", 11.0), 60 / 11),
        (Measure("other", 40.0), None),
    ],
    ids=["the same", "larger replicas", "about the same", "another thing"],
)
@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_remembered_stays_the_same_load_whatever_a_replica_is(
    now: Measure, work: float | None, restarts: bool
) -> None:
    forecaster, only = Forecaster(60.0), {"only": make_variant(capacity=1.0)}
    forecaster.fit(only, RULES, Measure("rps", 10.0))
    heard(forecaster, 6.0)
    if restarts:
        forecaster = Forecaster(60.0, forecaster.record())
    forecaster.fit(only, RULES, now)
    target = forecaster.target(90 * 60.0, 60.0, 0.005)
    assert target.point == pytest.approx(work, rel=0.05) if work is not None else target.work is None


@pytest.mark.parametrize(("hours", "stays"), [(1, True), (24, True), (40, False), (9 * 24, False)])
def test_a_source_that_remembers_less_than_the_record_takes_nothing_from_it(hours: int, stays: bool) -> None:
    step, rush = 900.0, range(4 * 7, 4 * 9)
    forecaster = Forecaster(step)
    forecaster.fit(SMALL, RULES)
    for number in range(4 * 33):
        forecaster.observe(step * number, 6.0 if number % 96 in rush else 2.0)
    again, now = Forecaster(step, forecaster.record()), step * 4 * 34
    again.fit(SMALL, RULES)
    again.recall([(now - step * number, 2.0) for number in reversed(range(4 * hours))])
    tomorrow = step * (96 * 2 + rush[0])
    assert (again.target(tomorrow, step, 0.005, "SeasonalNaive").work == pytest.approx(6.0, rel=0.1)) is stays
