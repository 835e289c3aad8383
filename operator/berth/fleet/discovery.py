"""Pools for nodes that no AcceleratorPool selects.

A cluster should be usable before anybody has described it. Nodes whose labels name a known accelerator form pools of
what makes them interchangeable: the accelerator, the fabric and whether they are spot or reserved. The name follows
from these alone, so that it is the same after every restart and in whatever order nodes are seen; the topology levels
are those that occur among the pool's nodes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Final, TypeVar
from zlib import crc32

from berth.catalogue.matching import FabricFacts, LabelTable
from berth.catalogue.records import Accelerator, Catalogue
from berth.fleet.compact import Compact
from berth.fleet.records import Fabric, Level, PoolSpec
from berth.values import CapacityType, Resources

K = TypeVar("K")

Kind = tuple[str, str, CapacityType | None]
"""Accelerator, fabric kind or "", Spot or Reserved or ``None``: what a pool is named after."""

_NO_FABRIC: Final = FabricFacts("")
_PAID: Final[tuple[CapacityType | None, ...]] = (None, "Spot", "Reserved")


@dataclass(frozen=True, slots=True)
class _Membership:
    """What one node brings to its pool."""

    pool: str
    fabric: FabricFacts
    capacity_type: CapacityType | None
    labels: frozenset[str]


@dataclass(slots=True)
class _Group:
    accelerator: Accelerator
    fabrics: Counter[FabricFacts] = field(default_factory=Counter)
    capacity_types: Counter[CapacityType | None] = field(default_factory=Counter)
    labels: Counter[str] = field(default_factory=Counter)

    def distinct(self) -> tuple[int, int, int]:
        """Changes exactly when what the pool is may have changed, as nodes come or go one at a time."""
        return len(self.fabrics), len(self.capacity_types), len(self.labels)


class Discovery:
    """Groups nodes and says what pools they make. ``taken`` are the names that AcceleratorPools bear."""

    def __init__(self, catalogue: Catalogue, taken: Collection[str] = ()) -> None:
        self.specs: dict[str, PoolSpec] = {}
        self.changed: set[str] = set()
        self._catalogue = catalogue
        self._topology_labels = topology_labels(catalogue.labels)
        self._names = pool_names(catalogue, taken)
        self._groups: dict[str, _Group] = {}
        self._of: dict[str, _Membership] = {}
        self._alike: dict[_Membership, _Membership] = {}

    def join(self, node: str, labels: Mapping[str, str], allocatable: Resources) -> str | None:
        """Put a new node into the pool where it belongs; ``None`` when its labels name no known accelerator."""
        labels = labels.plain() if isinstance(labels, Compact) else labels
        accelerator = self._catalogue.identify(labels)
        if accelerator is None or not accelerator.pool_roles:
            return None
        table = self._catalogue.labels
        fabric = table.fabric(labels, allocatable) or _NO_FABRIC
        if fabric.kind not in self._catalogue.fabrics:
            fabric = _NO_FABRIC
        paid = table.capacity_type(labels)
        pool = self._names[accelerator.name, fabric.kind, paid if paid in _PAID else None]
        found = _Membership(pool, fabric, paid, self._topology_labels & table.occurring(labels))
        if pool not in self._groups:
            self._groups[pool] = _Group(accelerator)
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
        before = group.distinct()
        _step(group.fabrics, found.fabric, step)
        _step(group.capacity_types, found.capacity_type, step)
        for label in found.labels:
            _step(group.labels, label, step)
        if before == group.distinct():
            return
        self.changed.add(found.pool)
        if group.fabrics:
            self.specs[found.pool] = self._spec(found.pool, group)
        else:
            del self._groups[found.pool], self.specs[found.pool]

    def _spec(self, name: str, group: _Group) -> PoolSpec:
        levels = self._catalogue.labels.levels(group.labels)
        agreed = next(iter(group.capacity_types)) if len(group.capacity_types) == 1 else None
        return PoolSpec(
            name=name,
            selector=(),
            accelerator=group.accelerator.name,
            roles=group.accelerator.pool_roles,
            levels=tuple(Level(level.name, level.label, level.role) for level in levels),
            capacity_type=agreed,
            fabric=_weakest(group.fabrics),
            discovered=True,
        )


def topology_labels(table: LabelTable) -> frozenset[str]:
    """The label keys that place a node, but for its host name."""
    inner = (level for entry in table.level_sets for level in entry.levels)
    return frozenset(level.label for level in (*table.sites, *inner, *table.nvlinks))


def pool_names(catalogue: Catalogue, taken: Collection[str] = ()) -> dict[Kind, str]:
    """A DNS label for every kind of pool there can be, such as ``h100-infiniband-spot``; no two alike, none ``taken``.

    Where two kinds would read the same, both carry a checksum of what they are.
    """
    kinds: list[Kind] = list(product(catalogue.accelerators, ("", *catalogue.fabrics), _PAID))
    slugs = {part: slug(part) for part in (*catalogue.accelerators, *catalogue.fabrics, *_PAID) if part}
    plain = {kind: "-".join(slugs[part] for part in kind if part) for kind in kinds}
    alike = Counter(plain.values())
    names: dict[Kind, str] = {}
    for kind, text in plain.items():
        name = text if alike[text] == 1 else f"{text}-{crc32(repr(kind).encode()):08x}"
        while name in taken:
            name += "-discovered"
        names[kind] = name
    return names


def slug(text: str) -> str:
    """``text`` as a DNS label: lower-case letters, digits and single dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _step(counter: Counter[K], key: K, step: int) -> None:
    counter[key] += step
    if not counter[key]:
        del counter[key]


def _weakest(fabrics: Iterable[FabricFacts]) -> Fabric | None:
    """What every node of the pool has of its fabric, for a gang may land on any of them."""
    known = list(fabrics)
    if not known[0].kind:
        return None
    return Fabric(known[0].kind, gbps=min(facts.gbps for facts in known), rails=max(1, min(f.rails for f in known)))
