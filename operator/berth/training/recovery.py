"""Why an attempt cannot go on, told apart by cause.

A failure of the job's own is charged; what the infrastructure took is not. The difference is read from what
Kubernetes says of the pod and of its node, then from the user's own rules, and only then is it the job's failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal
from zlib import crc32

from berth.training.state import Attempt, Cause, JobState, NodeState, Phase, Reason, Worker

FIRST_BACKOFF_SECONDS = 10.0
LONGEST_BACKOFF_SECONDS = 600.0
QUICK_FAILURE_SECONDS = 600.0
"""An attempt that ran for less than this and went down makes a later one wait."""
REFUND_SECONDS = 60.0
"""How long after a failure a node found silent, or gone where no pod is left, still counts as its cause."""
AT_ONCE: Mapping[str, int] = {Cause.FAILURE: 1, Cause.INFRASTRUCTURE: 3}
"""So many quick ends in a row are followed by the next attempt at once; nodes fail in batches, programs do not."""
FIRST_BARRED_SECONDS = 60.0
"""For so long a node that failed a gang is barred to it, and longer each time in a row; then it is the last choice."""
FIRST_QUOTA_SECONDS = 30.0
LONGEST_QUOTA_SECONDS = 300.0
"""How long a gang waits that a quota did not let start whole; each try costs a part of its pods."""

RuleAction = Literal["Fail", "Restart", "RestartFree"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One of the user's recovery rules. ``exit_codes`` (operator, values) or ``conditions`` (type, status) match it."""

    name: str
    action: RuleAction
    exit_operator: str = ""
    exit_codes: tuple[int, ...] = ()
    container: str = ""
    conditions: tuple[tuple[str, str], ...] = ()

    def matches(self, worker: Worker) -> bool:
        """Whether ``worker`` meets this rule; exit code 0 never matches, as in ``Job.podFailurePolicy``."""
        if self.conditions:
            return any(condition in worker.conditions for condition in self.conditions)
        for container, code in worker.exits:
            if code == 0 or (self.container and container != self.container):
                continue
            if (code in self.exit_codes) == (self.exit_operator == "In"):
                return True
        return False


@dataclass(frozen=True, slots=True)
class Fault:
    """What ended an attempt: whom it is charged to, what it was, one sentence, and nodes to avoid next time."""

    cause: Cause
    reason: Reason
    message: str
    avoid: tuple[str, ...] = ()
    exit_code: int | None = None
    rule: str = ""
    fatal: bool = False


def find_fault(
    workers: Sequence[Worker],
    nodes: Mapping[str, NodeState],
    rules: Iterable[Rule],
    *,
    missing: Sequence[int] = (),
    placed_on: Sequence[str] = (),
) -> Fault | None:
    """The first reason why a gang that has started cannot go on, or None.

    ``workers`` are the pods of the running attempt, ``missing`` the ranks without one, ``placed_on`` the node of each
    rank. Infrastructure is looked at before rules and exit codes, because a lost node makes the survivors exit too.
    What becomes of a pod after it has succeeded is no fault, and a deletion is the cause of what fails after it.
    """
    workers = [worker for worker in workers if not worker.finished]
    lost = sorted({worker.node for worker in workers if nodes.get(worker.node) == NodeState.GONE})
    missed = {placed_on[rank] for rank in missing if rank < len(placed_on)}
    lost_missing = sorted(node for node in missed if nodes.get(node) == NodeState.GONE)
    if lost or lost_missing:
        names = tuple(dict.fromkeys((*lost, *lost_missing)))
        words = "node {} is gone" if len(names) == 1 else "nodes {} are gone"
        words = words.format(", ".join(names[:3]) + _more(names))
        return Fault(Cause.INFRASTRUCTURE, Reason.NODE_LOST, words, names)
    for worker in workers:
        if worker.disrupted:
            avoid = (worker.node,) if worker.node else ()
            words = f"{worker.name}{' on ' + worker.node if worker.node else ''}: {worker.disrupted}"
            return Fault(Cause.INFRASTRUCTURE, Reason.DISRUPTED, words, avoid, worker.exit_code)
    deleted = _deleted_before_failures(workers)
    if deleted is not None and deleted.stopped:
        return _deleted(deleted)
    ordered = tuple(rules)
    for worker in workers:
        for rule in ordered:
            if rule.matches(worker):
                return _by_rule(worker, rule)
    if deleted is not None:
        return _deleted(deleted)
    silent = sorted({worker.node for worker in workers if nodes.get(worker.node) == NodeState.UNREACHABLE})
    for worker in workers:
        if worker.phase == "Failed" or worker.worker_exit:
            words = worker.failure or "failed without saying why"
            if silent:
                words = f"{worker.name}: {words}, while node {silent[0]} is unreachable"
                return Fault(Cause.INFRASTRUCTURE, Reason.WORKER_FAILED, words, tuple(silent), worker.exit_code)
            return Fault(Cause.FAILURE, Reason.WORKER_FAILED, f"{worker.name}: {words}", (), worker.exit_code)
    if missing:
        ranks = ", ".join(str(rank) for rank in missing[:3])
        words = f"the pod of rank {ranks}{_more(missing)} was deleted by somebody else"
        return Fault(Cause.INFRASTRUCTURE, Reason.POD_DELETED, words)
    return None


def _deleted_before_failures(workers: Sequence[Worker]) -> Worker | None:
    """The worker whose deletion was asked for first, where nothing had failed by then; what fails after it, when one
    pod of a gang goes, is the rest of the gang."""
    leaving = [(worker.deleting_since, worker.rank, worker) for worker in workers if worker.deleting_since is not None]
    if not leaving:
        return None
    when, _, first = min(leaving, key=lambda entry: entry[:2])
    failed = [worker.failed_at for worker in workers if worker.phase == "Failed"]
    return first if all(at is not None and at >= when for at in failed) else None


def _deleted(worker: Worker) -> Fault:
    return Fault(Cause.INFRASTRUCTURE, Reason.POD_DELETED, f"{worker.name} was deleted by somebody else")


def _by_rule(worker: Worker, rule: Rule) -> Fault:
    words = worker.failure or "matched"
    message = f"{worker.name}: {words} (rule {rule.name}: {rule.action})"
    cause = Cause.INFRASTRUCTURE if rule.action == "RestartFree" else Cause.FAILURE
    fatal = rule.action == "Fail"
    return Fault(cause, Reason.WORKER_FAILED, message, (), worker.exit_code, rule.name, fatal)


def _more(items: Sequence[object]) -> str:
    return f" and {len(items) - 3} more" if len(items) > 3 else ""


def backoff_left(name: str, state: JobState, now: float) -> float:
    """Seconds until the next attempt of job ``name`` may start; a first refusal by kube-scheduler costs none."""
    last = state.attempts[-1] if state.attempts else None
    if last is None or last.end is None:
        return 0.0
    if last.cause == Cause.START:
        wait = backoff_seconds(state.start_attempts - (1 if last.reason == Reason.UNSCHEDULABLE else 0))
    elif awaits_quota(state):
        wait = quota_seconds(name, state.attempts)
    else:
        wait = backoff_seconds(quick_ends(state.attempts))
    return last.end + wait - now


def awaits_quota(state: JobState) -> bool:
    """Whether the last attempt ended because a quota did not let all of its pods be created, and nothing came since."""
    return bool(state.attempts) and state.attempts[-1].cause == Cause.QUOTA and state.is_false("QuotaReserved")


def backoff_seconds(tries: int, first: float = FIRST_BACKOFF_SECONDS, most: float = LONGEST_BACKOFF_SECONDS) -> float:
    """How long to wait after ``tries`` tries in a row that failed: 0, 10 s, 20 s, … 10 min."""
    return float(min(most, first * 2 ** min(tries - 1, 10))) if tries > 0 else 0.0


def quota_seconds(name: str, attempts: Sequence[Attempt]) -> float:
    """30 s, 1 min, … 5 min with each attempt in a row that a quota ended; and up to half more, by the job's name.

    Two gangs that took each other's quota would else meet again at every try.
    """
    tries = len(list(takewhile(lambda attempt: attempt.cause == Cause.QUOTA, reversed(attempts))))
    spread = 1 + crc32(name.encode()) % 64 / 128
    return spread * backoff_seconds(tries, FIRST_QUOTA_SECONDS, LONGEST_QUOTA_SECONDS)


def quick_ends(attempts: Sequence[Attempt]) -> int:
    """How many attempts in a row ended soon, all by the last one's cause, beyond those that :data:`AT_ONCE` lets go."""
    cause = attempts[-1].cause
    count = 0
    for attempt in reversed(attempts):
        if attempt.cause != cause or attempt.ran >= QUICK_FAILURE_SECONDS:
            break
        count += 1
    return max(count - AT_ONCE[cause], 0) if cause in AT_ONCE else 0


def barred_left(state: JobState, now: float) -> float:
    """Seconds in which the next placement must not use the nodes that are avoided: 1, 2, 4, 8 and then 10 minutes.

    What counts is how many attempts in a row the infrastructure, or the start itself, ended soon: with nowhere else to
    go, a gang that came back to a node that still fails would fail with it every minute.
    """
    if not state.attempts or not state.avoid:
        return 0.0
    causes = (Cause.INFRASTRUCTURE, Cause.START)
    row = takewhile(
        lambda attempt: attempt.cause in causes and attempt.ran < QUICK_FAILURE_SECONDS, reversed(state.attempts)
    )
    tries = max(len(list(row)), 1)
    return (state.attempts[-1].end or 0.0) + backoff_seconds(tries, FIRST_BARRED_SECONDS) - now


def exhausted(state: JobState, max_restarts: int) -> bool:
    """Whether the last attempt was one failure more than is forgiven."""
    return bool(state.attempts) and state.attempts[-1].cause == Cause.FAILURE and state.restarts.failure > max_restarts


def refund_left(state: JobState, now: float) -> float:
    """For how many seconds yet the last failure may turn out to be the loss of a node; 0: it is the job's own.

    Ranks fail at once when a peer's node dies, which is known some 40 s later. A gang on one node has no such peer.
    """
    last = state.attempts[-1] if state.attempts else None
    if last is None or last.end is None or last.cause != Cause.FAILURE or last.rule:
        return 0.0
    if state.placement is None or state.placement_attempt != last.number or len(set(state.placement.nodes)) < 2:
        return 0.0
    return max(last.end + REFUND_SECONDS - now, 0.0)


def lost_after_failure(state: JobState, nodes: Mapping[str, NodeState], now: float, *, held: bool) -> tuple[str, ...]:
    """Nodes of the last attempt that are lost, where it was charged as a failure before that could be known.

    Gone is looked at while its pods hold the barrier (``held``) and shortly after, silent only shortly after: that a
    kubelet is silent shows some 40 s after its node died, and what is lost later had nothing to do with the failure.
    """
    last = state.attempts[-1] if state.attempts else None
    if state.phase != Phase.RESTARTING or last is None or last.cause != Cause.FAILURE or last.rule:
        return ()
    if state.placement is None or state.placement_attempt != last.number:
        return ()
    soon = now - (last.end or 0.0) <= REFUND_SECONDS
    if not held and not soon:
        return ()
    lost = (NodeState.GONE, NodeState.UNREACHABLE) if soon else (NodeState.GONE,)
    return tuple(sorted({node for node in state.placement.nodes if nodes.get(node) in lost}))
