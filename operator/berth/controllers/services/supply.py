"""What each service may run on: candidates from its spec and the pools, offers from what is free right now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from berth.api.inferenceservice import InferenceServiceSpec
from berth.catalogue.records import Catalogue
from berth.controllers.services.measure import ONE, Measure, measure
from berth.controllers.services.rollout import Space
from berth.controllers.services.standing import Standings
from berth.controllers.services.view import ServiceView
from berth.fleet.fleet import Fleet
from berth.inference.access import Access
from berth.inference.adopt import Adoption, Standing
from berth.inference.calibrate import Kind, basis_of
from berth.inference.candidates import Candidate, Candidates, candidates
from berth.inference.coldstart import Key, Prior, prior_of
from berth.inference.records import Offer, Variant
from berth.inference.request import ServiceRequest, service_request
from berth.inference.room import Rooms
from berth.inference.supply import Supply, supply
from berth.values import Resources, parse_duration

COLD_QUANTILE = 0.9
"""Plans go by the start that nine of ten replicas keep."""

PodFacts = Callable[[ServiceView, Variant], tuple[Resources, Access]]
"""What one pod of a variant asks for, and which nodes it may go to."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a service may run on, and the request that it follows from.

    ``found`` carry what was learned of them; ``sized`` is what they were estimated to, by name of the variant.
    ``measure``: of the work in which capacities are told. ``keeps`` and ``leaves`` as in
    :class:`berth.inference.adopt.Adoption`.
    """

    request: ServiceRequest
    found: Candidates
    sized: Mapping[str, float]
    measure: Measure = ONE
    keeps: frozenset[str] = frozenset()
    leaves: Mapping[str, str] = field(default_factory=dict)

    @property
    def variants(self) -> dict[str, Variant]:
        """By name."""
        return {candidate.variant.name: candidate.variant for candidate in self.found.found}

    def adopting(self, adoption: Adoption) -> Choice:
        """The same, with variants under the names of the Deployments that they go on as."""
        names = adoption.names
        sized = {names.get(name, name): size for name, size in self.sized.items()}
        found = replace(self.found, found=tuple(entry.named(names) for entry in self.found.found))
        return replace(self, found=found, sized=sized, keeps=adoption.keeps, leaves=adoption.leaves)


@dataclass(frozen=True, slots=True)
class _Known:
    """What was chosen of a service: in which ``state`` of the world, under the variants' ``own`` names, beside
    Deployments that ``stand``; and what came of it."""

    state: tuple[object, ...]
    own: Choice
    stand: tuple[Standing, ...]
    choice: Choice


class Market:
    """Candidates per service, computed again only when its spec, what its annotations say of the model, the catalogue
    or what pools consist of changed."""

    def __init__(self, fleet: Fleet, rooms: Rooms, pod_facts: PodFacts, standings: Standings | None = None) -> None:
        self._fleet, self._rooms, self._pod_facts, self._standings = fleet, rooms, pod_facts, standings
        self._supplies: dict[str, tuple[int, Supply | None]] = {}
        self._version = 0
        self._catalogue: object = None
        self._choices: dict[str, _Known] = {}

    @property
    def catalogue(self) -> Catalogue:
        """What is known of accelerators now."""
        return self._fleet.catalogue

    def choice(self, view: ServiceView) -> Choice:
        """What ``view`` may run on. Raises: ValueProblem, which a validated spec does not."""
        assert view.spec is not None
        self._refresh()
        known, learned, meta = self._choices.get(view.uid), view.capacities, view.object.metadata
        traits = [meta.annotations.get(entry.annotation) for entry in self._fleet.catalogue.serving.traits.values()]
        state = (meta.generation, *traits, self._version)  # a generation says nothing of annotations
        same = known is not None and known.state == (*state, learned.version)
        own = known.own if known is not None and same else self._own(view, known)
        before = known.choice if known is not None else None
        stand = self._standing(view, own, before)
        if known is not None and same and stand == known.stand:
            return known.choice
        choice = own
        if stand and self._standings is not None:
            choice = own.adopting(self._standings.adoption(own.variants, stand))
        _rename(view, before, choice)
        if before is not None:
            _follow(view, before, choice)
        self._choices[view.uid] = _Known((*state, learned.version), own, stand, choice)
        view.reference = choice.found.reference or view.reference
        return choice

    def _own(self, view: ServiceView, known: _Known | None) -> Choice:
        """The same with every variant under its own name, computed now."""
        assert view.spec is not None
        learned, meta = view.capacities, view.object.metadata
        request = service_request(meta.name, view.spec, meta.annotations, self._fleet.catalogue)
        supplies = [entry for _, entry in self._supplies.values() if entry is not None]
        reference = (known.own.found.reference if known is not None else "") or view.reference
        estimated = candidates(request, supplies, self._fleet.catalogue, reference)
        if estimated.found:
            learned.concern(self._basis(view.spec, request, estimated.reference))
        found = estimated.scaled(lambda variant: learned.factor(Kind(variant.accelerator, variant.devices)))
        sized = {entry.variant.name: entry.variant.capacity for entry in estimated.found}
        counted = known.own.measure if known is not None else ONE
        if found.found:
            counted = measure(view.spec, self._fleet.catalogue, estimated.reference_capacity)
        return Choice(request, found, sized, counted)

    def _standing(self, view: ServiceView, own: Choice, before: Choice | None) -> tuple[Standing, ...]:
        if self._standings is None:
            return ()
        return self._standings.foreign(view, own.variants, lambda name: _told(view, name, before))

    def forget(self, uid: str) -> None:
        """The service is gone."""
        self._choices.pop(uid, None)

    def offers(
        self,
        view: ServiceView,
        choice: Choice,
        wanted: Mapping[str, int],
        full: Callable[[str], bool],
        standing: Mapping[str, int] | None = None,
    ) -> tuple[Offer, ...]:
        """How many of each candidate can exist now.

        ``full``: variants of which no more are to be asked for. ``standing``: replicas of a variant that have a node,
        or the promise of one; what is ``wanted`` beyond them has no place. None: all that are wanted have one.
        """
        return tuple(self._offer(view, choice, candidate, wanted, full, standing) for candidate in choice.found.found)

    def cold_start(self, view: ServiceView, choice: Choice, variant: Variant, share: float, *, cached: bool) -> float:
        """Seconds within which ``share`` of the starts of a replica are done: as the user says, else as learned."""
        assert view.spec is not None
        stated = view.spec.cold_start.estimate if view.spec.cold_start is not None else None
        if stated and stated != "Auto":
            return parse_duration(stated)
        key, cold = start_key(view, variant, cached=cached), self.prior(choice, cached=False)
        if cached:
            return view.starts.cached_quantile(key, share, self.prior(choice, cached=True), cold)
        return view.starts.quantile(key, share, cold)

    def startup(self, view: ServiceView, choice: Choice, variant: Variant, share: float) -> float:
        """The same for the budget of a start: what was seen counts too where the user states how long it takes."""
        most = view.starts.longest(start_key(view, variant, cached=False))
        return max(self.cold_start(view, choice, variant, share, cached=False), most)

    @property
    def node_seconds(self) -> float:
        """What plans go by for a new node to join."""
        phase = self._fleet.catalogue.serving.cold_start.get("Node")
        return phase.p90 if phase is not None else 0.0

    def space(self, view: ServiceView, variant: Variant) -> Space:
        """The room for more replicas of ``variant`` than there are."""
        return Space(self._rooms.free(variant, *self._pod_facts(view, variant)), self.waits_for_node(view, variant))

    def waits_for_node(self, view: ServiceView, variant: Variant) -> float:
        """Seconds that the next replica waits for its node: none while there is room, or where none would come."""
        needs, access = view.needs.get(variant.name), self._pod_facts(view, variant)[1]
        if needs is None or not self._rooms.growth(variant, needs, access):
            return 0.0
        return 0.0 if self._rooms.free(variant, needs, access) else self.node_seconds

    def prior(self, choice: Choice, *, cached: bool) -> Prior:
        """What the catalogue expects of a start."""
        weights = choice.request.model.weights if choice.request.model is not None else 0
        return prior_of(self._fleet.catalogue.serving, weights, cached=cached)

    def _offer(
        self,
        view: ServiceView,
        choice: Choice,
        candidate: Candidate,
        wanted: Mapping[str, int],
        full: Callable[[str], bool],
        standing: Mapping[str, int] | None,
    ) -> Offer:
        variant = candidate.variant
        needs, access = self._pod_facts(view, variant)
        view.needs[variant.name] = needs
        have = wanted.get(variant.name, 0)
        cold = self.cold_start(view, choice, variant, COLD_QUANTILE, cached=False)
        no_more, misfit = full(variant.name), self._misfit(view, variant)
        if no_more:  # those that found no node are no supply, so that others are asked for in their place
            have = min(have, view.bound.get(variant.name, have))
        if no_more or misfit:  # of a template that fits nowhere: what runs has another one, and stays till others serve
            return replace(candidate.offer(have, cold_start_seconds=cold), closed=bool(misfit))
        if standing is not None and not self._grows(variant):
            have = min(have, standing.get(variant.name, 0))
        return candidate.offer(
            have + self._rooms.free(variant, needs, access),
            growth=self._rooms.growth(variant, needs, access),
            cold_start_seconds=cold,
            growth_seconds=self.node_seconds,
        )

    def misfits(self, view: ServiceView, choice: Choice) -> dict[str, str]:
        """Variants whose place has no node that the service's template would fit, however empty, with the reason."""
        found = {entry.variant.name: self._misfit(view, entry.variant) for entry in choice.found.found}
        return {
            name: f"{choice.variants[name].accelerator} in pool {choice.variants[name].pool}: {words}"
            for name, words in found.items()
            if words
        }

    def narrowed(self, view: ServiceView, choice: Choice) -> str:
        """Of variants whose place the service's template uses in part only, how much of it that is."""
        found = [
            (entry, self._rooms.outside(entry, self._pod_facts(view, entry)[1])) for entry in choice.variants.values()
        ]
        return "; ".join(f"{variant.accelerator} in pool {variant.pool}: {words}" for variant, words in found if words)

    def _misfit(self, view: ServiceView, variant: Variant) -> str:
        return self._rooms.misfit(variant, *self._pod_facts(view, variant))

    def _basis(self, spec: InferenceServiceSpec, request: ServiceRequest, reference: str) -> str:
        """What a capacity was learned of: the model, the engine as it runs, the promise, what the estimate rests on."""
        demand = spec.scaling.demand if spec.scaling is not None else None
        return basis_of(
            request.model, request.promise, request.engine, spec.runtime and spec.runtime.args, _images(spec),
            reference, self._fleet.catalogue.serving.sizing,
            [(entry.name, entry.preset, entry.per_replica) for entry in (demand.signals if demand else None) or ()],
        )  # fmt: skip

    def _grows(self, variant: Variant) -> bool:
        """Whether replicas without a node may wait for one to join."""
        pool = self._fleet.pools.get(variant.pool)
        return pool is not None and pool.spec.growth is not None

    def _refresh(self) -> None:
        """Read pools that consist of other nodes than before; the version moves only if that says something else."""
        fleet = self._fleet
        changed = self._catalogue is not fleet.catalogue
        self._catalogue = fleet.catalogue
        for name in self._supplies.keys() - fleet.pools.keys():
            del self._supplies[name]
            self._rooms.forget(name)
            changed = True
        for name, pool in fleet.pools.items():
            known = self._supplies.get(name)
            if known is not None and known[0] == pool.structure and not changed:
                continue
            fresh = supply(pool, fleet.catalogue, self._rooms.shape(pool))
            changed = changed or known is None or known[1] != fresh
            self._supplies[name] = (pool.structure, fresh)
        self._version += changed


def _told(view: ServiceView, name: str, before: Choice | None) -> tuple[str, str]:
    """Accelerator and zone of a variant as last known here, else as the status says; empty where nothing is known."""
    known = (before.variants.get(name) if before is not None else None) or view.former.get(name)
    if known is not None:
        return known.accelerator, known.zone
    entry = _entry(view, name)
    return entry.get("accelerator", ""), entry.get("zone", "")


def _entry(view: ServiceView, name: str) -> Mapping[str, str]:
    return next((entry for entry in view.persisted.get("variants") or () if entry["name"] == name), {})


def _rename(view: ServiceView, before: Choice | None, after: Choice) -> None:
    """What was learned of starts in pools that have another name now is known under that."""
    last = before.variants if before is not None else {}
    moved = set()
    for name, variant in after.variants.items():
        pool = last[name].pool if name in last else _entry(view, name).get("pool", "")
        if pool not in ("", variant.pool):
            moved.add((variant.accelerator, pool, variant.pool))
    view.starts.rename(moved, {variant.pool for variant in after.variants.values()})


def _follow(view: ServiceView, before: Choice, after: Choice) -> None:
    """What ``view`` remembers in units of work ``before`` is told in those of ``after``.

    Variants that are no candidates any more are kept, with what they carry, as long as something runs on them.
    """
    unit, memory = _unit(before, after), view.memory
    view.former = {
        name: replace(variant, capacity=variant.capacity / unit)
        for name, variant in {**view.former, **before.variants}.items()
        if name not in after.variants
    }
    over = after.measure.over(before.measure)
    work = memory.held_work / (unit if over is None else over)
    view.memory = replace(memory, held_work=work, held_capacity=memory.held_capacity / unit)


def _unit(before: Choice, after: Choice) -> float:
    """What today's reference replica carries, in reference replicas of ``before``."""
    reference = after.found.reference
    if reference in ("", before.found.reference):
        return 1.0
    sizes = [before.sized[name] for name, entry in before.variants.items() if entry.accelerator == reference]
    return sizes[0] if sizes else after.measure.over(before.measure) or 1.0


def _images(spec: InferenceServiceSpec) -> list[object]:
    """Of the user's own template: the version of the engine."""
    containers = ((spec.template or {}).get("spec") or {}).get("containers") or ()
    return [entry.get("image") for entry in containers if isinstance(entry, Mapping)]


def start_key(view: ServiceView, variant: Variant, *, cached: bool) -> Key:
    """What starts alike: the model as clients name it, the accelerator, the pool."""
    assert view.spec is not None
    return Key(view.spec.model.name or view.key[1], variant.accelerator, variant.pool, cached)
