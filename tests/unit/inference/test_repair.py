"""Whole numbers near fractions, where most is missing, and where there is no room for one more."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.inference.program import Column, Program, Row
from berth.inference.repair import Repair
from tests.unit.inference.test_mix import COLUMNS

SMALL, LARGE = Column("small", 0, 9, ((9, 1.0),)), Column("large", 0, 9, ((9, 10.0),))


def test_what_is_missing_is_added_and_what_is_over_taken():
    repair = Repair(Program((SMALL, LARGE), (Row("Work", (1.0, 4.0), 3.0),)))
    for start in ([0.0, 0.0], [2.6, 0.4], [9.0, 9.0]):
        near = repair.near(np.array(start))
        assert near is not None
        assert near.counts == (3, 0)


def test_where_no_more_may_be_added_replicas_are_exchanged_for_larger_ones():
    repair = Repair(Program((SMALL, LARGE), (Row("Work", (1.0, 4.0), 9.0), Row("Most", (-1.0, -1.0), -3.0))))
    nothing = np.zeros(2)
    assert repair.near(nothing) is None
    forced = repair.forced(nothing)
    assert forced is not None
    assert (forced.counts, forced.cost) == ((1, 2), 21.0)


@settings(max_examples=100, deadline=None)
@given(COLUMNS, st.data())
def test_what_is_found_keeps_the_rows_and_is_never_said_to_be_proven(columns: list[Column], data: st.DataObject):
    entries = st.lists(st.sampled_from([-1.0, -0.4, 0.0, 0.25, 1.0, 2.6]), min_size=len(columns), max_size=len(columns))
    rows = data.draw(
        st.lists(st.builds(lambda a, b: Row("", tuple(a), b), entries, st.floats(-20, 20)), min_size=1, max_size=6)
    )
    start = np.array(data.draw(st.lists(st.floats(0, 20), min_size=len(columns), max_size=len(columns))))
    program = Program(tuple(columns), tuple(rows))
    repair = Repair(program)
    for found in (repair.near(start), repair.forced(start)):
        if found is not None:
            assert program.feasible(found.counts)
            assert all(column.low <= n <= column.high for column, n in zip(columns, found.counts, strict=True))
            assert found.cost == program.cost(found.counts)
            assert not found.proven
            assert repair.better(found).cost <= found.cost
