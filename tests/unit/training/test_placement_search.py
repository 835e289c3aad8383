"""The search against every possibility and against an integer program, on thousands of small random trees.

``small=0`` forbids the full composition where bounds already prove the counts, so that the faster ways are tested on
the same questions; what they promise is the counts, while spare room and penalised hosts may then be second best.
"""

from __future__ import annotations

import random

import pytest

from berth.training.compose import SMALL
from berth.training.search import BUDGET, search
from tests.unit.training.placement_oracles import (
    Question,
    by_brute_force,
    by_integer_program,
    expect_valid,
    random_question,
)


def expect_best(question: Question, answer: object, budget: int = BUDGET, small: int = SMALL) -> None:
    found = search(question.tree(), question.confine, question.prefer, budget, small)
    assert (found is None) == (answer is None), question
    if found is None:
        return
    expect_valid(question, found)
    assert found.proven, question
    assert (found.counts, found.spare, found.penalised) == answer, question


@pytest.mark.parametrize(("seed", "hosts", "fits"), [(1, 4, 3), (2, 6, 2), (3, 7, 1), (4, 5, 3)])
def test_the_best_of_all_possibilities_is_found_and_proven(seed: int, hosts: int, fits: int) -> None:
    rng = random.Random(seed)
    for _ in range(1200):
        question = random_question(rng, hosts, fits)
        answer = by_brute_force(question)
        expect_best(question, answer)
        expect_best(question, answer, small=0)


def test_the_best_of_an_integer_program_is_found_and_proven() -> None:
    rng = random.Random(11)
    for _ in range(250):
        question = random_question(rng, 16, rng.choice((1, 2, 4, 8)))
        expect_best(question, by_integer_program(question))


def test_faster_ways_find_the_same_counts_as_the_full_composition() -> None:
    rng = random.Random(12)
    for _ in range(350):
        question = random_question(rng, 100, rng.choice((1, 2, 4, 8)))
        full = search(question.tree(), question.confine, question.prefer, 1 << 60, 1 << 60)
        fast = search(question.tree(), question.confine, question.prefer, BUDGET, 0)
        assert (full is None) == (fast is None)
        if full is not None and fast is not None:
            expect_valid(question, fast)
            assert fast.bounds <= full.counts <= fast.counts
            assert not fast.proven or fast.counts == full.counts, question


def test_without_a_budget_the_placement_holds_and_the_bound_is_true() -> None:
    rng = random.Random(13)
    for _ in range(350):
        question = random_question(rng, 60, rng.choice((2, 4, 8)))
        full = search(question.tree(), question.confine, question.prefer, 1 << 60, 1 << 60)
        poor = search(question.tree(), question.confine, question.prefer, 0, 0)
        if full is not None and poor is not None:
            expect_valid(question, poor)
            assert poor.bounds <= full.counts <= poor.counts


def test_the_same_question_has_the_same_answer() -> None:
    rng = random.Random(14)
    for _ in range(200):
        question = random_question(rng, 60, 4)
        first = search(question.tree(), question.confine, question.prefer)
        again = search(question.tree(), question.confine, question.prefer)
        assert (first is None) == (again is None)
        if first is not None and again is not None:
            assert first.hosts.tolist() == again.hosts.tolist()
