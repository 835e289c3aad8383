"""What is told of work that moves between spot and on demand."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.inference.fallback import TOLD_SECONDS, Footing, step

FELL, BACK = "FellBackToOnDemand", "ReturnedToSpot"


def told(aims: list[tuple[float, float]], seconds: float = 60.0) -> list[str]:
    """What is told of plans that aim at so much work on demand and on spot, ``seconds`` apart; "" for nothing."""
    footing: Footing | None = None
    found = []
    for number, (on_demand, spot) in enumerate(aims):
        footing, turn = step(footing, on_demand, spot, number * seconds)
        found.append(turn or "")
    return found


@pytest.mark.parametrize(
    ("aims", "expected"),
    [
        ([(1, 9), (1, 9)], ["", ""]),
        ([(10, 0), (1, 9)], ["", ""]),
        ([(1, 9), (10, 0), (1, 9)], ["", FELL, BACK]),
        ([(1, 9), (5, 5), (10, 0), (5, 5), (1, 9)], ["", FELL, "", "", BACK]),
        ([(1, 9), (10, 9)], ["", ""]),
        ([(1, 9), (1, 4)], ["", ""]),
        ([(1, 9), (10, 0), (1, 0)], ["", FELL, ""]),
        ([(2, 9), (10, 0), (1, 3)], ["", FELL, BACK]),
    ],
    ids=["steady", "a first move to spot is no return", "there and back", "by and by", "growth on demand", "less",
         "less demand is no return", "demand fell meanwhile"],
)  # fmt: skip
def test_what_is_told(aims: list[tuple[float, float]], expected: list[str]) -> None:
    assert told(aims) == expected


def test_falls_that_come_soon_after_each_other_are_told_once() -> None:
    aims = [(1, 9), (10, 0), (1, 9), (10, 0), (1, 9)]
    assert told(aims, TOLD_SECONDS / 4) == ["", FELL, BACK, "", ""]
    assert told(aims, TOLD_SECONDS) == ["", FELL, BACK, FELL, BACK]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=40))
def test_however_plans_change_each_is_told_once_in_a_while_and_no_return_without_a_fall(
    aims: list[tuple[int, int]],
) -> None:
    found = told(list(aims), TOLD_SECONDS / 5)
    for turn in (FELL, BACK):
        times = [number for number, each in enumerate(found) if each == turn]
        assert all(later - earlier >= 5 for earlier, later in pairwise(times))
    assert BACK not in found[: found.index(FELL)] if FELL in found else BACK not in found
