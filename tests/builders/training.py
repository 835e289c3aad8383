"""A training job on a cluster that does what a test says, for every test of the gang's life.

:class:`LiveJob` carries out what :func:`berth.training.lifecycle.advance` decides, as the operator does: status first,
then deletions, then creations. Pods behave as the API server and kubelets would: a deleted pod stays until its kubelet
has ended it, and one whose kubelet is dead stays until it is removed by force. A :class:`StoredJob` keeps its state
only as the JSON of its status, as the operator does between two looks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from berth.api.names import pod_name
from berth.controllers.status import placement_patch, restore, status_body
from berth.render.gang import GangPlan
from berth.training.job import Job, Sight
from berth.training.lifecycle import advance
from berth.training.records import Placement
from berth.training.state import ACTIVE, Checkpoint, Event, JobState, NodeState, Phase, Refused, Step, Worker

START = 1_800_000_000


def make_job(workers: int = 2, **fields: Any) -> Job:
    """A job ``llm`` of workers with eight accelerators each."""
    return Job(**{"name": "llm", "workers": workers, "accelerators_per_worker": 8, **fields})


def make_placement(*nodes: str, pool: str = "p", certificate: Any = "Optimal") -> Placement:
    """Ranks on ``nodes`` in that order, all in one rack."""
    return Placement(pool, nodes, certificate, {"rack": 1}, {"rack": 1})


def make_worker(rank: int = 0, attempt: int = 1, **fields: Any) -> Worker:
    """A pod of job ``llm``, running on node ``n<rank>`` unless told otherwise."""
    name = pod_name("llm", attempt, rank)
    own = {"name": name, "uid": f"uid-{name}", "node": f"n{rank}", "bound": True, "phase": "Running", "ready": True}
    return Worker(attempt=attempt, rank=rank, **{**own, **fields})


class Crash(Exception):
    """The operator dies between two of its actions."""


@dataclass
class LiveJob:
    """One job, its pods by name, its nodes and the clock. ``history`` has every step that was carried out.

    ``crash_after`` counts the operator's actions (a status write, a deletion, a creation each) down to its death.
    """

    job: Job = field(default_factory=make_job)
    state: JobState = field(default_factory=JobState)
    pods: dict[str, Worker] = field(default_factory=dict)
    nodes: dict[str, NodeState] = field(default_factory=dict)
    now: float = START
    stuck_since: dict[str, float] = field(default_factory=dict)
    refused: Refused | None = None
    price: Decimal | None = None
    name_held: str = ""
    checkpoint: Checkpoint | None = None
    events: list[Event] = field(default_factory=list)
    history: list[Step] = field(default_factory=list)
    created: list[str] = field(default_factory=list)
    finished: set[int] = field(default_factory=set)
    crash_after: int | None = None
    actions: int = 0

    def sight(self, placed: Placement | None = None) -> Sight:
        """What the operator sees now."""
        stuck = {pod.uid for pod in self.pods.values() if pod.problem}
        self.stuck_since = {uid: self.stuck_since.get(uid, self.now) for uid in stuck}
        workers = sorted(self.pods.values(), key=lambda pod: (pod.attempt, pod.rank))
        checkpoint = self.checkpoint if placed is not None else None
        seen = (workers, self.nodes, self.now, self.stuck_since)
        return Sight(*seen, placed, checkpoint, self.price, self.refused, self.name_held, self.finished)

    def look(self, placed: Placement | None = None) -> Step:
        """One look: decide and carry out."""
        before = self.recall()
        step = advance(self.job, before, self.sight(placed))
        self.history.append(step)
        if step.state.attempt > before.attempt:
            self.refused = None
        written = self.remember(before, step.state)
        for entry in step.delete:
            self._act()
            self._delete(entry.name, entry.uid, entry.grace)
        for rank in step.create:
            self._act()
            self._create(step.state, rank)
        if written:
            self.events += step.events
        return step

    def look_until_quiet(self) -> Step:
        """Look until a look changes nothing; a job that never comes to rest fails the test."""
        for _ in range(50):
            told, step = len(self.events), self.look()
            if not step.delete and not step.create and len(self.events) == told:
                return step
        raise AssertionError(f"never quiet: {step}")

    def recall(self) -> JobState:
        """The state before a look."""
        return self.state

    def remember(self, before: JobState, state: JobState) -> bool:
        """Keep what a look decided; whether anything was written. Events are told only of what was."""
        if state != before:
            self._act()
        self.state = state
        return state != before

    def wait(self, seconds: float) -> LiveJob:
        """Let time pass."""
        self.now += seconds
        return self

    def place(self, *nodes: str) -> Step:
        """Give it the placement that it asks for: ``n0``, ``n1``… unless named."""
        step = self.look()
        assert step.wants_placement, step
        return self.look(make_placement(*(nodes or tuple(f"n{rank}" for rank in range(self.job.workers)))))

    def run(self) -> Step:
        """Every pod of the current attempt is bound, runs and is ready; then a look."""
        for pod in self.living():
            self.change(pod.rank, phase="Running", bound=True, ready=True, problem="", refused="")
        return self.look()

    def start(self, *nodes: str) -> LiveJob:
        """Place and run."""
        self.place(*nodes)
        self.run()
        assert self.state.phase == Phase.RUNNING, self.state
        return self

    def change(self, rank: int, **fields: Any) -> None:
        """Change the pod of a rank of the current attempt."""
        name = pod_name(self.job.name, self.state.attempt, rank)
        self.pods[name] = replace(self.pods[name], **fields)

    def fail(self, rank: int = 0, code: int = 1, **fields: Any) -> None:
        """The worker of a rank exits with ``code``."""
        words = f"container worker ended with exit code {code}"
        ended = {"phase": "Failed", "ready": False, "exit_code": code, "failure": words, "exits": (("worker", code),)}
        self.change(rank, **{**ended, **fields})

    def succeed(self, *ranks: int) -> None:
        """Workers exit 0; all of them unless named."""
        for rank in ranks or range(self.job.workers):
            self.change(rank, phase="Succeeded", ready=False, exits=(("worker", 0),))

    def lose_finished(self, *ranks: int) -> None:
        """Pods of ranks that have exited 0 are removed, and the operator has seen both."""
        for rank in ranks:
            pod = self.pods.pop(pod_name(self.job.name, self.state.attempt, rank))
            assert pod.finished, pod
            self.finished.add(rank)

    def kubelets(self) -> None:
        """Kubelets that answer end the pods that are being deleted."""
        for pod in list(self.pods.values()):
            if pod.deleting_since is not None and self.node_of(pod) in (NodeState.OK, NodeState.BARRED):
                del self.pods[pod.name]

    def living(self) -> Iterator[Worker]:
        """Pods of the current attempt that have not ended."""
        return (pod for pod in list(self.pods.values()) if pod.attempt == self.state.attempt and not pod.ended)

    def node_of(self, pod: Worker) -> NodeState:
        """The state of a pod's node."""
        return self.nodes.get(pod.node, NodeState.OK)

    def reasons(self) -> list[str]:
        """Reasons of the events so far."""
        return [event.reason for event in self.events]

    def _act(self) -> None:
        self.actions += 1
        if self.crash_after is not None and self.actions > self.crash_after:
            self.crash_after = None
            raise Crash

    def _delete(self, name: str, uid: str, grace: int | None) -> None:
        pod = self.pods.get(name)
        if pod is None or pod.uid != uid:
            return
        if grace == 0 or pod.ended or not pod.bound:
            del self.pods[name]
        elif pod.deleting_since is None:
            self.pods[name] = replace(pod, deleting_since=self.now)

    def _create(self, state: JobState, rank: int) -> None:
        name = pod_name(self.job.name, state.attempt, rank)
        if name in self.pods:
            return
        assert state.placement is not None
        self.created.append(name)
        uid = f"uid-{len(self.created)}"
        self.pods[name] = Worker(name, uid, state.attempt, rank, state.placement.nodes[rank])


@dataclass
class StoredJob(LiveJob):
    """A job whose state lives in the JSON of its status alone.

    A new attempt is recorded by the placement's own small write. Of other changes ``lazy`` decides whether those that
    are no transition are written, which the operator delays or leaves out.
    """

    status: dict[str, Any] = field(default_factory=dict)
    lazy: bool = False

    def recall(self) -> JobState:
        self.state = restore(self.status, self.job.asked)
        return self.state

    def remember(self, before: JobState, state: JobState) -> bool:
        status = self.status
        if state.attempt > before.attempt:
            status = {**self.status, **placement_patch(self.job.name, state)["status"]}
        elif not self.lazy or outline(before) != outline(state):
            kept = {"placement": self.status["placement"]} if "placement" in self.status else {}
            status = {**status_body(state, 1), **kept}
        written = stored(status) != self.status
        if written:
            self._act()
        self.status = stored(status)
        self.state = restore(self.status, self.job.asked)
        return written


def stored(status: dict[str, Any]) -> dict[str, Any]:
    """A status as the API server gives it back."""
    return dict(json.loads(json.dumps(status)))


def outline(state: JobState) -> tuple[object, ...]:
    """What the operator never leaves unwritten."""
    conditions = {kind: condition.status for kind, condition in state.conditions.items()}
    return state.phase, state.attempt, state.restarts, state.start_attempts, state.avoid, conditions


def ranks_of(pods: Iterable[Worker]) -> list[tuple[int, int]]:
    """(attempt, rank) of pods, sorted."""
    return sorted((pod.attempt, pod.rank) for pod in pods)


def active(state: JobState) -> bool:
    """Whether an attempt lives."""
    return state.phase in ACTIVE


def make_plan(*nodes: str, template: dict[str, Any] | None = None, **fields: Any) -> GangPlan:
    """The plan of job ``research/llm``, ranks on ``nodes`` (``n0`` and ``n1`` unless named), a container and no more.

    ``template`` is the pod's spec.
    """
    container = {"name": "worker", "image": "registry.example/llm:1"}
    own: dict[str, Any] = {
        "name": "llm",
        "namespace": "research",
        "uid": "uid-of-llm",
        "attempt": 1,
        "pool": "h100-ib",
        "resource": "nvidia.com/gpu",
        "accelerators_per_worker": 8,
        "nodes": nodes or ("n0", "n1"),
        "template": {"spec": {"containers": [container]} if template is None else template},
        "priority_class": "berth-training",
    }
    return GangPlan(**{**own, **fields})


def expect_condition(live: LiveJob, kind: str, status: str, reason: str) -> None:
    """The condition ``kind`` stands so."""
    condition = live.state.conditions[kind]
    assert (condition.status, condition.reason) == (status, reason)
