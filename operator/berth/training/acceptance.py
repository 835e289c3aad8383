"""Whether a job may want a placement: what speaks against it, said once, and taken back when the reason is gone."""

from __future__ import annotations

from dataclasses import replace

from berth.api.conditions import INTERNAL_ERROR
from berth.training.job import Job
from berth.training.state import ACTIVE, FINISHED, Event, JobState, Phase
from berth.values import plural

WAITING = "Waiting for a placement"
NAME_HELD = "NameHeld"
PODS_ENDING = "PodsEnding"


def accept(job: Job, state: JobState, now: float) -> tuple[JobState, tuple[Event, ...]]:
    """The job is valid and its quota allows a worker; an event only for what is new."""
    refused, new = state.is_false("QuotaReserved"), not state.is_true("Accepted")
    if not refused and not new:
        return state, ()
    if refused:
        state = state.with_condition("QuotaReserved", True, "Admitted", now=now)
    state = state.with_condition("Accepted", True, "Valid", now=now)
    state = replace(state, phase=state.phase or Phase.QUEUED, message=WAITING)
    event = Event(
        "Accepted", f"{plural(job.workers, 'worker')} of {plural(job.accelerators_per_worker, 'accelerator')}"
    )
    return state, (event,) if new else ()


def reject(rejected: tuple[str, str, str], state: JobState, now: float) -> tuple[JobState, tuple[Event, ...]]:
    """The job cannot be accepted as it is: (condition type, reason, message)."""
    kind, reason, message = rejected
    changed = state.with_condition(kind, False, reason, message, now=now)
    if changed is state and state.message == message:
        return state, ()
    state = replace(changed, phase=state.phase or Phase.QUEUED, message=message)
    return state, (Event("Rejected", message, warning=True),)


def defect(state: JobState, words: str, now: float) -> JobState:
    """A look at the job failed by a defect of ours, said once; the message of a gang that is up stays its own."""
    accepted = state.conditions.get("Accepted")
    if accepted is not None and accepted.reason == INTERNAL_ERROR:
        return state
    state = state.with_condition("Accepted", False, INTERNAL_ERROR, words, now=now)
    if state.phase in ACTIVE or state.phase in FINISHED:
        return state
    return replace(state, phase=state.phase or Phase.QUEUED, message=words)


def recovered(state: JobState, now: float) -> JobState:
    """Take back what :func:`defect` said: this look did not fail."""
    accepted = state.conditions.get("Accepted")
    if accepted is None or accepted.reason != INTERNAL_ERROR:
        return state
    return state.with_condition("Accepted", True, "Valid", now=now)


def await_name(state: JobState, holder: str, now: float) -> JobState:
    """``holder`` is a pod of an earlier job of this name, still there under a name that the next attempt needs.

    With an empty ``holder`` what was said of an earlier one is taken back.
    """
    words = f"Waiting until pod {holder} of an earlier job of this name is gone" if holder else ""
    return _awaiting(state, NAME_HELD, words, now)


def await_end(state: JobState, ending: str, now: float) -> JobState:
    """``ending`` says which pod of an earlier attempt has not ended; empty: none, and what was said is taken back."""
    return _awaiting(state, PODS_ENDING, f"Waiting until {ending}" if ending else "", now)


def _awaiting(state: JobState, reason: str, words: str, now: float) -> JobState:
    if words:
        return replace(state.with_condition("Placed", False, reason, words, now=now), message=words)
    placed = state.conditions.get("Placed")
    if placed is None or placed.reason != reason:
        return state
    return replace(state.without_condition("Placed"), message=WAITING)
