"""Which accelerators could carry a service, as variants with a price and a capacity, and why the others cannot.

An exclusion is an answer that people act on, so each has a sentence with the figures that decided it. What rules of
choice say is data (``rules`` of the catalogue); here are only those that follow from a field: what an entry can do, how
much it holds, how fast it is, and what pools there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf

from berth.catalogue.located import suggestion
from berth.catalogue.records import Accelerator, Catalogue, ChoiceRule
from berth.inference.capacity import Capacity
from berth.inference.pricing import Basis, device_prices
from berth.inference.records import Offer, Variant
from berth.inference.request import ServiceRequest
from berth.inference.sized import Sized, size
from berth.inference.supply import Place, Supply, by_accelerator
from berth.inference.variants import variant_name


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Why ``accelerator`` takes no part. ``absent``: no pool has it, which is worth a word only where it was named."""

    accelerator: str
    sentence: str
    absent: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """A variant that may be used. ``capacity`` is what one replica of it carries, ``None`` where it is not known.

    ``rank`` decides between variants that cost the same for the same work, the smaller first. ``preference`` multiplies
    the price in the choice, above 1 where the objective is not cost alone. ``nodes`` of its place.
    """

    variant: Variant
    capacity: Capacity | None
    rank: int
    basis: Basis
    preference: float = 1.0
    nodes: int = 0

    def named(self, names: Mapping[str, str]) -> Candidate:
        """The same, its variant under the name that ``names`` has for it, if any."""
        name = names.get(self.variant.name)
        return self if name is None else replace(self, variant=replace(self.variant, name=name))

    def offer(
        self, room: int, *, growth: int = 0, cold_start_seconds: float = 0.0, growth_seconds: float = 0.0
    ) -> Offer:
        """What the mix chooses among: this, and how many of it can exist."""
        return Offer(self.variant, room, growth, cold_start_seconds, growth_seconds, self.preference, self.rank)


@dataclass(frozen=True, slots=True)
class Candidates:
    """``found`` in order of preference, the cheapest for the same work first. ``reference``: of capacity 1.0
    as sized.

    ``reference_capacity`` is what one reference replica carries, ``None`` where it cannot be estimated.
    """

    found: tuple[Candidate, ...]
    excluded: tuple[Exclusion, ...]
    reference: str = ""
    reference_capacity: Capacity | None = None

    def scaled(self, factor: Callable[[Variant], float]) -> Candidates:
        """The same, each variant carrying ``factor`` of what it does here, the cheapest for the same work first."""
        found = [_with_capacity(entry, entry.variant.capacity * factor(entry.variant)) for entry in self.found]
        capacities = {entry.variant.accelerator: entry.variant.capacity for entry in found}
        found.sort(key=lambda entry: _order(entry, capacities))
        return replace(self, found=tuple(found))

    def why_none(self, shown: int = 3) -> str:
        """One sentence for a service that nothing can carry."""
        told = [entry.sentence for entry in self.excluded if not entry.absent] or [
            entry.sentence for entry in self.excluded
        ]
        more = f"; and {len(told) - shown} more" if len(told) > shown else ""
        return "; ".join(told[:shown]) + more if told else "there is no pool with accelerators"


@dataclass(frozen=True, slots=True)
class _Kept:
    accelerator: Accelerator
    pools: tuple[Supply, ...]
    sized: Sized
    rank: int


def candidates(
    request: ServiceRequest, supplies: Iterable[Supply], catalogue: Catalogue, reference: str = ""
) -> Candidates:
    """The variants that may carry ``request``, and a sentence for every accelerator that may not.

    ``reference`` is the accelerator whose replica had capacity 1.0 so far; it stays while it is a candidate, so that
    what was learned in units of work stays true. Else the first of the named types that is a candidate, else the
    cheapest for the same work.
    """
    pools = by_accelerator(supplies)
    kept: list[_Kept] = []
    excluded: list[Exclusion] = []
    for name in request.types or _servers(catalogue):
        judged = _judge(name, request, pools.get(name, ()), catalogue)
        (excluded if isinstance(judged, Exclusion) else kept).append(judged)  # type: ignore[arg-type]
    if not kept:
        return Candidates((), tuple(excluded))
    capacities = _rates({entry.accelerator.name: entry.sized for entry in kept})
    found = _variants(request, kept, capacities, catalogue)
    chosen = _reference(reference, request.types, found)
    unit = capacities[chosen]
    scaled = tuple(
        _with_capacity(candidate, capacities[candidate.variant.accelerator] / unit)
        for candidate in sorted(found, key=lambda entry: _order(entry, capacities))
    )
    basis = next(entry.sized.capacity for entry in kept if entry.accelerator.name == chosen)
    return Candidates(scaled, tuple(excluded), chosen, basis)


def _servers(catalogue: Catalogue) -> list[str]:
    return [name for name, entry in catalogue.accelerators.items() if "Inference" in entry.roles]


def _judge(name: str, request: ServiceRequest, pools: tuple[Supply, ...], catalogue: Catalogue) -> _Kept | Exclusion:
    accelerator = catalogue.accelerators.get(name)
    if accelerator is None:
        return Exclusion(name, f"{name}: not in the catalogue{suggestion(name, catalogue.accelerators)}")
    reason = _unsuited(accelerator, request, catalogue)
    open_pools = tuple(pool for pool in pools if "Inference" in pool.roles or request.training_pools)
    if reason is None:
        reason = _closed(pools, open_pools, request)
    if reason is not None:
        return Exclusion(name, f"{name}: {reason}", absent=not pools)
    wanted = {"Spot"} if request.spot == "Only" else {"OnDemand", "Reserved"} | (
        {"Spot"} if request.spot == "Mixed" else set()
    )  # fmt: skip
    usable = tuple(
        replace(pool, places=places)
        for pool in open_pools
        if (places := tuple(place for place in pool.places if place.capacity_type in wanted))
    )  # fmt: skip
    sized = size(accelerator, request, max(pool.devices_per_node for pool in usable), catalogue.serving.sizing)
    if isinstance(sized, str):
        return Exclusion(name, sized if sized.startswith(f"{name} ") else f"{name}: {sized}")
    return _Kept(accelerator, usable, sized, _rank(accelerator, request, catalogue))


def _unsuited(accelerator: Accelerator, request: ServiceRequest, catalogue: Catalogue) -> str | None:
    """Why the product is out whatever pools there are."""
    if "Inference" not in accelerator.roles:
        return f"does not serve, only {' and '.join(sorted(accelerator.roles))}"
    if accelerator.opt_in and accelerator.name not in request.types:
        return "used only where accelerators.types names it"
    for rule in catalogue.serving.rules:
        if rule.rank is None and _applies(rule, accelerator, request):
            return rule.reason
    if accelerator.compiled and accelerator.name not in request.compiled_for:
        annotation = catalogue.serving.traits["compiledFor"].annotation
        return f"the model is not compiled for it; once it is, name {accelerator.name} in the annotation {annotation}"
    if not accelerator.resource:
        return "the catalogue knows no device resource for it; state it in an overlay"
    if request.engine is not None and not request.own_image and accelerator.runtime not in request.engine.images:
        return f"{request.engine.name} has no image for {accelerator.runtime} here; name one in template or an overlay"
    return None


def _closed(pools: tuple[Supply, ...], open_pools: tuple[Supply, ...], request: ServiceRequest) -> str | None:
    """Why none of its pools may be used."""
    if not pools:
        return "no pool has it"
    if not open_pools:
        return "role Training only"
    kinds = {place.capacity_type for pool in open_pools for place in pool.places}
    if not kinds and any(pool.grows for pool in open_pools):
        return "its pools have no node, and none says in growth.acceleratorsPerNode what one that joins would hold"
    if not kinds:
        return "its pools have no node"
    if request.spot == "Never" and kinds == {"Spot"}:
        return "spot only, and spot.mode is Never"
    if request.spot == "Only" and "Spot" not in kinds:
        return "no spot nodes, and spot.mode is Only"
    return None


def _applies(rule: ChoiceRule, accelerator: Accelerator, request: ServiceRequest) -> bool:
    return rule.speaks_of(request.mode, request.objective, request.traits) and rule.meets(
        compiled=accelerator.compiled, pool_roles=accelerator.pool_roles, maturity=accelerator.maturity
    )


def _rank(accelerator: Accelerator, request: ServiceRequest, catalogue: Catalogue) -> int:
    return sum(
        rule.rank for rule in catalogue.serving.rules if rule.rank is not None and _applies(rule, accelerator, request)
    )


def _rates(sized: Mapping[str, Sized]) -> dict[str, float]:
    """Requests/s of a replica, by accelerator; the least of the known where one is not, and in proportion to the
    bandwidth of memory, which decoding waits for, where none is."""
    known = {name: entry.capacity.requests_per_second for name, entry in sized.items() if entry.capacity is not None}
    if known:
        return {name: known.get(name, min(known.values())) for name in sized}
    return {name: float(entry.bandwidth) or 1.0 for name, entry in sized.items()}


def _variants(
    request: ServiceRequest, kept: list[_Kept], capacities: Mapping[str, float], catalogue: Catalogue
) -> list[Candidate]:
    devices = {entry.accelerator.name: entry.sized.devices for entry in kept}
    prices = device_prices(_pools(kept), devices, capacities, request, catalogue)
    fastest = min((entry.sized.capacity.itl for entry in kept if entry.sized.capacity is not None), default=0.0)
    found = []
    for entry in kept:
        for pool in entry.pools:
            price = prices[pool.pool]
            for place in _places(pool, entry.sized.devices):
                spot = place.capacity_type == "Spot"
                off = pool.spot_discount if spot and not pool.price_is_spot else 0.0
                variant = Variant(
                    name=variant_name(request.service, entry.accelerator.name, place.capacity_type, pool.pool,
                                      place.zone),
                    accelerator=entry.accelerator.name,
                    capacity_type=place.capacity_type,
                    pool=pool.pool,
                    devices=entry.sized.devices,
                    usd_per_hour=price.usd * entry.sized.devices * (1 - off),
                    capacity=1.0,
                    zone=place.zone,
                )  # fmt: skip
                found.append(Candidate(variant, entry.sized.capacity, entry.rank, price.basis,
                                       _preference(request, entry.sized, fastest), place.nodes))  # fmt: skip
    return found


def _pools(kept: Iterable[_Kept]) -> dict[str, tuple[Supply, ...]]:
    """The pools in use, by accelerator."""
    return {entry.accelerator.name: entry.pools for entry in kept}


def _places(pool: Supply, devices: int) -> list[Place]:
    """Those whose nodes hold a replica; zones only matter on spot."""
    merged: dict[tuple[str, str], Place] = {}
    for place in pool.places:
        if place.devices_per_node < devices:
            continue
        zone = place.zone if place.capacity_type == "Spot" else ""
        held = merged.get((place.capacity_type, zone))
        nodes = place.nodes + (held.nodes if held else 0)
        merged[place.capacity_type, zone] = Place(place.capacity_type, zone, place.devices_per_node, nodes)
    return list(merged.values())


def _preference(request: ServiceRequest, sized: Sized, fastest: float) -> float:
    """With the objective Latency a replica that is k times slower counts as k² times dearer, else 1."""
    if request.objective != "Latency" or sized.capacity is None or not fastest:
        return 1.0
    return (sized.capacity.itl / fastest) ** 2


def _order(candidate: Candidate, capacities: Mapping[str, float]) -> tuple[float, int, str]:
    cost = candidate.variant.usd_per_hour * candidate.preference
    return round(cost / capacities[candidate.variant.accelerator], 12), candidate.rank, candidate.variant.name


def _reference(held: str, types: tuple[str, ...], found: list[Candidate]) -> str:
    names = {candidate.variant.accelerator for candidate in found}
    if held in names:
        return held
    named = next((name for name in types if name in names), None)
    if named is not None:
        return named

    def unit_cost(candidate: Candidate) -> tuple[float, int, str]:
        rate = candidate.capacity.requests_per_second if candidate.capacity is not None else 0.0
        cost = candidate.variant.usd_per_hour / rate if rate else inf
        return cost, candidate.rank, candidate.variant.accelerator

    return min(found, key=unit_cost).variant.accelerator


def _with_capacity(candidate: Candidate, capacity: float) -> Candidate:
    return replace(candidate, variant=replace(candidate.variant, capacity=capacity))
