"""What metrics say of each service.

Series of a service exist while it does: a picture is drawn with every round of decisions and replaces the last one
whole, so that what is gone is gone from the next scrape on. Their number is bounded by services and their variants;
nothing that a user writes freely becomes a label.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from berth.controllers.services.demand import Known
from berth.controllers.services.supply import Choice
from berth.controllers.services.view import ServiceView
from berth.inference.calibrate import Kind
from berth.inference.records import DemandState, Variant, carried
from berth.inference.service import Plan, Replica
from berth.telemetry.metrics import Metrics, Values

SERVICE: Final = ("service_namespace", "service_name")
"""Not namespace and service: Prometheus' own labels of what it scrapes are called so."""
VARIANT: Final = (*SERVICE, "variant", "accelerator", "capacity_type", "pool", "zone")
STATES: Final = ("Fresh", "Stale", "Unknown")

Samples = dict[tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class Seen:
    """One service at its last decision."""

    view: ServiceView
    choice: Choice
    known: Known
    replicas: tuple[Replica, ...]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its name, what it says, the labels, and its samples of a service."""

    name: str
    text: str
    labels: tuple[str, ...]
    read: Callable[[Seen, Plan], Samples]


def _one(value: Callable[[Seen, Plan], float | None]) -> Callable[[Seen, Plan], Samples]:
    def read(seen: Seen, plan: Plan) -> Samples:
        found = value(seen, plan)
        return {} if found is None else {seen.view.key: found}

    return read


def _ready(seen: Seen, *, leaving: bool = True) -> dict[str, int]:
    counts: dict[str, int] = {}
    for replica in seen.replicas:
        if replica.ready and not replica.terminating and (leaving or replica.leaving_at is None):
            counts[replica.variant] = counts.get(replica.variant, 0) + 1
    return counts


def _variants(seen: Seen) -> dict[str, Variant]:
    return {**seen.view.former, **seen.choice.variants}


def _short(seen: Seen, work: float | None, counts: dict[str, int]) -> float | None:
    return None if work is None else max(work - carried(counts, _variants(seen)), 0.0)


def _foreseen(seen: Seen) -> float | None:
    return seen.known.target.work if seen.known.target is not None else None


def _by_variant(seen: Seen, counts: dict[str, int]) -> Samples:
    variants = _variants(seen)
    samples: Samples = {}
    for name, count in counts.items():
        variant = variants.get(name)
        said = (variant.accelerator, variant.capacity_type, variant.pool, variant.zone) if variant else ("",) * 4
        samples[*seen.view.key, name, *said] = float(count)
    return samples


def _state(seen: Seen, plan: Plan) -> Samples:
    heard = seen.known.seen
    state = "Unknown" if heard.state is DemandState.UNKNOWN else "Stale" if heard.lost else "Fresh"
    return {(*seen.view.key, name): float(name == state) for name in STATES}


def _learned(seen: Seen, plan: Plan) -> Samples:
    learned = seen.view.capacities
    kinds = {Kind(entry.accelerator, entry.devices) for entry in seen.choice.variants.values()}
    return {(*seen.view.key, kind.accelerator): learned.factor(kind) for kind in sorted(kinds) if learned.trials(kind)}


FAMILIES: Final = (
    Family("berth_service_demand_replicas", "Demand now, in replicas as sized.", SERVICE,
           _one(lambda seen, _: seen.known.seen.work)),
    Family("berth_service_forecast_replicas", "What is to be ready at the horizon, in replicas as sized.",
           SERVICE, _one(lambda seen, _: _foreseen(seen))),
    Family("berth_service_demand_state", "1 for the state of what is known of demand: Fresh, Stale (a part is lost) or "
           "Unknown.", (*SERVICE, "state"), _state),
    Family("berth_service_replicas_wanted", "Replicas that the last decision wants, by variant.", VARIANT,
           lambda seen, plan: _by_variant(seen, dict(plan.counts))),
    Family("berth_service_replicas_ready", "Replicas that are ready, by variant.", VARIANT,
           lambda seen, plan: _by_variant(seen, dict.fromkeys(plan.counts, 0) | _ready(seen))),
    Family("berth_service_unserved_replicas", "Demand beyond what ready replicas carry, in replicas as sized.",
           SERVICE, _one(lambda seen, _: _short(seen, seen.known.seen.work, _ready(seen)))),
    Family("berth_service_at_risk_replicas", "Demand beyond what is left once replicas under notice are gone, in "
           "reference replicas as sized.", SERVICE,
           _one(lambda seen, _: _short(seen, seen.known.seen.work, _ready(seen, leaving=False)))),
    Family("berth_service_short_replicas", "Foreseen demand beyond what the plan carries, in replicas as sized.",
           SERVICE, _one(lambda seen, plan: _short(seen, _foreseen(seen), dict(plan.counts)))),
    Family("berth_service_usd_per_hour", "Price of the replicas that the last decision wants.", SERVICE,
           _one(lambda _, plan: plan.usd_per_hour)),
    Family("berth_service_on_demand_only_usd_per_hour", "What the same would cost without spot.", SERVICE,
           _one(lambda _, plan: plan.on_demand_only_usd_per_hour)),
    Family("berth_service_capacity_ratio", "What a replica was found to carry over its estimate, once tried.",
           (*SERVICE, "accelerator"), _learned),
)  # fmt: skip


class ServiceGauges:
    """Registers what reads the pictures; the event loop draws every service, and shows the picture when it is whole."""

    def __init__(self, metrics: Metrics) -> None:
        self._drawing: dict[str, Samples] = _blank()
        self._shown: Mapping[str, Values] = {}
        for family in FAMILIES:
            metrics.read(family.name, family.text, family.labels, self._reader(family.name))

    def draw(self, seen: Seen) -> None:
        """One more service; nothing before it has a plan."""
        plan = seen.view.plan
        if plan is not None:
            for family in FAMILIES:
                self._drawing[family.name] |= family.read(seen, plan)

    def show(self) -> None:
        """The picture has everything: it is shown instead of the last one, and the next is begun."""
        self._shown, self._drawing = self._drawing, _blank()

    def _reader(self, name: str) -> Callable[[], Values]:
        return lambda: self._shown.get(name, {})


def _blank() -> dict[str, Samples]:
    return {family.name: {} for family in FAMILIES}
