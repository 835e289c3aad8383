"""How much work must be ready at a horizon, so that the promised share of it is served."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """``work`` to be ready, None before anything was measured; ``point`` is what is expected there.

    ``quantile`` (0 to 1) of the forecast's distribution that ``work`` is. ``method`` and its error against
    persistence's; ``coverage`` is the share of past steps that targets covered; None where too little is known.
    """

    work: float | None
    point: float = 0.0
    quantile: float = 0.0
    method: str = ""
    wape: float | None = None
    persistence_wape: float | None = None
    coverage: float = 0.0
    trusted: bool = False
