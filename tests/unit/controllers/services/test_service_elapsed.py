"""Time that passes, whatever is done to the clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from berth.controllers.services.elapsed import Elapsed


def test_it_goes_on_from_where_the_clock_was_set_back() -> None:
    passed = Elapsed()
    assert [passed.at(now) for now in (100.0, 115.0, 3715.0, 130.0, 145.0)] == [100.0, 115.0, 3715.0, 3715.0, 3730.0]


@given(st.lists(st.floats(0, 1e9)))
def test_it_never_falls(readings: list[float]) -> None:
    passed = Elapsed()
    found = [passed.at(now) for now in readings]
    assert found == sorted(found)
