"""The life of a training job: one pure step from what is to what should be.

:func:`advance` is called after every change and at every resync with the whole present state; it never depends on
having seen an event. It answers with the status to write and the pods to create and to delete. The caller writes the
status first, so that a crash in between is taken up where it was: names of pods are a function of attempt and rank,
and a placement stands in the status before its first pod exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

from berth.training.acceptance import WAITING, accept, await_end, await_name, recovered, reject
from berth.training.attempts import (
    begin,
    complete,
    end,
    fail,
    placement_words,
    refund,
    released,
    resolve_lineage,
    with_avoided,
)
from berth.training.clearing import barrier_message, clear, ending_words, past
from berth.training.job import Job, Sight
from berth.training.recovery import (
    REFUND_SECONDS,
    Fault,
    awaits_quota,
    backoff_left,
    exhausted,
    find_fault,
    lost_after_failure,
    refund_left,
)
from berth.training.starting import ready, start_fault, starting
from berth.training.state import ACTIVE, FINISHED, Cause, Delete, Event, JobState, Phase, Reason, Step, Worker
from berth.values import format_duration, plural

NAME_SECONDS = 2.0
"""How often a job looks whether the pods of an earlier one of its name are gone."""


def advance(job: Job, state: JobState, sight: Sight) -> Step:
    """The next step of ``job``. Applying it and calling again with nothing changed gives a step that does nothing."""
    if job.deleting:
        return Step(state)
    if state.phase in ACTIVE or state.phase in FINISHED or job.suspended:
        state = recovered(state, sight.now)
    if state.phase in FINISHED:
        return _finished(job, state, sight)
    if job.suspended:
        return _suspended(job, state, sight)
    if state.phase in ACTIVE:
        return _active(job, state, sight)
    return _idle(job, state, sight)


def _finished(job: Job, state: JobState, sight: Sight) -> Step:
    delete, wake = clear(job, sight.workers, sight)
    if job.ttl is not None and state.completion_time is not None:
        left = state.completion_time + job.ttl - sight.now
        if left <= 0:
            return Step(state, delete=delete, remove_job=True)
        wake = min(left, wake) if wake is not None else left
    return Step(state, delete=delete, wake_after=wake)


def _suspended(job: Job, state: JobState, sight: Sight) -> Step:
    events: tuple[Event, ...] = ()
    if state.phase != Phase.SUSPENDED:
        if state.current is not None:
            state = end(job, state, sight.now, Fault(Cause.SUSPEND, Reason.SUSPENDED, "spec.suspend is true"))
        message = "Suspended by spec.suspend; set it to false to queue the job again"
        state = replace(state, phase=Phase.SUSPENDED, message=message, ready_workers=0, start_attempts=0, avoid=())
        state = state.with_condition("Suspended", True, "SpecSuspend", message, now=sight.now)
        if state.is_false("QuotaReserved"):
            state = state.without_condition("QuotaReserved")  # asked anew when it is resumed
        state = released(state, message, sight.now)
        events = (Event("Suspended", message),)
    delete, wake = clear(job, sight.workers, sight, grace=None)
    return Step(state, delete=delete, events=events, wake_after=wake)


def _idle(job: Job, state: JobState, sight: Sight) -> Step:
    events: list[Event] = []
    if state.phase == Phase.SUSPENDED:
        state = replace(state, phase=Phase.QUEUED, message=WAITING)
        state = state.with_condition("Suspended", False, "Resumed", now=sight.now)
        events.append(Event("Resumed", "spec.suspend is false: queued again"))
    delete, wake = clear(job, sight.workers, sight)
    live = [worker for worker in sight.workers if not worker.ended]
    lost = lost_after_failure(state, sight.nodes, sight.now, held=bool(live))
    if lost:
        state, event_refund = refund(state, lost, sight.nodes[lost[0]].lower(), sight.now)
        events.append(event_refund)
    if exhausted(state, job.max_restarts):
        left = refund_left(state, sight.now)
        if left > 0:
            wake = left if wake is None else min(left, wake)
            return Step(state, delete=delete, events=tuple(events), wake_after=wake)
        state, event_failed = fail(state, sight.now, "MaxRestartsExceeded", _exhausted_words(job, state))
        return Step(state, delete=delete, events=(*events, event_failed), wake_after=wake)
    if live:
        if state.phase == Phase.RESTARTING:
            state = replace(state, message=barrier_message(job, state, live, sight))
        elif state.phase is not None and not awaits_quota(state):
            state = await_end(state, ending_words(live), sight.now)
        return Step(state, delete=delete, events=tuple(events), wake_after=wake)
    state = await_end(state, "", sight.now)
    if job.rejected is not None:
        state, event = reject(job.rejected, state, sight.now)
        return Step(state, delete=delete, events=(*events, *event))
    wait = backoff_left(job.name, state, sight.now)
    if wait <= 0 or not awaits_quota(state):
        state, accepted = accept(job, state, sight.now)
        events += accepted
    if wait > 0:
        return Step(state, delete=delete, events=tuple(events), wake_after=wait)
    state = await_name(state, sight.name_held, sight.now)
    if sight.name_held:
        return Step(state, delete=delete, events=tuple(events), wake_after=NAME_SECONDS)
    if sight.placed is None:
        return Step(state, delete=delete, events=tuple(events), wants_placement=True)
    state, event_placed = begin(job, state, sight.now, sight.placed, sight.checkpoint, sight.price)
    ranks = tuple(range(job.workers))
    return Step(state, create=ranks, delete=delete, events=(*events, event_placed), wake_after=job.start_timeout)


def _active(job: Job, state: JobState, sight: Sight) -> Step:
    attempt = state.current
    running = state.phase == Phase.RUNNING
    if attempt is None or not (running or state.placed_now):
        return _lost_track(job, state, sight)
    if running != state.is_true("AllRunning") or "AllRunning" not in state.conditions:  # a status edited by hand
        reason = "AllRanksRun" if running else "Starting"
        state = state.with_condition("AllRunning", running, reason, now=sight.now)
    mine = [worker for worker in sight.workers if worker.attempt == state.attempt]
    others = [worker for worker in sight.workers if worker.attempt != state.attempt]
    delete = (*clear(job, others, sight)[0], *past(others, state.attempt - 1))
    present = {worker.rank for worker in mine}
    gone = frozenset(rank for rank in {*state.finished, *sight.finished} - present if rank < attempt.workers)
    state = replace(state, finished=gone) if gone != state.finished else state
    missing = [rank for rank in range(attempt.workers) if rank not in present and rank not in gone]
    if not missing and all(worker.finished for worker in mine):
        state, event = complete(job, state, sight.now, mine)
        return Step(state, delete=delete, events=(event,))
    nodes = state.placement.nodes if state.placement else ()
    fault = find_fault(mine, sight.nodes, job.rules, missing=missing if running else (), placed_on=nodes)
    if fault is None and not running:
        fault = start_fault(job, state, sight, mine, missing)
    if fault is not None:
        return _stop(job, state, sight, fault)
    if running:
        return _running(job, replace(state, ready_workers=ready(state, mine)), sight, delete)
    if not missing and all(worker.started for worker in mine):
        return _started(job, state, sight, mine, delete)
    return starting(job, state, sight, mine, tuple(missing), delete)


def _lost_track(job: Job, state: JobState, sight: Sight) -> Step:
    """The status does not say what attempt there is or where: whatever there is goes, and the next one begins."""
    words = "the status no longer says what the attempt was; it is not charged"
    if state.current is not None:
        return _stop(job, state, sight, Fault(Cause.INFRASTRUCTURE, Reason.STATUS_LOST, words))
    state = replace(state, phase=Phase.RESTARTING, message=f"Restarting: {words}", ready_workers=0)
    state = state.with_condition("Placed", False, "Restarting", words, now=sight.now)
    state = state.with_condition("AllRunning", False, Reason.STATUS_LOST.value, words, now=sight.now)
    delete, wake = clear(job, sight.workers, sight)
    event = Event("Restarting", words, warning=True)
    return Step(state, delete=delete, events=(event,), wake_after=wake if wake is not None else 0.0)


def _started(job: Job, state: JobState, sight: Sight, mine: Sequence[Worker], delete: tuple[Delete, ...]) -> Step:
    attempt = state.current
    assert attempt is not None
    took = format_duration(sight.now - attempt.start)
    run = f"All {attempt.workers} workers run" if attempt.workers != 1 else "The worker runs"
    message = f"{run} on {attempt.pool}"
    state = replace(
        state,
        phase=Phase.RUNNING,
        message=message,
        ready_workers=ready(state, mine),
        start_attempts=0,
        avoid=(),
        lineage=resolve_lineage(job, mine),
        start_time=state.start_time if state.start_time is not None else sight.now,
    ).with_condition("AllRunning", True, "AllRanksRun", now=sight.now)
    where = f", {placement_words(state.placement)}" if state.placement else ""
    run = f"{attempt.workers} workers run" if attempt.workers != 1 else "1 worker runs"
    event = Event("Started", f"attempt {state.attempt}: {run}{where}, {took} after placement")
    return _running(job, state, sight, delete, (event,))


def _running(
    job: Job, state: JobState, sight: Sight, delete: tuple[Delete, ...], events: tuple[Event, ...] = ()
) -> Step:
    wake = None
    if job.max_duration is not None:
        left = job.max_duration - state.ran_before - max(sight.now - state.conditions["AllRunning"].since, 0.0)
        if left <= 0:
            over = plural(state.attempt, "attempt")
            words = f"ran for spec.maxDuration ({format_duration(job.max_duration)}) over {over}"
            ended = end(job, state, sight.now, Fault(Cause.FAILURE, Reason.DEADLINE_EXCEEDED, words))
            state, event = fail(ended, sight.now, "DeadlineExceeded", words)
            removed, wake = clear(job, sight.workers, sight, grace=None)
            return Step(state, delete=removed, events=(*events, event), wake_after=wake)
        wake = left
    return Step(state, delete=delete, events=events, wake_after=wake)


def _stop(job: Job, state: JobState, sight: Sight, fault: Fault) -> Step:
    """End the attempt for ``fault``: all pods go, and the job waits for its next attempt or has failed."""
    ended = end(job, state, sight.now, fault)
    events = [Event(_EVENTS.get(fault.reason, "WorkerFailed"), fault.message, warning=True)]
    reason, words = _fatal(job, ended, fault)
    doubtful = reason == "MaxRestartsExceeded" and refund_left(ended, sight.now) > 0
    if reason and not doubtful:
        ended, event = fail(ended, sight.now, reason, words)
        events.append(event)
    elif fault.cause == Cause.QUOTA:
        ended = replace(ended, phase=Phase.QUEUED, message=fault.message)
        ended = ended.with_condition("QuotaReserved", False, fault.reason.value, fault.message, now=sight.now)
        ended = released(ended, fault.message, sight.now)
    else:
        ended = replace(
            ended,
            phase=Phase.RESTARTING,
            message=f"Restarting: {fault.message}",
            avoid=with_avoided(state.avoid, fault.avoid),
        ).with_condition("Placed", False, "Restarting", fault.message, now=sight.now)
        if doubtful:
            within = format_duration(REFUND_SECONDS)
            ended = replace(ended, message=f"{words}: the job fails, unless a node is found lost within {within}")
        used = f"{ended.restarts.failure} of {plural(job.max_restarts, 'restart')} used"
        charge = used if fault.cause == Cause.FAILURE else "not charged"
        if not doubtful:
            events.append(Event("Restarting", f"after attempt {state.attempt}, {charge}: {fault.message}"))
    delete, wake = clear(job, sight.workers, sight)
    return Step(ended, delete=delete, events=tuple(events), wake_after=wake if wake is not None else 0.0)


_EVENTS = {
    Reason.NODE_LOST: "NodeLost",
    Reason.TIMED_OUT: "StartTimedOut",
    Reason.QUOTA_EXCEEDED: "Rejected",
}
"""Reasons of events for what ended an attempt; every other one is WorkerFailed."""


def _fatal(job: Job, state: JobState, fault: Fault) -> tuple[str, str]:
    if fault.fatal:
        return "RuleFailed", fault.message
    if exhausted(state, job.max_restarts):
        return "MaxRestartsExceeded", _exhausted_words(job, state)
    if fault.cause == Cause.START and state.start_attempts >= job.max_start_attempts:
        return "StartFailed", f"{fault.message}{_told_before(state)}; spec.maxStartAttempts is {job.max_start_attempts}"
    return "", ""


def _exhausted_words(job: Job, state: JobState) -> str:
    return f"{state.attempts[-1].message}; spec.recovery.maxRestarts is {job.max_restarts}"


def _told_before(state: JobState) -> str:
    """Why an earlier start of the same row failed, where the last one only says that it took too long."""
    if state.attempts[-1].reason != Reason.TIMED_OUT:
        return ""
    row = takewhile(lambda attempt: attempt.cause == Cause.START, reversed(state.attempts))
    telling = next((attempt for attempt in row if attempt.reason != Reason.TIMED_OUT), None)
    return f"; attempt {telling.number}: {telling.message}" if telling is not None else ""
