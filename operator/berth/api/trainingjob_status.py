"""The status of a TrainingJob: what a user reads, written on transitions.

Enumerations are open here (plain strings), so that an older client can still read what a newer operator writes.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Sequence
from typing import Annotated, Final

from pydantic import Field

from berth.api.common import (
    Conditions,
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

RANKS_PLAIN_LIMIT: Final = 4096
"""Bytes of a rank list up to which it stays readable."""
RANKS_LIMIT: Final = 393_216
NUMBERS_LIMIT: Final = 1_000_000
"""No worker has such a number."""
_COMPRESSED: Final = "z:"
ATTEMPTS_KEPT: Final = 10

Tally = Annotated[int, Field(ge=0, le=2**31 - 1)]
LevelCounts = Annotated[dict[str, Tally], Field(max_length=16)]


class QueueStatus(Model):
    """The place in the queue, while queued."""

    position: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """1 is the head; the first 100 jobs have one."""
    expected_start_time: Time | None = None
    """When it should start, by what is known. Not reported yet."""
    as_of: Time | None = None
    """When this was concluded."""


class Restarts(Model):
    """Totals over the job's life, by cause; maxRestarts reads failure."""

    failure: Tally = 0
    """The job's own."""
    infrastructure: Tally = 0
    """Lost or broken nodes, evictions."""
    preemption: Tally = 0
    """For another job; none yet."""
    suspend: Tally = 0
    """By the user."""


class Attempt(Model):
    """One attempt that ended or runs."""

    number: Annotated[int, Field(ge=1, le=2**31 - 1)]
    """Counts from 1."""
    start_time: Time | None = None
    """When it was placed: from then on it held its nodes."""
    end_time: Time | None = None
    """When it ended."""
    ran_seconds: Seconds | None = None
    """Time with all its workers running."""
    workers: Tally | None = None
    """Its size."""
    pool: StatusText | None = None
    """Where it ran."""
    exit_code: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] | None = None
    """Of the first worker that failed."""
    rule: StatusText | None = None
    """The recovery rule that decided."""
    cause: StatusText | None = None
    """Failure, Infrastructure, Preemption, Suspend, StartFailure, Quota or Completed; only Failure is charged."""
    reason: StatusText | None = None
    """What happened, in one word: WorkerFailed, NodeLost, Disrupted (an eviction, a shutdown, the kubelet's refusal),
    PodDeleted, StartTimedOut, Unschedulable, CannotStart, CreateRefused, QuotaExceeded, DeadlineExceeded, Suspended,
    StatusLost or Completed."""
    message: Message | None = None
    """What happened, in one sentence."""
    lost_accelerator_seconds: Annotated[int, Field(ge=0, le=2**53)] | None = None
    """Device time since the last checkpoint, done for nothing."""


class PlacementStatus(Model):
    """Where the ranks are; recorded before the first pod of the attempt exists."""

    attempt: Annotated[int, Field(ge=1, le=2**31 - 1)]
    """The attempt that it belongs to."""
    time: Time | None = None
    """When it was decided."""
    pool: StatusText
    """The pool."""
    usd_per_accelerator_hour: StatusMoney | None = None
    """Its price when this was decided; absent where none is known."""
    certificate: StatusText
    """Optimal: the domains used equal the proven lower bound. Bounded: the gap is the rest."""
    domains: LevelCounts = Field(default_factory=dict)
    """Level name to domains used."""
    lower_bound: LevelCounts = Field(default_factory=dict)
    """Level name to the fewest that any placement could use."""
    ranks: Annotated[str, Field(max_length=RANKS_LIMIT)]
    """Nodes in rank order; past 4 KiB "z:" and base64 of zlib."""


class CheckpointStatus(Model):
    """How the job saves."""

    interval_seconds: Seconds | None = None
    """Time between saves."""
    last_step: Annotated[int, Field(ge=0, le=2**53)] | None = None
    """Step of the last complete one. Not reported yet."""
    last_time: Time | None = None
    """When the last complete one was done. Not reported yet."""
    stall_milliseconds: Annotated[int, Field(ge=0, le=2**53)] | None = None
    """Training time that one save costs."""
    size: StatusText | None = None
    """Bytes of one, as a quantity."""
    mtbf_seconds: Seconds | None = None
    """Mean time between failures of this gang."""
    reason: Message | None = None
    """What the interval was computed from."""


class Badput(Model):
    """Shares of the time that were no progress, by why."""

    checkpoint: StatusShare | None = None
    """Saving."""
    lost: StatusShare | None = None
    """Work done again."""
    restart: StatusShare | None = None
    """Coming back."""
    waiting: StatusShare | None = None
    """Not placed."""


class Goodput(Model):
    """How much of the time was progress."""

    ettr: StatusShare | None = None
    """Effective training time ratio."""
    badput: Badput | None = None
    """The rest."""
    as_of: Time | None = None
    """When this was concluded."""


class TrainingCost(Model):
    """What it has cost so far, at the price that each attempt began with."""

    accelerator_hours: Annotated[int, Field(ge=0, le=2**53)] | None = None
    """Device hours held, whole."""
    accelerator_seconds: Annotated[int, Field(ge=0, le=2**53)] | None = None
    """Device seconds held by attempts that have ended."""
    lost_accelerator_seconds: Annotated[int, Field(ge=0, le=2**53)] | None = None
    """The part done for nothing."""
    usd: StatusMoney | None = None
    """Their price; absent where that of any of them is not known."""
    lost_usd: StatusMoney | None = None
    """The part done for nothing."""
    as_of: Time | None = None
    """When this was concluded."""


class LineageStatus(Model):
    """What it was made from, as it was resolved."""

    image_id: Annotated[Annotated[str, Field(max_length=1024)] | None, Field(alias="imageID")] = None
    """The worker's image by digest; absent where ranks run different ones."""
    dataset: Annotated[str, Field(max_length=1280)] | None = None
    """uri@version."""


class TrainingJobStatus(Model):
    """What became of the job."""

    observed_generation: Annotated[int, Field(ge=0, le=2**53)] | None = None
    """The spec generation that this status is about."""
    phase: StatusText | None = None
    """Queued, Starting, Running, Checkpointing, Preempted, Restarting, Succeeded, Failed or Suspended."""
    message: Message | None = None
    """Why it is where it is, and what would change it."""
    conditions: Conditions = ()
    """Accepted, QuotaReserved, MemoryFits, FabricSatisfied, Placed, AllRunning, CheckpointHealthy (not reported yet);
    Suspended, Complete, Failed."""
    workers: Tally | None = None
    """Size of this attempt."""
    ready_workers: Tally | None = None
    """Workers that are ready; written at most once a second."""
    queue: QueueStatus | None = None
    """The place in the queue, while queued."""
    start_time: Time | None = None
    """When all workers first ran."""
    completion_time: Time | None = None
    """When it ended."""
    attempt: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """The current attempt; frozen spec fields are frozen from the first on."""
    start_attempts: Tally | None = None
    """Starts in a row that did not get all workers running; maxStartAttempts bounds it."""
    ran_seconds: Seconds | None = None
    """Running time of the attempts that have ended; maxDuration bounds it."""
    avoid_nodes: Annotated[tuple[StatusText, ...], Field(max_length=64), atomic()] = ()
    """Nodes that the next placement does not use."""
    finished_ranks: Annotated[str, Field(max_length=RANKS_LIMIT)] | None = None
    """Workers of this attempt that exited 0 and whose pods are gone, such as "0-3,7"."""
    restarts: Restarts | None = None
    """Totals by cause."""
    attempts: Annotated[tuple[Attempt, ...], Field(max_length=ATTEMPTS_KEPT), list_map("number")] = ()
    """The last ten."""
    placement: PlacementStatus | None = None
    """Where the ranks are; has its own field manager."""
    checkpoint: CheckpointStatus | None = None
    """How the job saves."""
    goodput: Goodput | None = None
    """How much of the time was progress. Not reported yet."""
    cost: TrainingCost | None = None
    """What it has cost so far."""
    lineage: LineageStatus | None = None
    """What it was made from."""


def encode_ranks(nodes: Sequence[str]) -> str:
    """Node names in rank order as ``status.placement.ranks`` holds them; deterministic."""
    plain = ",".join(nodes)
    if len(plain) <= RANKS_PLAIN_LIMIT:
        return plain
    return _COMPRESSED + base64.b64encode(zlib.compress(plain.encode(), 9)).decode()


def decode_ranks(text: str) -> tuple[str, ...]:
    """The inverse of :func:`encode_ranks`. Raises: ValueError."""
    if text.startswith(_COMPRESSED):
        try:
            text = zlib.decompress(base64.b64decode(text[len(_COMPRESSED) :], validate=True)).decode()
        except (ValueError, zlib.error) as problem:
            raise ValueError(f"ranks cannot be read: {problem}") from problem
    return tuple(text.split(",")) if text else ()


def encode_numbers(numbers: Iterable[int]) -> str:
    """Numbers as ranges, such as ``0-3,7``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)


def decode_numbers(text: str) -> frozenset[int]:
    """The inverse of :func:`encode_numbers`. Raises: ValueError."""
    numbers: set[int] = set()
    for run in text.split(",") if text else ():
        first, dash, last = run.partition("-")
        end = int(last if dash else first)
        if end >= NUMBERS_LIMIT:
            raise ValueError(f"{run} is more than any gang has workers")
        numbers.update(range(int(first), end + 1))
    return frozenset(numbers)
