"""Answers that are used again: only where they are as good as a new search's."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.inference.answers import Answers
from berth.inference.exact import enumerate_mix
from berth.inference.mix import cheapest_mix
from berth.inference.program import Column, Program, Row, Solution
from berth.inference.records import MixBounds, Offer
from tests.unit.inference.test_mix import BOUNDS, CLOSE, CURRENT, OFFERS, keeps

SMALL, LARGE = Column("small", 0, 9, ((9, 1.0),)), Column("large", 0, 9, ((9, 3.5),))


def asks(work: float, *columns: Column) -> Program:
    used = columns or (SMALL, LARGE)
    return Program(used, (Row("Work", (1.0, 4.0)[: len(used)], work), Row("Most", (-1.0,) * len(used), -9.0)))


class Asker:
    def __init__(self, most: int = 100) -> None:
        self.answers, self.searches = Answers(most), 0

    def __call__(self, program: Program, kind: str = "") -> tuple[int, ...] | None:
        def search() -> Solution | None:
            self.searches += 1
            return enumerate_mix(program)

        found = self.answers.answer(program, search, kind=kind)
        return None if found is None else found.counts


@pytest.mark.parametrize(
    ("first", "then", "searches"),
    [
        (asks(4.2), asks(4.2), 1),
        (asks(4.2), asks(5.0), 1),  # what was cheapest carries it too
        (asks(4.2), asks(5.1), 2),
        (asks(4.2), asks(4.1), 2),  # for less there may be something cheaper
        (asks(40.0), asks(41.0), 1),  # no mix for less, so none for more
        (asks(40.0), asks(30.0), 2),
        (asks(4.2), asks(4.2, replace(SMALL, high=8), LARGE), 2),
        (asks(4.2), asks(4.2, replace(SMALL, pieces=((9, 1.1),)), LARGE), 2),
        (asks(4.2), replace(asks(4.2), groups=((0, 1),)), 2),
    ],
)
def test_only_an_answer_that_holds_is_used_again(first: Program, then: Program, searches: int):
    ask = Asker()
    ask(first)
    found = ask(then)
    expected = enumerate_mix(then)
    assert found == (None if expected is None else expected.counts)
    assert ask.searches == searches


def test_a_need_to_and_fro_over_a_step_is_searched_for_twice():
    ask = Asker()
    for _ in range(5):
        assert ask(asks(4.2)) == (1, 1)
        assert ask(asks(3.9)) == (0, 1)
    assert ask.searches == 2


def test_those_asked_last_are_remembered_and_each_kind_apart():
    ask = Asker(2)
    programs = [asks(3.0, replace(SMALL, high=high), LARGE) for high in (1, 2, 3)]
    for program in (*programs, programs[2], programs[1]):
        ask(program)
    assert ask.searches == 3
    ask(programs[0])
    ask(programs[1], kind="other")
    assert ask.searches == 5


@settings(max_examples=120, deadline=None)
@given(OFFERS, BOUNDS, CURRENT, st.lists(st.tuples(st.floats(0, 6), st.sampled_from([0.0, 1.0, 2.5])), max_size=8))
def test_a_mix_with_answers_is_as_cheap_as_one_without(
    offers: list[Offer], allowed: MixBounds, current: dict[str, int], needs: list[tuple[float, float]]
):
    answers = Answers()
    for work, survive in needs:
        asked = replace(allowed, work=work, survive=survive)
        new, again = cheapest_mix(offers, asked, current), cheapest_mix(offers, asked, current, answers=answers)
        assert (again.short, again.bound_by, again.certificate) == (
            pytest.approx(new.short),
            new.bound_by,
            new.certificate,
        )
        assert again.objective == pytest.approx(new.objective, rel=CLOSE, abs=CLOSE)
        if not new.bound_by:
            assert keeps(offers, tuple(again.counts.get(entry.variant.name, 0) for entry in offers), asked)
