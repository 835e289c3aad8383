"""How much work must be ready at a horizon, so that the promised share of it is served."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SLACK: Final = 1.2
"""A promise counts as kept up to so much of it: what is left unserved comes in bursts."""


@dataclass(frozen=True, slots=True)
class Target:
    """``work`` to be ready, None before anything was measured; ``point`` is what is expected there.

    ``quantile`` (0 to 1) of the forecast's distribution that ``work`` is. ``method`` and its error against
    persistence's, None where too little is known. ``coverage`` is the share of past steps that targets covered, and
    ``served`` the share of past work; ``trusted``: there were enough of both. ``basis`` says in words what ``work`` is
    where no distribution was asked for, and so there is no quantile.
    """

    work: float | None
    point: float = 0.0
    quantile: float = 0.0
    method: str = ""
    wape: float | None = None
    persistence_wape: float | None = None
    coverage: float = 0.0
    trusted: bool = False
    served: float = 1.0
    basis: str = ""

    @property
    def keeps(self) -> bool:
        """Whether targets left about as much of the work unserved as is promised, or less."""
        return 1 - self.served <= SLACK * (1 - self.quantile)
