"""Which nodes the pods of a service may go to, by what its template says beside the pool: room elsewhere is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from berth.catalogue.records import Catalogue
from berth.fleet.pool import Pool
from berth.inference.records import Variant
from berth.values import Requirement, Requirements, Toleration

Tolerations = tuple[Toleration, ...]

SELECTOR: Final = "spec.template.spec (nodeSelector, affinity)"
SHOWN: Final = 3
"""Values or keys that are named as examples."""


class Access(NamedTuple):
    """Taints that a pod tolerates, and labels that it asks of its node: ``terms`` ORed, each ANDed, none for any."""

    tolerations: Tolerations = ()
    terms: tuple[Requirements, ...] = ()


ANYWHERE: Final = Access()


def never(pool: Pool, variant: Variant, terms: tuple[Requirements, ...], catalogue: Catalogue) -> str:
    """Why no node of the variant's place meets any of ``terms``, whichever nodes join; empty where one might.

    What all nodes of a place have in common: the labels by which the pool states them, on spot the zone, and the
    capacity type where labels tell it.
    """
    causes = [_never(pool, variant, term, catalogue) for term in terms]
    return causes[0] if all(causes) and causes else ""


def _never(pool: Pool, variant: Variant, term: Requirements, catalogue: Catalogue) -> str:
    common = {
        entry.key: entry.values for entry in pool.spec.selector if entry.operator == "In" and not pool.spec.discovered
    }
    if variant.zone and pool.site_level is not None:
        common[pool.levels[pool.site_level].node_label] = (variant.zone,)
    for asked in term:
        have = common.get(asked.key)
        if have is not None and not any(asked.matches({asked.key: value}) for value in have):
            return f"{asks(asked)}, which none of its nodes ever meets: they have {', '.join(have)} there"
        if _another_type(asked, pool, variant, catalogue):
            return f"{asks(asked)}, which none of its nodes ever meets: they are {variant.capacity_type}"
    return ""


def _another_type(asked: Requirement, pool: Pool, variant: Variant, catalogue: Catalogue) -> bool:
    """Whether the label that tells the capacity type is asked for with values that mean another one."""
    if pool.spec.capacity_type is not None or asked.operator != "In":
        return False
    reads: list[Callable[[str], object]] = [
        entry.read
        for entry in catalogue.labels.capacity_type_labels
        if entry.label == asked.key and pool.spec.capacity_label in (None, entry.label)
    ]
    return any(all(read(value) not in (None, variant.capacity_type) for value in asked.values) for read in reads)


def asks(asked: Requirement) -> str:
    """The requirement as it is told."""
    return f"{SELECTOR} asks for {asked.key} {asked.operator} {', '.join(asked.values[:SHOWN])}".strip()
