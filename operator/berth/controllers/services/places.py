"""The labels by which the replicas of a variant are bound to its nodes.

An AcceleratorPool states them. Those of a discovered pool are read off its nodes, as is what tells spot nodes, and
nodes come and go with labels of every spelling: read anew each time, a single node would roll every replica. So what
was read is frozen for each variant, in its service's status, and read again only when its template changes anyway, or
when no node is left that has these labels.
"""

from __future__ import annotations

from typing import Final

from berth.catalogue.matching import CapacityLabel
from berth.catalogue.records import Catalogue
from berth.fleet.fleet import Fleet
from berth.fleet.pool import Pool
from berth.inference.records import Variant
from berth.values import CapacityType, Requirement, Requirements

ANY_VALUE: Final = "*"
"""In the catalogue's labels of capacity types: the label alone says it, whatever its value."""
MOST_VALUES: Final = 256
"""Of one requirement, as many as the status keeps."""


def stated_requirements(pool: Pool) -> Requirements:
    """What the pool's own spec says of its nodes; nothing where it was discovered."""
    return () if pool.spec.discovered else tuple(pool.spec.selector)


def seen_requirements(pool: Pool, variant: Variant, fleet: Fleet) -> Requirements:
    """What tells the nodes of the variant's place beside that, by the labels that there are now: the product's, the
    capacity type's, on spot the zone's."""
    found = _product_requirements(pool, fleet) if pool.spec.discovered else []
    found += _capacity_requirements(pool, variant, fleet.catalogue)
    if variant.zone and pool.site_level is not None:
        found.append(Requirement(pool.levels[pool.site_level].node_label, "In", (variant.zone,)))
    return tuple(found)


def occurs(requirements: Requirements, pool: Pool) -> bool:
    """Whether some node of the pool meets all of ``requirements``."""
    return any(labels and all(entry.matches(labels) for entry in requirements) for labels in pool.labels)


def _product_requirements(pool: Pool, fleet: Fleet) -> list[Requirement]:
    """What tells the nodes of a discovered pool: the product, as they name it, and that no stated pool selects them.

    A stated pool of several requirements cannot be excluded by one list of requirements; its nodes stay eligible.
    """
    if pool.accelerator is None:
        return []
    found: list[Requirement] = []
    for match in pool.accelerator.products:
        seen = sorted({labels[match.key] for labels in pool.labels if match.matches(labels)})
        if seen and all(match.matches(labels) for labels in pool.labels if labels):
            found.append(Requirement(match.key, "In", tuple(seen[:MOST_VALUES])))
            break
    stated: dict[str, set[str]] = {}
    for other in fleet.pools.values():
        selector, same = other.spec.selector, other.spec.accelerator == pool.spec.accelerator
        if same and not other.spec.discovered and len(selector) == 1 and selector[0].operator == "In":
            stated.setdefault(selector[0].key, set()).update(selector[0].values)
    return found + [Requirement(key, "NotIn", tuple(sorted(taken)[:MOST_VALUES])) for key, taken in stated.items()]


def _capacity_requirements(pool: Pool, variant: Variant, catalogue: Catalogue) -> list[Requirement]:
    """What tells the nodes of the variant's capacity type.

    Nothing where a stated pool is all of one. A discovered pool's product alone selects the nodes of its sisters too,
    those that are paid for in another way. The values are the catalogue's, so that nodes that come change no template.
    """
    if pool.spec.capacity_type is not None and not pool.spec.discovered:
        return []
    entries = [
        entry for entry in catalogue.labels.capacity_type_labels if pool.spec.capacity_label in (None, entry.label)
    ]
    if variant.capacity_type == "OnDemand":
        return [found for entry in entries if (found := _other_than(entry, variant.capacity_type)) is not None]
    for entry in entries:
        carried = [labels[entry.label] for labels in pool.labels if entry.label in labels]
        if any(entry.read(value) == variant.capacity_type for value in carried):
            return [_same_as(entry, variant.capacity_type)]
    return []


def _same_as(entry: CapacityLabel, kind: CapacityType) -> Requirement:
    values_of = tuple(value for value, means in entry.values.items() if means == kind)
    return Requirement(entry.label, "Exists") if ANY_VALUE in values_of else Requirement(entry.label, "In", values_of)


def _other_than(entry: CapacityLabel, kind: CapacityType) -> Requirement | None:
    """What nodes of another capacity type do not meet, and those without the label do."""
    foreign = tuple(value for value, means in entry.values.items() if means != kind)
    if not foreign:
        return None
    if ANY_VALUE in foreign:
        return Requirement(entry.label, "DoesNotExist")
    return Requirement(entry.label, "NotIn", foreign)
