"""Requests, placements and refusals: what the gang decision takes and gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from berth.values import MOST_AMOUNT, Requirements, Resources, Toleration

ChangeKind = Literal["MoreNodes", "LooserLevel", "FewerWorkers", "AfterJobs"]
RefusalReason = Literal[
    "NoPool",  # no pool has an allowed accelerator, the role Training and the devices per worker
    "MemoryUnsatisfied",  # such pools exist, none whose accelerators hold the model in the gang's memory
    "FabricUnsatisfied",  # pools exist, none with the fabric kind, speed or rails asked for
    "UnknownLevel",  # no candidate pool has the level named
    "TooLarge",  # would not fit on the candidate pools even if they were empty
    "NoCapacity",  # would fit if room were free
    "InternalError",  # the search itself failed
    "WriteRefused",  # there is a placement, which the API server would not have recorded
]


@dataclass(frozen=True, slots=True)
class GangRequest:
    """What a gang needs, all or nothing.

    ``per_worker`` holds every resource but the accelerators, which are ``accelerators_per_worker`` devices of the
    pool's own resource name; an amount that no machine has is held to :data:`MOST_AMOUNT`. ``slice_workers`` workers
    form one tensor group and must share an NVLink domain (1: no such bond); it divides ``workers``. ``types`` are
    catalogue names in order of preference, empty: any with the role Training that fits. ``node_terms`` are ORed, each
    ANDed; empty means any node.
    """

    workers: int
    accelerators_per_worker: int
    per_worker: Resources = field(default_factory=dict)
    types: tuple[str, ...] = ()
    required_level: str | None = None
    preferred_level: str | None = None
    slice_workers: int = 1
    fabric_kinds: tuple[str, ...] = ()
    min_gbps: int = 0
    min_rails: int = 0
    memory_bytes: int = 0  # of the whole model in training; 0: unknown
    tolerations: tuple[Toleration, ...] = ()
    node_terms: tuple[Requirements, ...] = ()
    excluded_nodes: frozenset[str] = frozenset()
    penalised_nodes: frozenset[str] = frozenset()  # usable, but last among equals
    admitted: frozenset[str] = frozenset()  # resources of which admission adds to what the template asks for

    def __post_init__(self) -> None:
        if any(amount > MOST_AMOUNT for amount in self.per_worker.values()):
            held = {name: min(amount, MOST_AMOUNT) for name, amount in self.per_worker.items()}
            object.__setattr__(self, "per_worker", held)


@dataclass(frozen=True, slots=True)
class Placement:
    """Nodes in rank order with the proof of how good the choice is.

    ``domains`` and ``lower_bound`` map a level's name to the domains used and to the fewest any placement in the
    chosen pool could use. ``certificate`` is Optimal when they agree at the preferred level and every lower one,
    lexicographically; else Bounded, and the difference is the gap.
    """

    pool: str
    nodes: tuple[str, ...]
    certificate: Literal["Optimal", "Bounded"]
    domains: Mapping[str, int]
    lower_bound: Mapping[str, int]
    leftover: int = 0  # workers that would still fit in the touched domains of the preferred level


@dataclass(frozen=True, slots=True)
class Change:
    """One change that would let the gang fit: ``amount`` nodes or workers, ``level`` to loosen to, ``jobs`` to end."""

    kind: ChangeKind
    amount: int = 0
    level: str = ""
    pool: str = ""
    jobs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a gang has no placement. ``proven`` says whether it is proof or a search that gave up."""

    reason: RefusalReason
    message: str
    proven: bool = True
    changes: tuple[Change, ...] = ()
