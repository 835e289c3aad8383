"""Who holds room: claims, their undo, roles, daemons, and the CPU share that is left."""

from __future__ import annotations

import pytest

from berth.fleet.audit import picture
from berth.fleet.shares import cpu_per_accelerator, cpu_shares
from tests.builders.fleet import make_claim, make_fleet, make_node, make_pool


def expect_free(fleet, **devices):
    found = {}
    for node in devices:
        pool = fleet.pool_of(node)
        found[node] = int(pool.free_devices[pool.row[node]])
    assert found == devices
    assert fleet.check() == []


def two_nodes(*claims):
    return make_fleet([make_node("a"), make_node("b")], claims=claims)


def test_a_claim_takes_room_and_its_release_gives_it_back():
    fleet = two_nodes(make_claim("k", "a", 3))
    expect_free(fleet, a=5, b=8)
    fleet.release(["k", "unknown"])
    expect_free(fleet, a=8, b=8)


def test_the_same_key_is_counted_once_wherever_it_is_said_again():
    fleet = two_nodes(make_claim("k", "a", 3))
    fleet.claim([make_claim("k", "a", 3), make_claim("k", "a", 4)])
    expect_free(fleet, a=4, b=8)
    fleet.claim([make_claim("k", "b", 1)])
    expect_free(fleet, a=8, b=7)


def test_a_claim_on_an_unknown_node_takes_effect_when_the_node_appears():
    fleet = two_nodes(make_claim("k", "c", 3))
    assert "k" in fleet.claims
    fleet.set_node(make_node("c"))
    expect_free(fleet, a=8, b=8, c=5)
    fleet.remove_node("c")
    fleet.set_node(make_node("c", uid="another"))
    expect_free(fleet, c=5)


def test_claims_follow_a_node_into_another_pool():
    fleet = make_fleet([make_node("a")], pools=[make_pool("p"), make_pool("q")], claims=[make_claim("k", "a", 3)])
    fleet.set_node(make_node("a", pool="q"))
    assert fleet.pool_of("a") is fleet.pools["q"]
    expect_free(fleet, a=5)
    assert fleet.pools["p"].nodes == 0


def test_more_claimed_than_there_is_shows_as_negative_room():
    expect_free(two_nodes(make_claim("k", "a", 8), make_claim("l", "a", 8)), a=-8)


UNDONE = {
    "a new claim": lambda fleet: fleet.claim([make_claim("new", "a", 2)]),
    "a replaced claim": lambda fleet: fleet.claim([make_claim("k", "b", 2)]),
    "a key said twice in one call": lambda fleet: fleet.claim([make_claim("k", "b", 2), make_claim("k", "a", 1)]),
    "a release": lambda fleet: fleet.release(["k"]),
    "a claim on an unknown node": lambda fleet: fleet.claim([make_claim("k", "elsewhere", 2)]),
    "nothing": lambda fleet: fleet.claim([]),
}


@pytest.mark.parametrize("change", UNDONE.values(), ids=UNDONE)
def test_undo_restores_exactly(change):
    fleet = two_nodes(make_claim("k", "a", 3), make_claim("other", "a", 1, role="Inference"))
    before, claims = picture(fleet.pools["p"]), dict(fleet.claims)
    undo = change(fleet)
    undo()
    undo()
    assert picture(fleet.pools["p"]) == before
    assert dict(fleet.claims) == claims


def test_undo_leaves_alone_what_was_said_since():
    fleet = two_nodes(make_claim("k", "a", 3))
    undo = fleet.claim([make_claim("k", "b", 3), make_claim("l", "b", 3)])
    fleet.claim([make_claim("k", "b", 4)])
    undo()
    expect_free(fleet, a=8, b=4)


def test_undo_holds_even_where_the_node_changed_in_between():
    fleet = two_nodes(make_claim("k", "a", 3))
    undo = fleet.release(["k"])
    fleet.set_node(make_node("a", devices=4))
    fleet.remove_node("b")
    undo()
    expect_free(fleet, a=1)


def test_a_trial_leaves_no_trace():
    fleet = two_nodes(make_claim("k", "a", 3))
    pool = fleet.pools["p"]
    before = (fleet.version, pool.version, pool.gains, picture(pool))
    with fleet.trial():
        fleet.release(["k"])
        undo = fleet.claim([make_claim("l", "a", 8)])
        with fleet.trial():
            fleet.claim([make_claim("m", "b", 8)])
            expect_free(fleet, a=0, b=0)
        undo()
        expect_free(fleet, a=8, b=8)
    assert (fleet.version, pool.version, pool.gains, picture(pool)) == before


def test_a_trial_that_fails_leaves_no_trace_either():
    fleet = two_nodes()

    def fail():
        with fleet.trial():
            fleet.claim([make_claim("l", "a", 8)])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    expect_free(fleet, a=8)


def test_a_version_seen_inside_a_trial_never_comes_back():
    fleet = two_nodes()
    pool = fleet.pools["p"]
    with fleet.trial():
        fleet.claim([make_claim("l", "a", 8)])
        inside = pool.version
    fleet.claim([make_claim("m", "b", 8)])
    assert pool.version > inside


GAINS = {
    "taking room": (lambda fleet: fleet.claim([make_claim("l", "b", 1)]), False),
    "saying a claim again": (lambda fleet: fleet.claim([make_claim("k", "a", 3)]), False),
    "releasing an unknown key": (lambda fleet: fleet.release(["nobody"]), False),
    "releasing": (lambda fleet: fleet.release(["k"]), True),
    "moving a claim": (lambda fleet: fleet.claim([make_claim("k", "b", 3)]), True),
    "a new node": (lambda fleet: fleet.set_node(make_node("c")), True),
    "a node that is usable again": (lambda fleet: fleet.set_node(make_node("cordoned")), True),
    "the same pools again": (lambda fleet: fleet.set_pools([make_pool()]), False),
    "other pools": (lambda fleet: fleet.set_pools([make_pool(), make_pool("q")]), True),
}


@pytest.mark.parametrize(("change", "gained"), GAINS.values(), ids=GAINS)
def test_the_version_moves_when_something_may_fit_that_did_not(change, gained):
    fleet = two_nodes(make_claim("k", "a", 3))
    fleet.set_node(make_node("cordoned", unschedulable=True))
    before = fleet.version
    change(fleet)
    assert (fleet.version != before) is gained


def test_only_claims_leave_the_structure_as_it_is():
    fleet = two_nodes()
    pool = fleet.pools["p"]
    structure, version = pool.structure, pool.version
    fleet.claim([make_claim("k", "a", 3)])
    assert (pool.structure, pool.version > version) == (structure, True)
    fleet.set_node(make_node("a", unschedulable=True))
    assert pool.structure > structure


def test_whole_nodes_go_to_one_role_at_a_time():
    fleet = two_nodes(make_claim("k", "a", 1, role="Training"), make_claim("l", "b", 0, role="Inference"))
    pool = fleet.pools["p"]
    assert pool.held_by_other_role("Training").tolist() == [False, True]
    assert pool.held_by_other_role("Inference").tolist() == [True, False]
    fleet.release(["k"])
    assert pool.held_by_other_role("Inference").tolist() == [False, False]


def test_pods_without_a_role_bar_no_role():
    pool = two_nodes(make_claim("k", "a", 1, role=None), make_claim("d", "b", 0, daemon=True)).pools["p"]
    assert not pool.held_by_other_role("Training").any()


def test_daemons_hold_room_and_are_known_apart():
    pool = two_nodes(make_claim("d", "a", 0, cpu=2, daemon=True), make_claim("k", "a", 1, cpu=10)).pools["p"]
    assert pool.free_cpu.tolist() == [180_000, 192_000]
    assert pool.daemon_cpu.tolist() == [2_000, 0]


@pytest.mark.parametrize(
    ("cpu", "devices", "daemon_cpu", "share"),
    [(192, 8, 0, 24_000), (192, 8, 4, 23_500), (512, 8, 4, 32_000), (96, 8, 1, 11_875), (2, 8, 4, 0), (64, 0, 0, 0)],
)
def test_cpu_share_of_an_accelerator(cpu, devices, daemon_cpu, share):
    fleet = make_fleet(
        [make_node("a", cpu=cpu, devices=devices)],
        claims=[make_claim("d", "a", 0, cpu=daemon_cpu, daemon=True), make_claim("k", "a", 0, cpu=1)],
    )
    assert cpu_shares(fleet.pools["p"]).tolist() == [share]


def test_a_gang_asks_for_the_share_that_its_poorest_node_has():
    fleet = make_fleet([make_node("a"), make_node("b", cpu=96), make_node("c", cpu=48)])
    pool = fleet.pools["p"]
    assert cpu_per_accelerator(pool, [0, 1]) == 12_000
    assert cpu_per_accelerator(pool, []) == 0


def test_claims_on_a_node_are_told_by_key():
    fleet = two_nodes(make_claim("l", "a", 1), make_claim("k", "a", 1), make_claim("m", "b", 1))
    assert [claim.key for claim in fleet.claims_on("a")] == ["k", "l"]
    assert fleet.claims_on("nowhere") == []
