"""What one look at a job is made of: the job as its spec has it, and what is seen of the cluster at that moment."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from berth.training.records import Placement
from berth.training.recovery import Rule
from berth.training.state import Checkpoint, NodeState, Refused, Worker


@dataclass(frozen=True, slots=True)
class Job:
    """What the spec says, as far as the lifecycle needs it. Durations in seconds, None: no limit.

    ``rejected`` is (condition type, reason, message) while the job cannot be accepted as it is. ``asked`` are the
    conditions that a placement of this job fulfils besides Placed, because its spec asks for them.
    """

    name: str
    workers: int
    accelerators_per_worker: int
    start_timeout: float = 600.0
    max_start_attempts: int = 5
    max_restarts: int = 10
    max_duration: float | None = None
    ttl: float | None = None
    force_delete_after: float | None = None
    grace: int = 30  # the template's own; restarts use it, a suspension the longer one of the preemption
    rules: tuple[Rule, ...] = ()
    suspended: bool = False
    deleting: bool = False
    has_store: bool = False
    asked: tuple[str, ...] = ()
    dataset: str = ""
    rejected: tuple[str, str, str] | None = None

    @property
    def accelerators(self) -> int:
        """Devices of the whole gang."""
        return self.workers * self.accelerators_per_worker


@dataclass(frozen=True, slots=True)
class Sight:
    """What the caller sees besides the job: its pods, its nodes, and how long each pod has been unable to start.

    ``placed`` is a placement to begin the next attempt with, ``checkpoint`` and ``price`` (US dollars per device hour,
    None: not known) belong to it. ``name_held`` is a pod of an earlier job of the same name that has a name which the
    next attempt needs. ``finished`` are ranks of the live attempt that were seen to finish before their pods went.
    """

    workers: Sequence[Worker]
    nodes: Mapping[str, NodeState]
    now: float
    stuck_since: Mapping[str, float]  # pod uid -> Unix seconds
    placed: Placement | None = None
    checkpoint: Checkpoint | None = None
    price: Decimal | None = None
    refused: Refused | None = None
    name_held: str = ""
    finished: Collection[int] = ()
