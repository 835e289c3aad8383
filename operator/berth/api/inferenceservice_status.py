"""The status of an InferenceService: demand and cost as of the last decision; live figures are metrics."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from berth.api.common import (
    Conditions,
    LabelValue,
    Message,
    Model,
    Seconds,
    StatusMoney,
    StatusShare,
    StatusText,
    Time,
    atomic,
    list_map,
)

DECISIONS_KEPT = 10
STARTS_KEPT = 64
VARIANTS_KEPT = 512
"""Above what a service has on every accelerator, pool and zone of a large fleet."""
Tally = Annotated[int, Field(ge=0, le=2**31 - 1)]


class Variant(Model):
    """Replicas that are alike: accelerator, capacity type, pool and, on spot, zone."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Its Deployment."""
    accelerator: StatusText | None = None
    """Catalogue name."""
    capacity_type: StatusText | None = None
    """OnDemand, Spot or Reserved."""
    pool: StatusText | None = None
    """The pool."""
    zone: StatusText | None = None
    """With spot."""
    replicas: Tally | None = None
    """There are."""
    ready_replicas: Tally | None = None
    """Of them ready."""
    usd_per_hour: StatusMoney | None = None
    """Price of one replica: the pool's, else the catalogue's, on spot less its discount; an estimate where neither is
    known."""


class DemandStatus(Model):
    """Demand as the last decision saw it."""

    state: StatusText
    """Value, Idle or Unknown."""
    current: StatusText | None = None
    """Work now: 1 is one replica of the reference accelerator full, as sized. Absent when Unknown."""
    forecast: StatusText | None = None
    """Work that is to be ready at the horizon."""
    horizon_seconds: Seconds | None = None
    """Cold start and control period."""
    percentile: Annotated[int, Field(ge=0, le=100)] | None = None
    """Of the forecast's distribution."""
    as_of: Time | None = None
    """When this was concluded."""


class ForecastStatus(Model):
    """The forecast in use."""

    method: StatusText | None = None
    """Chosen by back-test."""
    wape: StatusShare | None = None
    """Its weighted absolute percentage error."""
    persistence_wape: StatusShare | None = None
    """The same of persistence."""


class ColdStartStatus(Model):
    """Time from a replica's creation until it serves: as measured, and as the catalogue expects until enough was seen;
    or as spec.coldStart.estimate states."""

    p50_seconds: Seconds | None = None
    """Median."""
    p90_seconds: Seconds | None = None
    """90th percentile."""
    cached_p90_seconds: Seconds | None = None
    """90th percentile where the node holds the weights."""


class Decision(Model):
    """One change of the number of replicas."""

    time: Time
    """When it was made."""
    from_replicas: Tally
    """Before."""
    to_replicas: Tally
    """After."""
    reason: StatusText
    """In one CamelCase word; docs/autoscaling.md lists them."""
    message: Message | None = None
    """In one sentence."""
    bound_by: StatusText | None = None
    """The limit that kept it from going further; docs/autoscaling.md lists them."""
    next_possible_time: Time | None = None
    """When the next change of this direction may come."""


class ServiceCost(Model):
    """Price as of the last decision."""

    usd_per_hour: StatusMoney | None = None
    """Of all replicas that are decided on, at the prices of variants."""
    usd_per_million_tokens: StatusMoney | None = None
    """At the current demand."""
    on_demand_only_usd_per_hour: StatusMoney | None = None
    """What it would be without spot."""


class UnsetReplicas(Model):
    """What spec.replicas was while it was not read. Absent once it has been set in Manual."""

    spec_replicas: Tally | None = None
    """As it was: as long as it is this, nobody has set it."""
    keeps: Tally | None = None
    """Replicas that there were when the mode became Manual; it keeps at least as many until spec.replicas is set."""


class StartsSeen(Model):
    """Starts of replicas that are alike, for the cold start that plans go by."""

    model: Annotated[str, Field(max_length=253)]
    """As clients ask for it."""
    accelerator: StatusText
    """Catalogue name."""
    node_class: StatusText | None = None
    """The pool; absent for all of them."""
    cached: bool
    """Whether the node held the weights."""
    seconds: Annotated[tuple[Seconds, ...], Field(max_length=64), atomic()] = ()
    """The last ones, oldest first."""


class VariantCpu(Model):
    """CPU that Berth chose for the replicas of a variant."""

    variant: Annotated[str, Field(max_length=63)]
    """The variant."""
    millicores: Tally
    """Of one replica."""


class PlaceLabel(Model):
    """A requirement on the labels of a variant's nodes."""

    key: Annotated[str, Field(max_length=317)]
    """The label."""
    operator: StatusText
    """In, NotIn, Exists or DoesNotExist."""
    values: Annotated[tuple[LabelValue, ...], Field(max_length=256), atomic()] = ()
    """With In and NotIn."""


class VariantPlace(Model):
    """What the nodes of a variant looked like when its template was made."""

    variant: Annotated[str, Field(max_length=63)]
    """The variant."""
    labels: Annotated[tuple[PlaceLabel, ...], Field(max_length=64), atomic()] = ()
    """Beside what its pool states."""


class CapacitySeen(Model):
    """Trials of what replicas that are alike carry at the SLO."""

    accelerator: StatusText
    """Catalogue name."""
    devices: Annotated[int, Field(ge=1, le=1024)]
    """Of each replica."""
    basis: StatusText
    """What they were trials of: another model, engine or promise begins anew."""
    record: Annotated[str, Field(max_length=1024)]
    """The capacity in use as a step from the estimate, eight to a factor of two, / trials; then the trials by load."""


class Learned(Model):
    """What Berth has learned and must not forget when it restarts; not meant for people."""

    startup_seconds: Seconds | None = None
    """Start-up budget in force in the pods' probes."""
    cold_starts: Annotated[tuple[StartsSeen, ...], Field(max_length=STARTS_KEPT), atomic()] = ()
    """Starts seen."""
    cpu: Annotated[tuple[VariantCpu, ...], Field(max_length=VARIANTS_KEPT), atomic()] = ()
    """CPU where the template names none."""
    places: Annotated[tuple[VariantPlace, ...], Field(max_length=VARIANTS_KEPT), atomic()] = ()
    """Labels of nodes that pod templates ask for."""
    reference: StatusText | None = None
    """The accelerator of which one replica, as sized, is the unit of demand."""
    capacities: Annotated[tuple[CapacitySeen, ...], Field(max_length=64), atomic()] = ()
    """What replicas were found to carry."""
    forecast: Annotated[str, Field(max_length=8192)] | None = None
    """The forecaster's compact record."""


class InferenceServiceStatus(Model):
    """What became of the service."""

    observed_generation: Annotated[int, Field(ge=0, le=2**53)] | None = None
    """The spec generation that this status is about."""
    phase: StatusText | None = None
    """Pending, Starting, Ready, Degraded, Idle or Failed."""
    message: Message | None = None
    """Why it is so, and what would change it."""
    conditions: Conditions = ()
    """Accepted, Ready, Placed, MetricsAvailable, ForecastTrusted, CapacityAvailable, SloMet, SpotAvailable, Exposed,
    Prefetched, ScaleContested."""
    replicas: Tally | None = None
    """There are, over all variants."""
    ready_replicas: Tally | None = None
    """Of them ready."""
    selector: Annotated[str, Field(max_length=1024)] | None = None
    """Of the pods, serialized as HPA and KEDA read it."""
    variants: Annotated[tuple[Variant, ...], Field(max_length=VARIANTS_KEPT), list_map("name")] = ()
    """What it runs on."""
    demand: DemandStatus | None = None
    """Demand as the last decision saw it."""
    forecast: ForecastStatus | None = None
    """The forecast in use."""
    cold_start: ColdStartStatus | None = None
    """The cold start that plans go by."""
    decisions: Annotated[tuple[Decision, ...], Field(max_length=DECISIONS_KEPT), atomic()] = ()
    """The last ten changes, newest first."""
    cost: ServiceCost | None = None
    """Price as of the last decision."""
    unset: UnsetReplicas | None = None
    """What keeps a change to scaling.mode Manual alone from taking replicas away."""
    learned: Learned | None = None
    """What a restart of Berth must not lose."""
