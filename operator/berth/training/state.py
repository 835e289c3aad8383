"""A training job as its own status remembers it, and its pods as the last look saw them.

Everything the lifecycle needs to go on after a restart of the operator is in :class:`JobState`, which is the
status subresource in plain values; nothing is kept elsewhere. Times are Unix seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from typing import Literal

from berth.training.records import Placement


class Phase(StrEnum):
    """The summary for people. The conditions carry the detail."""

    QUEUED = "Queued"
    STARTING = "Starting"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


ACTIVE = frozenset({Phase.STARTING, Phase.RUNNING})
FINISHED = frozenset({Phase.SUCCEEDED, Phase.FAILED})


class Cause(StrEnum):
    """Why an attempt ended. Only FAILURE is charged against ``maxRestarts``."""

    FAILURE = "Failure"
    INFRASTRUCTURE = "Infrastructure"
    PREEMPTION = "Preemption"
    SUSPEND = "Suspend"
    START = "StartFailure"
    QUOTA = "Quota"
    COMPLETED = "Completed"


class Reason(StrEnum):
    """What happened to an attempt, in one word: decisions go by it, the sentence beside it is for people alone."""

    WORKER_FAILED = "WorkerFailed"
    NODE_LOST = "NodeLost"  # gone, or unfit before the pod promised to it was bound
    DISRUPTED = "Disrupted"  # eviction, shutdown, admission by the kubelet
    POD_DELETED = "PodDeleted"
    TIMED_OUT = "StartTimedOut"
    UNSCHEDULABLE = "Unschedulable"  # kube-scheduler will not bind a pod to the node chosen
    CANNOT_START = "CannotStart"  # image, configuration, init container
    CREATE_REFUSED = "CreateRefused"
    QUOTA_EXCEEDED = "QuotaExceeded"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    SUSPENDED = "Suspended"
    STATUS_LOST = "StatusLost"  # the status no longer says what the attempt was, as after an edit by hand
    COMPLETED = "Completed"


class NodeState(StrEnum):
    """What the cluster says of a node that holds, or was promised to, a rank."""

    OK = "Ok"
    GONE = "Gone"  # object deleted, or node.kubernetes.io/out-of-service
    UNREACHABLE = "Unreachable"  # exists, its kubelet does not answer
    BARRED = "Barred"  # cordoned or tainted: nothing new may start there


@dataclass(frozen=True, slots=True)
class Worker:
    """One pod of a gang. ``rank`` and ``attempt`` come from its labels, every other field from its live state."""

    name: str
    uid: str
    attempt: int
    rank: int
    node: str = ""  # where it is bound or pinned
    bound: bool = False
    phase: str = "Pending"  # Pending | Running | Succeeded | Failed | Unknown
    ready: bool = False
    deleting_since: float | None = None
    forced: bool = False  # deletion was asked for without grace: nothing more can be asked
    refused: str = ""  # kube-scheduler's words when it will not bind the pod
    problem: str = ""  # why a container cannot start: image, configuration, init container
    disrupted: str = ""  # why the infrastructure took it: eviction, taint, admission, shutdown
    exit_code: int | None = None
    failure: str = ""
    conditions: tuple[tuple[str, str], ...] = ()
    exits: tuple[tuple[str, int], ...] = ()  # (container, exit code) of every terminated container
    image_id: str = ""  # of the worker container, by digest, once it has been pulled
    failed_at: float | None = None  # when the first of its containers failed
    ended_at: float | None = None  # when the last of its containers ended
    worker_exit: int | None = None  # of the worker container, which others of the pod may outlive

    @property
    def ended(self) -> bool:
        """Whether the pod runs no more and holds nothing, though its object may stay."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def stopped(self) -> bool:
        """Whether it ended only once its deletion had been asked for."""
        began, ended = self.deleting_since, self.failed_at if self.phase == "Failed" else self.ended_at
        return self.ended and began is not None and ended is not None and ended >= began

    @property
    def finished(self) -> bool:
        """Whether it has done its part, whatever becomes of the pod. One told to stop that exits 0 has not."""
        return self.phase == "Succeeded" and not self.stopped

    @property
    def started(self) -> bool:
        """Whether this rank counts towards the gate that all ranks must pass together."""
        return (self.phase == "Running" and self.ready) or self.finished


@dataclass(frozen=True, slots=True)
class Condition:
    """A ``metav1.Condition`` without its generation, which the writer adds."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str = ""
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """One line of the ledger of attempts. ``end`` is None while it lives; ``ran`` is seconds with all ranks running."""

    number: int
    start: float
    workers: int
    pool: str
    end: float | None = None
    ran: float = 0.0
    cause: str = ""
    reason: str = ""
    message: str = ""
    exit_code: int | None = None
    rule: str = ""
    lost_accelerator_seconds: int = 0


@dataclass(frozen=True, slots=True)
class Restarts:
    """Totals by cause; ``failure`` is what ``maxRestarts`` bounds."""

    failure: int = 0
    infrastructure: int = 0
    preemption: int = 0
    suspend: int = 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The checkpoint policy in force, as shown in status."""

    interval_seconds: int
    size_bytes: int = 0
    stall_milliseconds: int = 0
    mtbf_seconds: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Lineage:
    """What the job was made from, as the last start resolved it; empty where not known."""

    image_id: str = ""
    dataset: str = ""


@dataclass(frozen=True, slots=True)
class JobState:
    """The status of a TrainingJob in plain values; the default is a job never looked at."""

    phase: Phase | None = None
    message: str = ""
    conditions: Mapping[str, Condition] = field(default_factory=dict)
    workers: int = 0
    ready_workers: int = 0
    attempt: int = 0
    start_attempts: int = 0  # starts in a row that did not get all ranks running
    restarts: Restarts = Restarts()
    attempts: tuple[Attempt, ...] = ()  # oldest first, the last 10
    placement: Placement | None = None
    placement_attempt: int = 0
    placement_time: float = 0.0
    price: Decimal | None = None  # US dollars per device hour, as it was when the placement was made; None: not known
    start_time: float | None = None
    completion_time: float | None = None
    ran_before: float = 0.0  # seconds that earlier attempts ran, all of them
    held_before: float = 0.0  # accelerator-seconds that earlier attempts held, all of them
    lost: int = 0  # accelerator-seconds of work lost, all attempts
    usd: Decimal | None = Decimal(0)  # price of what ended attempts held; None: that of one is not known
    lost_usd: Decimal | None = Decimal(0)
    lineage: Lineage = Lineage()
    checkpoint: Checkpoint | None = None
    avoid: tuple[str, ...] = ()  # nodes that the next placement must not use
    finished: frozenset[int] = frozenset()  # ranks of the live attempt that have finished and whose pods are gone

    @property
    def current(self) -> Attempt | None:
        """The attempt that lives, if one does."""
        return self.attempts[-1] if self.attempts and self.attempts[-1].end is None else None

    @property
    def placed_now(self) -> bool:
        """Whether the placement is that of the present attempt."""
        return self.placement is not None and self.placement_attempt == self.attempt

    def with_condition(self, kind: str, ok: bool, reason: str, message: str = "", *, now: float) -> JobState:
        """This state with one condition set; its time moves only when its status does."""
        status: Literal["True", "False"] = "True" if ok else "False"
        old = self.conditions.get(kind)
        since = old.since if old is not None and old.status == status else now
        new = Condition(kind, status, reason, message, since)
        return self if new == old else replace(self, conditions={**self.conditions, kind: new})

    def without_condition(self, kind: str) -> JobState:
        """This state with nothing said of one condition."""
        if kind not in self.conditions:
            return self
        return replace(self, conditions={name: held for name, held in self.conditions.items() if name != kind})

    def is_true(self, kind: str) -> bool:
        """Whether a condition is there and True."""
        condition = self.conditions.get(kind)
        return condition is not None and condition.status == "True"

    def is_false(self, kind: str) -> bool:
        """Whether a condition is there and False."""
        condition = self.conditions.get(kind)
        return condition is not None and condition.status == "False"


@dataclass(frozen=True, slots=True)
class Refused:
    """The API server would not create a pod of the current attempt; ``message`` has its own words."""

    reason: Reason  # CREATE_REFUSED or QUOTA_EXCEEDED
    message: str


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete one pod, only if it still is the one meant. ``grace`` None: the pod's own; 0: by force."""

    name: str
    uid: str
    grace: int | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """An Event to record; ``warning`` ones are never folded away."""

    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """What one look at a job decided: the state to write, what to do, and when to look again at the latest."""

    state: JobState
    create: tuple[int, ...] = ()
    delete: tuple[Delete, ...] = ()
    events: tuple[Event, ...] = ()
    wants_placement: bool = False
    remove_job: bool = False
    wake_after: float | None = None
