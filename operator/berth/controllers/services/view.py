"""One InferenceService as it is known here, and what is remembered between looks.

Everything in it can be read again: the spec and status from the API server, demand from its sources. What is lost with
the process are clocks that only delay, such as how long demand has been lower.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from berth.api.inferenceservice import InferenceServiceSpec
from berth.cluster import wire
from berth.inference.access import Access
from berth.inference.calibrate import Capacities
from berth.inference.coldstart import ColdStarts
from berth.inference.records import Variant
from berth.inference.service import Memory, Plan, Replica, Rules, Verdict
from berth.values import Requirements, Resources

ServiceKey = tuple[str, str]
"""(namespace, name)."""


NodeTerms = tuple[Requirements, ...]
"""As a node selector's: ORed, each ANDed; none: every node."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Of a pod template that is not to change: the pool that it names, and its nodes (ORed terms) beside those that the
    user's own template asks for."""

    pool: str
    nodes: NodeTerms


@dataclass(slots=True)
class ServiceView:
    """A service, read once per version. ``problem``: reason and sentence of why the spec cannot be carried out."""

    object: wire.InferenceService
    spec: InferenceServiceSpec | None = None
    rules: Rules = field(default_factory=Rules)
    problem: tuple[str, str] | None = None
    persisted: Mapping[str, Any] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)
    starts: ColdStarts = field(default_factory=ColdStarts)
    capacities: Capacities = field(default_factory=Capacities)  # what its replicas were found to carry
    startup_seconds: int = 0  # budget in force for a start; see berth.inference.coldstart.frozen_budget
    template_changes: bool = True  # the user's spec is another one since the budget was last looked at
    plan: Plan | None = None
    replicas: tuple[Replica, ...] = ()  # as of the last decision
    spot_available: Verdict | None = None
    plan_state: Any = None  # what was there when the plan was made
    nodes_changed: int = 0  # how often a node of its pods has shown something else
    looked: float = 0.0  # when it was last sent to its reconciler
    refused: Mapping[str, str] = field(default_factory=dict)  # variant -> the server's words against its template
    barred: bool = False  # the last look could make no Deployment
    reserved: set[str] = field(default_factory=set)
    cpu: dict[str, int] = field(default_factory=dict)  # millicores of a replica by variant, frozen once chosen
    places: dict[str, Requirements] = field(default_factory=dict)  # labels of a variant's nodes, frozen as cpu is
    kept: dict[str, Kept] = field(default_factory=dict)  # templates that name a pool's former name, by variant
    selects: dict[str, tuple[str, NodeTerms]] = field(default_factory=dict)  # version, a template's nodes
    former: dict[str, Variant] = field(default_factory=dict)  # that may be used no more, as last known
    needs: dict[str, Resources] = field(default_factory=dict)  # what one pod of each variant asks for
    pod_facts: dict[str, tuple[Any, tuple[Resources, Access]]] = field(default_factory=dict)
    waiting_since: dict[str, float] = field(default_factory=dict)  # variant -> since when replicas are not bound
    bound: dict[str, int] = field(default_factory=dict)  # pods with a node by variant, at the last decision
    seen_starts: set[str] = field(default_factory=set)  # pods whose start has been learned
    seen_cuts: set[tuple[str, int]] = field(default_factory=set)  # pods, and the runs, whose start was ended in vain
    reference: str = ""  # the accelerator whose replica has the capacity 1.0 as sized
    forecast_record: str = ""
    applied: dict[str, str] = field(default_factory=dict)  # kind of child -> digest of what was applied
    checked: dict[str, float] = field(default_factory=dict)  # kind of child -> when it was last read
    spec_exposed: bool = True  # a route may exist that was made before this process
    spec_replicas: int | None = None  # spec.replicas as last seen
    restored: bool = False

    @property
    def key(self) -> ServiceKey:
        """(namespace, name)."""
        return self.object.metadata.key

    @property
    def uid(self) -> str:
        """Identity."""
        return self.object.metadata.uid

    @property
    def deleting(self) -> bool:
        """Whether its deletion has begun, which a finalizer of somebody else's may draw out."""
        return self.object.metadata.deleting

    @property
    def name(self) -> str:
        """``namespace/name``, for people."""
        return "/".join(self.key)
