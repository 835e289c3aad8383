"""AcceleratorPools as the fleet takes them.

What a pool leaves out is concluded from the labels of the nodes that it selects, by the same tables that discovery
uses; so a pool may say no more than which nodes and which accelerator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Final

import msgspec

from berth.api.acceleratorpool import HOST_LABEL, HOST_LEVEL, AcceleratorPoolSpec, parse_spec
from berth.api.common import ContractProblem
from berth.catalogue.records import Catalogue
from berth.cluster import wire
from berth.fleet.records import Fabric, Growth, Level, PoolSpec
from berth.values import CPU, MEMORY, CapacityType, Role, parse_resource, selects

_TRAINING: Final[tuple[Role, ...]] = ("Training",)

NodeLabels = Iterable[tuple[Mapping[str, str], Mapping[str, int]]]
"""Labels and allocatable resources of every node."""


def pool_specs(
    pools: Iterable[wire.AcceleratorPool], catalogue: Catalogue, nodes: NodeLabels
) -> tuple[list[PoolSpec], dict[str, str]]:
    """Every AcceleratorPool that can be read, and by name why others cannot: those are left out, and their nodes are
    discovered."""
    known = list(nodes)
    specs, refused = list[PoolSpec](), dict[str, str]()
    for pool in pools:
        if pool.metadata.deleting:
            continue
        try:
            specs.append(pool_spec(pool, parse_spec(msgspec.json.decode(pool.spec)), catalogue, known))
        except (ContractProblem, msgspec.DecodeError, ValueError) as problem:
            refused[pool.metadata.name] = str(problem)
    return specs, refused


def complete(pool: wire.AcceleratorPool) -> bool:
    """Whether the pool says everything itself, so that nodes that come and go do not change what it is."""
    raw = msgspec.json.decode(pool.spec)
    return bool(raw.get("topology") and raw.get("fabric") and raw.get("capacityType"))


def pool_spec(
    pool: wire.AcceleratorPool, spec: AcceleratorPoolSpec, catalogue: Catalogue, nodes: NodeLabels
) -> PoolSpec:
    """One pool, completed from the labels of its nodes."""
    selector = spec.node_selector.requirements
    mine = [(labels, room) for labels, room in nodes if selects(selector, labels)]
    accelerator = catalogue.accelerators.get(spec.accelerator)
    price = spec.usd_per_accelerator_hour
    capacity_type, capacity_label = _capacity(spec, catalogue, mine)
    return PoolSpec(
        name=pool.metadata.name,
        selector=selector,
        accelerator=spec.accelerator,
        roles=spec.roles or (accelerator.pool_roles if accelerator is not None else _TRAINING),
        levels=_levels(spec, catalogue, mine),
        capacity_type=capacity_type,
        capacity_label=capacity_label,
        fabric=_fabric(spec, catalogue, mine),
        usd_per_accelerator_hour=Decimal(price) if price else None,
        created=pool.metadata.created,
        growth=_growth(spec),
    )


def _growth(spec: AcceleratorPoolSpec) -> Growth | None:
    stated = spec.growth
    if stated is None or stated.provisioner == "None":
        return None
    return Growth(
        stated.provisioner,
        stated.node_pool_name or "",
        stated.max_nodes,
        stated.accelerators_per_node or 0,
        parse_resource(CPU, stated.cpu_per_node or 0),
        parse_resource(MEMORY, stated.memory_per_node or 0),
    )


def _levels(spec: AcceleratorPoolSpec, catalogue: Catalogue, nodes: NodeLabels) -> tuple[Level, ...]:
    if not spec.topology:
        occurring = {label for labels, _ in nodes for label in catalogue.labels.occurring(labels)}
        return tuple(Level(level.name, level.label, level.role) for level in catalogue.labels.levels(occurring))
    levels = tuple(Level(level.name, level.node_label, level.role or "") for level in spec.topology)
    return levels if levels[-1].node_label == HOST_LABEL else (*levels, Level(HOST_LEVEL, HOST_LABEL))


def _capacity(
    spec: AcceleratorPoolSpec, catalogue: Catalogue, nodes: NodeLabels
) -> tuple[CapacityType | None, str | None]:
    source = spec.capacity_type
    if source is not None:
        return source.value, source.node_label
    kinds = {catalogue.labels.capacity_type(labels) or "OnDemand" for labels, _ in nodes}
    return (kinds.pop() if len(kinds) == 1 else None), None


def _fabric(spec: AcceleratorPoolSpec, catalogue: Catalogue, nodes: NodeLabels) -> Fabric | None:
    stated = spec.fabric
    if stated is not None:
        return Fabric(stated.kind, stated.gbps or 0, stated.rails or 1, stated.redundant_paths)
    found = [catalogue.labels.fabric(labels, room) for labels, room in nodes]
    kinds = {facts.kind for facts in found if facts is not None}
    if len(kinds) != 1 or None in found:
        return None
    speeds = [(facts.gbps, facts.rails) for facts in found if facts is not None]
    return Fabric(kinds.pop(), min(gbps for gbps, _ in speeds), max(1, min(rails for _, rails in speeds)))
