"""What is known of each training job between looks, and which caches it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from berth.api.trainingjob import TrainingJobSpec
from berth.cluster import wire
from berth.cluster.cache import Cache
from berth.training.records import GangRequest, Placement
from berth.training.state import JobState, Worker
from berth.values import Resources

JobKey = tuple[str, str]
"""(namespace, name), as caches and queues have it."""


@dataclass(frozen=True, slots=True)
class Share:
    """What each rank of an attempt holds, and how many millicores of that Berth chose."""

    amounts: Resources
    cpu_millicores: int = 0


@dataclass(frozen=True, slots=True)
class Promise:
    """A placement that the scheduling loop decided at ``made`` (its own clock's seconds) and no status shows yet."""

    attempt: int
    placement: Placement
    share: Share
    made: float = 0.0


@dataclass(slots=True)
class JobView:
    """A training job, read once per version."""

    object: wire.TrainingJob
    spec: TrainingJobSpec | None = None
    asked: GangRequest | None = None  # as the spec has it
    request: GangRequest | None = None  # of pods as admission makes them, once that is known
    problem: tuple[str, str] | None = None  # (reason, message): why the spec can never be placed
    state: JobState = field(default_factory=JobState)
    persisted: Mapping[str, Any] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    share: tuple[int, Share] | None = None  # attempt and what each of its ranks holds, once that is settled
    unreadable: str = ""  # the field of the status that cannot be read, and why; the state says nothing then
    settled: bool = False  # what is written is all that the state in hand has to say

    def admit(self, request: GangRequest) -> None:
        """Go by what admission makes of the pods; an equal request stays the same object."""
        if request != self.request:
            self.request = request

    @property
    def key(self) -> JobKey:
        """(namespace, name)."""
        return self.object.metadata.key

    @property
    def uid(self) -> str:
        """Identity."""
        return self.object.metadata.uid

    @property
    def name(self) -> str:
        """``namespace/name``, for people."""
        return "/".join(self.key)


@dataclass(frozen=True, slots=True)
class Caches:
    """The kinds that are watched."""

    jobs: Cache[wire.TrainingJob]
    pods: Cache[wire.Pod]
    nodes: Cache[wire.Node]
    pools: Cache[wire.AcceleratorPool]
    priority_classes: Cache[wire.PriorityClass]
    namespaces: Cache[wire.Namespace]
    rendezvous: Cache[wire.Service]  # the headless Services of gangs

    def every(self) -> Iterator[Cache[Any]]:
        """All of them."""
        yield from (self.jobs, self.pods, self.nodes, self.pools)
        yield from (self.priority_classes, self.namespaces, self.rendezvous)

    def priority(self, name: str | None) -> int:
        """The value of a PriorityClass; 0 where none is named, or none is there of that name."""
        found = self.priority_classes.get(name or "")
        return found.value if found is not None else 0


def matters(view: JobView, before: Worker | None, after: Worker) -> bool:
    """Whether the change of a pod can change what is to be done; that it was created by us, or bound, cannot."""
    if view.spec is not None and any(rule.on_pod_conditions for rule in view.spec.recovery_rules):
        return before != after
    known = before if before is not None else Worker(after.name, after.uid, after.attempt, after.rank)
    return replace(known, bound=after.bound, node=after.node, conditions=after.conditions) != after
