"""The life of a training job: one pure step from what is to what should be.

:func:`advance` is called after every change and at every resync with the whole present state; it never depends on
having seen an event. It answers with the status to write and the pods to create and to delete. The caller writes the
status first, so that a crash in between is taken up where it was: names of pods are a function of attempt and rank,
and a placement stands in the status before its first pod exists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from berth.training.attempts import begin, complete, end, fail, placement_words, refund, with_avoided
from berth.training.records import Placement
from berth.training.recovery import REFUSED, Fault, Rule, backoff_seconds, find_fault, lost_after_failure, quick_ends
from berth.training.state import (
    ACTIVE,
    FINISHED,
    Cause,
    Checkpoint,
    Delete,
    Event,
    JobState,
    NodeState,
    Phase,
    Step,
    Worker,
)
from berth.values import format_duration

PROBLEM_SECONDS = 60.0
"""How long a container that cannot start may hold the whole gang's room."""


@dataclass(frozen=True, slots=True)
class Job:
    """What the spec says, as far as the lifecycle needs it. Durations in seconds, None: no limit.

    ``rejected`` is (condition type, reason, message) while the job cannot be accepted as it is.
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
    usd_per_accelerator_hour: float = 0.0
    rejected: tuple[str, str, str] | None = None

    @property
    def accelerators(self) -> int:
        """Devices of the whole gang."""
        return self.workers * self.accelerators_per_worker


@dataclass(frozen=True, slots=True)
class Sight:
    """What the caller sees besides the job: its pods, its nodes, and how long each pod has been unable to start."""

    workers: Sequence[Worker]
    nodes: Mapping[str, NodeState]
    now: float
    stuck_since: Mapping[str, float]  # pod uid -> Unix seconds
    placed: Placement | None = None
    checkpoint: Checkpoint | None = None
    refused_create: str = ""  # the API server's words when it refused to create a pod of the current attempt


def advance(job: Job, state: JobState, sight: Sight) -> Step:
    """The next step of ``job``. Applying it and calling again with nothing changed gives a step that does nothing."""
    if job.deleting:
        return Step(state)
    if state.phase in FINISHED:
        return _finished(job, state, sight)
    if job.suspended:
        return _suspended(job, state, sight)
    if state.phase in ACTIVE:
        return _active(job, state, sight)
    return _idle(job, state, sight)


def _finished(job: Job, state: JobState, sight: Sight) -> Step:
    delete, wake = _clear(job, sight.workers, sight)
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
            state = end(job, state, sight.now, Fault(Cause.SUSPEND, "spec.suspend is true"))
        message = "Suspended by spec.suspend; set it to false to queue the job again"
        state = replace(state, phase=Phase.SUSPENDED, message=message, ready_workers=0, start_attempts=0, avoid=())
        state = state.with_condition("Suspended", True, "SpecSuspend", message, now=sight.now)
        if _is_true(state, "Placed"):
            state = state.with_condition("Placed", False, "Released", message, now=sight.now)
        events = (Event("Suspended", message),)
    delete, wake = _clear(job, sight.workers, sight, grace=None)
    return Step(state, delete=delete, events=events, wake_after=wake)


def _idle(job: Job, state: JobState, sight: Sight) -> Step:
    events: list[Event] = []
    if state.phase == Phase.SUSPENDED:
        state = replace(state, phase=Phase.QUEUED, message="Waiting for a placement")
        state = state.with_condition("Suspended", False, "Resumed", now=sight.now)
        events.append(Event("Resumed", "spec.suspend is false: queued again"))
    delete, wake = _clear(job, sight.workers, sight)
    live = [worker for worker in sight.workers if not worker.ended]
    gone = lost_after_failure(state, sight.nodes, sight.now, held=bool(live))
    if gone:
        state, event_refund = refund(state, gone, sight.now)
        events.append(event_refund)
    if live:
        if state.phase == Phase.RESTARTING:
            state = replace(state, message=_barrier_message(job, state, live, sight))
        return Step(state, delete=delete, events=tuple(events), wake_after=wake)
    if job.rejected is not None:
        state, event = _reject(job.rejected, state, sight.now)
        return Step(state, delete=delete, events=(*events, *event))
    state, accepted = _accept(job, state, sight.now)
    events += accepted
    wait = _backoff_left(state, sight.now)
    if wait > 0:
        return Step(state, delete=delete, events=tuple(events), wake_after=wait)
    if sight.placed is None:
        return Step(state, delete=delete, events=tuple(events), wants_placement=True)
    state, event_placed = begin(job, state, sight.now, sight.placed, sight.checkpoint)
    ranks = tuple(range(job.workers))
    return Step(state, create=ranks, delete=delete, events=(*events, event_placed), wake_after=job.start_timeout)


def _active(job: Job, state: JobState, sight: Sight) -> Step:
    attempt = state.current
    assert attempt is not None
    mine = [worker for worker in sight.workers if worker.attempt == state.attempt]
    others = [worker for worker in sight.workers if worker.attempt != state.attempt]
    delete = (*_clear(job, others, sight)[0], *_past(others, state.attempt - 1))
    present = {worker.rank for worker in mine}
    missing = [rank for rank in range(attempt.workers) if rank not in present]
    if not missing and mine and all(worker.phase == "Succeeded" for worker in mine):
        state, event = complete(job, state, sight.now)
        return Step(state, delete=delete, events=(event,))
    nodes = state.placement.nodes if state.placement else ()
    running = state.phase == Phase.RUNNING
    fault = find_fault(
        mine, sight.nodes, job.rules, missing=missing if running else (), placed_on=nodes
    )  # fmt: skip
    if fault is None and not running:
        fault = _start_fault(job, state, sight, mine, missing)
    if fault is not None:
        return _stop(job, state, sight, fault)
    if running:
        return _running(job, replace(state, ready_workers=_ready(mine)), sight, delete)
    if not missing and all(worker.started for worker in mine):
        return _started(job, state, sight, delete, _ready(mine))
    return _starting(job, state, sight, mine, tuple(missing), delete)


def _starting(
    job: Job,
    state: JobState,
    sight: Sight,
    mine: Sequence[Worker],
    missing: tuple[int, ...],
    delete: tuple[Delete, ...],
) -> Step:
    attempt = state.current
    assert attempt is not None
    wake = attempt.start + job.start_timeout - sight.now
    problem = next((worker for worker in mine if worker.problem), None)
    message = state.message
    if problem is not None:
        message = f"{problem.name} cannot start: {problem.problem}"
        wake = min(wake, sight.stuck_since.get(problem.uid, sight.now) + PROBLEM_SECONDS - sight.now)
        state = state.with_condition("AllRunning", False, "CannotStart", message, now=sight.now)
    elif state.conditions["AllRunning"].reason == "CannotStart":
        message = f"Starting {job.workers} workers on {attempt.pool}"
        state = state.with_condition("AllRunning", False, "Starting", now=sight.now)
    state = replace(state, message=message, ready_workers=_ready(mine))
    return Step(state, create=missing, delete=delete, wake_after=max(wake, 0.1))


def _started(job: Job, state: JobState, sight: Sight, delete: tuple[Delete, ...], ready: int) -> Step:
    attempt = state.current
    assert attempt is not None
    took = format_duration(sight.now - attempt.start)
    message = f"All {attempt.workers} workers run on {attempt.pool}"
    state = replace(
        state,
        phase=Phase.RUNNING,
        message=message,
        ready_workers=ready,
        start_attempts=0,
        avoid=(),
        start_time=state.start_time if state.start_time is not None else sight.now,
    ).with_condition("AllRunning", True, "AllRanksRun", now=sight.now)
    where = f", {placement_words(state.placement)}" if state.placement else ""
    event = Event("Started", f"attempt {state.attempt}: {attempt.workers} workers run{where}, {took} after placement")
    return _running(job, state, sight, delete, (event,))


def _running(
    job: Job, state: JobState, sight: Sight, delete: tuple[Delete, ...], events: tuple[Event, ...] = ()
) -> Step:
    wake = None
    if job.max_duration is not None:
        left = job.max_duration - state.ran_before - (sight.now - state.conditions["AllRunning"].since)
        if left <= 0:
            words = f"ran for spec.maxDuration ({format_duration(job.max_duration)}) over {state.attempt} attempts"
            ended = end(job, state, sight.now, Fault(Cause.FAILURE, words))
            state, event = fail(ended, sight.now, "DeadlineExceeded", words)
            removed, wake = _clear(job, sight.workers, sight, grace=None)
            return Step(state, delete=removed, events=(*events, event), wake_after=wake)
        wake = left
    return Step(state, delete=delete, events=events, wake_after=wake)


def _start_fault(
    job: Job, state: JobState, sight: Sight, mine: Sequence[Worker], missing: Sequence[int]
) -> Fault | None:
    """Why a gang that is starting must give its room back, or None."""
    attempt, placement = state.current, state.placement
    assert attempt is not None
    waiting = {worker.node for worker in mine if not worker.bound and not worker.ended}
    if placement is not None:
        waiting |= {placement.nodes[rank] for rank in missing}
    unfit = sorted(node for node in waiting if node and sight.nodes.get(node, NodeState.OK) != NodeState.OK)
    if unfit:
        states = {sight.nodes[node].lower() for node in unfit}
        return Fault(Cause.INFRASTRUCTURE, f"node {unfit[0]} became {' and '.join(sorted(states))}", tuple(unfit))
    if sight.refused_create:
        return Fault(Cause.START, f"a pod cannot be created: {sight.refused_create}")
    refused = [worker for worker in mine if worker.refused]
    if refused:
        words = f"{REFUSED} {refused[0].name} on {refused[0].node}: {refused[0].refused}"
        return Fault(Cause.START, words, tuple(sorted({worker.node for worker in refused})))
    for worker in mine:
        since = sight.stuck_since.get(worker.uid)
        if worker.problem and since is not None and sight.now - since >= PROBLEM_SECONDS:
            return Fault(Cause.START, f"{worker.name} cannot start: {worker.problem}")
    if sight.now - attempt.start >= job.start_timeout:
        late = sum(not worker.started for worker in mine) + len(missing)
        if late:  # else all run, and only this look is late
            words = f"{late} of {attempt.workers} workers did not run within {format_duration(job.start_timeout)}"
            return Fault(Cause.START, words, rule="StartTimedOut")
    return None


def _stop(job: Job, state: JobState, sight: Sight, fault: Fault) -> Step:
    """End the attempt for ``fault``: all pods go, and the job waits for its next attempt or has failed."""
    ended = end(job, state, sight.now, fault)
    events = [_fault_event(fault)]
    reason, words = _fatal(job, ended, fault)
    if reason:
        ended, event = fail(ended, sight.now, reason, words)
        events.append(event)
    else:
        avoid = with_avoided(state.avoid, fault.avoid)
        ended = replace(ended, phase=Phase.RESTARTING, message=f"Restarting: {fault.message}", avoid=avoid)
        ended = ended.with_condition("Placed", False, "Restarting", fault.message, now=sight.now)
        events.append(Event("Restarting", f"after attempt {state.attempt}, not charged: {fault.message}"
                            if fault.cause != Cause.FAILURE else
                            f"after attempt {state.attempt}, {ended.restarts.failure} of {job.max_restarts} "
                            f"restarts used: {fault.message}"))  # fmt: skip
    delete, wake = _clear(job, sight.workers, sight)
    return Step(ended, delete=delete, events=tuple(events), wake_after=wake if wake is not None else 0.0)


def _fault_event(fault: Fault) -> Event:
    if fault.rule == "StartTimedOut":
        return Event("StartTimedOut", fault.message, warning=True)
    lost = fault.cause == Cause.INFRASTRUCTURE and fault.message.startswith(("node ", "nodes "))
    reason = "NodeLost" if lost else "WorkerFailed"
    return Event(reason, fault.message, warning=True)


def _fatal(job: Job, state: JobState, fault: Fault) -> tuple[str, str]:
    if fault.fatal:
        return "RuleFailed", fault.message
    if fault.cause == Cause.FAILURE and state.restarts.failure > job.max_restarts:
        return "MaxRestartsExceeded", f"{fault.message}; spec.recovery.maxRestarts is {job.max_restarts}"
    if fault.cause == Cause.START and state.start_attempts >= job.max_start_attempts:
        return "StartFailed", f"{fault.message}; spec.maxStartAttempts is {job.max_start_attempts}"
    return "", ""


def _accept(job: Job, state: JobState, now: float) -> tuple[JobState, tuple[Event, ...]]:
    quota = state.conditions.get("QuotaReserved")
    refused = quota is not None and quota.status == "False"
    new = not _is_true(state, "Accepted")
    if not refused and not new:
        return state, ()
    if refused:
        state = state.with_condition("QuotaReserved", True, "Admitted", now=now)
    state = state.with_condition("Accepted", True, "Valid", now=now)
    state = replace(state, phase=state.phase or Phase.QUEUED, message="Waiting for a placement")
    event = Event("Accepted", f"{job.workers} workers of {job.accelerators_per_worker} accelerators")
    return state, (event,) if new else ()


def _reject(rejected: tuple[str, str, str], state: JobState, now: float) -> tuple[JobState, tuple[Event, ...]]:
    kind, reason, message = rejected
    changed = state.with_condition(kind, False, reason, message, now=now)
    if changed is state and state.message == message:
        return state, ()
    state = replace(changed, phase=state.phase or Phase.QUEUED, message=message)
    return state, (Event("Rejected", message, warning=True),)


def _backoff_left(state: JobState, now: float) -> float:
    """Seconds until the next attempt may start; a first refusal by kube-scheduler costs none."""
    if not state.attempts or state.attempts[-1].end is None:
        return 0.0
    last = state.attempts[-1]
    if last.cause == Cause.START:
        tries = state.start_attempts - (1 if last.message.startswith(REFUSED) else 0)
    else:
        tries = quick_ends(state.attempts)
    return (last.end or now) + backoff_seconds(tries) - now


def _clear(
    job: Job, workers: Sequence[Worker], sight: Sight, *, grace: int | None = -1
) -> tuple[tuple[Delete, ...], float | None]:
    """Deletions that rid the job of ``workers`` that still live, and when to look again.

    A pod on a node that is gone is removed by force at once, one on an unreachable node after
    ``force_delete_after``; nobody else would ever remove it. ``grace`` -1 means the job's restart grace.
    """
    period = job.grace if grace == -1 else grace
    deletes: list[Delete] = []
    wake: float | None = None
    for worker in workers:
        if worker.ended or worker.forced:
            continue
        node = sight.nodes.get(worker.node, NodeState.OK) if worker.bound else NodeState.OK
        if node == NodeState.GONE:
            deletes.append(Delete(worker.name, worker.uid, 0))
        elif worker.deleting_since is None:
            deletes.append(Delete(worker.name, worker.uid, period))
        elif node == NodeState.UNREACHABLE and job.force_delete_after is not None:
            left = worker.deleting_since + job.force_delete_after - sight.now
            if left <= 0:
                deletes.append(Delete(worker.name, worker.uid, 0))
            else:
                wake = min(left, wake) if wake is not None else left
    return tuple(deletes), wake


def _past(workers: Sequence[Worker], before: int) -> tuple[Delete, ...]:
    """Deletions of pods that have ended and whose attempt is older than ``before``, whose logs stay to be read."""
    return tuple(
        Delete(worker.name, worker.uid)
        for worker in workers
        if worker.ended and worker.attempt < before and worker.deleting_since is None
    )


def _barrier_message(job: Job, state: JobState, live: Sequence[Worker], sight: Sight) -> str:
    held = sorted(worker.node for worker in live if sight.nodes.get(worker.node) == NodeState.UNREACHABLE)
    cause = state.attempts[-1].message if state.attempts else ""
    if held:
        remedy = "or set spec.recovery.forceDeleteAfter"
        if job.force_delete_after is not None:
            remedy = f"or wait for spec.recovery.forceDeleteAfter ({format_duration(job.force_delete_after)})"
        return (
            f"Restarting: node {held[0]} is unreachable and holds {held.count(held[0])} of the old pods; add the taint "
            f"node.kubernetes.io/out-of-service to it, {remedy}"
        )
    return f"Restarting: {cause}"


def _ready(workers: Sequence[Worker]) -> int:
    return sum(worker.started for worker in workers)


def _is_true(state: JobState, kind: str) -> bool:
    condition = state.conditions.get(kind)
    return condition is not None and condition.status == "True"
