"""Refusals that are remembered, passes that are bounded: the same gangs on the same nodes, with far fewer searches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.waiting import plain_pass
from berth.fleet.fleet import Fleet
from berth.fleet.records import Claim, NodeFacts, gang_key
from berth.training import queue as queue_module
from berth.training.placement import place
from berth.training.queue import Waiting, order, schedule
from berth.training.records import GangRequest, Placement, Refusal
from berth.training.refusals import Refusals
from berth.values import Taint, Toleration
from tests.builders.fleet import make_claim, make_fleet, make_node, make_pool

TEAM = Taint("example.com/team", "b")
TOLERANT = (Toleration("example.com/team", "Exists"),)


def make_nodes() -> list[NodeFacts]:
    """Two racks of H100 hosts, one of them with a tainted host, and a small pool of H200 hosts."""
    p = [
        make_node(f"p{number}", block="a", rack=str(number // 3), pool="p", allocatable={"rdma/ib": 8})
        for number in range(6)
    ]
    q = [make_node(f"q{number}", block="a", rack="q", pool="q") for number in range(2)]
    return [*p, make_node("own", block="a", rack="0", taints=[TEAM]), *q]


NODES = {node.name: node for node in make_nodes()}


def new_fleet() -> Fleet:
    return make_fleet(make_nodes(), pools=[make_pool(), make_pool("q", accelerator="H200")])


def claims(job: Waiting, placement: Placement) -> list[Claim]:
    devices, needs = job.request.accelerators_per_worker, job.request.per_worker
    keys = [gang_key(job.uid, job.attempt, rank) for rank in range(len(placement.nodes))]
    return [make_claim(key, node, devices, amounts=needs) for key, node in zip(keys, placement.nodes, strict=True)]


requests = st.builds(
    GangRequest,
    workers=st.integers(1, 5),
    accelerators_per_worker=st.sampled_from([4, 8]),
    per_worker=st.sampled_from([{}, {"cpu": 150_000}, {"rdma/ib": 8}]),
    types=st.sampled_from([(), ("H100",), ("H200",), ("H200", "H100"), ("MI300X",)]),
    required_level=st.sampled_from([None, None, "rack", "galaxy"]),
    tolerations=st.sampled_from([(), TOLERANT]),
    excluded_nodes=st.sampled_from([frozenset(), frozenset({"p1"})]),
)
jobs = st.builds(lambda request, priority: (request, priority), requests, st.integers(0, 1))

events: dict[str, Callable[[Fleet, str], object]] = {
    "hold": lambda fleet, name: fleet.claim([make_claim(f"busy {name}", name, 8)]),
    "hold half": lambda fleet, name: fleet.claim([make_claim(f"busy {name}", name, 4)]),
    "free": lambda fleet, name: fleet.release([f"busy {name}"]),
    "serve": lambda fleet, name: fleet.claim([make_claim(f"service {name}", name, 1, role="Inference")]),
    "daemon": lambda fleet, name: fleet.claim([make_claim(f"daemon {name}", name, 0, cpu=100, daemon=True)]),
    "rdma daemon": lambda fleet, name: fleet.claim(
        [make_claim(f"daemon {name}", name, 0, daemon=True, amounts={"rdma/ib": 1})]
    ),
    "no daemon": lambda fleet, name: fleet.release([f"daemon {name}"]),
    "cordon": lambda fleet, name: fleet.set_node(replace(NODES[name], unschedulable=True)),
    "taint": lambda fleet, name: fleet.set_node(replace(NODES[name], taints=(TEAM,))),
    "lose": lambda fleet, name: fleet.remove_node(name),
    "restore": lambda fleet, name: fleet.set_node(NODES[name]),
    "fewer pools": lambda fleet, name: fleet.set_pools([make_pool()]),
    "all pools": lambda fleet, name: fleet.set_pools([make_pool(), make_pool("q", accelerator="H200")]),
}
stories = st.lists(st.tuples(st.sampled_from(sorted(events)), st.sampled_from(sorted(NODES))), max_size=6)
rounds = st.lists(st.tuples(stories, st.lists(jobs, max_size=5)), min_size=1, max_size=5)


class Both:
    """Two equal fleets and queues: one decided in short passes with a memory, one at once without any."""

    def __init__(self, most: int, tries: int) -> None:
        self.fleets = new_fleet(), new_fleet()
        self.waiting: dict[str, Waiting] = {}
        self.memory, self.most, self.tries = Refusals(), most, tries

    def change(self, story: list[tuple[str, str]], added: list[tuple[GangRequest, int]]) -> None:
        for what, name in story:
            for fleet in self.fleets:
                events[what](fleet, name)
        for request, priority in added:
            number = len(self.waiting)
            self.waiting[f"j{number}"] = Waiting(f"ns/j{number}", f"j{number}", 1, request, priority, float(number))

    def decide(self) -> dict[str, Placement | Refusal]:
        """What the short passes decided, by job, after making sure that it is what the long one did."""
        bounded, plain = self.fleets
        left = order(job for job in self.waiting.values() if gang_key(job.uid, 1, 0) not in bounded.claims)
        expected = dict(plain_pass(plain, left, claims))
        decided: dict[str, Placement | Refusal] = {}
        for _ in range(len(left) * 2 + 2):
            result = schedule(
                bounded, left, claims, refusals=self.memory, most=self.most, tries=self.tries, shown=len(left)
            )
            decided |= {verdict.waiting.uid: verdict.outcome for verdict in result.verdicts}
            left = [job for job in left if not isinstance(decided.get(job.uid), Placement)]
            if result.complete:
                break
        else:
            raise AssertionError("the passes never came to an end")
        assert decided.keys() == expected.keys()
        for uid, outcome in expected.items():
            if isinstance(outcome, Placement):
                assert decided[uid] == outcome
            else:
                assert isinstance(decided[uid], Refusal)
        assert dict(bounded.claims) == dict(plain.claims)
        return decided


@settings(max_examples=200, deadline=None)
@given(rounds, st.integers(1, 3), st.integers(1, 2))
def test_short_passes_with_a_memory_place_what_one_pass_without_places(
    story: list[tuple[list[tuple[str, str]], list[tuple[GangRequest, int]]]], most: int, tries: int
) -> None:
    both = Both(most, tries)
    for changes, added in story:
        both.change(changes, added)
        both.decide()


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[GangRequest]:
    """Every request that is searched a place for from here on."""
    seen: list[GangRequest] = []

    def counting(fleet: Fleet, request: GangRequest, **how: object) -> Placement | Refusal:
        seen.append(request)
        return place(fleet, request, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(queue_module, "place", counting)
    return seen


def waiting(*asked: GangRequest) -> list[Waiting]:
    return order(Waiting(f"ns/{n:03d}", str(n), 1, request, created=n) for n, request in enumerate(asked))


def full_but_for_h200() -> Fleet:
    fleet = new_fleet()
    fleet.claim(make_claim(f"busy {name}", name) for name in NODES if not name.startswith("q"))
    return fleet


H100 = [GangRequest(1, 8, types=("H100",), per_worker={"cpu": 1000}) for _ in range(30)]
OTHER = GangRequest(2, 8, types=("H100",))


def test_equal_requests_are_searched_for_once_until_room_comes_free(searched: list[GangRequest]) -> None:
    fleet, memory, jobs = full_but_for_h200(), Refusals(), waiting(*H100, OTHER)
    for _ in range(3):
        result = schedule(fleet, jobs, claims, refusals=memory)
        assert len(result.verdicts) == len(jobs)
    assert searched == [H100[0], OTHER]
    fleet.claim([make_claim("one more", "q0")])
    schedule(fleet, jobs, claims, refusals=memory)
    assert len(searched) == 2, "room that was taken, or of another accelerator, refutes no refusal"
    fleet.release(["one more"])
    schedule(fleet, jobs, claims, refusals=memory)
    assert len(searched) == 2
    fleet.release(["busy p0"])
    result = schedule(fleet, jobs, claims, refusals=memory)
    assert [isinstance(verdict.outcome, Placement) for verdict in result.verdicts[:2]] == [True, False]


def test_a_pass_stops_after_so_many_searches_in_vain_and_the_next_goes_on(searched: list[GangRequest]) -> None:
    fleet, memory = full_but_for_h200(), Refusals()
    asked = [GangRequest(1, 8, types=("H100",), per_worker={"cpu": 1000 * n}) for n in range(1, 6)]
    jobs = waiting(*asked, GangRequest(1, 8, types=("H200",)))
    seen = []
    while True:
        result = schedule(fleet, jobs, claims, refusals=memory, tries=2)
        seen.append(len(result.verdicts))
        if result.complete:
            break
    assert seen == [2, 4, 6]
    assert len(searched) == len(jobs)
    assert isinstance(result.verdicts[-1].outcome, Placement)


def test_a_refusal_behind_others_does_not_stand_once_they_are_gone(searched: list[GangRequest]) -> None:
    fleet, memory = new_fleet(), Refusals()
    fleet.claim([make_claim("busy", "p0")])
    head, small = waiting(GangRequest(6, 8, types=("H100",)), GangRequest(1, 8, types=("H100",)))
    refused = schedule(fleet, [head, small], claims, refusals=memory).verdicts
    assert [verdict.behind for verdict in refused] == ["", "ns/000"]
    (placed,) = schedule(fleet, [small], claims, refusals=memory).verdicts
    assert isinstance(placed.outcome, Placement)


@pytest.mark.parametrize("change", ["daemon", "lose"])
def test_a_refused_gang_that_can_never_fit_any_more_keeps_nothing(change: str) -> None:
    fleet, memory = new_fleet(), Refusals()
    for name in ("q0", "q1"):
        events["hold half"](fleet, name)
    large = GangRequest(2, 8, types=("H200",), per_worker={"cpu": 150_000})
    jobs = waiting(large, GangRequest(1, 4, types=("H200",)))
    outcomes = [verdict.outcome for verdict in schedule(fleet, jobs, claims, refusals=memory).verdicts]
    assert [isinstance(outcome, Refusal) and outcome.reason for outcome in outcomes] == ["NoCapacity", "NoCapacity"]
    events[change](fleet, "q0")
    outcomes = [verdict.outcome for verdict in schedule(fleet, jobs, claims, refusals=memory).verdicts]
    assert isinstance(outcomes[0], Refusal)
    assert outcomes[0].reason == "TooLarge"
    assert isinstance(outcomes[1], Placement)


def test_what_is_remembered_is_bounded_by_the_queue() -> None:
    fleet, memory = full_but_for_h200(), Refusals()
    for number in range(500):
        asked = GangRequest(1, 8, types=("H100",), per_worker={"cpu": number + 1})
        schedule(fleet, [Waiting("ns/j", str(number), 1, asked)], claims, refusals=memory)
    assert len(memory.standing) < 100
