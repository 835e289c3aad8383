"""When work moves from spot to on demand, and back: what people are told of it.

Told of what plans aim at, not of pods: a fall begins when less is to be on spot and more on demand than before, and is
over when on demand carries no more than it did then. Between the two nothing more is told, however often plans change,
and a fall that comes soon after the last one is part of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from berth.api.names import ServiceEvent

TOLD_SECONDS: Final = 600.0
"""A service tells of one fall, and of one return, in so long."""
_SMALL: Final = 1e-6

Turn = Literal["FellBackToOnDemand", "ReturnedToSpot"]


@dataclass(frozen=True, slots=True)
class Footing:
    """The work that a plan aims to carry on demand and on spot.

    ``usual`` is what was on demand before a fall, None when there is none. ``fell`` and ``returned`` are when these
    were told last.
    """

    on_demand: float
    spot: float
    usual: float | None = None
    fell: float | None = None
    returned: float | None = None


def step(before: Footing | None, on_demand: float, spot: float, now: float) -> tuple[Footing, Turn | None]:
    """The footing after a plan that aims at these, and what is to be told of the step there."""
    if before is None:
        return Footing(on_demand, spot), None
    footing = replace(before, on_demand=on_demand, spot=spot)
    if before.usual is None:
        if not (on_demand > before.on_demand + _SMALL and spot < before.spot - _SMALL):
            return footing, None
        footing = replace(footing, usual=before.on_demand)
        if _lately(before.fell, now):
            return footing, None
        return replace(footing, fell=now), ServiceEvent.FELL_BACK_TO_ON_DEMAND
    if on_demand > before.usual + _SMALL or spot <= _SMALL:
        return footing, None
    footing = replace(footing, usual=None)
    if _lately(before.returned, now):
        return footing, None
    return replace(footing, returned=now), ServiceEvent.RETURNED_TO_SPOT


def _lately(told: float | None, now: float) -> bool:
    return told is not None and now - told < TOLD_SECONDS
