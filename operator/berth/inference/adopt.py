"""Which Deployments go on as variants of a pool that another name was given.

A variant's Deployment is named after its pool, and a pool's name changes though nothing happens to its nodes: whoever
declares an AcceleratorPool over nodes that were discovered, deletes it, or gives it another name. By names alone, every
replica there would move, each with a cold start, and on a full pool in vain. So a Deployment whose nodes are all in
one place is taken for the variant of that place, whatever its name, and keeps its name, its nodes and the pool that its
template names, by which no template changes.

Nothing is remembered for it: what a Deployment selects stands in its own template, so that those of earlier versions
are taken over too. The name stays for as long as it has replicas, also when the user's next change rolls the template
to the pool's own nodes: that is the usual rollout, in the bounds that the user states, while replicas that move to
another Deployment need the room twice. At zero it costs nothing, and the next replica is made under the variant's own
name. A Deployment whose nodes are in several places, or in one where the service may not run, is not adopted: then
others are made first, as for everything that may be used no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count

from berth.inference.records import Variant
from berth.values import CapacityType, Role

Place = tuple[str, CapacityType, str]
"""Pool, capacity type and, on spot, zone: what has one variant of a service at most."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A Deployment that has replicas.

    ``pool`` is the one that its template names, ``places`` those of the nodes that its template selects; nodes that no
    pool has are left out, for nobody counts replicas there. ``accelerator`` and ``zone`` are what was last told of it,
    empty where nothing was. ``stuck``: a replica finds no node, and the pool has some that the template leaves out.
    """

    name: str
    replicas: int
    pool: str
    capacity_type: CapacityType
    places: frozenset[Place]
    accelerator: str = ""
    zone: str = ""
    stuck: bool = False


@dataclass(frozen=True, slots=True)
class Adoption:
    """``names``: of the Deployment that a variant goes on as, by the variant's own name. ``keeps``: Deployments whose
    template stays as it is. ``leaves``: why those that name another pool are not adopted, by name."""

    names: Mapping[str, str] = field(default_factory=dict)
    keeps: frozenset[str] = frozenset()
    leaves: Mapping[str, str] = field(default_factory=dict)


def adopt(variants: Iterable[Variant], standing: Iterable[Standing], roles: Mapping[str, tuple[Role, ...]]) -> Adoption:
    """Who goes on as what. ``variants`` by their own names, a place at most once; ``roles`` of every pool, by name.

    A Deployment that bears the variant's own name wins; of several others in its place the one with the most replicas.
    Where the own name is taken by one that stands elsewhere, the variant gets another name.
    """
    known = {(variant.pool, variant.capacity_type, variant.zone): variant for variant in variants}
    own = {variant.name: place for place, variant in known.items()}
    live = sorted(standing, key=lambda entry: (-entry.replicas, entry.name))
    at = {entry.name: _place(entry, known) or own.get(entry.name) for entry in live}
    names = {entry.name: entry.name for entry in live if at[entry.name] and at[entry.name] == own.get(entry.name)}
    keeps: set[str] = set()
    leaves: dict[str, str] = {}
    for entry in live:
        place = at[entry.name]
        if place is None:
            leaves[entry.name] = _why(entry, known, roles)
        elif names.setdefault(known[place].name, entry.name) == entry.name and _keeps(entry, place):
            keeps.add(entry.name)
    for name in own.keys() & at.keys() - names.keys():
        names[name] = next(other for number in count(2) if (other := f"{name}-{number}") not in at)
    return Adoption(
        {name: deployment for name, deployment in names.items() if name != deployment},
        frozenset(keeps),
        {name: words for name, words in leaves.items() if words},
    )


def _place(entry: Standing, known: Mapping[Place, Variant]) -> Place | None:
    """The place where a Deployment stands; None: in several, or in none that the service may use.

    One whose template names the pool already is there wherever the nodes are, as those of the variant's own name.
    """
    named: Place = (entry.pool, entry.capacity_type, entry.zone)
    if len(entry.places) == 1:
        (place,) = entry.places
    elif entry.accelerator:
        place = named
    else:
        return None
    if place not in known or entry.accelerator not in ("", known[place].accelerator):
        return None
    return place if place[1] == entry.capacity_type else None


def _keeps(entry: Standing, place: Place) -> bool:
    return entry.pool != place[0] and entry.places == {place} and not entry.stuck


def _why(entry: Standing, known: Mapping[Place, Variant], roles: Mapping[str, tuple[Role, ...]]) -> str:
    """Why a Deployment's replicas move, in a sentence; empty where its pool says it."""
    pools = sorted({place[0] for place in entry.places})
    if not pools or pools == [entry.pool]:
        return ""
    if len(pools) > 1:
        return f"the nodes of {entry.name} are in the pools {' and '.join(pools)} now"
    (pool,) = pools
    if "Inference" not in roles.get(pool, ()):
        return f"the nodes of {entry.name} are in pool {pool} now, whose roles are {' and '.join(roles.get(pool, ()))}"
    kinds = sorted({place[1] for place in entry.places})
    if kinds != [entry.capacity_type]:
        return f"the nodes of {entry.name} are {' and '.join(kinds)} in pool {pool} now, and were {entry.capacity_type}"
    taken = sorted({variant.accelerator for place, variant in known.items() if place[0] == pool})
    if entry.accelerator and taken and entry.accelerator not in taken:
        return f"pool {pool} has the nodes of {entry.name} now, as {' and '.join(taken)} and not {entry.accelerator}"
    return f"the nodes of {entry.name} are in pool {pool} now, which the service may not use"
