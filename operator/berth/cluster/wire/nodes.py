"""Nodes: what they offer, and to whom."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import force_setattr

from berth.cluster.sharing import share_texts, shared_texts
from berth.cluster.wire.meta import NO_META, Condition, Meta, Wire, holds


class NodeTaint(Wire, frozen=True):
    """``core/v1`` Taint."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: datetime | None = None

    def __post_init__(self) -> None:
        share_texts(self, "key", "value", "effect")


class NodeSpec(Wire, frozen=True):
    """Whether a node takes pods."""

    unschedulable: bool = False
    taints: tuple[NodeTaint, ...] = ()


class NodeStatus(Wire, frozen=True):
    """What a node offers and how it is."""

    allocatable: dict[str, str] = {}
    conditions: tuple[Condition, ...] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "allocatable", shared_texts(self.allocatable))


class Node(Wire, frozen=True):
    """``core/v1`` Node."""

    metadata: Meta = NO_META
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def ready(self) -> bool:
        """Whether the kubelet says, and recently said, that it can run pods."""
        return holds(self.status.conditions, "Ready")
