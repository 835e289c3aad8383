"""What the plan of a service goes by: the user's rules with every default filled in, what is seen, what is remembered.

Defaults live here and not in the schema, so that a later release may change them without touching anybody's object.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from berth.api.inferenceservice import InferenceServiceSpec
from berth.api.inferenceservice_parts import MAX_REPLICAS, Slo, StepSize
from berth.inference.fallback import Footing
from berth.inference.records import DemandState, Offer
from berth.values import parse_duration, parse_share

HOLD_SECONDS: Final = 1800.0
DOWN_AFTER_SECONDS: Final = 300.0
IDLE_AFTER_SECONDS: Final = 600.0
MAX_WAKE_SECONDS: Final = 60.0
DEFAULT_PROMISE: Final = 0.005
"""Share of the work that may be late where the SLO names none: between the 0.1 % of strict services and 2 %."""
DECISIONS_KEPT: Final = 10


class Mode(StrEnum):
    """Who decides the number of replicas."""

    AUTO = "Auto"
    ADVISORY = "Advisory"
    MANUAL = "Manual"


class Phase(StrEnum):
    """A service in one word, for people."""

    PENDING = "Pending"
    STARTING = "Starting"
    READY = "Ready"
    DEGRADED = "Degraded"
    IDLE = "Idle"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Step:
    """The most that may change at once: ``amount`` replicas, or ``share`` of those there are."""

    amount: int = 0
    share: float = 0.0

    def of(self, replicas: int) -> int:
        """The limit where there are ``replicas``; at least one, or nothing could ever move."""
        return max(1, self.amount or int(self.share * replicas))


@dataclass(frozen=True, slots=True)
class ZeroRules:
    """When a service may have no replica: idle for ``idle_after`` s, and awake again within ``max_wake`` s."""

    idle_after: float = IDLE_AFTER_SECONDS
    max_wake: float = MAX_WAKE_SECONDS


@dataclass(frozen=True, slots=True)
class SpotRules:
    """How much may run on spot. ``max_zone_loss`` None: what the SLO survives."""

    allowed: bool = False
    only: bool = False
    on_demand_floor: int = 0
    max_share: float = 1.0
    max_zone_loss: float | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """The scaling part of a spec. Seconds; ``promise`` is the share of the work that may be late."""

    mode: Mode = Mode.AUTO
    manual_replicas: int = 1
    min_replicas: int = 1
    max_replicas: int = MAX_REPLICAS
    hold_for: float = HOLD_SECONDS
    unknown_replicas: int = 1
    zero: ZeroRules | None = None
    max_up: Step | None = None
    max_down: Step = field(default_factory=lambda: Step(share=0.5))
    down_after: float = DOWN_AFTER_SECONDS
    warm_replicas: int = 0
    promise: float = DEFAULT_PROMISE
    spot: SpotRules = field(default_factory=SpotRules)


def rules_of(spec: InferenceServiceSpec) -> Rules:
    """The rules that ``spec`` states, with defaults for the rest."""
    scaling, spot, cold = spec.scaling, spec.spot, spec.cold_start
    floor = scaling.min_replicas if scaling is not None else 1
    ceiling = (scaling.max_replicas if scaling is not None else None) or MAX_REPLICAS
    unknown = scaling.demand.on_unknown if scaling is not None and scaling.demand is not None else None
    zero = scaling.scale_to_zero if scaling is not None else None
    steps = scaling.steps if scaling is not None else None
    down_after = _seconds(steps.down_after if steps else None, DOWN_AFTER_SECONDS)
    return Rules(
        mode=Mode(scaling.mode) if scaling is not None else Mode.AUTO,
        manual_replicas=spec.replicas,
        min_replicas=floor,
        max_replicas=ceiling,
        hold_for=_seconds(unknown.hold_for if unknown else None, HOLD_SECONDS),
        unknown_replicas=(unknown.replicas if unknown else None) or floor,
        zero=ZeroRules(
            _seconds(zero.idle_after, max(IDLE_AFTER_SECONDS, down_after)), _seconds(zero.max_wake, MAX_WAKE_SECONDS)
        ) if zero is not None and zero.enabled else None,
        max_up=_step(steps.max_up if steps else None),
        max_down=_step(steps.max_down if steps else None) or Step(share=0.5),
        down_after=down_after,
        warm_replicas=cold.warm_replicas if cold is not None else 0,
        promise=promise_of(spec.slo),
        spot=SpotRules(
            allowed=spot.mode != "Never",
            only=spot.mode == "Only",
            on_demand_floor=spot.on_demand_floor or 0,
            max_share=parse_share(spot.max_share) if spot.max_share else 1.0,
            max_zone_loss=parse_share(spot.max_zone_loss) if spot.max_zone_loss else None,
        ) if spot is not None else SpotRules(),
    )  # fmt: skip


def promise_of(slo: Slo | None) -> float:
    """The share of the work that may find no free replica.

    ``availability`` states it; a percentile of times leaves its complement, of which half is kept for requests that are
    slow on a free replica.
    """
    if slo is None:
        return DEFAULT_PROMISE
    if slo.availability:
        return min(max(1.0 - parse_share(slo.availability), 1e-5), 0.5)
    return (100 - slo.percentile) / 200 if slo.percentile else DEFAULT_PROMISE


def _seconds(text: str | None, default: float) -> float:
    return default if text is None else parse_duration(text)


def _step(size: StepSize | None) -> Step | None:
    if size is None:
        return None
    return Step(amount=size) if isinstance(size, int) else Step(share=parse_share(size))


@dataclass(frozen=True, slots=True)
class Replica:
    """One live pod. ``ready_since`` is when it last became ready; ``ever_ready`` whether it ever was.

    ``in_flight`` is the load on it, None unknown. ``leaving_at`` is when a notice says that it ends,
    infinite where its node waits for it.
    """

    name: str
    uid: str
    variant: str
    created: float
    node: str = ""
    zone: str = ""
    ready: bool = False
    ever_ready: bool = False
    ready_since: float | None = None
    in_flight: float | None = None
    terminating: bool = False
    leaving_at: float | None = None
    spot: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """Demand in work, as the signals say it now. ``work`` is None exactly when ``state`` is Unknown.

    ``reason`` is empty unless some signal is not known, though others may be.
    """

    state: DemandState
    work: float | None = None
    as_of: float = 0.0
    reason: str = ""
    at_zero: bool = False  # a signal counts demand where there is no replica to count it
    doubt: str = ""  # why the load may not be there, though it counts

    @property
    def lost(self) -> bool:
        """Whether demand, or a part of it, is not known."""
        return self.state is DemandState.UNKNOWN or bool(self.reason)


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What must be ready at the horizon. ``work`` is None before anything was ever measured.

    ``quantile`` of the forecast that ``work`` is, or in ``basis`` what it is where it is none.
    """

    work: float | None = None
    point: float = 0.0
    quantile: float = 0.0
    horizon_seconds: float = 0.0
    basis: str = ""


@dataclass(frozen=True, slots=True)
class Sight:
    """Everything that a decision may look at. ``wanted`` is what each variant's Deployment asks for as it is.

    ``cold_start_seconds`` is the quantile that is planned with, 0 unknown. ``slo_met`` None: not measured. ``crashing``
    are variants whose replicas end again and again without ever becoming ready. ``stable`` says of spot that it may be
    returned to.
    """

    now: float
    wanted: Mapping[str, int]
    replicas: tuple[Replica, ...]
    seen: Seen
    foreseen: Foreseen
    offers: tuple[Offer, ...]
    cold_start_seconds: float = 0.0
    slo_met: bool | None = None
    crashing: frozenset[str] = frozenset()
    excluded: str = ""  # why there is no offer, in a sentence
    carries: str = ""  # what replicas were found to carry, in a sentence


@dataclass(frozen=True, slots=True)
class Decision:
    """One change of the number of replicas, or of where they are."""

    time: float
    before: int
    after: int
    reason: str
    message: str
    bound_by: str = ""
    next_possible: float | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """What a decision must remember of earlier ones. None: not so at present.

    ``held`` replicas for ``held_work`` are what the last plan aimed at while demand was known, and ``held_capacity``
    what they carry. ``lower_since``: less than that has been enough. ``footing``: how much of it is on spot.
    ``missed_since`` and ``missed_last``: when the SLO was first and last seen missed. ``aimed``: replicas of the last
    plan that was carried out. ``unset`` and ``unset_keeps``: see :mod:`berth.inference.manual`.
    """

    decisions: tuple[Decision, ...] = ()
    lower_since: float | None = None
    unknown_since: float | None = None
    idle_since: float | None = None
    last_up: float | None = None
    last_down: float | None = None
    held: int | None = None
    held_work: float = 0.0
    held_capacity: float = 0.0
    footing: Footing | None = None
    missed_since: float | None = None
    missed_last: float | None = None
    aimed: int | None = None
    unset: int | None = None
    unset_keeps: int | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """A condition's state: ``status`` True, False or None for Unknown."""

    status: bool | None
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """Something to tell people."""

    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What shall be. ``counts`` names every variant that has or gets a Deployment.

    ``victims`` are pods in the order in which a decrease should take them, by variant. ``advice`` is what Advisory
    would have done. ``next_look`` is when to decide again though nothing happens. ``on_demand_only_usd_per_hour``: None
    where a replica on spot has no counterpart on demand.
    """

    counts: Mapping[str, int]
    memory: Memory
    phase: Phase
    message: str
    conditions: Mapping[str, Verdict]
    decision: Decision | None = None
    advice: Decision | None = None
    victims: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    usd_per_hour: float = 0.0
    on_demand_only_usd_per_hour: float | None = None
    next_look: float = 0.0

    @property
    def replicas(self) -> int:
        """Over all variants."""
        return sum(self.counts.values())
