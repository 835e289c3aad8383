"""A pool that is told by another name moves no replica; one that is another place does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.inference.adopt import Adoption, Place, Standing, adopt
from berth.inference.records import Variant
from berth.inference.variants import variant_name
from tests.builders.services import make_variant

POOLS = ("a", "b", "c", "d")
SERVING: Any = dict.fromkeys((*POOLS, "new"), ("Inference",))


def own(place: Place, accelerator: str = "L4") -> str:
    pool, kind, zone = place
    return variant_name("chat", accelerator, kind, pool, zone)


def variants(*places: Place) -> list[Variant]:
    return [make_variant(name=own(place), pool=place[0], capacity_type=place[1], zone=place[2]) for place in places]


def made_in(place: Place, *now: Place, **fields: Any) -> Standing:
    """A Deployment made for ``place``, whose nodes are in the places ``now``, else there still."""
    told = {"name": own(place), "replicas": 2, "accelerator": "L4", **fields}
    return Standing(pool=place[0], capacity_type=place[1], zone=place[2], places=frozenset(now or (place,)), **told)


def on_demand(pool: str) -> Place:
    return pool, "OnDemand", ""


A, B, NEW = on_demand("a"), on_demand("b"), on_demand("new")
SPOT_A, SPOT_NEW, SPOT_NEW_Z2 = ("a", "Spot", "z1"), ("new", "Spot", "z1"), ("new", "Spot", "z2")


def lives_on(found: Adoption, place: Place) -> str:
    return found.names.get(own(place), own(place))


@pytest.mark.parametrize(
    ("standing", "place", "adopted"),
    [
        (made_in(A, NEW), NEW, True),
        (made_in(A, NEW, accelerator=""), NEW, True),
        (made_in(SPOT_A, SPOT_NEW), SPOT_NEW, True),
        (made_in(A, NEW, B), NEW, False),
        (made_in(A, NEW, SPOT_NEW), NEW, False),
        (made_in(SPOT_A, SPOT_NEW, SPOT_NEW_Z2), SPOT_NEW, False),
        (made_in(A, SPOT_NEW), SPOT_NEW, False),
        (made_in(A, NEW, accelerator="L40S"), NEW, False),
    ],
    ids=["another name", "nothing told of it", "spot", "split in two", "partly spot", "two zones", "spot now",
         "another accelerator"],
)  # fmt: skip
def test_whose_nodes_are_all_in_one_place_is_that_places_variant(
    standing: Standing, place: Place, adopted: bool
) -> None:
    found = adopt(variants(place), [standing], SERVING)
    assert (lives_on(found, place) == standing.name) is adopted
    assert (standing.name in found.keeps) is adopted
    assert bool(found.leaves) is not adopted


def test_who_bears_the_name_wins_then_who_has_the_most_replicas() -> None:
    small, large = made_in(A, NEW, replicas=3), made_in(B, NEW, replicas=5)
    assert lives_on(adopt(variants(NEW), [small, large], SERVING), NEW) == large.name
    native = made_in(NEW, replicas=1)
    found = adopt(variants(NEW), [small, large, native], SERVING)
    assert lives_on(found, NEW) == native.name
    assert not found.keeps


def test_a_name_that_stands_elsewhere_is_nobody_elses() -> None:
    """A node of the old pool's name is there again, while its former nodes are another pool's."""
    moved = made_in(A, NEW)
    found = adopt(variants(A, NEW), [moved], SERVING)
    assert lives_on(found, NEW) == moved.name
    assert lives_on(found, A) == f"{own(A)}-2"
    other = made_in(A, name=f"{own(A)}-2")
    again = adopt(variants(A, NEW), [moved, other], SERVING)
    assert [lives_on(again, place) for place in (NEW, A)] == [moved.name, other.name]
    assert lives_on(adopt(variants(A), [other], SERVING), A) == other.name


def test_a_template_that_names_the_pool_is_rendered_like_any_other() -> None:
    rolled = made_in(NEW, name=own(A))
    found = adopt(variants(NEW), [rolled], SERVING)
    assert (lives_on(found, NEW), found.keeps) == (own(A), frozenset())
    elsewhere = made_in(NEW, NEW, B, name=own(A))
    assert lives_on(adopt(variants(NEW, B), [elsewhere], SERVING), NEW) == own(A), "as one of its own name"


def test_a_replica_that_finds_no_node_though_the_pool_has_others_gets_the_pools_template() -> None:
    stuck = made_in(A, NEW, stuck=True)
    found = adopt(variants(NEW), [stuck], SERVING)
    assert (lives_on(found, NEW), found.keeps) == (stuck.name, frozenset())


@pytest.mark.parametrize(
    ("standing", "places", "roles", "words"),
    [
        (made_in(A, NEW), [B], {"new": ("Training",)}, "in pool new now, whose roles are Training"),
        (made_in(A, NEW, B), [NEW, B], {}, "are in the pools b and new now"),
        (made_in(A, ("new", "Reserved", "")), [], {}, "are Reserved in pool new now, and were OnDemand"),
        (made_in(A, NEW, accelerator="L40S"), [NEW], {}, "pool new has the nodes of", ),
        (made_in(A), [], {}, ""),
    ],
    ids=["training only", "split", "paid for otherwise", "another accelerator", "the pool's own matter"],
)  # fmt: skip
def test_why_replicas_move_is_said(standing: Standing, places: list[Place], roles: Any, words: str) -> None:
    found = adopt(variants(*places), [standing], {**SERVING, **roles})
    assert standing.name not in found.names.values()
    assert words in found.leaves.get(standing.name, "")
    assert bool(words) is bool(found.leaves)


PLACES = st.sampled_from([*(on_demand(pool) for pool in POOLS), ("a", "Spot", "z1"), ("b", "Spot", "z1")])
DEPLOYMENTS = st.lists(
    st.builds(
        lambda place, now, replicas, stuck: made_in(place, *now, replicas=replicas, stuck=stuck),
        PLACES, st.lists(PLACES, max_size=2), st.integers(1, 9), st.booleans(),
    ),
    unique_by=lambda entry: entry.name, max_size=5,
)  # fmt: skip


@given(st.lists(PLACES, unique=True), DEPLOYMENTS, st.randoms(use_true_random=False))
def test_no_name_is_two_variants_and_only_one_place_is_adopted(
    places: list[Place], live: list[Standing], chance: Any
) -> None:
    found = adopt(variants(*places), live, SERVING)
    names = [lives_on(found, place) for place in places]
    assert len(set(names)) == len(names)
    by_name = {entry.name: entry for entry in live}
    for place in places:
        entry = by_name.get(lives_on(found, place))
        if entry is not None and entry.name != own(place):
            assert entry.places == {place} or (entry.pool, entry.capacity_type, entry.zone) == place
        if entry is not None and entry.name in found.keeps:
            assert entry.places == {place}
    assert found.keeps <= set(names)
    shuffled = list(live)
    chance.shuffle(shuffled)
    assert adopt(variants(*reversed(places)), shuffled, SERVING) == found


@given(
    st.lists(PLACES, unique=True, min_size=1), st.permutations(POOLS), st.lists(st.booleans(), min_size=6, max_size=6)
)
def test_whatever_pools_are_called_nothing_that_runs_moves(
    places: list[Place], names: list[str], runs: list[bool]
) -> None:
    """Every pool gets another name, which may be that of another one."""
    called = dict(zip(POOLS, names, strict=True))

    def renamed(place: Place) -> Place:
        return called[place[0]], place[1], place[2]

    live = [made_in(place, renamed(place)) for place, there in zip(places, runs, strict=False) if there]
    found = adopt(variants(*map(renamed, places)), live, SERVING)
    used: Iterable[str] = {lives_on(found, renamed(place)) for place in places}
    assert {entry.name for entry in live} <= set(used)
    assert not found.leaves
