"""The parts of an InferenceService's spec: one small model per block of the contract.

Each holds what the user wrote; defaults that a later release may change are marked, live in code and never enter an
object.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from berth.api import inferenceservice_rules as checks
from berth.api.cel import Rule, checked, validated
from berth.api.common import (
    CatalogueName,
    Count,
    Duration,
    DurationOrAuto,
    DurationOrZero,
    LabelName,
    Model,
    SecretReference,
    Share,
    SubdomainName,
    atomic,
    code_default,
    int_or_auto,
    int_or_string,
    list_map,
    list_set,
    text,
)

MAX_REPLICAS = 10_000
Replicas = Annotated[int, Field(ge=0, le=MAX_REPLICAS)]
ReplicasAboveZero = Annotated[int, Field(ge=1, le=MAX_REPLICAS)]
StepSize = Annotated[
    int | str,
    int_or_string(
        "step",
        Rule(
            "type(self) == int ? self >= 1 && self <= 10000 : self.matches('^[1-9][0-9]{0,3}%$')",
            "must be an integer or percent above zero, such as 4 or 50%; to stop scaling use mode: Manual",
        ),
        limit=8,
    ),
]
RolloutPart = Annotated[
    int | str,
    int_or_string(
        "part",
        Rule(
            "type(self) == int ? self >= 0 && self <= 10000 : self.matches('^(100|[0-9]{1,2})%$')",
            "must be an integer or a percent from 0% to 100%, such as 1 or 25%",
        ),
        limit=8,
    ),
]
RolloutPartOrAuto = Annotated[
    int | str,
    int_or_string(
        "part or Auto",
        Rule(
            "type(self) == int ? self >= 0 && self <= 10000 : self == 'Auto' || self.matches('^(100|[0-9]{1,2})%$')",
            "must be Auto, an integer or a percent from 0% to 100%, such as 1 or 25%",
        ),
        limit=8,
    ),
]
LoadPerReplica = Annotated[
    str,
    *text(
        "load",
        r"^(Auto|[0-9]{1,12}(\.[0-9]{1,6})?)$",
        20,
        'must be Auto or a decimal string above zero, such as "12.5"',
        nonzero=True,
    ),
]
Hostname = Annotated[
    str,
    *text(
        "host name",
        r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        253,
        "must be a host name in lower case, such as chat.example.com or *.example.com",
    ),
]


class ServedModel(Model):
    """What is served."""

    name: Annotated[str, Field(min_length=1, max_length=253), checked(checks.NO_SPACE)] | None = None
    """What clients ask for. Absent: metadata.name."""
    parameters: Count | None = None
    """Number of parameters: 8B, 1.8T or an integer; sizes a replica."""
    bits_per_parameter: Annotated[Literal[4, 8, 16] | None, code_default("16")] = None
    """Precision of the weights as served."""
    uri: Annotated[str, Field(min_length=1, max_length=1024), checked(*checks.MODEL_URI)] | None = None
    """Where the weights lie: s3, gs, az, hf, oci, or pvc://claim/path in this namespace."""
    secret_ref: SecretReference | None = None
    """Credentials for uri. Absent: the identity of the pod's service account."""
    context_tokens: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """Longest request."""
    kv_bytes_per_token: Annotated[int, Field(ge=1, le=2**40)] | None = None
    """Bytes of KV cache per token; the concurrency limit is what the weights leave, divided by KV per request."""


class Runtime(Model):
    """What serves it."""

    engine: Literal["vLLM", "TensorRT-LLM", "Triton", "Custom"] = "Custom"
    """The engine; Custom brings its own container in template."""
    args: Annotated[tuple[Annotated[str, Field(max_length=4096)], ...], Field(max_length=256), atomic()] = ()
    """Arguments added to the engine's command line."""


class Candidates(Model):
    """Candidates; the planner picks the cheapest mix that keeps the SLO."""

    types: Annotated[
        tuple[CatalogueName, ...], Field(min_length=1, max_length=32), atomic(), checked(checks.TYPES_ONCE)
    ] = ()
    """Catalogue names that are allowed. Absent: every inference accelerator that fits."""
    per_replica: Annotated[int | Literal["Auto"] | None, int_or_auto(1, 256), code_default("Auto")] = None
    """Devices of a replica. Auto: the fewest that hold weights and KV at this precision."""
    allow_training_pools: bool = False
    """Whether pools of the role Training may be used too."""


class Slo(Model):
    """What is promised to clients."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, **validated(*checks.SLO)})

    percentile: Annotated[int, Field(ge=50, le=99)] | None = None
    """Percentile of all three times."""
    ttft: Duration | None = None
    """Time to first token."""
    itl: Duration | None = None
    """Time between tokens."""
    latency: Duration | None = None
    """Time of the whole request."""
    availability: Share | None = None
    """Share of requests that are answered."""


class Signal(Model):
    """One measure of demand."""

    model_config = ConfigDict(json_schema_extra=validated(*checks.SIGNAL))

    name: LabelName
    """Shown in messages and metrics."""
    source: Literal["Prometheus", "Pods"]
    """Who is asked."""
    preset: Literal["vLLM", "SGLang", "Requests", "EnvoyGateway", "Istio", "NGINX", "InferenceExtension", "Custom"]
    """What is asked."""
    query: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    """PromQL, with Custom only."""
    per_replica: Annotated[LoadPerReplica | None, code_default("Auto")] = None
    """Load that one replica carries at the SLO. Auto: sized, then learned; Custom needs a number."""


class OnUnknown(Model):
    """What holds while demand cannot be known."""

    hold_for: Annotated[DurationOrZero | None, code_default("30m")] = None
    """The last answer is held this long."""
    replicas: ReplicasAboveZero | None = None
    """At least this many after that. Absent: minReplicas."""


class Demand(Model):
    """What is scaled on; value, idle and unknown are three different things."""

    signals: Annotated[tuple[Signal, ...], Field(min_length=1, max_length=8), list_map("name")] | None = None
    """The largest answer wins."""
    on_unknown: OnUnknown | None = None
    """What holds while demand cannot be known."""


class Forecast(Model):
    """How demand is foreseen."""

    model_config = ConfigDict(json_schema_extra=validated(*checks.FORECAST))

    method: Literal["Auto", "Persistence", "SeasonalNaive"] = "Auto"
    """Auto: chosen by back-test for this service; persistence is always in the race. Persistence: the demand of now.
    SeasonalNaive: that of the same time yesterday, and no less than that of now."""
    history: Duration | None = None
    """How far back the back-test looks. Absent: as far as there is data."""


class ScaleToZero(Model):
    """Whether an idle service may have no replica."""

    model_config = ConfigDict(json_schema_extra=validated(*checks.SCALE_TO_ZERO))

    enabled: Annotated[bool | None, code_default("false")] = None
    """Refused while cold starts exceed maxWake."""
    idle_after: Duration | None = None
    """Without demand for this long, it is idle and sleeps; no sooner than it could wake. Absent: 10m, or
    steps.downAfter where that is longer."""
    max_wake: Duration | None = None
    """The longest that the first client may wait."""


class Steps(Model):
    """How fast the number of replicas may move; integers, or percent of the replicas there are."""

    max_up: StepSize | None = None
    """The most added at once. Absent: no limit, a deficit is closed in one jump."""
    max_down: StepSize | None = None
    """The most taken at once."""
    down_after: DurationOrZero | None = None
    """Demand must have been lower for this long."""


class Scaling(Model):
    """How many replicas there are."""

    model_config = ConfigDict(json_schema_extra=validated(*checks.SCALING))

    mode: Literal["Auto", "Advisory", "Manual"] = "Auto"
    """Advisory: decide and say, change nothing. Manual: spec.replicas, once that has been set; stopped is Manual
    with 0."""
    min_replicas: ReplicasAboveZero = 1
    """The floor while awake; zero is what scaleToZero is for."""
    max_replicas: ReplicasAboveZero | None = None
    """The ceiling. Absent: what the pools hold."""
    demand: Demand | None = None
    """What is scaled on."""
    forecast: Forecast | None = None
    """How demand is foreseen."""
    scale_to_zero: ScaleToZero | None = None
    """Whether an idle service may have no replica."""
    steps: Steps | None = None
    """How fast the number of replicas may move."""


class Spot(Model):
    """How much of it may run on spot capacity."""

    model_config = ConfigDict(json_schema_extra=validated(*checks.SPOT))

    mode: Literal["Never", "Mixed", "Only"] = "Never"
    """Whether spot is used."""
    on_demand_floor: Replicas | None = None
    """Replicas that stay on demand. Absent: none beyond what the other bounds ask."""
    max_share: Share | None = None
    """Share of the replicas that may be on spot. Absent: no bound."""
    max_zone_loss: Share | None = None
    """Share of the replicas that the loss of one zone's spot may take. Absent: what the SLO survives."""


class ColdStart(Model):
    """How long a replica takes to start."""

    estimate: Annotated[DurationOrAuto | None, code_default("Auto")] = None
    """Auto: learned per model, accelerator, node class and cache."""
    model_cache: Literal["None", "NVMe"] = "None"
    """Whether nodes keep the weights on local disk."""
    warm_replicas: Replicas = 0
    """Replicas kept ready beyond demand while the service is awake: one that sleeps by scaleToZero has none."""


class Rollout(Model):
    """How a change of the template reaches the replicas."""

    model_config = ConfigDict(json_schema_extra=validated(*checks.ROLLOUT))

    max_unavailable: RolloutPart | None = None
    """Integer or percent that may be missing."""
    max_surge: Annotated[RolloutPartOrAuto | None, code_default("Auto")] = None
    """Integer or percent that may be added. Auto: surge where room is known."""


class GatewayReference(Model):
    """A Gateway; its allowedRoutes decides."""

    name: SubdomainName
    """The Gateway's name."""
    namespace: LabelName | None = None
    """Its namespace. Absent: this one."""
    section_name: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """One of its listeners. Absent: all that end TLS."""


class PolicyReference(Model):
    """A policy object in this namespace that targets the route."""

    group: SubdomainName
    """Its API group."""
    kind: Annotated[str, Field(min_length=1, max_length=63)]
    """Its kind."""
    name: SubdomainName
    """Its name."""


class Auth(Model):
    """Who may call."""

    model_config = ConfigDict(json_schema_extra=validated(*checks.AUTH))

    type: Literal["None", "Policy"] = "None"
    """Policy: a policy object protects the route."""
    policy_ref: PolicyReference | None = None
    """The policy object."""


class Expose(Model):
    """How clients reach it."""

    model_config = ConfigDict(json_schema_extra=validated(*checks.EXPOSE))

    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Port of the Service. Absent: the engine's."""
    scope: Literal["Cluster", "Public"] = "Cluster"
    """Public needs hostnames, gatewayRef and auth."""
    hostnames: Annotated[tuple[Hostname, ...], Field(min_length=1, max_length=16), list_set()] | None = None
    """Names that the route answers to."""
    gateway_ref: GatewayReference | None = None
    """The Gateway that the route attaches to; TLS ends at its HTTPS listener."""
    auth: Auth | None = None
    """Who may call."""
