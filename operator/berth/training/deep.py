"""Bounds two or more levels down, where the numbers of domains at the levels between are given.

To the price t per member comes a fee f per domain of the level between, of which g are taken. Any placement has

    need <= Σ over its top domains of score + f·g + t·members,  score = Σ over domains in one of max(worth at t - f, 0)

so members >= (need - f·g - Σ score) / t for every t > 0 and f >= 0: for one choice of top domains with their own
scores, for all choices of so many with the largest. Scores add up, so hundreds of choices are judged at once.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from berth.training import cover
from berth.training.cover import Cover
from berth.training.tree import Ints

_PRICES: Final = 32
_RANKS: Final = (0.8, 1.0, 1.25)


class DeepBounds:
    """Bounds on the members of ``between``'s domains, ``given`` of which are taken inside some of ``domains``.

    ``owner`` says in which of ``domains`` each domain of ``between`` is. ``like`` are positions of domains whose
    members show at which fees about as many pay as are taken.
    """

    def __init__(self, between: Cover, owner: Ints, domains: int, given: int, like: Ints) -> None:
        prices, worths = between.between()
        rows = np.unique(np.linspace(0, len(prices) - 1, _PRICES).astype(np.int64))
        inside = np.isin(owner, like)
        ordered = -np.sort(-worths[np.ix_(rows, inside)], axis=1)
        ranks = [min(int(part * given), ordered.shape[1]) - 1 for part in _RANKS]
        fees = ordered[:, [max(rank, 0) for rank in ranks]]
        scores = [
            np.bincount(owner, np.maximum(worths[row] - fee, 0), domains)
            for row, some in zip(rows.tolist(), fees.tolist(), strict=True)
            for fee in some
        ]
        self._scores = np.array(scores).astype(np.int64)
        self._prices = np.repeat(prices[rows], len(_RANKS))
        self._needs = cover.PARTS * between.need - fees.reshape(-1) * given

    def of(self, choices: Ints) -> Ints:
        """For each choice (rows of positions of domains) the fewest members inside it."""
        held = self._scores[:, choices].sum(axis=2)
        least: Ints = np.max(-((held - self._needs[:, None]) // self._prices[:, None]), axis=0)
        return least

    def of_any(self, number: int) -> int:
        """The fewest members inside any ``number`` domains."""
        held = cover.top_sums(self._scores, number)
        return max(int(np.max(-((held - self._needs) // self._prices))), 1)
