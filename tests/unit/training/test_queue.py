"""Who is placed next, on a real fleet with real placement: one ledger, an order, and what the head keeps free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.fleet.fleet import Fleet
from berth.fleet.records import Claim, gang_key
from berth.training.queue import Returning, Verdict, Waiting, order, schedule
from berth.training.records import GangRequest, Placement, Refusal
from berth.values import Taint, Toleration
from tests.builders.fleet import GPU, make_claim, make_fleet, make_node, make_pool, make_tree


def make_waiting(
    name: str, workers: int = 1, *, priority: int = 0, created: float = 0.0, devices: int = 8, **request: object
) -> Waiting:
    gang = GangRequest(workers, devices, **request)  # type: ignore[arg-type]
    return Waiting(f"ns/{name}", f"uid-{name}", 1, gang, priority, created)


def claims(job: Waiting, placement: Placement) -> list[Claim]:
    devices = job.request.accelerators_per_worker
    return [
        make_claim(gang_key(job.uid, job.attempt, rank), node, devices) for rank, node in enumerate(placement.nodes)
    ]


def decide(fleet: Fleet, *jobs: Waiting, **settings: int) -> dict[str, Verdict]:
    """One pass in the queue's order; verdicts by name."""
    verdicts = schedule(fleet, order(jobs), claims, **settings).verdicts
    return {verdict.waiting.key.partition("/")[2]: verdict for verdict in verdicts}


def expect_placed(verdicts: dict[str, Verdict], *names: str) -> None:
    placed = {name for name, verdict in verdicts.items() if isinstance(verdict.outcome, Placement)}
    assert placed == set(names)


def expect_never_oversold(fleet: Fleet) -> None:
    assert not fleet.check()
    for pool in fleet.pools.values():
        assert (pool.free_devices[pool.usable] >= 0).all()


def nodes_of(verdict: Verdict) -> tuple[str, ...]:
    assert isinstance(verdict.outcome, Placement), verdict.outcome
    return verdict.outcome.nodes


def test_the_order_is_priority_then_age_then_name() -> None:
    jobs = [
        make_waiting("young", created=9),
        make_waiting("b", created=5),
        make_waiting("urgent", created=9, priority=100),
        make_waiting("a", created=5),
        make_waiting("last", created=0, priority=-1),
    ]
    assert [job.key for job in order(jobs)] == ["ns/urgent", "ns/a", "ns/b", "ns/young", "ns/last"]


def test_positions_count_from_one_in_that_order() -> None:
    verdicts = decide(make_fleet(make_tree({"a": {"1": 3}})), *(make_waiting(name, created=at) for at, name in
                      enumerate("abc")))  # fmt: skip
    assert {name: verdict.position for name, verdict in verdicts.items()} == {"a": 1, "b": 2, "c": 3}
    expect_placed(verdicts, "a", "b", "c")


def test_no_node_is_sold_twice_within_a_pass() -> None:
    fleet = make_fleet(make_tree({"a": {"1": 4}}))
    verdicts = decide(fleet, *(make_waiting(f"j{number}", 2, created=number) for number in range(4)))
    expect_placed(verdicts, "j0", "j1")
    sold = Counter(node for name in ("j0", "j1") for node in nodes_of(verdicts[name]))
    assert max(sold.values()) == 1
    expect_never_oversold(fleet)


def test_a_head_that_cannot_be_placed_keeps_the_nodes_that_it_could_use() -> None:
    nodes = make_tree({"a": {"1": 3}})
    fleet = make_fleet(nodes, claims=[make_claim("busy", nodes[0].name)])
    verdicts = decide(fleet, make_waiting("head", 3), make_waiting("small", 1, created=1))
    expect_placed(verdicts)
    assert verdicts["small"].behind == "ns/head"
    assert isinstance(verdicts["small"].outcome, Refusal)
    assert verdicts["small"].outcome.message == "Behind other jobs in the queue, which may use every free node"


def test_nodes_that_the_head_can_never_use_stay_open_to_those_behind() -> None:
    other = make_pool("q", accelerator="H200")
    nodes = [*make_tree({"a": {"1": 2}}), make_node("h200", pool="q")]
    fleet = make_fleet(nodes, pools=[make_pool(), other], claims=[make_claim("busy", nodes[0].name)])
    verdicts = decide(
        fleet,
        make_waiting("head", 2, types=("H100",)),
        make_waiting("same", 1, types=("H100",), created=1),
        make_waiting("either", 1, types=("H100", "H200"), created=2),
    )
    expect_placed(verdicts, "either")
    assert nodes_of(verdicts["either"]) == ("h200",)
    assert verdicts["either"].behind == "ns/head"


def test_tainted_nodes_that_only_others_tolerate_stay_open() -> None:
    taint = Taint("example.com/team", "b")
    nodes = [make_node("n1"), make_node("n2"), make_node("own", taints=[taint])]
    fleet = make_fleet(nodes, claims=[make_claim("busy", "n1")])
    verdicts = decide(
        fleet,
        make_waiting("head", 2),
        make_waiting("team", 1, created=1, tolerations=(Toleration("example.com/team", "Exists"),)),
    )
    expect_placed(verdicts, "team")
    assert nodes_of(verdicts["team"]) == ("own",)


@pytest.mark.parametrize(
    "hopeless",
    [
        make_waiting("head", 99),
        make_waiting("head", 1, required_level="galaxy"),
        make_waiting("head", 1, types=("MI300X",)),
        make_waiting("head", 1, min_gbps=400),
    ],
    ids=["too large", "unknown level", "no pool", "no fabric"],
)
def test_a_head_that_could_never_be_placed_here_keeps_nothing(hopeless: Waiting) -> None:
    verdicts = decide(make_fleet(make_tree({"a": {"1": 2}})), hopeless, make_waiting("small", 1, created=1))
    expect_placed(verdicts, "small")
    assert verdicts["small"].behind == ""


def test_a_more_important_job_is_served_before_an_older_head() -> None:
    fleet = make_fleet(make_tree({"a": {"1": 2}}))
    verdicts = decide(fleet, make_waiting("old", 2), make_waiting("urgent", 1, priority=9, created=50))
    expect_placed(verdicts, "urgent")


def test_a_pass_ends_after_so_many_placements() -> None:
    fleet = make_fleet(make_tree({"a": {"1": 8}}))
    jobs = [make_waiting(f"j{number}", created=number) for number in range(6)]
    expect_placed(decide(fleet, *jobs, most=4), "j0", "j1", "j2", "j3")
    expect_placed(decide(fleet, *jobs[4:]), "j4", "j5")
    expect_never_oversold(fleet)


def test_parts_of_a_node_are_shared_by_small_gangs() -> None:
    fleet = make_fleet([make_node("n1")])
    verdicts = decide(fleet, *(make_waiting(f"j{number}", devices=4, created=number) for number in range(3)))
    expect_placed(verdicts, "j0", "j1")
    expect_never_oversold(fleet)


sizes = st.lists(st.tuples(st.integers(1, 5), st.sampled_from([4, 8]), st.integers(0, 2)), min_size=1, max_size=8)


def run_pass(queue: Sequence[tuple[int, int, int]], busy: Iterable[int]) -> tuple[Fleet, list[Verdict]]:
    nodes = make_tree({"a": {"1": 3, "2": 2}, "b": {"1": 3}})
    fleet = make_fleet(nodes, claims=[make_claim(f"busy-{index}", nodes[index].name) for index in busy])
    jobs = [
        make_waiting(f"j{number}", workers, devices=devices, priority=priority, created=number)
        for number, (workers, devices, priority) in enumerate(queue)
    ]
    return fleet, schedule(fleet, order(jobs), claims).verdicts


@settings(max_examples=60, deadline=None)
@given(sizes, st.sets(st.integers(0, 7)))
def test_any_queue_is_decided_the_same_twice_and_never_oversells(
    queue: list[tuple[int, int, int]], busy: set[int]
) -> None:
    fleet, verdicts = run_pass(queue, busy)
    expect_never_oversold(fleet)
    assert verdicts == run_pass(queue, sorted(busy, reverse=True))[1]
    for verdict in verdicts:
        if isinstance(verdict.outcome, Placement):
            assert len(verdict.outcome.nodes) == verdict.waiting.request.workers


@settings(max_examples=60, deadline=None)
@given(sizes, st.sets(st.integers(0, 7)))
def test_nobody_behind_the_head_ever_takes_a_node_that_it_waits_for(
    queue: list[tuple[int, int, int]], busy: set[int]
) -> None:
    """All jobs here may use every node, so once one has to wait for room nothing behind it is placed."""
    _, verdicts = run_pass(queue, busy)
    waits = False
    for verdict in verdicts:
        assert not (waits and isinstance(verdict.outcome, Placement))
        waits = waits or (isinstance(verdict.outcome, Refusal) and verdict.outcome.reason == "NoCapacity")


def test_what_was_placed_is_claimed_for_the_devices_of_the_pool() -> None:
    fleet = make_fleet([make_node("n1")])
    decide(fleet, make_waiting("j"))
    assert fleet.claims["uid-j/1/0"].amounts == {GPU: 8}


def test_a_job_on_which_the_search_fails_is_refused_and_the_others_are_placed() -> None:
    def failing(job: Waiting, placement: Placement) -> list[Claim]:
        if job.key == "ns/bad":
            raise RuntimeError("a defect")
        return claims(job, placement)

    fleet = make_fleet([make_node("n1")])
    jobs = [make_waiting("bad", created=1), make_waiting("good", created=2)]
    bad, good = schedule(fleet, order(jobs), failing).verdicts
    assert isinstance(bad.outcome, Refusal)
    assert (bad.outcome.reason, str(bad.problem)) == ("InternalError", "a defect")
    assert nodes_of(good) == ("n1",)
    assert (good.behind, good.problem) == ("", None)


def returning(name: str, *nodes: str, priority: int = 0, created: float = 0.0) -> Returning:
    return Returning(f"ns/{name}", f"uid-{name}", "p", nodes, priority, created)


def test_a_gang_that_restarts_keeps_its_nodes_from_those_behind_it_alone() -> None:
    fleet = make_fleet(make_tree({"a": {"1": 3}}))
    (pool,) = fleet.pools.values()
    kept, other = [*pool.row][:2], [*pool.row][2]
    ahead, behind, last = (make_waiting(name, created=at) for name, at in (("ahead", 1), ("behind", 3), ("last", 4)))
    gang = replace(returning("gang", *kept, created=2), pool=pool.spec.name)
    fleet.claim([make_claim("guest", other, 8)])
    verdicts = schedule(fleet, order([last, ahead, behind]), claims, returning=[gang]).verdicts
    outcome = {verdict.waiting.key: verdict for verdict in verdicts}
    assert nodes_of(outcome["ns/ahead"])[0] in kept
    for name in ("behind", "last"):
        refused = outcome[f"ns/{name}"]
        assert isinstance(refused.outcome, Refusal)
        assert refused.behind == "ns/gang"


def test_nodes_and_pools_that_are_gone_are_kept_for_nobody() -> None:
    fleet = make_fleet(make_tree({"a": {"1": 1}}))
    job = make_waiting("young", created=9)
    gone = [returning("gang", "no-such-node"), replace(returning("other", "n"), pool="no-such-pool")]
    (verdict,) = schedule(fleet, [job], claims, returning=gone).verdicts
    assert isinstance(verdict.outcome, Placement)
