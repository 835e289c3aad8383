"""What the catalogue knows about serving: engines, spot capacity, cold starts, reclaims and the rules of choice.

All of it is a starting point. A service's own measurements replace the figures, and an overlay replaces the facts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from berth.catalogue.matching import LabelMatch
from berth.values import Role

Means = Literal["Reclaim", "Maintenance", "Leaving", "Advisory"]
Phase = Literal["Node", "Pull", "Weights", "Engine"]
Mode = Literal["Interactive", "Batch"]
Objective = Literal["Cost", "Latency", "Flexibility"]
Maturity = Literal["GenerallyAvailable", "Early", "Emerging", "Legacy"]

PLACEHOLDERS: Final = (
    "model", "revision", "name", "devices", "context", "concurrency", "memoryShare", "kvShare", "port", "metricsPort",
)  # fmt: skip
_PLACEHOLDER: Final = re.compile(r"\{(\w*)\}")


def placeholders(text: str) -> tuple[str, ...]:
    """The names in braces in ``text``."""
    return tuple(_PLACEHOLDER.findall(text))


@dataclass(frozen=True, slots=True)
class Compute:
    """Operations per second of one device without sparsity, 0 unknown.

    ``prefill`` and ``decode`` are the fractions of them that the two halves of serving reach, 0 not measured.
    """

    bf16: int = 0
    fp8: int = 0
    prefill: float = 0.0
    decode: float = 0.0
    source: str = ""
    as_of: str = ""

    def flops(self, bits: int) -> int:
        """The rate for weights of ``bits`` bits: FP8's at 8 where known, else BF16's, into which others unpack."""
        return self.fp8 if bits == 8 and self.fp8 else self.bf16


UNKNOWN_COMPUTE: Final = Compute()


def flag(word: str) -> str:
    """A flag without its value; dashes and underscores are the same to most parsers."""
    return word.split("=", 1)[0].replace("_", "-")


@dataclass(frozen=True, slots=True)
class Engine:
    """A program that serves models. ``images`` by the accelerator's runtime.

    ``args`` are groups of words with placeholders, see :data:`PLACEHOLDERS`. ``ready`` is the path that answers once
    the model is loaded, ``alive`` the one that answers while the process is well. ``preset`` is how demand is read from
    its pods, empty where nothing is known. ``tokens_per_step`` holds with one of ``speculative_flags``. ``schemes`` are
    those of the URIs that it fetches models from by itself, each with the groups of ``args`` that this takes.
    ``fetch``: by scheme the command in its image, in groups like ``args``, that brings the weights to where a replica's
    start finds them, and ends; schemes whose weights do not stay on the node have none.
    """

    name: str
    images: Mapping[str, str]
    command: tuple[str, ...]
    args: tuple[tuple[str, ...], ...]
    port: int
    metrics_port: int
    metrics_path: str
    ready: str
    alive: str
    phases: tuple[Phase, ...]
    source: str
    as_of: str
    preset: str = ""
    continuous_batching: bool = False
    speculative_flags: tuple[str, ...] = ()
    tokens_per_step: float = 1.0
    schemes: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    fetch: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    notes: str = ""

    def arguments(self, values: Mapping[str, str]) -> tuple[str, ...]:
        """The command line for ``values`` by placeholder; groups that name something absent are left out."""
        known = {"port": str(self.port), "metricsPort": str(self.metrics_port), **values}
        return tuple(
            _PLACEHOLDER.sub(lambda match: known[match.group(1)], word)
            for group in self.args
            if all(name in known for word in group for name in placeholders(word))
            for word in group
        )

    def given(self, name: str, own: Sequence[str]) -> str:
        """What the user's ``own`` arguments say in place of the placeholder ``name``; empty where they say nothing."""
        flags = {flag(group[0]) for group in self.args if any(name in placeholders(word) for word in group)}
        found = ""
        for number, word in enumerate(own):
            if word.startswith("-") and flag(word) in flags:
                found = word.partition("=")[2] or "".join(own[number + 1 : number + 2])
        return found

    def speculates(self, args: Iterable[str]) -> bool:
        """Whether the user's ``args`` switch speculative decoding on."""
        return any(word.split("=", 1)[0] in self.speculative_flags for word in args)


@dataclass(frozen=True, slots=True)
class SpotPrior:
    """Capacity that a provider may take back, before anything was seen of it.

    ``discount`` is the share off the on-demand price; ``reclaims_per_node_day`` the hazard of a node held;
    ``group_window_seconds`` the time within which the reclaims of one zone count as one batch. ``match`` is the node
    label that tells the provider, ``None`` for all others.
    """

    name: str
    match: LabelMatch | None
    discount: float
    reclaims_per_node_day: float
    notice_seconds: int
    group_window_seconds: int
    source: str
    as_of: str


@dataclass(frozen=True, slots=True)
class StartPhase:
    """One phase of a cold start: half take at most ``p50`` seconds, nine of ten at most ``p90``, plus the reading.

    Bytes per second are 0 where nothing is read; ``cached`` from the node's own disk.
    """

    name: Phase
    p50: float
    p90: float
    bytes_per_second: int
    cached_bytes_per_second: int
    source: str
    as_of: str
    notes: str = ""

    def reading(self, size: int, *, cached: bool) -> float:
        """Seconds to read ``size`` bytes."""
        rate = self.cached_bytes_per_second if cached and self.cached_bytes_per_second else self.bytes_per_second
        return size / rate if rate else 0.0


@dataclass(frozen=True, slots=True)
class ReclaimSignal:
    """What on a node says that it goes: the key of a ``taint`` or the type of a ``condition`` that is True.

    ``notice_seconds`` from its appearance until the node is gone, ``None`` where the node waits for its pods;
    ``pod_seconds`` of that for ordinary pods. ``spot_notice_seconds`` instead on spot, where the signal does not tell
    a reclaim from an autoscaler's own choice.
    """

    name: str
    taint: str
    condition: str
    means: Means
    notice_seconds: int | None
    pod_seconds: int | None
    spot_notice_seconds: int | None
    source: str
    as_of: str
    notes: str = ""

    def seconds(self, *, spot: bool) -> int | None:
        """What pods have left when it appears, ``None`` unlimited."""
        notice = self.notice_seconds if self.notice_seconds is not None or not spot else self.spot_notice_seconds
        return notice if self.pod_seconds is None else self.pod_seconds


@dataclass(frozen=True, slots=True)
class Sizing:
    """Constants of the capacity roofline, see :mod:`berth.inference.capacity`; seconds, tokens and fractions."""

    prefill_fraction: float
    decode_fraction: float
    bandwidth_fraction: float
    layer_seconds: float
    reduce_seconds: float
    unlinked_reduce_seconds: float
    layers_per_billionth: float
    layers_exponent: float
    input_tokens: float
    output_tokens: float
    most_requests: float
    least_requests: float
    static_batch_share: float
    backlog_utilisation: float
    percentile: float
    ttft_seconds: float
    itl_seconds: float


@dataclass(frozen=True, slots=True)
class Trait:
    """Something about a model that an annotation of its service may say. ``values`` empty: free text."""

    name: str
    annotation: str
    values: tuple[str, ...]
    default: str
    source: str
    as_of: str
    notes: str = ""

    def read(self, annotations: Mapping[str, str]) -> str:
        """What ``annotations`` say; the default where they are silent or say something unknown."""
        given = annotations.get(self.annotation, self.default)
        return given if not self.values or given in self.values else self.default


@dataclass(frozen=True, slots=True)
class ChoiceRule:
    """A rule of choice among accelerators. An empty condition holds always.

    ``rank`` ``None``: the accelerator is out. Else it stands behind those of a smaller sum of ranks where the price for
    the same work is equal.
    """

    name: str
    reason: str
    rank: int | None
    modes: tuple[Mode, ...]
    objectives: tuple[Objective, ...]
    traits: Mapping[str, tuple[str, ...]]
    compiled: bool | None
    pool_roles: tuple[Role, ...]
    maturities: tuple[Maturity, ...]
    source: str
    as_of: str

    def speaks_of(self, mode: str, objective: str, traits: Mapping[str, str]) -> bool:
        """Whether its conditions on the service hold."""
        return (
            (not self.modes or mode in self.modes)
            and (not self.objectives or objective in self.objectives)
            and all(traits.get(name, "") in wanted for name, wanted in self.traits.items())
        )

    def meets(self, *, compiled: bool, pool_roles: Collection[Role], maturity: str) -> bool:
        """Whether its conditions on an accelerator hold."""
        return (
            (self.compiled is None or self.compiled == compiled)
            and (not self.pool_roles or any(role in self.pool_roles for role in pool_roles))
            and (not self.maturities or maturity in self.maturities)
        )


@dataclass(frozen=True, slots=True)
class Serving:
    """All of it. ``spot`` and ``reclaims`` in the order in which they are asked."""

    engines: Mapping[str, Engine]
    spot: tuple[SpotPrior, ...]
    cold_start: Mapping[Phase, StartPhase]
    reclaims: tuple[ReclaimSignal, ...]
    sizing: Sizing
    traits: Mapping[str, Trait]
    rules: tuple[ChoiceRule, ...]

    def spot_prior(self, labels: Mapping[str, str]) -> SpotPrior:
        """What to assume of spot nodes with ``labels``."""
        return next(prior for prior in self.spot if prior.match is None or prior.match.matches(labels))

    def read_traits(self, annotations: Mapping[str, str]) -> dict[str, str]:
        """Every trait by name."""
        return {name: trait.read(annotations) for name, trait in self.traits.items()}
