"""What the decisions about a service speak of.

*Load* is what a signal measures, in its own unit. *Work* is load divided by what one replica of the service's
reference variant carries at the SLO, so that signals, forecasts and replicas of different accelerators compare: a
reference replica has the capacity 1.0. Time is unix seconds, money US dollars per hour.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from berth.values import CapacityType

Certificate = Literal["Optimal", "Bounded"]


class DemandState(StrEnum):
    """Three different things: a measured amount, a measured nothing, and not knowing."""

    VALUE = "Value"
    IDLE = "Idle"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Variant:
    """Replicas that are alike; each variant is one Deployment.

    ``devices`` per replica, ``usd_per_hour`` and ``capacity`` (work) of one replica. ``zone`` only on spot.
    """

    name: str
    accelerator: str
    capacity_type: CapacityType
    pool: str
    devices: int
    usd_per_hour: float
    capacity: float
    zone: str = ""

    @property
    def spot(self) -> bool:
        """Whether the provider may take it back."""
        return self.capacity_type == "Spot"


def carried(counts: Mapping[str, int], variants: Mapping[str, Variant]) -> float:
    """Work that so many replicas by variant carry; those of a variant that is not in ``variants`` carry none."""
    return sum(variants[name].capacity * count for name, count in counts.items() if name in variants)


@dataclass(frozen=True, slots=True)
class Offer:
    """A variant and how many replicas of it can exist.

    ``room`` counts those that exist, those that fit into free devices now, and ``growth`` those that an autoscaler may
    still add nodes for (not in ``room``). ``cold_start_seconds`` is the quantile that plans go by, ``growth_seconds``
    what a new node adds to it. ``preference`` multiplies the price in the choice alone, and ``rank`` decides between
    offers that cost the same for the same work, the smaller first. ``closed``: it may be used no more; see
    :mod:`berth.inference.lastresort`.
    """

    variant: Variant
    room: int
    growth: int = 0
    cold_start_seconds: float = 0.0
    growth_seconds: float = 0.0
    preference: float = 1.0
    rank: int = 0
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Batch:
    """Replicas that may be lost together. ``takes``: the work that is lost for each one of a variant, by name.

    ``usd_per_hour`` for each unit of ``work``, at most that of the bounds, that is not carried then; ``twice`` is how
    likely as much is lost elsewhere at the same time.
    """

    takes: Mapping[str, float]
    work: float
    usd_per_hour: float
    twice: float = 0.0

    def missed(self, lost: float, spare: float) -> float:
        """Dollars an hour, where ``lost`` is lost with it and ``spare`` is carried beyond the work."""
        alone, both = max(0.0, lost - spare), max(0.0, 2 * lost - spare)
        return self.usd_per_hour * ((1 - self.twice) * alone + self.twice / 2 * both)


@dataclass(frozen=True, slots=True)
class MixBounds:
    """What a mix must keep. Counts are replicas over all variants.

    ``survive``: the work that must still be carried when any one zone's spot replicas are gone. ``max_zone_loss``: the
    share of all capacity that one zone's spot may be. ``max_spot_share``: the share of replicas on spot. ``keep``: at
    least so many replicas of a variant, by name. ``batches``: losses that are no bound but are paid for.
    """

    work: float
    min_replicas: int
    max_replicas: int
    survive: float = 0.0
    on_demand_floor: int = 0
    max_spot_share: float = 1.0
    max_zone_loss: float = 1.0
    spot_allowed: bool = True
    on_demand_allowed: bool = True
    keep: Mapping[str, int] = field(default_factory=dict)
    batches: tuple[Batch, ...] = ()


@dataclass(frozen=True, slots=True)
class Mix:
    """How many replicas of each variant, by name; absent is 0.

    ``short`` is the work that no allowed mix could carry (0 where the bounds are kept); ``bound_by`` names in one word
    what kept it there, such as Capacity, MaxReplicas, OnDemandFloor, MaxZoneLoss. ``lower_bound`` is proven dollars per
    hour (with switching cost) below which no mix goes; ``objective`` is this mix in the same terms: preferences
    applied, starts and expected losses paid.
    """

    counts: Mapping[str, int]
    usd_per_hour: float
    certificate: Certificate = "Optimal"
    lower_bound: float = 0.0
    short: float = 0.0
    bound_by: str = ""
    objective: float = 0.0

    @property
    def replicas(self) -> int:
        """Over all variants."""
        return sum(self.counts.values())
