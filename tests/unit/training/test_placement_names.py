"""Natural order, kept while names come and go."""

from __future__ import annotations

import random

import numpy as np
import pytest

from berth.training.names import NameOrder, natural


@pytest.mark.parametrize(
    ("first", "second"),
    [("node-9", "node-10"), ("a2b10", "a10b2"), ("a", "b"), ("n1", "n01"), ("n01", "n2"), ("", "a"), ("a-2", "a-2-1")],
)
def test_numbers_in_names_are_compared_as_numbers(first: str, second: str) -> None:
    pair = sorted((first, second), key=natural)
    assert pair == [first, second] or {first, second} == {"n1", "n01"}
    assert natural(first) != natural(second)


def expect_ranks(order: NameOrder, names: list[str], ids: list[int], *, changed: bool) -> None:
    ranks = order.ranks(names, np.array(ids, np.int64), changed=changed).tolist()
    keys = [natural(names[number]) for number in ids]
    for rank, key in zip(ranks, keys, strict=True):
        assert [rank < other for other in ranks] == [key < other for other in keys]


@pytest.mark.parametrize("size", [40, 5000])
def test_ranks_follow_the_names_through_changes(size: int) -> None:
    rng = random.Random(size)
    names = [f"gpu-{rng.randrange(size)}" for _ in range(size)]
    order = NameOrder()
    for _ in range(30):
        for _ in range(rng.choice((0, 1, 20))):
            names[rng.randrange(len(names))] = rng.choice(("", f"gpu-{rng.randrange(size)}"))
        if rng.random() < 0.3:
            names.append(f"new-{rng.randrange(size)}")
        if rng.random() < 0.2:
            names.pop()
        expect_ranks(order, names, rng.sample(range(len(names)), 30), changed=True)
        expect_ranks(order, names, rng.sample(range(len(names)), 30), changed=False)
        if len(names) > 4500:
            every = order.ranks(names, np.arange(len(names)), changed=False)
            assert sorted(range(len(names)), key=lambda number: (every[number], number)) == sorted(
                range(len(names)), key=lambda number: (natural(names[number]), number)
            )
