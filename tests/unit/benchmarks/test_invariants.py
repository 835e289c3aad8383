"""Each promise is seen to be broken when it is, and kept when it is."""

from __future__ import annotations

from typing import Any

import pytest
from bench_objects import job, node, pod, pool

from benchmarks.checker import Checker

Step = tuple[str, str, dict[str, Any]]


def play(*steps: Step | float, checker: Checker | None = None) -> Checker:
    """Feed (watched, change, object) one after the other, a second apart; a number waits that long instead."""
    checker, now = checker or Checker(), 0.0
    for step in (*steps, 2.0):
        if isinstance(step, float):
            now += step
            checker.tick(now)
        else:
            now += 0.01
            checker.see(step[0], step[1], step[2], now)  # type: ignore[arg-type]
    return checker


def expect(checker: Checker, *kinds: str) -> None:
    assert [violation.kind for violation in checker.violations] == list(kinds), checker.violations


def added(watched: str, *things: dict[str, Any]) -> list[Step]:
    return [(watched, "ADDED", thing) for thing in things]


def pods(**changes: Any) -> list[dict[str, Any]]:
    """Both members of a gang of two, on n0 and n1."""
    return [pod(f"llama-1-{rank}", rank=rank, **{"node": f"n{rank}", **changes}) for rank in (0, 1)]


# -- partial gangs ---------------------------------------------------------------------------------------------------

ONE_RUNS = [*added("TrainingJob", job(startTimeout="10s")), *added("Pod", pod(rank=0, phase="Running"))]
OTHER_PENDING = added("Pod", pod("llama-1-1", rank=1))


@pytest.mark.parametrize("others", [[], OTHER_PENDING], ids=["never created", "pending"])
def test_a_gang_that_runs_in_part_for_longer_than_its_start_timeout_is_partial(others: list[Step]) -> None:
    expect(play(*ONE_RUNS, *others, 20.0), "PartialGang")


@pytest.mark.parametrize(
    "steps",
    [
        [9.0],
        [9.0, *added("Pod", pod("llama-1-1", rank=1, phase="Running")), 100.0],
        [9.0, ("Pod", "MODIFIED", pod(phase="Running", terminating=True)), 100.0],
        [9.0, ("Pod", "DELETED", pod(phase="Running")), 100.0],
        [*added("Pod", pod("llama-1-1", rank=1, phase="Succeeded")), 100.0],
    ],
    ids=["not for long", "then whole", "then released", "then gone", "the other has finished"],
)
def test_a_gang_on_its_way_up_or_down_is_not_partial(steps: list[Step | float]) -> None:
    expect(play(*ONE_RUNS, *steps))


def test_a_gang_is_partial_again_when_a_rank_that_ran_must_start_anew() -> None:
    whole = added("Pod", pod("llama-1-1", rank=1, phase="Running"))
    anew = [("Pod", "DELETED", pod("llama-1-1", rank=1)), *added("Pod", pod("llama-1-1", rank=1))]
    expect(play(*ONE_RUNS, *whole, 100.0, *anew, 20.0), "PartialGang")


def test_the_size_of_an_attempt_is_what_status_says_of_it() -> None:
    shrunk = job(workers=4, startTimeout="10s", status={"attempt": 1, "workers": 1})
    expect(play(*added("TrainingJob", shrunk), *added("Pod", pod(phase="Running")), 100.0))


def test_the_longest_time_in_part_is_remembered() -> None:
    checker = play(*ONE_RUNS, 7.0, *added("Pod", pod("llama-1-1", rank=1, phase="Running")))
    assert checker.longest_partial == pytest.approx(7.0, abs=0.1)


# -- capacity --------------------------------------------------------------------------------------------------------

FULL = [*added("Node", node("n1")), *added("Pod", pod("a", job=None, node="n1"))]


@pytest.mark.parametrize(
    ("steps", "kinds"),
    [
        (added("Pod", pod("b", job=None, node="n1", gpus=1)), ["NodeOversold"]),
        ([("Pod", "MODIFIED", pod("a", job=None, node="n1", terminating=True)),
          *added("Pod", pod("b", job=None, node="n1"))], ["NodeOversold"]),
        ([("Pod", "DELETED", pod("a", job=None, node="n1")), *added("Pod", pod("b", job=None, node="n1"))], []),
        ([("Pod", "MODIFIED", pod("a", job=None, node="n1", phase="Failed")),
          *added("Pod", pod("b", job=None, node="n1"))], []),
        (added("Pod", pod("b", job=None, pin="n1")), []),
        (added("Pod", pod("b", job=None, node="n2")), []),
    ],
    ids=["one more", "beside a terminating pod", "after a deleted pod", "after a failed pod", "pinned by others",
         "on a node not known"],
)  # fmt: skip
def test_a_node_over_its_capacity_is_seen(steps: list[Step], kinds: list[str]) -> None:
    expect(play(*FULL, *steps), *kinds)


def test_pods_that_were_there_before_their_node_was_known_count() -> None:
    both = added("Pod", pod("a", job=None, node="n1"), pod("b", job=None, node="n1"))
    expect(play(*both, *added("Node", node("n1"))), "NodeOversold")


def test_a_gang_pod_pinned_to_a_node_that_a_gang_still_holds_is_seen_before_it_is_bound() -> None:
    steps = [*added("Node", node("n1")), *added("Pod", pod(node="n1"), pod("other-1-0", job="other", pin="n1"))]
    expect(play(*added("TrainingJob", job(), job("other")), *steps), "NodeOverpromised")


def test_a_pinned_pod_that_is_then_bound_is_counted_once() -> None:
    bound = ("Pod", "MODIFIED", pod(pin="n1", node="n1"))
    expect(play(*added("TrainingJob", job()), *added("Node", node("n1")), *added("Pod", pod(pin="n1")), bound, bound))


# -- place -----------------------------------------------------------------------------------------------------------


def hall(pools: tuple[str, str] = ("h100", "h100"), racks: tuple[str, str] = ("r0", "r0"), **spec: Any) -> list[Step]:
    """Two nodes, pool h100, and a gang of two with ``spec``."""
    nodes = [
        node(f"n{i}", labels={"pool": pools[i], "block": "b0", "rack": racks[i], "zone": f"z{racks[i]}"})
        for i in (0, 1)
    ]
    return [*added("Node", *nodes), *added("TrainingJob", job(**spec))]


IN_RACK = {"topology": {"required": "rack"}}
SITE = [{"name": "zone", "nodeLabel": "zone", "role": "Site"}]
FABRIC = {"kind": "RoCE", "gbps": 200, "rails": 4}


@pytest.mark.parametrize(
    ("the_hall", "the_pool", "kinds"),
    [
        (hall(), pool(), []),
        (hall(pools=("h100", "h200")), pool(), ["OutsidePool"]),
        (hall(status={"attempt": 1, "placement": {"attempt": 1, "pool": "h200"}}), pool(), ["OutsidePool"]),
        (hall(status={"attempt": 1, "placement": {"attempt": 1, "pool": "h100"}}), pool(), []),
        (hall(accelerators={"perWorker": 8, "types": ["H200"]}), pool(), ["OutsidePool"]),
        (hall(**IN_RACK), pool(), []),
        (hall(racks=("r0", "r1"), **IN_RACK), pool(), ["OutsideDomain"]),
        (hall(racks=("r0", "r1"), topology={"required": "block"}), pool(), []),
        (hall(racks=("r0", "r1"), topology={"preferred": "rack"}), pool(), []),
        (hall(racks=("r0", "r1")), pool(topology=SITE), ["OutsideDomain"]),
        (hall(fabric={"kinds": ["InfiniBand"]}), pool(fabric=FABRIC), ["OutsideFabric"]),
        (hall(fabric={"kinds": ["RoCE"], "minGbps": 400}), pool(fabric=FABRIC), ["OutsideFabric"]),
        (hall(fabric={"kinds": ["RoCE"], "minRails": 8}), pool(fabric=FABRIC), ["OutsideFabric"]),
        (hall(fabric={"kinds": ["RoCE"], "minGbps": 200}), pool(fabric=FABRIC), []),
        (hall(fabric={"kinds": ["RoCE"]}), pool(), ["OutsideFabric"]),
    ],
    ids=["in its pool", "a node of another pool", "status names another pool", "status names this pool",
         "an accelerator not allowed", "in one rack", "in two racks", "in one block", "two racks when only preferred",
         "over two sites", "another fabric", "too slow", "too few rails", "the fabric asked for", "no fabric"],
)  # fmt: skip
def test_a_pod_outside_its_pool_fabric_or_domain_is_seen(
    the_hall: list[Step], the_pool: dict[str, Any], kinds: list[str]
) -> None:
    expect(play(*the_hall, *added("AcceleratorPool", the_pool), *added("Pod", *pods())), *kinds)


def test_a_place_is_judged_only_when_the_other_streams_have_caught_up() -> None:
    late = [*hall(racks=("r0", "r1"), **IN_RACK), *added("AcceleratorPool", pool())]
    expect(play(*added("Pod", *pods()), *late), "OutsideDomain")


def test_a_place_is_judged_even_if_the_pods_are_gone_by_then() -> None:
    gone = [("Pod", "DELETED", one) for one in pods()]
    steps = [*hall(racks=("r0", "r1"), **IN_RACK), *added("AcceleratorPool", pool()), *added("Pod", *pods()), *gone]
    expect(play(*steps), "OutsideDomain")


def test_a_place_in_a_pool_without_an_object_is_counted_as_unjudged_when_labels_mean_nothing() -> None:
    checker = play(*hall(**IN_RACK), *added("Pod", *pods()))
    expect(checker)
    assert checker.unjudged > 0


# -- attempts and evictions ------------------------------------------------------------------------------------------

SECOND = added("Pod", pod("llama-2-0", attempt=2))


@pytest.mark.parametrize(
    ("steps", "kinds"),
    [
        (SECOND, ["AttemptsOverlap"]),
        ([("Pod", "MODIFIED", pod(terminating=True)), *SECOND], ["AttemptsOverlap"]),
        ([("Pod", "DELETED", pod()), *SECOND], []),
        ([("Pod", "MODIFIED", pod(phase="Failed")), *SECOND], []),
        (added("Pod", pod("other-2-0", job="other", attempt=2)), []),
        (added("Pod", pod("llama-1-1", rank=1)), []),
    ],
    ids=["while the first lives", "while it terminates", "after it is gone", "after it has failed", "of another job",
         "the same attempt"],
)  # fmt: skip
def test_two_attempts_at_once_are_seen(steps: list[Step], kinds: list[str]) -> None:
    jobs = added("TrainingJob", job(), job("other"))
    expect(play(*jobs, *added("Pod", pod()), *steps), *kinds)


@pytest.mark.parametrize(
    ("step", "kinds"),
    [
        (("Pod", "MODIFIED", pod("a", job=None, preempted=True)), ["EvictedByScheduler"]),
        (("Event", "ADDED", {"reason": "Preempted", "involvedObject": {"namespace": "x", "name": "a"}}),
         ["EvictedByScheduler"]),
        (("Event", "ADDED", {"reason": "Scheduled", "involvedObject": {"namespace": "x", "name": "a"}}), []),
    ],
    ids=["condition", "event", "another event"],
)  # fmt: skip
def test_an_eviction_by_the_scheduler_is_seen(step: Step, kinds: list[str]) -> None:
    expect(play(*added("Pod", pod("a", job=None)), step), *kinds)


def test_a_broken_promise_is_told_once_per_object() -> None:
    expect(play(*FULL, *added("Pod", pod("b", job=None, node="n1"), pod("c", job=None, node="n1"))), "NodeOversold")
