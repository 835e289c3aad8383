"""A gang that starts: what is said of it, and why it must give its room back before all its ranks run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from berth.training.attempts import starting_words
from berth.training.job import Job, Sight
from berth.training.recovery import Fault
from berth.training.state import Cause, Delete, JobState, NodeState, Reason, Step, Worker
from berth.values import format_duration, plural

GROUP_PHRASES = ("pod group", "podgroup", "mincount")
"""What kube-scheduler's words name where it refuses a pod because its native gang does not fit as a whole."""
PROBLEM_SECONDS = 60.0
"""How long a container that cannot start may hold the whole gang's room."""


def starting(
    job: Job,
    state: JobState,
    sight: Sight,
    mine: Sequence[Worker],
    missing: tuple[int, ...],
    delete: tuple[Delete, ...],
) -> Step:
    """The start goes on: the pods of the ranks ``missing`` are created, and a container's problem is said at once."""
    attempt = state.current
    assert attempt is not None
    wake = attempt.start + job.start_timeout - sight.now
    problem = next((worker for worker in mine if worker.problem), None)
    message = state.message
    if problem is not None:
        message = f"{problem.name} cannot start: {problem.problem}"
        wake = min(wake, sight.stuck_since.get(problem.uid, sight.now) + PROBLEM_SECONDS - sight.now)
        state = state.with_condition("AllRunning", False, Reason.CANNOT_START.value, message, now=sight.now)
    elif state.conditions["AllRunning"].reason == Reason.CANNOT_START:
        message = starting_words(job.workers, attempt.pool)
        state = state.with_condition("AllRunning", False, "Starting", now=sight.now)
    state = replace(state, message=message, ready_workers=ready(state, mine))
    return Step(state, create=missing, delete=delete, wake_after=max(wake, 0.1))


def ready(state: JobState, mine: Sequence[Worker]) -> int:
    """Ranks of the attempt that run or have finished, by its pods ``mine`` and what is remembered of those gone."""
    return sum(worker.started for worker in mine) + len(state.finished)


def start_fault(
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
        words = f"node {unfit[0]} became {' and '.join(sorted(states))}"
        return Fault(Cause.INFRASTRUCTURE, Reason.NODE_LOST, words, tuple(unfit))
    if sight.refused is not None:
        if sight.refused.reason == Reason.QUOTA_EXCEEDED:
            return Fault(Cause.QUOTA, sight.refused.reason, sight.refused.message)
        return Fault(Cause.START, sight.refused.reason, f"a pod cannot be created: {sight.refused.message}")
    refused = [worker for worker in mine if worker.refused]
    refused = [worker for worker in refused if not _of_its_group(worker.refused)] or refused
    if refused:
        words = f"kube-scheduler refuses {refused[0].name} on {refused[0].node}: {refused[0].refused}"
        nodes = tuple(sorted({worker.node for worker in refused}))
        return Fault(Cause.START, Reason.UNSCHEDULABLE, words, nodes)
    for worker in mine:
        since = sight.stuck_since.get(worker.uid)
        if worker.problem and since is not None and sight.now - since >= PROBLEM_SECONDS:
            return Fault(Cause.START, Reason.CANNOT_START, f"{worker.name} cannot start: {worker.problem}")
    if sight.now - attempt.start >= job.start_timeout:
        late = sum(not worker.started for worker in mine) + len(missing)
        if late:  # else all run, and only this look is late
            of = f"{late} of {plural(attempt.workers, 'worker')}"
            words = f"{of} did not run within {format_duration(job.start_timeout)}{_example(mine)}"
            return Fault(Cause.START, Reason.TIMED_OUT, words)
    return None


def _of_its_group(words: str) -> bool:
    """Whether kube-scheduler refuses a pod for the sake of the others of its group, in whose words the cause stands."""
    return any(phrase in words.lower() for phrase in GROUP_PHRASES)


def _example(mine: Sequence[Worker]) -> str:
    """What is known of one of the pods that are late, best of one with a problem; "" where none exists."""
    late = sorted(
        (worker for worker in mine if not worker.started), key=lambda worker: (not worker.problem, worker.rank)
    )
    if not late:
        return ""
    worker = late[0]
    if worker.problem:
        return f": {worker.name} cannot start: {worker.problem}"
    how = "not bound to its node" if not worker.bound else "not ready" if worker.phase == "Running" else "Pending"
    return f": {worker.name} on {worker.node or 'no node'} is {how}"
