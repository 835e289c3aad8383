"""What the fleet is told and what it answers: plain records, no Kubernetes types.

``observe`` (in controllers) turns API objects into these; the simulator and the benchmarks make them directly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from berth.values import NO_RESOURCES, CapacityType, Requirements, Resources, Role, Taint

LevelRole = Literal["", "Site", "NVLinkDomain"]


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node as its object states it. ``allocatable`` in the units of :mod:`berth.values`."""

    name: str
    uid: str
    labels: Mapping[str, str]
    allocatable: Resources
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True


@dataclass(frozen=True, slots=True)
class Level:
    """One level of a pool's topology: jobs use ``name``, nodes carry the label ``node_label``."""

    name: str
    node_label: str
    role: LevelRole = ""


@dataclass(frozen=True, slots=True)
class Fabric:
    """A pool's network between nodes: ``gbps`` gigabits per second and rail, ``rails`` per node."""

    kind: str
    gbps: int = 0
    rails: int = 1
    redundant_paths: bool = False


@dataclass(frozen=True, slots=True)
class Growth:
    """Who adds nodes to a pool, under which name it knows the pool, and the most there may be; None: its own limit.

    ``devices_per_node``, ``cpu_per_node`` (millicores) and ``memory_per_node`` (bytes) are what pods may have of a node
    that joins, each 0 where the pool does not say.
    """

    provisioner: str
    node_pool: str = ""
    max_nodes: int | None = None
    devices_per_node: int = 0
    cpu_per_node: int = 0
    memory_per_node: int = 0


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """A pool as an AcceleratorPool states it, or as discovery concludes it (``discovered``).

    ``created`` (Unix seconds) and then ``name`` decide which of two pools owns a node that both select.
    Exactly one of ``capacity_type`` and ``capacity_label`` is set where the pool states either.
    ``levels`` are outermost first and end with the host level.
    """

    name: str
    selector: Requirements
    accelerator: str
    roles: tuple[Role, ...]
    levels: tuple[Level, ...]
    capacity_type: CapacityType | None = None
    capacity_label: str | None = None
    fabric: Fabric | None = None
    usd_per_accelerator_hour: Decimal | None = None
    created: float = 0.0
    discovered: bool = False
    growth: Growth | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """Room held on one node by one pod, whether it exists yet or is only decided.

    ``key`` is the identity: a pod of a gang and the rank that was promised its room share ``job-uid/attempt/rank``,
    so that neither is counted twice; any other pod's key is its uid. ``owner`` is ``namespace/name`` of the
    workload, for explanations. ``daemon`` marks pods that come with the node itself.
    """

    key: str
    node: str
    amounts: Resources = field(default_factory=lambda: NO_RESOURCES)
    owner: str = ""
    role: Role | None = None
    daemon: bool = False


def gang_key(job_uid: str, attempt: int, rank: int) -> str:
    """The claim key shared by rank ``rank`` of attempt ``attempt`` and by its pod."""
    return f"{job_uid}/{attempt}/{rank}"
