"""Pools for nodes that no AcceleratorPool selects.

A cluster should be usable before anybody has described it. Nodes whose labels name a known accelerator form pools of
what makes them interchangeable: the accelerator, the fabric and how they are paid for. The name follows from these
alone, so that it is the same after every restart; the topology levels are those that occur among the pool's nodes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar
from zlib import crc32

from berth.catalogue.matching import FabricFacts, LabelTable
from berth.catalogue.records import Accelerator, Catalogue
from berth.fleet.compact import Compact
from berth.fleet.records import Fabric, Level, PoolSpec
from berth.values import CapacityType, Resources

K = TypeVar("K")

_USUAL: Final = ("", "OnDemand")
_NO_FABRIC: Final = FabricFacts("")


@dataclass(frozen=True, slots=True)
class _Membership:
    """What one node brings to its pool."""

    pool: str
    fabric: FabricFacts
    labels: frozenset[str]


@dataclass(slots=True)
class _Group:
    accelerator: Accelerator
    fabric_kind: str
    capacity_type: CapacityType | None
    fabrics: Counter[FabricFacts] = field(default_factory=Counter)
    labels: Counter[str] = field(default_factory=Counter)


class Discovery:
    """Groups nodes and says what pools they make. ``taken`` are the names that AcceleratorPools bear."""

    def __init__(self, catalogue: Catalogue, taken: Collection[str] = ()) -> None:
        self.specs: dict[str, PoolSpec] = {}
        self.changed: set[str] = set()
        self._catalogue, self._taken = catalogue, frozenset(taken)
        self._topology_labels = topology_labels(catalogue.labels)
        self._kinds = {slug(name): name for name in catalogue.fabrics}
        self._ambiguous = Counter(slug(name) for name in catalogue.accelerators)
        self._groups: dict[str, _Group] = {}
        self._of: dict[str, _Membership] = {}
        self._alike: dict[_Membership, _Membership] = {}

    def join(self, node: str, labels: Mapping[str, str], allocatable: Resources) -> str | None:
        """Put a new node into the pool where it belongs; ``None`` when its labels name no known accelerator."""
        labels = labels.plain() if isinstance(labels, Compact) else labels
        accelerator = self._catalogue.identify(labels)
        if accelerator is None or not accelerator.pool_roles:
            return None
        fabric = self._fabric(labels, allocatable)
        capacity_type = self._catalogue.labels.capacity_type(labels)
        pool = self._name(accelerator, fabric.kind, capacity_type)
        group = self._groups.get(pool)
        if group is None:
            group = self._groups[pool] = _Group(accelerator, fabric.kind, capacity_type)
        found = _Membership(pool, fabric, self._topology_labels & self._catalogue.labels.occurring(labels))
        self._count(found, 1)
        self._of[node] = self._alike.setdefault(found, found)
        return pool

    def leave(self, node: str) -> None:
        """Take a node out; a pool without nodes is no more."""
        found = self._of.pop(node, None)
        if found is not None:
            self._count(found, -1)

    def _count(self, found: _Membership, step: int) -> None:
        group = self._groups[found.pool]
        before = (len(group.fabrics), len(group.labels))
        _step(group.fabrics, found.fabric, step)
        for label in found.labels:
            _step(group.labels, label, step)
        if before != (len(group.fabrics), len(group.labels)):
            self.changed.add(found.pool)
            if group.fabrics:
                self.specs[found.pool] = self._spec(found.pool, group)
            else:
                del self._groups[found.pool], self.specs[found.pool]

    def _spec(self, name: str, group: _Group) -> PoolSpec:
        levels = self._catalogue.labels.levels(group.labels)
        return PoolSpec(
            name=name,
            selector=(),
            accelerator=group.accelerator.name,
            roles=group.accelerator.pool_roles,
            levels=tuple(Level(level.name, level.label, level.role) for level in levels),
            capacity_type=group.capacity_type,
            fabric=_weakest(group.fabric_kind, group.fabrics),
            discovered=True,
        )

    def _fabric(self, labels: Mapping[str, str], allocatable: Resources) -> FabricFacts:
        facts = self._catalogue.labels.fabric(labels, allocatable)
        if facts is None:
            return _NO_FABRIC
        return FabricFacts(self._kinds.get(slug(facts.kind), slug(facts.kind)), facts.gbps, facts.rails)

    def _name(self, accelerator: Accelerator, fabric: str, capacity_type: CapacityType | None) -> str:
        own = slug(accelerator.name)
        if self._ambiguous[own] > 1:
            own = f"{own}-{crc32(accelerator.name.encode()):08x}"
        paid = "" if (capacity_type or "") in _USUAL else slug(capacity_type or "")
        name = "-".join(part for part in (own, slug(fabric), paid) if part)
        while name in self._taken:
            name += "-discovered"
        return name


def topology_labels(table: LabelTable) -> frozenset[str]:
    """The label keys that place a node, but for its host name."""
    inner = (level for entry in table.level_sets for level in entry.levels)
    return frozenset(level.label for level in (*table.sites, *inner, *table.nvlinks))


def slug(text: str) -> str:
    """``text`` as a part of a DNS label: lower-case letters, digits and single dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _step(counter: Counter[K], key: K, step: int) -> None:
    counter[key] += step
    if not counter[key]:
        del counter[key]


def _weakest(kind: str, fabrics: Iterable[FabricFacts]) -> Fabric | None:
    """What every node of the pool has of its fabric, for a gang may land on any of them."""
    if not kind:
        return None
    speeds, rails = zip(*((facts.gbps, facts.rails) for facts in fabrics), strict=True)
    return Fabric(kind, gbps=min(speeds), rails=max(1, min(rails)))
