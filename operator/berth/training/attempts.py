"""The ledger of attempts: how one begins, how it ends, and what it cost.

Totals are kept beside the last ten attempts, so that a cap on restarts or on running time counts all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

from berth.api.trainingjob_status import ATTEMPTS_KEPT
from berth.training.job import Job
from berth.training.records import Placement
from berth.training.recovery import Fault
from berth.training.state import (
    Attempt,
    Cause,
    Checkpoint,
    Event,
    JobState,
    Lineage,
    Phase,
    Reason,
    Restarts,
    Worker,
)
from berth.values import plural

MOST_AVOIDED = 64
MICRO_USD = Decimal("0.000001")
"""To this the price of an attempt is rounded: a second of a cheap device is a few of it."""

FULFILLED = {
    "FabricSatisfied": ("Satisfied", "{} has the fabric that spec.fabric asks for"),
    "MemoryFits": ("Fits", "{} holds the model in the gang's memory"),
}
"""What a placement on a pool says of conditions that a spec may ask for: reason and message."""


def begin(
    job: Job,
    state: JobState,
    now: float,
    placement: Placement,
    checkpoint: Checkpoint | None = None,
    price: Decimal | None = None,
) -> tuple[JobState, Event]:
    """Attempt n+1 on ``placement``, at ``price`` US dollars per device hour; written before the first pod."""
    number = state.attempt + 1
    attempt = Attempt(number, now, job.workers, placement.pool)
    state = replace(
        state,
        phase=Phase.STARTING,
        message=starting_words(job.workers, placement.pool),
        workers=job.workers,
        ready_workers=0,
        attempt=number,
        attempts=(*state.attempts, attempt)[-ATTEMPTS_KEPT:],
        placement=placement,
        placement_attempt=number,
        placement_time=now,
        price=price,
        checkpoint=checkpoint if checkpoint is not None else state.checkpoint,
    )
    words = f"attempt {number}: {plural(job.workers, 'worker')} on {placement.pool}, {placement_words(placement)}"
    return placed_conditions(state, placement, now, job.asked), Event("Placed", words)


def placed_conditions(state: JobState, placement: Placement, now: float, asked: Sequence[str] = ()) -> JobState:
    """What the conditions say from the moment a placement is recorded; ``asked`` as in :class:`Job`."""
    words = f"{placement.pool}: {placement_words(placement)}"
    state = state.with_condition("Placed", True, placement.certificate, words, now=now)
    for kind, (reason, message) in FULFILLED.items():
        if kind in asked:
            state = state.with_condition(kind, True, reason, message.format(placement.pool), now=now)
        else:
            state = state.without_condition(kind)
    return state.with_condition("AllRunning", False, "Starting", now=now)


def starting_words(workers: int, pool: str) -> str:
    """What is said of a gang until there is more to say."""
    return f"Starting {plural(workers, 'worker')} on {pool}"


def all_workers(number: int) -> str:
    """The gang as the subject of a sentence in the past tense."""
    return f"All {number} workers" if number != 1 else "The worker"


def placement_words(placement: Placement) -> str:
    """Domains used and how good that is, for people."""
    used = ", ".join(plural(count, level) for level, count in placement.domains.items())
    proof = "proven fewest" if placement.certificate == "Optimal" else "fewest not proven"
    return f"{used} ({proof})" if used else proof


def end(job: Job, state: JobState, now: float, fault: Fault) -> JobState:
    """The live attempt closed with ``fault``: times, totals and the charge by cause.

    Work lost is what ran since the last save. Until a job reports its saves it is bounded by one checkpoint interval
    where it has a store, else by all that the attempt ran. What is paid follows the price that the attempt began with;
    once one attempt's is not known, neither is the total. An attempt that by this clock has not begun yet, because a
    leader with another clock began it, ran for nothing rather than for less.
    """
    attempt = state.current
    assert attempt is not None
    running = state.conditions.get("AllRunning")
    ran = max(now - running.since, 0.0) if running is not None and running.status == "True" else 0.0
    devices = attempt.workers * job.accelerators_per_worker
    loses = fault.cause not in (Cause.COMPLETED, Cause.SUSPEND)
    at_risk = min(ran, state.checkpoint.interval_seconds) if job.has_store and state.checkpoint else ran
    lost = round(at_risk * devices) if loses else 0
    held = max(now - attempt.start, 0.0) * devices
    closed = replace(
        attempt,
        end=now,
        ran=ran,
        cause=fault.cause.value,
        reason=fault.reason.value,
        message=fault.message,
        exit_code=fault.exit_code,
        rule=fault.rule,
        lost_accelerator_seconds=lost,
    )
    state = replace(
        state,
        attempts=(*state.attempts[:-1], closed),
        restarts=_charge(state.restarts, fault.cause),
        start_attempts=state.start_attempts + (1 if fault.cause == Cause.START else 0),
        ran_before=state.ran_before + ran,
        held_before=state.held_before + held,
        lost=state.lost + lost,
        usd=_paid(state.usd, held, state.price),
        lost_usd=_paid(state.lost_usd, lost, state.price),
        ready_workers=0,
        finished=frozenset(),
    )
    done = fault.cause == Cause.COMPLETED
    return state.with_condition("AllRunning", False, fault.cause.value, "" if done else fault.message, now=now)


def _paid(before: Decimal | None, seconds: float, price: Decimal | None) -> Decimal | None:
    """``before`` and the price of that many device seconds."""
    if before is None or price is None:
        return None
    return before + (Decimal(seconds) * price / 3600).quantize(MICRO_USD)


def _charge(restarts: Restarts, cause: Cause) -> Restarts:
    match cause:
        case Cause.FAILURE:
            return replace(restarts, failure=restarts.failure + 1)
        case Cause.INFRASTRUCTURE:
            return replace(restarts, infrastructure=restarts.infrastructure + 1)
        case Cause.PREEMPTION:
            return replace(restarts, preemption=restarts.preemption + 1)
        case Cause.SUSPEND:
            return replace(restarts, suspend=restarts.suspend + 1)
    return restarts


def refund(state: JobState, lost: Sequence[str], how: str, now: float) -> tuple[JobState, Event]:
    """The last attempt, charged as a failure, went down with the nodes ``lost``, the first of which is ``how``: the
    charge moves to infrastructure."""
    last = state.attempts[-1]
    cause, reason = Cause.INFRASTRUCTURE.value, Reason.NODE_LOST.value
    words = f"node {lost[0]} is {how}, seen first as {last.message}"
    restarts = replace(
        state.restarts, failure=state.restarts.failure - 1, infrastructure=state.restarts.infrastructure + 1
    )
    state = replace(
        state,
        message=f"Restarting: {words}",
        attempts=(*state.attempts[:-1], replace(last, cause=cause, reason=reason, message=words)),
        restarts=restarts,
        avoid=with_avoided(state.avoid, lost),
    )
    state = state.with_condition("AllRunning", False, cause, words, now=now)
    state = state.with_condition("Placed", False, "Restarting", words, now=now)
    return state, Event("NodeLost", f"attempt {last.number} is not charged after all: {words}", warning=True)


def with_avoided(avoid: Sequence[str], nodes: Sequence[str]) -> tuple[str, ...]:
    """``avoid`` and ``nodes``, each once; the latest 64 of them."""
    return tuple(dict.fromkeys((*avoid, *nodes)))[-MOST_AVOIDED:]


def resolve_lineage(job: Job, workers: Sequence[Worker]) -> Lineage:
    """What the ranks ``workers`` run on and on what; no image where they run different ones or do not say."""
    images = {worker.image_id for worker in workers}
    return Lineage(images.pop() if len(images) == 1 else "", job.dataset)


def complete(job: Job, state: JobState, now: float, workers: Sequence[Worker]) -> tuple[JobState, Event]:
    """Every rank, and ``workers`` are all, exited 0."""
    ran_first = state.start_time is None
    state = end(job, state, now, Fault(Cause.COMPLETED, Reason.COMPLETED, ""))
    message = f"{all_workers(state.workers)} exited 0 in attempt {state.attempt}"
    state = replace(
        state,
        phase=Phase.SUCCEEDED,
        message=message,
        completion_time=now,
        start_time=now if ran_first else state.start_time,
        start_attempts=0,
        avoid=(),
        lineage=resolve_lineage(job, workers) if ran_first else state.lineage,
    ).with_condition("Complete", True, "AllRanksSucceeded", message, now=now)
    return released(state, message, now), Event("Completed", message)


def fail(state: JobState, now: float, reason: str, words: str) -> tuple[JobState, Event]:
    """The job as a whole has failed; ``reason`` is the condition's."""
    state = replace(state, phase=Phase.FAILED, message=words, completion_time=now, ready_workers=0)
    state = released(state, words, now)
    return state.with_condition("Failed", True, reason, words, now=now), Event("Failed", words, warning=True)


def released(state: JobState, words: str, now: float) -> JobState:
    """The placement, if there is one, holds no more."""
    return state.with_condition("Placed", False, "Released", words, now=now) if state.is_true("Placed") else state
