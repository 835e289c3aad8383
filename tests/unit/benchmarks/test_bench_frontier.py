"""At equal cost: what no setting beats, the line between, the ends, and the floor."""

from __future__ import annotations

import pytest

from benchmarks.frontier import FLOOR, Comparison, Frontier, compare, geomean
from benchmarks.policies.base import Outcome

RIVAL = Frontier.of([Outcome(0.1, 100), Outcome(0.2, 150), Outcome(0.001, 200), Outcome(0.001, 210), Outcome(0.0, 300)])


def test_only_settings_that_no_other_beats_remain() -> None:
    assert RIVAL.points == (Outcome(0.1, 100), Outcome(0.001, 200), Outcome(0.0, 300))


def test_of_settings_of_equal_cost_the_better_remains() -> None:
    assert Frontier.of([Outcome(0.2, 100), Outcome(0.1, 100)]).points == (Outcome(0.1, 100),)


@pytest.mark.parametrize(
    ("cost", "unserved", "reaches"),
    [
        (100, 0.1, True),
        (150, 0.01, True),  # the logarithm is linear in cost
        (250, 1e-4, True),  # to the floor, where nothing is unserved
        (300, FLOOR, True),
        (90, 0.1, False),
        (400, FLOOR, False),
    ],
)
def test_between_points_the_logarithm_is_linear_and_beyond_them_the_end_holds(
    cost: float, unserved: float, reaches: bool
) -> None:
    assert RIVAL.unserved(cost) == pytest.approx(unserved)
    assert RIVAL.reaches(cost) is reaches


@pytest.mark.parametrize(
    ("ours", "expected"),
    [
        (Outcome(0.005, 150), Comparison(pytest.approx(0.5), False)),
        (Outcome(0.2, 90), Comparison(pytest.approx(2.0), True)),
        (Outcome(0.0, 250), Comparison(pytest.approx(0.1), False)),  # ours at the floor, theirs above
        (Outcome(0.002, 300), Comparison(pytest.approx(200.0), False)),
        (Outcome(0.0, 300), Comparison(None, False)),
        (Outcome(1e-6, 500), Comparison(None, True)),
    ],
)
def test_a_policy_is_compared_at_its_own_cost(ours: Outcome, expected: Comparison) -> None:
    assert compare(ours, RIVAL) == expected


@pytest.mark.parametrize(("promise", "cost"), [(0.5, 100), (0.05, 200), (0.001, 200), (0.0005, 300)])
def test_the_cheapest_that_keeps_a_promise(promise: float, cost: float) -> None:
    best = RIVAL.cheapest(promise)
    assert best is not None
    assert best.cost == cost


def test_a_promise_that_none_keeps() -> None:
    assert Frontier.of([Outcome(0.1, 100)]).cheapest(0.05) is None


def test_geometric_mean() -> None:
    assert geomean([0.25, 4.0]) == pytest.approx(1.0)
    assert geomean([]) is None
