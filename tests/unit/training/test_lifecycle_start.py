"""From the first look to the moment when all ranks run: acceptance, placement, the gate, and giving up a start."""

from __future__ import annotations

import pytest

from berth.training.state import NodeState, Phase, Reason, Refused, Step
from tests.builders.training import LiveJob, expect_condition, make_job, make_placement

QUOTA = ("QuotaReserved", "QuotaExceeded", "exceeded quota: gpus")
INVALID = ("Accepted", "UnknownAccelerator", "spec.accelerators.types: the catalogue has no H9000")


def expect_released(live: LiveJob, step: Step, cause: str) -> None:
    """The attempt has ended with ``cause``, and every pod that lives is being deleted."""
    assert live.state.phase == Phase.RESTARTING
    assert live.state.attempts[-1].cause == cause
    assert not step.create
    assert all(pod.deleting_since is not None or pod.ended for pod in live.pods.values())


def test_the_first_look_accepts_the_job_and_asks_for_a_placement() -> None:
    live = LiveJob()
    step = live.look()
    assert step.wants_placement
    assert live.state.phase == Phase.QUEUED
    assert live.reasons() == ["Accepted"]
    expect_condition(live, "Accepted", "True", "Valid")


def test_waiting_for_a_placement_says_nothing_twice() -> None:
    live = LiveJob()
    live.look()
    waiting = live.state
    for _ in range(3):
        live.wait(60).look()
    assert live.state == waiting
    assert live.reasons() == ["Accepted"]


@pytest.mark.parametrize("rejected", [QUOTA, INVALID], ids=lambda rejected: rejected[0])
def test_a_rejected_job_says_why_once_and_is_placed_when_the_reason_is_gone(rejected: tuple[str, str, str]) -> None:
    live = LiveJob(make_job(rejected=rejected))
    for _ in range(3):
        assert not live.look().wants_placement
    assert live.state.message == rejected[2]
    assert live.reasons() == ["Rejected"]
    expect_condition(live, rejected[0], "False", rejected[1])
    live.job = make_job()
    assert live.look().wants_placement
    assert live.state.message == "Waiting for a placement"
    assert live.state.conditions[rejected[0]].status == "True"


def test_a_rejection_between_two_attempts_does_not_outlive_its_reason() -> None:
    live = LiveJob().start()
    live.fail()
    live.look()
    live.kubelets()
    live.job = make_job(rejected=QUOTA)
    live.look()
    assert live.state.message == QUOTA[2]
    live.job = make_job()
    assert live.look().wants_placement
    assert live.state.message == "Waiting for a placement"
    expect_condition(live, "QuotaReserved", "True", "Admitted")


def test_a_placement_begins_an_attempt_with_a_pod_for_every_rank() -> None:
    live = LiveJob()
    step = live.place("a", "b")
    assert (live.state.phase, live.state.attempt, step.create) == (Phase.STARTING, 1, (0, 1))
    assert [pod.node for pod in live.pods.values()] == ["a", "b"]
    assert live.state.placement == make_placement("a", "b")
    assert live.reasons() == ["Accepted", "Placed"]
    expect_condition(live, "Placed", "True", "Optimal")
    expect_condition(live, "AllRunning", "False", "Starting")


def test_a_placement_that_comes_with_the_first_look_starts_at_once() -> None:
    live = LiveJob()
    assert live.look(make_placement("n0", "n1")).create == (0, 1)
    expect_condition(live, "Accepted", "True", "Valid")


def test_the_gate_opens_only_when_every_rank_is_ready() -> None:
    live = LiveJob(make_job(3))
    live.place()
    for rank, expected in ((0, Phase.STARTING), (2, Phase.STARTING), (1, Phase.RUNNING)):
        live.change(rank, bound=True, phase="Running")
        live.look()
        assert live.state.phase == Phase.STARTING
        live.change(rank, ready=True)
        live.wait(1).look()
        assert live.state.phase == expected
    assert live.state.ready_workers == 3
    assert live.state.start_time == live.now
    assert live.reasons() == ["Accepted", "Placed", "Started"]
    expect_condition(live, "AllRunning", "True", "AllRanksRun")


def test_a_rank_that_has_succeeded_counts_as_started() -> None:
    live = LiveJob()
    live.place()
    live.succeed(0)
    live.change(1, bound=True, phase="Running", ready=True)
    live.look()
    assert live.state.phase == Phase.RUNNING


def test_a_pod_that_was_not_created_yet_is_created_again_under_the_same_name() -> None:
    live = LiveJob()
    live.place()
    del live.pods["llm-1-1"]
    assert live.look().create == (1,)
    assert live.state.attempt == 1


def test_a_gang_that_does_not_start_in_time_is_released_whole() -> None:
    live = LiveJob(make_job(3, start_timeout=600))
    live.place()
    live.change(0, bound=True, phase="Running", ready=True)
    live.wait(599).look()
    assert live.state.phase == Phase.STARTING
    step = live.wait(1).look()
    expect_released(live, step, "StartFailure")
    assert live.state.start_attempts == 1
    words = "2 of 3 workers did not run within 10m: llm-1-1 on n1 is not bound to its node"
    assert live.state.message == f"Restarting: {words}"
    assert live.reasons()[-2:] == ["StartTimedOut", "Restarting"]
    assert live.state.restarts.failure == 0


def test_a_gang_that_has_started_before_a_late_look_is_running() -> None:
    live = LiveJob(make_job(start_timeout=600))
    live.place()
    live.wait(3600).run()
    assert live.state.phase == Phase.RUNNING


def test_starts_that_time_out_wait_twice_as_long_each_time_up_to_ten_minutes() -> None:
    live = LiveJob(make_job(start_timeout=60, max_start_attempts=100))
    waits = []
    for _ in range(9):
        live.place()
        live.wait(60).look()
        live.kubelets()
        waits.append(live.look().wake_after)
        assert not live.wait(waits[-1] - 1).look().wants_placement
        live.wait(1)
    assert waits == [10, 20, 40, 80, 160, 320, 600, 600, 600]


def test_a_timed_out_start_waits_even_when_nodes_are_still_avoided() -> None:
    live = LiveJob(make_job(start_timeout=60)).start()
    live.nodes["n0"] = NodeState.GONE
    live.look()
    live.kubelets()
    live.place("n1", "n2")
    live.wait(60).look()
    live.kubelets()
    assert live.look().wake_after == 10


def test_the_last_start_that_may_fail_fails_the_job() -> None:
    live = LiveJob(make_job(start_timeout=60, max_start_attempts=2))
    for _ in range(2):
        live.wait(600).place()
        live.wait(60).look()
        live.kubelets()
    assert live.state.phase == Phase.FAILED
    assert live.state.message.endswith("spec.maxStartAttempts is 2")
    expect_condition(live, "Failed", "True", "StartFailed")
    assert live.reasons()[-1] == "Failed"


@pytest.mark.parametrize("again", [True, False], ids=["at the end", "in the start before"])
def test_a_job_that_never_started_says_at_the_end_what_kept_it_from_starting(again: bool) -> None:
    live = LiveJob(make_job(start_timeout=90, max_start_attempts=2))
    for attempt in (1, 2):
        live.wait(600).place()
        if attempt == 1 or again:
            live.change(0, bound=True, problem="container w: ErrImagePull")
            live.look()
        live.wait(30 if again else 60).look()
        live.wait(60).look()
        live.kubelets()
    assert live.state.phase == Phase.FAILED
    assert "container w: ErrImagePull" in live.state.message
    assert live.state.message.endswith("spec.maxStartAttempts is 2")


def test_a_timeout_sooner_than_that_names_the_problem() -> None:
    live = LiveJob(make_job(start_timeout=20, max_start_attempts=1))
    live.place()
    live.change(1, bound=True, problem="container w: ErrImagePull")
    live.wait(20).look()
    assert live.state.message == (
        "2 of 2 workers did not run within 20s: llm-1-1 cannot start: container w: ErrImagePull; "
        "spec.maxStartAttempts is 1"
    )


def test_a_gang_of_one_is_told_of_in_the_singular() -> None:
    live = LiveJob(make_job(1)).start()
    said = [event.message for event in live.events]
    assert said[0] == "1 worker of 8 accelerators"
    assert "attempt 1: 1 worker on p" in said[1]
    assert said[2].startswith("attempt 1: 1 worker runs, 1 rack")
    assert live.state.message == "The worker runs on p"
    live.succeed()
    live.look()
    assert live.state.message == "The worker exited 0 in attempt 1"


def test_a_start_that_works_forgives_the_ones_before() -> None:
    live = LiveJob(make_job(start_timeout=60, max_start_attempts=2))
    live.place()
    live.wait(60).look()
    live.kubelets()
    live.wait(60).start()
    assert live.state.start_attempts == 0


def test_a_container_that_cannot_start_is_named_at_once_and_releases_the_gang_after_a_minute() -> None:
    live = LiveJob()
    live.place()
    live.change(0, bound=True, problem="container worker: ErrImagePull: not found")
    step = live.wait(5).look()
    assert live.state.message == "llm-1-0 cannot start: container worker: ErrImagePull: not found"
    assert step.wake_after == 60
    expect_condition(live, "AllRunning", "False", "CannotStart")
    live.wait(59).look()
    assert live.state.phase == Phase.STARTING
    expect_released(live, live.wait(1).look(), "StartFailure")
    assert "ErrImagePull" in live.state.attempts[-1].message


def test_a_problem_that_goes_away_is_no_longer_said() -> None:
    live = LiveJob()
    live.place()
    live.change(0, bound=True, problem="container worker: ErrImagePull")
    live.look()
    live.change(0, problem="")
    live.wait(120).look()
    assert live.state.phase == Phase.STARTING
    assert live.state.message == "Starting 2 workers on p"
    expect_condition(live, "AllRunning", "False", "Starting")


def test_a_refusal_of_kube_scheduler_places_the_gang_again_at_once_without_that_node() -> None:
    live = LiveJob()
    live.place()
    live.change(0, bound=True, phase="Running", ready=True)
    live.change(1, refused="0/1 nodes are available: Insufficient nvidia.com/gpu")
    step = live.wait(2).look()
    expect_released(live, step, "StartFailure")
    assert live.state.avoid == ("n1",)
    assert "kube-scheduler refuses llm-1-1 on n1: 0/1 nodes" in live.state.message
    live.kubelets()
    assert live.look().wants_placement


def test_refusals_in_a_row_wait_from_the_second_on() -> None:
    live = LiveJob()
    waits = []
    for node in ("a", "b", "c"):
        live.wait(700).place("n0", node)
        live.change(1, refused="Insufficient cpu")
        live.look()
        live.kubelets()
        waits.append(live.look().wake_after or 0)
    assert waits == [0, 10, 20]
    assert live.state.avoid == ("a", "b", "c")


@pytest.mark.parametrize("state", [NodeState.GONE, NodeState.BARRED, NodeState.UNREACHABLE])
@pytest.mark.parametrize("created", [True, False], ids=["pod waits", "no pod yet"])
def test_a_promised_node_that_is_lost_before_its_pod_is_bound_places_the_gang_again(
    state: NodeState, created: bool
) -> None:
    live = LiveJob()
    live.place()
    live.change(0, bound=True, phase="Running", ready=True)
    if not created:
        del live.pods["llm-1-1"]
    live.nodes["n1"] = state
    expect_released(live, live.look(), "Infrastructure")
    assert live.state.avoid == ("n1",)
    assert live.state.restarts.failure == live.state.start_attempts == 0
    live.kubelets()
    assert live.look().wants_placement


def test_a_node_that_is_cordoned_after_its_pod_was_bound_changes_nothing() -> None:
    live = LiveJob()
    live.place()
    live.change(1, bound=True)
    live.nodes["n1"] = NodeState.BARRED
    live.look()
    assert live.state.phase == Phase.STARTING


def test_a_pod_that_the_api_server_refuses_ends_the_start_in_its_words() -> None:
    live = LiveJob()
    live.place()
    live.refused = Refused(Reason.CREATE_REFUSED, "a policy denied it")
    expect_released(live, live.look(), "StartFailure")
    assert "a pod cannot be created: a policy denied it" in live.state.message
    assert live.state.start_attempts == 1


def test_the_pod_that_does_not_fit_is_told_and_not_one_that_waits_for_its_group() -> None:
    live = LiveJob(make_job(3))
    live.place()
    live.change(0, refused="pod group is unschedulable, minCount (3) cannot be satisfied: 2 scheduled, 1 remaining")
    live.change(2, refused="1 node(s) didn't have free ports")
    live.look()
    assert "llm-1-2 on n2: 1 node(s) didn't have free ports" in live.state.attempts[-1].message
    assert live.state.avoid == ("n2",)
