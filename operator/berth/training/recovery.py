"""Why an attempt cannot go on, told apart by cause.

A failure of the job's own is charged; what the infrastructure took is not. The difference is read from what
Kubernetes says of the pod and of its node, then from the user's own rules, and only then is it the job's failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from berth.training.state import Attempt, Cause, NodeState, Worker

FIRST_BACKOFF_SECONDS = 10.0
LONGEST_BACKOFF_SECONDS = 600.0
QUICK_FAILURE_SECONDS = 600.0
"""An attempt that ran for less than this and failed makes the next one wait."""

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
    """What ended an attempt: the cause, one sentence, and the nodes that the next placement must avoid."""

    cause: Cause
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
    """
    lost = sorted({worker.node for worker in workers if not worker.ended and nodes.get(worker.node) == NodeState.GONE})
    lost_missing = sorted({placed_on[rank] for rank in missing if nodes.get(placed_on[rank]) == NodeState.GONE})
    if lost or lost_missing:
        names = tuple(dict.fromkeys((*lost, *lost_missing)))
        return Fault(Cause.INFRASTRUCTURE, f"node {', '.join(names[:3])}{_more(names)} is gone", names)
    for worker in workers:
        if worker.disrupted:
            avoid = (worker.node,) if worker.node else ()
            where = f" on {worker.node}" if worker.node else ""
            return Fault(Cause.INFRASTRUCTURE, f"{worker.name}{where}: {worker.disrupted}", avoid, worker.exit_code)
    ordered = tuple(rules)
    for worker in workers:
        for rule in ordered:
            if rule.matches(worker):
                return _by_rule(worker, rule)
    for worker in workers:
        if worker.phase == "Failed":
            words = worker.failure or "failed without saying why"
            return Fault(Cause.FAILURE, f"{worker.name}: {words}", (), worker.exit_code)
    for worker in workers:
        if worker.deleting_since is not None:
            return Fault(Cause.INFRASTRUCTURE, f"{worker.name} was deleted by somebody else")
    if missing:
        ranks = ", ".join(str(rank) for rank in missing[:3])
        return Fault(Cause.INFRASTRUCTURE, f"the pod of rank {ranks}{_more(missing)} was deleted by somebody else")
    return None


def _by_rule(worker: Worker, rule: Rule) -> Fault:
    words = worker.failure or "matched"
    message = f"{worker.name}: {words} (rule {rule.name}: {rule.action})"
    cause = Cause.INFRASTRUCTURE if rule.action == "RestartFree" else Cause.FAILURE
    return Fault(cause, message, (), worker.exit_code, rule.name, fatal=rule.action == "Fail")


def _more(items: Sequence[object]) -> str:
    return f" and {len(items) - 3} more" if len(items) > 3 else ""


def backoff_seconds(tries: int) -> float:
    """How long to wait after ``tries`` tries in a row that failed: 0, 10 s, 20 s, … 10 min."""
    if tries <= 0:
        return 0.0
    return float(min(LONGEST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2 ** min(tries - 1, 10)))


def quick_failures(attempts: Sequence[Attempt]) -> int:
    """How many of the latest attempts in a row failed by their own fault soon after they started."""
    count = 0
    for attempt in reversed(attempts):
        if attempt.cause != Cause.FAILURE or attempt.ran >= QUICK_FAILURE_SECONDS:
            break
        count += 1
    return count
