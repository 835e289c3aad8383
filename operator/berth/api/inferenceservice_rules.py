"""What the API server checks of an InferenceService across fields."""

from __future__ import annotations

from typing import Final

from berth.api.cel import Rule, at_least, forbidden, formatted, not_longer, required, unique
from berth.api.names import SERVER_CONTAINER

MODEL_URI: Final = (
    Rule(
        r"self.matches('^((s3|gs|az)://[a-zA-Z0-9][-a-zA-Z0-9._]*(/[^\\s]*)?"
        r"|hf://[-a-zA-Z0-9._]+/[-a-zA-Z0-9._]+(@[-a-zA-Z0-9._/]+)?"
        r"|oci://[-a-zA-Z0-9.:]+/[^\\s]+|pvc://[a-z0-9][-a-z0-9.]*(/[^\\s]*)?)$')",
        "must be s3://bucket/path, gs://bucket/path, az://container/path, hf://organisation/model, oci://registry/name"
        " or pvc://claim/path",
    ),
    Rule("!self.matches('(^|/)[.][.](/|$)')", "must not contain '..': write the path out"),
)
NO_SPACE: Final = Rule("!self.matches('\\\\s')", "must not contain white space: clients ask for it by this name")


NOT_FROM_REPLICAS: Final = ("EnvoyGateway", "Istio", "NGINX", "InferenceExtension", "Custom")
SEEN_AT_ZERO: Final = ("Istio", "NGINX", "InferenceExtension", "Custom")
"""Presets that count requests which find no replica, as the data of the metrics says."""
TYPES_ONCE: Final = unique("names an accelerator twice; write each once")
SIGNAL: Final = (
    required(".query", "self.preset == 'Custom'", "is what preset Custom reads: write the PromQL expression"),
    forbidden(
        ".query",
        "self.preset != 'Custom' && has(self.query)",
        "goes with preset: Custom only; the other presets bring their own",
    ),
    Rule(
        "self.preset != 'Custom' || has(self.perReplica) && self.perReplica != 'Auto'",
        "must be a number with preset: Custom, whose unit nothing else tells: write what one replica carries, in the"
        ' unit of query, such as "12.5"',
        path=".perReplica",
        reason="FieldValueRequired",
    ),
    Rule(
        f"self.source != 'Pods' || !(self.preset in {list(NOT_FROM_REPLICAS)})",
        "must be Prometheus with this preset: pods of the service report only vLLM, SGLang and Requests",
        path=".source",
    ),
)

SCALE_TO_ZERO: Final = (
    required(
        ".enabled",
        "has(self.idleAfter) || has(self.maxWake)",
        "says whether idleAfter and maxWake count: write enabled: true, or false to keep them for later",
    ),
    Rule(
        at_least("self.idleAfter", "1s"),
        "must be at least 1s: demand is asked for no more often; 10m suits most services",
        path=".idleAfter",
    ),
)
_ZERO: Final = "has(self.scaleToZero.enabled) && self.scaleToZero.enabled"
SCALING: Final = (
    Rule(
        "!has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
        "must not exceed maxReplicas",
        path=".minReplicas",
        says=formatted("must not exceed maxReplicas, which is %d", "self.maxReplicas"),
    ),
    Rule(
        "!has(self.maxReplicas) || !has(self.demand) || [self.demand].all(demand, !has(demand.onUnknown)"
        " || !has(demand.onUnknown.replicas) || demand.onUnknown.replicas <= self.maxReplicas)",
        "must not exceed scaling.maxReplicas",
        path=".demand.onUnknown.replicas",
        says=formatted("must not exceed scaling.maxReplicas, which is %d", "self.maxReplicas"),
    ),
    required(
        ".demand.signals",
        f"has(self.scaleToZero) && {_ZERO}",
        "is needed by scaleToZero: a signal that is seen at zero replicas must wake the service",
    ),
    Rule(
        f"!has(self.scaleToZero) || !({_ZERO}) || !has(self.demand) || !has(self.demand.signals)"
        f" || self.demand.signals.exists(x, x.preset in {list(SEEN_AT_ZERO)})",
        "needs a signal that is seen at zero replicas, to wake it: add one with the preset Istio, NGINX,"
        " InferenceExtension or Custom; EnvoyGateway counts no request that finds no replica",
        path=".scaleToZero",
    ),
    Rule(
        f"!has(self.steps) || !has(self.scaleToZero) || !({_ZERO})"
        f" || {not_longer('self.steps.downAfter', 'self.scaleToZero.idleAfter')}",
        "must not be shorter than scaling.steps.downAfter: all replicas would go sooner than a single one may; lengthen"
        " it, shorten downAfter, or leave this out",
        path=".scaleToZero.idleAfter",
    ),
)

SLO: Final = (
    Rule(
        "!has(self.percentile) || has(self.ttft) || has(self.itl) || has(self.latency)",
        "speaks of ttft, itl and latency: give at least one of them",
        path=".percentile",
    ),
    Rule(
        not_longer("self.ttft", "self.latency"),
        "must not exceed latency: the first token comes before the last",
        path=".ttft",
    ),
    Rule(
        not_longer("self.itl", "self.latency"),
        "must not exceed latency: the time between two tokens is a part of the whole request's",
        path=".itl",
    ),
)

FORECAST: Final = (
    Rule(
        f"self.method != 'SeasonalNaive' || {at_least('self.history', '24h')}",
        "must be at least 24h with method: SeasonalNaive, which looks at yesterday; lengthen it, or leave it out",
        path=".history",
    ),
    Rule(
        f"self.method != 'Auto' || {at_least('self.history', '2h')}",
        "must be at least 2h with method: Auto, whose back-test trusts nothing shorter; lengthen it, or leave it out",
        path=".history",
    ),
)

SPOT: Final = (
    Rule(
        "self.mode != 'Only' || !has(self.onDemandFloor) || self.onDemandFloor == 0",
        "must be 0 or left out with mode: Only; use mode: Mixed to keep some on demand",
        path=".onDemandFloor",
    ),
    Rule(
        "self.mode != 'Only' || !has(self.maxShare) || self.maxShare == '100%'",
        "must be 100% or left out with mode: Only; use mode: Mixed to bound the share",
        path=".maxShare",
    ),
    Rule(
        "self.mode != 'Only' || !has(self.maxZoneLoss) || !self.maxZoneLoss.matches('^0+([.]0+)?%$')",
        "must be above 0% or left out with mode: Only, whose replicas are all lost with their zones; use mode: Never to"
        " lose none",
        path=".maxZoneLoss",
    ),
)

ROLLOUT: Final = (
    Rule(
        "!has(self.maxUnavailable) || !has(self.maxSurge) || !(self.maxUnavailable == 0 || self.maxUnavailable == '0%')"
        " || !(self.maxSurge == 0 || self.maxSurge == '0%')",
        "must not be 0 while maxSurge is 0: no replica could ever be replaced",
        path=".maxUnavailable",
    ),
)

AUTH: Final = (
    required(".policyRef", "self.type == 'Policy'", "is the policy object that protects the route: name it"),
    forbidden(
        ".policyRef", "self.type == 'None' && has(self.policyRef)", "goes with type: Policy; set it, or leave this out"
    ),
)

_PUBLIC: Final = "self.scope == 'Public'"
EXPOSE: Final = (
    required(".hostnames", _PUBLIC, "is needed with scope: Public: the names that the route answers to"),
    required(".gatewayRef", _PUBLIC, "is needed with scope: Public: the Gateway that the route attaches to"),
    Rule(
        f"!({_PUBLIC}) || has(self.auth) && self.auth.type == 'Policy'",
        "is needed with scope: Public: set auth.type: Policy and name the policy in auth.policyRef",
        path=".auth",
        reason="FieldValueRequired",
    ),
)

_ENGINE: Final = "(has(self.runtime) ? self.runtime.engine : 'Custom')"
_SIZED_BY_HAND: Final = (
    "has(self.accelerators) && has(self.accelerators.perReplica) && type(self.accelerators.perReplica) == int"
)


def _start_within(window: str, why: str) -> Rule:
    """The start of a replica, where it is stated, takes no longer than a window of ``scaleToZero``."""
    return Rule(
        "!has(self.coldStart) || !has(self.scaling) || !has(self.scaling.scaleToZero)"
        " || !has(self.scaling.scaleToZero.enabled) || !self.scaling.scaleToZero.enabled"
        f" || {not_longer('self.coldStart.estimate', f'self.scaling.scaleToZero.{window}')}",
        f"must not be shorter than coldStart.estimate: {why}",
        path=f".scaling.scaleToZero.{window}",
    )


SPEC: Final = (
    _start_within(
        "maxWake", "no start would be in time and the service never sleep; lengthen it, or set enabled: false"
    ),
    _start_within("idleAfter", "the service would sleep sooner than it can wake; lengthen it"),
    Rule(
        "!has(self.coldStart) || !has(self.scaling) || [self.scaling].all(scaling,"
        " !has(scaling.maxReplicas) || self.coldStart.warmReplicas <= scaling.maxReplicas)",
        "must not exceed scaling.maxReplicas",
        path=".coldStart.warmReplicas",
        says=formatted("must not exceed scaling.maxReplicas, which is %d", "self.scaling.maxReplicas"),
    ),
    Rule(
        "!has(self.spot) || !has(self.scaling) || [self.spot].all(spot, [self.scaling].all(scaling,"
        " !has(spot.onDemandFloor) || !has(scaling.maxReplicas) || spot.onDemandFloor <= scaling.maxReplicas))",
        "must not exceed scaling.maxReplicas",
        path=".spot.onDemandFloor",
        says=formatted("must not exceed scaling.maxReplicas, which is %d", "self.scaling.maxReplicas"),
    ),
    Rule(
        f"has(self.template) || {_ENGINE} != 'Custom'",
        f"is needed with runtime.engine: Custom: give the container named {SERVER_CONTAINER}, or choose an engine",
        path=".template",
        reason="FieldValueRequired",
    ),
    Rule(
        f"!has(self.template) || {_ENGINE} != 'Custom' || has(self.template.spec) && has(self.template.spec.containers)"
        f" && self.template.spec.containers.exists(x, x.name == '{SERVER_CONTAINER}')",
        f"must have a container named {SERVER_CONTAINER} with runtime.engine: Custom: it is the one that serves",
        path=".template",
    ),
    Rule(
        f"has(self.model.parameters) || {_SIZED_BY_HAND}",
        "sizes a replica: give it, or an integer in accelerators.perReplica",
        path=".model.parameters",
        reason="FieldValueRequired",
    ),
)
