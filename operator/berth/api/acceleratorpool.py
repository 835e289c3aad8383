"""AcceleratorPool: nodes with one kind of accelerator, said by a platform team rather than discovered from labels.

Pools are few and change rarely; what they say overrides what labels and catalogue would conclude.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field

from berth.api.cel import Rule, checked, required, unique, validated
from berth.api.common import (
    CatalogueName,
    Conditions,
    Cores,
    Duration,
    LabelKey,
    LabelName,
    LabelSelector,
    Model,
    Money,
    Quantity,
    Share,
    StatusShare,
    StatusText,
    SubdomainName,
    atomic,
    list_set,
)
from berth.values import CapacityType, Role, parse_duration, parse_share

HOST_LABEL: Final = "kubernetes.io/hostname"
HOST_LEVEL: Final = "host"

LevelRole = Literal["Site", "NVLinkDomain"]
Provisioner = Literal["None", "Karpenter", "ClusterAutoscaler"]
Tally = Annotated[int, Field(ge=0, le=2**31 - 1)]

_ONE_SOURCE: Final = Rule(
    "has(self.value) != has(self.nodeLabel)",
    "must have exactly one of value and nodeLabel: one type for the whole pool, or the label that says it of each node",
)
_LEVELS: Final = (
    unique("two levels have the same name; rename one, jobs use the name", "name"),
    unique("two levels have the same nodeLabel; take one out", "nodeLabel"),
    Rule(
        "self.filter(x, has(x.role) && x.role == 'Site').size() <= 1",
        "only one level may have the role Site: the one that a gang never crosses",
    ),
    Rule(
        "self.filter(x, has(x.role) && x.role == 'NVLinkDomain').size() <= 1",
        "only one level may have the role NVLinkDomain: the one that a tensor group never leaves",
    ),
    Rule(
        "self.filter(x, has(x.role)).map(x, x.role == 'Site' ? 1 : 2).isSorted()",
        "the level with the role Site must come before the one with the role NVLinkDomain: outermost first",
    ),
    Rule(
        f"!self.exists(x, x.nodeLabel == '{HOST_LABEL}') || self[size(self) - 1].nodeLabel == '{HOST_LABEL}'",
        f"the level of {HOST_LABEL} must be the last: levels go from the outermost to the innermost",
    ),
    Rule(
        f"self.all(x, (x.name == '{HOST_LEVEL}') == (x.nodeLabel == '{HOST_LABEL}'))",
        f"the name {HOST_LEVEL} and the nodeLabel {HOST_LABEL} belong together; the level is added where absent",
    ),
)
_GROWTH: Final = (
    required(
        ".nodePoolName",
        "self.provisioner != 'None'",
        "is what the provisioner grows: give it, or set provisioner: None",
    ),
    required(
        ".acceleratorsPerNode",
        "has(self.cpuPerNode)",
        "goes with cpuPerNode: say how many accelerators share these cores",
    ),
)
_SPEC: Final = (
    Rule(
        "!has(self.lending) || !has(self.roles) || !self.lending.to.exists(role, role in self.roles)",
        "names roles that may borrow; a role in spec.roles owns the pool already, so take it out of one of the two",
        path=".lending.to",
    ),
)
_ROOT: Final = (
    Rule(
        "oldSelf.hasValue() || size(self.metadata.name) <= 63 && !self.metadata.name.contains('.')",
        "must be at most 63 characters without dots: pods carry it in the label berth.dev/pool",
        path=".metadata.name",
        at_birth=True,
    ),
)


class CapacitySource(Model):
    """Whether nodes are on demand, spot or reserved: one type for all, or a label that says it of each node."""

    model_config = ConfigDict(json_schema_extra=validated(_ONE_SOURCE))

    value: CapacityType | None = None
    """The type of every node."""
    node_label: LabelKey | None = None
    """The node label that holds it; the catalogue knows the values that the clouds use."""


class PoolFabric(Model):
    """The network between the pool's nodes."""

    kind: CatalogueName
    """A catalogue entry, such as InfiniBand or RoCE."""
    gbps: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Gigabits per second of each rail. Absent: unknown, so no job that asks for a minimum comes here."""
    rails: Annotated[int, Field(ge=1, le=64)] | None = None
    """Rails of each node. Absent: 1."""
    redundant_paths: bool = False
    """Whether every rail survives the loss of a switch. Accepted; no effect yet."""


class TopologyLevel(Model):
    """One level of the pool's topology."""

    name: LabelName
    """What jobs call it."""
    node_label: LabelKey
    """The node label that holds the domain."""
    role: LevelRole | None = None
    """Site: a gang never crosses one. NVLinkDomain: a tensor group never leaves one."""


class Growth(Model):
    """Who adds nodes."""

    model_config = ConfigDict(json_schema_extra=validated(*_GROWTH))

    provisioner: Provisioner = "None"
    """None: the nodes are those that there are."""
    node_pool_name: SubdomainName | None = None
    """The provisioner's own name for this pool."""
    max_nodes: Tally | None = None
    """The most nodes that it may have. Absent: the provisioner's own limit."""
    accelerators_per_node: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Of a node that joins. Absent: as many as the pool's nodes have or last had; a pool that never had one waits."""
    cpu_per_node: Cores | None = None
    """Its allocatable cores. Absent: services ask for cores by the nodes that there are, for none without a node."""
    memory_per_node: Quantity | None = None
    """Its allocatable bytes. Absent: not counted while there is no node."""


class Lending(Model):
    """Who may use the pool while its own role leaves it free."""

    to: Annotated[tuple[Role, ...], Field(min_length=1, max_length=2), list_set()]
    """Roles that may borrow and are called back."""
    keep_free: Share | None = None
    """Never lent. Absent: none is kept."""
    recall_within: Duration | None = None
    """Time in which lent nodes must come back. Absent: when the borrower is done."""


class AcceleratorPoolSpec(Model):
    """What the platform team says about the nodes."""

    model_config = ConfigDict(json_schema_extra=validated(*_SPEC))

    node_selector: LabelSelector
    """The nodes, by their labels."""
    accelerator: CatalogueName
    """A catalogue entry; the resource name, memory, links and list price come with it."""
    roles: Annotated[tuple[Role, ...], Field(min_length=1, max_length=2), list_set()] | None = None
    """What may run here. Absent: what the catalogue says of the accelerator. Both: flagged, mixing costs."""
    capacity_type: CapacitySource | None = None
    """Whether nodes are on demand, spot or reserved. Absent: by the labels that the catalogue knows, else on demand."""
    fabric: PoolFabric | None = None
    """The network between nodes. Absent: by the labels that the catalogue knows."""
    topology: Annotated[tuple[TopologyLevel, ...], Field(max_length=8), atomic(), checked(*_LEVELS)] = ()
    """Levels, outermost first; host is added where absent. Empty: by the labels that the catalogue knows."""
    usd_per_accelerator_hour: Money | None = None
    """Overrides the catalogue's price."""
    growth: Growth | None = None
    """Who adds nodes; counted on by InferenceServices, not yet by TrainingJobs."""
    lending: Lending | None = None
    """Who may use the pool while its own role leaves it free. Accepted; no effect yet."""

    @cached_property
    def keep_free_share(self) -> float:
        """The share that is never lent, 0 to 1."""
        return parse_share(self.lending.keep_free) if self.lending and self.lending.keep_free else 0.0

    @cached_property
    def recall_seconds(self) -> float | None:
        """Time in which lent nodes must come back; None: when the borrower is done."""
        return parse_duration(self.lending.recall_within) if self.lending and self.lending.recall_within else None


class AcceleratorPoolStatus(Model):
    """What the pool holds; written at most once in 10 s, only on change."""

    observed_generation: Annotated[int, Field(ge=0, le=2**53)] | None = None
    """The spec generation that this status is about."""
    conditions: Conditions = ()
    """Ready (NodesMatched, NoNodes, NodesShared, UnknownAccelerator, SpecInvalid), TopologyComplete."""
    nodes: Tally | None = None
    """Nodes that belong to it."""
    accelerators: Tally | None = None
    """Devices of those nodes."""
    free: Tally | None = None
    """Devices that nothing holds."""
    used_by: Annotated[dict[str, Tally], Field(max_length=8)] | None = None
    """Role to devices that it holds."""
    largest_gang: Annotated[dict[str, Tally], Field(max_length=16)] | None = None
    """Level name to whole free nodes in one domain."""
    fragmentation: StatusShare | None = None
    """Share of the free devices that no whole free node holds."""
    failures_per_1000_node_days: StatusText | None = None
    """Measured failure rate. Not reported yet."""


class AcceleratorPool(Model):
    """Nodes with one kind of accelerator; without any, pools are discovered from node labels."""

    model_config = ConfigDict(json_schema_extra=validated(*_ROOT))

    spec: AcceleratorPoolSpec
    """What the platform team says about the nodes."""
    status: AcceleratorPoolStatus | None = None
    """What Berth found."""


def parse_spec(raw: Mapping[str, Any]) -> AcceleratorPoolSpec:
    """The spec of a live object. Raises: ContractProblem."""
    return AcceleratorPoolSpec.parse(raw, "spec")


def parse_status(raw: Mapping[str, Any] | None) -> AcceleratorPoolStatus:
    """The status of a live object; an absent one is the empty status. Raises: ContractProblem."""
    return AcceleratorPoolStatus.parse(raw or {}, "status")
