"""The promises that hold at every instant, checked from the objects alone.

The checker is fed with what watches deliver and knows nothing of how the operator decides, so an error in a decision
cannot hide itself. Promises about one pod stream are judged at once, since its order is the server's order. Promises
that join two streams (is this node in that pool?) wait for the next tick, because streams run apart.

It holds:
    PartialGang         no gang has pods running and others unable to start for longer than its startTimeout
    NodeOversold        no node carries more than it can allocate; terminating pods count until they are gone
    NodeOverpromised    the same for Berth's own pods from the moment they exist, pinned but not yet bound
    OutsidePool         every pod is on a node of the pool that its gang was placed in, with an allowed accelerator
    OutsideFabric       and that pool has the fabric asked for
    OutsideDomain       and all of a gang are in one domain of the required level, and in one site
    AttemptsOverlap     no two attempts of a job have live pods at the same time
    EvictedByScheduler  kube-scheduler has evicted nobody for a pod of ours
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from benchmarks import facts
from benchmarks.facts import JobFacts, Json, NodeView, PodFacts, PoolFacts
from berth.catalogue.records import Catalogue, FabricFacts

Watched = Literal["Pod", "Node", "TrainingJob", "AcceleratorPool", "Event"]
Gang = tuple[str, int]

SLACK_SECONDS = 5.0
"""What the operator may take to act once a startTimeout is over, and the streams to tell."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise: its name, the object it was broken for, what was seen, and when (the caller's clock)."""

    kind: str
    subject: str
    message: str
    at: float

    def __str__(self) -> str:
        return f"{self.kind}: {self.subject}: {self.message}"


@dataclass(slots=True)
class _GangState:
    job: str
    live: dict[str, PodFacts] = field(default_factory=dict)
    up: set[int] = field(default_factory=set)
    started: set[int] = field(default_factory=set)
    partial_since: float | None = None


class Checker:
    """Feed it with :meth:`see`, call :meth:`tick` about once a second, read :attr:`violations`.

    ``catalogue`` tells the levels, fabric and accelerator of nodes in pools without an object; without it those go
    unjudged and are counted in :attr:`unjudged`. Not safe for threads.
    """

    def __init__(self, catalogue: Catalogue | None = None, *, slack_seconds: float = SLACK_SECONDS) -> None:
        self.longest_partial = 0.0
        self.unjudged = 0
        self._catalogue, self._slack = catalogue, slack_seconds
        self._found: dict[tuple[str, str], Violation] = {}
        self._pods: dict[str, PodFacts] = {}
        self._nodes: dict[str, NodeView] = {}
        self._present: set[str] = set()
        self._jobs: dict[str, JobFacts] = {}
        self._pools: dict[str, PoolFacts] = {}
        self._carried: dict[str, dict[str, int]] = {}
        self._promised: dict[str, dict[str, int]] = {}
        self._gangs: dict[Gang, _GangState] = {}
        self._attempts: dict[str, set[Gang]] = {}
        self._bound: dict[Gang, dict[str, PodFacts]] = {}
        self._unplaced: dict[Gang, float] = {}

    @property
    def violations(self) -> tuple[Violation, ...]:
        """Everything found, oldest first, each kind once per object."""
        return tuple(self._found.values())

    def see(self, watched: Watched, change: str, thing: Json, at: float) -> None:
        """Take one event of a watch: ``change`` is ADDED, MODIFIED or DELETED, ``at`` the time it was received."""
        gone = change == "DELETED"
        match watched:
            case "Pod":
                self._see_pod(facts.read_pod(thing), gone, at)
            case "Node":
                self._see_node(facts.read_node(thing), gone, at)
            case "TrainingJob":
                if not gone:
                    job = facts.read_job(thing)
                    self._jobs[thing["metadata"]["uid"]] = job
            case "AcceleratorPool":
                self._pools.pop(thing["metadata"]["name"], None)
                if not gone:
                    self._pools[thing["metadata"]["name"]] = facts.read_pool(thing)
            case "Event":
                self._see_event(thing, at)

    def tick(self, at: float) -> None:
        """Judge what depends on time, or on streams that had to catch up."""
        for gang, state in self._gangs.items():
            if state.partial_since is not None:
                self._judge_partial(gang, state, at)
        for gang in [gang for gang, since in self._unplaced.items() if at - since >= 1.0]:
            del self._unplaced[gang]
            self._judge_place(gang, at)

    # -- one stream ----------------------------------------------------------------------------------------------

    def _see_pod(self, pod: PodFacts, gone: bool, at: float) -> None:
        before = self._pods.pop(pod.uid, None)
        if not gone:
            self._pods[pod.uid] = pod
        self._move_load(before, None if gone else pod, at)
        if pod.preempted and not (before and before.preempted):
            self._report("EvictedByScheduler", pod.name, "its DisruptionTarget says PreemptionByScheduler", at)
        if pod.gang is not None:
            self._see_member(pod.gang, pod, gone, at)

    def _move_load(self, before: PodFacts | None, after: PodFacts | None, at: float) -> None:
        for table, node_of, kind in (
            (self._carried, _carrier, "NodeOversold"),
            (self._promised, _promiser, "NodeOverpromised"),
        ):
            old = node_of(before) if before and not before.ended else ""
            new = node_of(after) if after and not after.ended else ""
            if before and after and old == new and before.requests == after.requests:
                continue
            if before and old:
                _charge(table.setdefault(old, {}), before.requests, -1)
            if after and new:
                _charge(table.setdefault(new, {}), after.requests, 1)
                self._judge_load(new, table, kind, at)

    def _see_node(self, node: NodeView, gone: bool, at: float) -> None:
        appeared = node.name not in self._present
        self._nodes[node.name] = node
        self._present.add(node.name)
        if gone:
            self._present.discard(node.name)
        elif appeared:
            self._judge_load(node.name, self._carried, "NodeOversold", at)

    def _judge_load(self, name: str, table: Mapping[str, Mapping[str, int]], kind: str, at: float) -> None:
        if name not in self._present:
            return
        allocatable = self._nodes[name].allocatable
        over = [
            f"{resource} {amount} of {allocatable.get(resource, 0)}"
            for resource, amount in table.get(name, {}).items()
            if amount > allocatable.get(resource, 0)
        ]
        if over:
            self._report(kind, name, ", ".join(over), at)

    def _see_member(self, gang: Gang, pod: PodFacts, gone: bool, at: float) -> None:
        state = self._gangs.setdefault(gang, _GangState(pod.job))
        self._attempts.setdefault(gang[0], set()).add(gang)
        arrived = pod.uid not in state.live and not gone and not pod.ended
        state.live.pop(pod.uid, None)
        if not gone and not pod.ended:
            state.live[pod.uid] = pod
        (state.up.add if pod.running and not gone else state.up.discard)(pod.rank)
        if pod.running or pod.ended:
            state.started.add(pod.rank)
        elif not gone and not pod.terminating:
            state.started.discard(pod.rank)
        if arrived:
            self._judge_overlap(gang, pod, at)
        if pod.node and not gone:
            bound = self._bound.setdefault(gang, {})
            if pod.uid not in bound:
                bound[pod.uid] = pod
                self._unplaced[gang] = at
        self._judge_partial(gang, state, at)

    def _judge_overlap(self, gang: Gang, pod: PodFacts, at: float) -> None:
        for other in self._attempts[gang[0]] - {gang}:
            if live := self._gangs[other].live:
                message = f"{pod.name} exists while {next(iter(live.values())).name} of attempt {other[1]} lives"
                self._report("AttemptsOverlap", f"{pod.job} attempt {gang[1]}", message, at)

    def _judge_partial(self, gang: Gang, state: _GangState, at: float) -> None:
        job = self._jobs.get(gang[0])
        waiting = job.size(gang[1]) - len(state.started) if job else 0
        if job is None or not state.up or waiting <= 0:
            state.partial_since = None
            return
        state.partial_since = at if state.partial_since is None else state.partial_since
        lasted = at - state.partial_since
        self.longest_partial = max(self.longest_partial, lasted)
        if lasted > job.start_timeout + self._slack:
            message = f"{len(state.up)} pods run and {waiting} have not started for {lasted:.1f} s"
            self._report("PartialGang", f"{state.job} attempt {gang[1]}", message, at)

    def _see_event(self, event: Json, at: float) -> None:
        if event.get("reason") == "Preempted":
            victim = event.get("involvedObject") or event.get("regarding") or {}
            subject = f"{victim.get('namespace', '')}/{victim.get('name', '')}"
            self._report("EvictedByScheduler", subject, str(event.get("message") or event.get("note") or ""), at)

    # -- joined streams ------------------------------------------------------------------------------------------

    def _judge_place(self, gang: Gang, at: float) -> None:
        pods = [pod for pod in self._bound[gang].values() if pod.node in self._nodes]
        job = self._jobs.get(gang[0])
        if not pods or job is None:
            self.unjudged += bool(pods)
            return
        subject = f"{job.key} attempt {gang[1]}"
        names = {pod.pool for pod in pods} | ({job.placed_pools[gang[1]]} if gang[1] in job.placed_pools else set())
        if len(names) > 1:
            self._report("OutsidePool", subject, f"its pods and status name the pools {sorted(names)}", at)
        nodes = {pod.node: self._nodes[pod.node] for pod in pods}
        pool = self._pools.get(min(names))
        self._judge_pool(subject, job, nodes, pool, at)
        self._judge_fabric(subject, job, nodes, pool, at)
        self._judge_domain(subject, job, nodes, pool, at)

    def _judge_pool(
        self, subject: str, job: JobFacts, nodes: Mapping[str, NodeView], pool: PoolFacts | None, at: float
    ) -> None:
        strangers = [node.name for node in nodes.values() if pool and not pool.selects(node.labels)]
        if pool and strangers:
            self._report("OutsidePool", subject, f"{sorted(strangers)} are not in pool {pool.name}", at)
        kinds = {pool.accelerator} if pool and pool.accelerator else self._accelerators(nodes)
        if len(kinds) > 1:
            self._report("OutsidePool", subject, f"its nodes have different accelerators: {sorted(kinds)}", at)
        if job.types and kinds and not kinds <= set(job.types):
            self._report("OutsidePool", subject, f"runs on {sorted(kinds)}, allowed are {list(job.types)}", at)

    def _accelerators(self, nodes: Mapping[str, NodeView]) -> set[str]:
        if self._catalogue is None:
            self.unjudged += 1
            return set()
        found = [self._catalogue.identify(node.labels) for node in nodes.values()]
        return {accelerator.name if accelerator else "unknown" for accelerator in found}

    def _judge_fabric(
        self, subject: str, job: JobFacts, nodes: Mapping[str, NodeView], pool: PoolFacts | None, at: float
    ) -> None:
        if not (job.fabric_kinds or job.min_gbps or job.min_rails):
            return
        for node in nodes.values():
            found = pool.fabric if pool and pool.fabric else None
            if found is None and self._catalogue is not None:
                found = self._catalogue.labels.fabric(node.labels)
            found = found or FabricFacts("none")
            if job.fabric_kinds and found.kind not in job.fabric_kinds:
                message = f"{node.name} has fabric {found.kind}, allowed are {list(job.fabric_kinds)}"
            elif found.gbps < job.min_gbps or found.rails < job.min_rails:
                message = f"{node.name} has {found.rails} rails of {found.gbps} Gbps, asked {job.min_rails}"
                message += f" of {job.min_gbps}"
            else:
                continue
            self._report("OutsideFabric", subject, message, at)

    def _judge_domain(
        self, subject: str, job: JobFacts, nodes: Mapping[str, NodeView], pool: PoolFacts | None, at: float
    ) -> None:
        levels = pool.levels if pool else ()
        if pool is None and self._catalogue is not None:
            levels = facts.discovered_levels(self._catalogue, list(nodes.values()))
        sites = [name for name, _, role in levels if role == "Site"]
        for level in [*sites, *([job.required] if job.required else [])]:
            paths = {facts.domain_path(node, levels, level) for node in nodes.values()}
            if None in paths:
                self.unjudged += 1
            elif len(paths) > 1:
                shown = sorted("/".join(path) for path in paths if path)
                self._report("OutsideDomain", subject, f"is in {len(paths)} domains of level {level}: {shown}", at)

    def _report(self, kind: str, subject: str, message: str, at: float) -> None:
        self._found.setdefault((kind, subject), Violation(kind, subject, message, at))


def _carrier(pod: PodFacts) -> str:
    """The node that carries ``pod``."""
    return pod.node


def _promiser(pod: PodFacts) -> str:
    """The node that carries a gang's pod or alone may do so."""
    return (pod.node or pod.pin) if pod.gang else ""


def _charge(table: dict[str, int], amounts: Mapping[str, int], sign: int) -> None:
    for name, amount in amounts.items():
        table[name] = table.get(name, 0) + sign * amount
