"""Room for replicas that are not bound yet: nobody else gets it; what is not bound in time goes elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from berth.controllers.services.plans import pod_facts
from berth.controllers.services.reserve import REFUSED_SECONDS, RESERVE_SECONDS, Reservations
from berth.controllers.services.supply import Market
from berth.controllers.services.view import ServiceView
from berth.fleet.fleet import Fleet
from berth.fleet.records import Growth
from berth.inference.mix import cheapest_mix
from berth.inference.plan import decide
from berth.inference.room import OWN_LIMIT, Rooms
from berth.inference.service import Memory
from berth.values import CPU, MEMORY
from tests.builders.fleet import GPU, make_claim, make_fleet, make_node, make_pool
from tests.builders.services import make_replicas, make_sight, make_variant
from tests.unit.controllers.services.views import make_view

NEEDS = {GPU: 1}
VARIANT = make_variant("H100", name="v", pool="p")


class Desk:
    """A fleet, and what services hold of it."""

    def __init__(self, nodes: int = 1, *, growth: Growth | None = None, claims: Any = ()) -> None:
        pool = replace(make_pool(roles=("Training", "Inference")), growth=growth)
        self.fleet: Fleet = make_fleet([make_node(f"n{i}", devices=4) for i in range(nodes)], pools=[pool])
        self.fleet.claim(claims)
        self.rooms = Rooms(self.fleet)
        self.held = Reservations(self.fleet, self.rooms)

    def hold(self, view: ServiceView, wanted: int, bound: int = 0, now: float = 0.0) -> None:
        view.needs["v"] = NEEDS
        self.held.hold(view, {"v": VARIANT}, {"v": wanted}, {"v": bound}, {}, now)

    @property
    def free(self) -> int:
        return self.rooms.free(VARIANT, NEEDS)


def test_what_is_not_bound_is_held_and_given_back_as_it_is_bound() -> None:
    desk, view = Desk(), make_view()
    desk.hold(view, 3)
    assert desk.free == 1
    desk.fleet.claim([make_claim("pod", "n0", 1, role="Inference")])
    desk.hold(view, 3, bound=1)
    assert desk.free == 1
    desk.hold(view, 1, bound=1)
    assert desk.free == 3
    desk.held.release(view)
    assert desk.free == 3
    assert not view.reserved


def test_two_services_never_get_the_same_device() -> None:
    desk, one, other = Desk(), make_view("one"), make_view("other")
    desk.hold(one, 3)
    desk.hold(other, 3)
    assert (len(one.reserved), len(other.reserved), desk.free) == (3, 1, 0)


def test_a_gangs_promise_and_a_replica_never_get_the_same_node() -> None:
    desk, view = Desk(2, claims=[make_claim("job/1/0", "n0", 4)]), make_view()
    desk.hold(view, 8)
    nodes = {desk.fleet.claims[key].node for key in view.reserved}
    assert nodes == {"n1"}
    pool = desk.fleet.pools["p"]
    assert pool.held_by_other_role("Training")[pool.row["n1"]]
    assert pool.held_by_other_role("Inference")[pool.row["n0"]]


def test_a_hold_repeated_changes_nothing() -> None:
    desk, view = Desk(), make_view()
    desk.hold(view, 2)
    before = dict(desk.fleet.claims)
    desk.hold(view, 2, now=15.0)
    assert desk.fleet.claims == before


def test_replicas_that_are_not_bound_in_time_make_their_variant_full_for_a_while() -> None:
    desk, view = Desk(), make_view()
    desk.hold(view, 2, now=0.0)
    desk.hold(view, 2, now=RESERVE_SECONDS)
    assert not desk.held.refused(view, "v", RESERVE_SECONDS)
    late = RESERVE_SECONDS + 1
    desk.hold(view, 2, now=late)
    assert desk.held.refused(view, "v", late)
    assert desk.free == 4
    assert not desk.held.refused(view, "v", late + REFUSED_SECONDS)


def test_a_scheduler_that_gets_on_with_it_has_not_refused() -> None:
    desk, view = Desk(3), make_view()
    for bound in range(8):
        desk.hold(view, 9, bound=bound, now=bound * 100.0)
    assert not desk.held.refused(view, "v", 700.0)


@pytest.mark.parametrize(
    ("growth", "nodes", "expected"),
    [
        (None, 1, 0),
        (Growth("Karpenter", "g", 3), 1, 8),
        (Growth("Karpenter", "g", 1), 1, 0),
        (Growth("Karpenter", "g", 1), 2, 0),
        (Growth("ClusterAutoscaler", "g"), 1, OWN_LIMIT * 4),
        (Growth("Karpenter", "g", 3), 0, 0),
        (Growth("Karpenter", "g", 3, 8), 0, 24),
        (Growth("Karpenter", "g", 3, 8, cpu_per_node=48_000), 0, 18),
        (Growth("Karpenter", "g", 3, 8, memory_per_node=16 << 30), 0, 12),
    ],
    ids=[
        "nobody adds nodes",
        "two more",
        "as many as may be",
        "more than may be",
        "no stated limit",
        "shape unknown",
        "stated shape",
        "cores of the stated shape",
        "memory of the stated shape",
    ],
)
def test_growth_is_what_more_nodes_of_the_pools_shape_would_hold(
    growth: Growth | None, nodes: int, expected: int
) -> None:
    needs = {**NEEDS, CPU: 8_000, MEMORY: 4 << 30}
    assert Desk(nodes, growth=growth).rooms.growth(VARIANT, needs) == expected


def test_nodes_that_one_service_waits_for_are_not_offered_to_another() -> None:
    desk, view = Desk(growth=Growth("Karpenter", "g", 3)), make_view()
    desk.hold(view, 6)
    assert (desk.free, desk.rooms.growth(VARIANT, NEEDS)) == (0, 4)
    desk.fleet.set_node(make_node("n1", devices=4))
    desk.hold(view, 6, now=15.0)
    assert (desk.free, desk.rooms.growth(VARIANT, NEEDS)) == (2, 4)
    desk.held.release(view)
    assert desk.rooms.growth(VARIANT, NEEDS) == 4


def market(fleet: Fleet, rooms: Rooms) -> Market:
    return Market(fleet, rooms, pod_facts(fleet))


def two_pools(**growth: Growth) -> Fleet:
    """L4s and dearer L40Ss on demand, a node of two each."""
    pools = [
        replace(make_pool(name.lower(), accelerator=name, roles=("Inference",)), growth=growth.get(name))
        for name in ("L4", "L40S")
    ]
    return make_fleet([make_node(f"{p.name}-0", pool=p.name, devices=2) for p in pools], pools=pools)


def test_offers_count_what_exists_and_what_fits_and_what_may_still_come() -> None:
    fleet = two_pools(L4=Growth("Karpenter", "l4", 2))
    rooms, view = Rooms(fleet), make_view(accelerators={"types": ["L4", "L40S"]})
    shop = market(fleet, rooms)
    choice = shop.choice(view)
    names = {variant.accelerator: name for name, variant in choice.variants.items()}
    offers = {
        offer.variant.accelerator: offer for offer in shop.offers(view, choice, {names["L4"]: 1}, lambda _: False)
    }
    assert (offers["L4"].room, offers["L4"].growth) == (3, 2)
    assert offers["L4"].growth_seconds == fleet.catalogue.serving.cold_start["Node"].p90
    assert (offers["L40S"].room, offers["L40S"].growth) == (2, 0)
    assert shop.waits_for_node(view, choice.variants[names["L4"]]) == 0.0
    fleet.claim([make_claim("other", "l4-0", 2, role="Inference")])
    assert shop.waits_for_node(view, choice.variants[names["L4"]]) == offers["L4"].growth_seconds
    assert shop.waits_for_node(view, choice.variants[names["L40S"]]) == 0.0


def test_refused_replicas_are_asked_for_on_the_next_cheapest_variant() -> None:
    fleet = two_pools(L4=Growth("Karpenter", "l4", 9))
    rooms, view = Rooms(fleet), make_view(accelerators={"types": ["L4", "L40S"]})
    shop = market(fleet, rooms)
    choice = shop.choice(view)
    names = {variant.accelerator: name for name, variant in choice.variants.items()}
    cheap, dear = names["L4"], names["L40S"]
    view.bound = {cheap: 1}
    offers = shop.offers(view, choice, {cheap: 2}, lambda name: name == cheap)
    assert {offer.variant.name: (offer.room, offer.growth) for offer in offers} == {cheap: (1, 0), dear: (2, 0)}
    work = choice.variants[cheap].capacity + 0.01
    sight = make_sight(work, {cheap: 2}, replicas=make_replicas(1, cheap), offers=offers)
    made = decide(view.rules, Memory(), sight, cheapest_mix)
    assert made.counts[dear] >= 1
    assert made.counts[cheap] <= 1


@pytest.mark.parametrize(
    ("stated", "had", "growth"), [(4, False, 8), (0, True, 4), (0, False, 0)], ids=["stated", "had nodes", "unknown"]
)
def test_a_growing_pool_without_a_node_offers_what_one_would_hold(stated: int, had: bool, growth: int) -> None:
    pool = make_pool("l4", accelerator="L4", roles=("Inference",))
    fleet = make_fleet([make_node("l4-0", pool="l4", devices=2)] if had else [],
                       pools=[replace(pool, growth=Growth("Karpenter", "l4", 2, stated))])  # fmt: skip
    rooms, view = Rooms(fleet), make_view(accelerators={"types": ["L4"], "perReplica": 1})
    shop = market(fleet, rooms)
    shop.choice(view)
    if had:
        fleet.remove_node("l4-0")
    choice = shop.choice(view)
    offers = shop.offers(view, choice, {}, lambda _: False)
    assert [(offer.room, offer.growth) for offer in offers] == ([(0, growth)] if growth else [])
    if not growth:
        assert "growth.acceleratorsPerNode" in choice.found.why_none()


def test_a_clock_that_was_ahead_and_is_set_back_refuses_no_variant_and_waits_no_longer() -> None:
    desk, view = Desk(), make_view()
    desk.hold(view, 2, now=0.0)
    desk.hold(view, 2, now=3600.0)
    assert desk.held.refused(view, "v", 3600.0)
    assert not desk.held.refused(view, "v", 30.0)
    view.waiting_since["v"] = 3600.0
    desk.hold(view, 2, now=30.0)
    desk.hold(view, 2, now=30.0 + RESERVE_SECONDS + 1)
    assert desk.held.refused(view, "v", 30.0 + RESERVE_SECONDS + 1)
