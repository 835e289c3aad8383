"""Which pods are deleted, how, and what is said while they hold the next attempt back.

A pod on a node that is gone is removed by force at once, one on an unreachable node after ``force_delete_after``:
nobody else would ever remove it.
"""

from __future__ import annotations

from collections.abc import Sequence

from berth.api.common import rfc3339
from berth.training.job import Job, Sight
from berth.training.recovery import backoff_left, exhausted
from berth.training.state import Delete, JobState, NodeState, Phase, Worker
from berth.values import format_duration

RETURN_SECONDS = 60.0
"""For so long beyond its grace period a gang that restarts keeps its nodes. What ends later waits for a kubelet
that may never answer, and healthy nodes must not wait with it."""


def clear(
    job: Job, workers: Sequence[Worker], sight: Sight, *, grace: int | None = -1
) -> tuple[tuple[Delete, ...], float | None]:
    """Deletions that rid the job of ``workers`` that still live, and in how many seconds to look again.

    ``grace`` -1 means the job's restart grace, None the pod's own.
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


def past(workers: Sequence[Worker], before: int) -> tuple[Delete, ...]:
    """Deletions of pods that have ended and whose attempt is older than ``before``, whose logs stay to be read."""
    return tuple(
        Delete(worker.name, worker.uid)
        for worker in workers
        if worker.ended and worker.attempt < before and worker.deleting_since is None
    )


def kept_nodes(job: Job, state: JobState, sight: Sight) -> tuple[str, ...]:
    """The nodes that a gang which restarts keeps from those behind it in the queue, until it asks for its placement.

    Those of its last attempt, but for lost and barred ones and those it avoids; for a bounded time, and not while
    only a pause after failures is waited for.
    """
    last = state.attempts[-1] if state.attempts else None
    if state.phase != Phase.RESTARTING or last is None or last.end is None or job.suspended or job.deleting:
        return ()
    if state.placement is None or state.placement_attempt != last.number:
        return ()
    if sight.now - last.end > job.grace + RETURN_SECONDS or exhausted(state, job.max_restarts):
        return ()
    if all(worker.ended for worker in sight.workers) and backoff_left(job.name, state, sight.now) > 0:
        return ()
    nodes = (node for node in dict.fromkeys(state.placement.nodes) if node not in state.avoid)
    return tuple(node for node in nodes if sight.nodes.get(node, NodeState.OK) == NodeState.OK)


def barrier_message(job: Job, state: JobState, live: Sequence[Worker], sight: Sight) -> str:
    """Why a job that restarts has no placement yet: its old pods ``live``."""
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
    ending = ending_words(live)
    return f"Restarting: {cause}" + (f"; waiting until {ending}" if ending else "")


def ending_words(live: Sequence[Worker]) -> str:
    """Which of the pods ``live`` has been ending the longest; "" where none is being deleted."""
    leaving = [(worker.deleting_since, worker.rank, worker) for worker in live if worker.deleting_since is not None]
    if not leaving:
        return ""
    since, _, pod = min(leaving, key=lambda entry: entry[:2])
    where = f" on {pod.node}" if pod.node else ""
    return f"pod {pod.name}{where} has ended, which is being deleted since {rfc3339(since)}"
