"""Fewest and tightest, against every possibility."""

from __future__ import annotations

import random
from itertools import combinations

import numpy as np
import pytest

from berth.training.counts import fewest, fewest_by_group, tight


@pytest.mark.parametrize(
    ("capacity", "need", "count"),
    [([19, 10, 10], 20, 2), ([19, 10, 10], 19, 1), ([19, 10, 10], 39, 3), ([19, 10, 10], 40, 0), ([], 1, 0)],
)
def test_fewest(capacity: list[int], need: int, count: int) -> None:
    assert fewest(np.array(capacity, np.int64), need) == count


@pytest.mark.parametrize(
    ("capacity", "count", "need", "taken"),
    [
        ([19, 10, 10], 2, 20, [1, 2]),
        ([19, 10, 10], 2, 21, [0, 1]),
        ([5, 7, 5, 7], 2, 10, [0, 2]),
        ([8, 8, 8, 1], 3, 17, [0, 1, 3]),
        ([9, 6, 4, 3], 2, 13, [0, 2]),
    ],
)
def test_tight(capacity: list[int], count: int, need: int, taken: list[int]) -> None:
    assert tight(np.array(capacity, np.int64), count, need).tolist() == taken


@pytest.mark.parametrize("most", [1, 4, 50])
def test_tight_is_the_least_of_all_choices(most: int) -> None:
    rng = random.Random(most)
    for _ in range(1500):
        capacity = np.array([rng.randint(0, most) for _ in range(rng.randint(1, 9))], np.int64)
        need = rng.randint(1, 2 * most)
        count = fewest(capacity, need)
        if count:
            taken = tight(capacity, count, need)
            sums = [sum(some) for some in combinations(capacity.tolist(), count)]
            assert len(taken) == count
            assert capacity[taken].sum() == min(held for held in sums if held >= need)


@pytest.mark.parametrize("members", [5, 200])
def test_groups_are_counted_one_by_one(members: int) -> None:
    rng = random.Random(members)
    for _ in range(200):
        capacity = np.array([rng.randint(0, 8) for _ in range(members)], np.int64)
        group = np.array([rng.randrange(4) for _ in range(members)], np.int64)
        need = rng.randint(1, 2 * members)
        assert fewest_by_group(capacity, group, 4, need).tolist() == [
            fewest(capacity[group == g], need) for g in range(4)
        ]
