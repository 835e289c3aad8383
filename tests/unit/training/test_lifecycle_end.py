"""How a job ends, rests and is resumed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from berth.training.state import Checkpoint, NodeState, Phase, Restarts, Step
from tests.builders.training import LiveJob, make_job


def test_the_job_succeeds_only_when_every_rank_exits_0() -> None:
    live = LiveJob(make_job(3)).start()
    live.wait(60).succeed(0, 2)
    live.look()
    assert live.state.phase == Phase.RUNNING
    live.succeed(1)
    step = live.wait(60).look()
    assert live.state.phase == Phase.SUCCEEDED
    assert live.state.completion_time == live.now
    assert live.state.restarts == Restarts()
    assert live.state.attempts[-1].cause == "Completed"
    assert live.state.lost == 0
    assert [event.reason for event in step.events] == ["Completed"]
    assert live.state.conditions["Complete"].status == "True"
    assert live.look_until_quiet().state == live.state


def test_a_job_that_succeeds_within_one_look_never_ran_and_still_succeeds() -> None:
    live = LiveJob()
    live.place()
    live.succeed()
    live.look()
    assert live.state.phase == Phase.SUCCEEDED
    assert live.state.start_time == live.now


@pytest.mark.parametrize("loss", ["deleted", "evicted", "node gone"])
def test_success_of_all_is_success_whatever_happens_to_the_pods_afterwards(loss: str) -> None:
    live = LiveJob().start()
    live.succeed()
    if loss == "node gone":
        live.nodes["n1"] = NodeState.GONE
    else:
        live.change(1, deleting_since=live.now, disrupted="EvictionByEvictionAPI" if loss == "evicted" else "")
    live.look()
    assert live.state.phase == Phase.SUCCEEDED


def test_an_eviction_of_a_rank_that_has_succeeded_takes_nothing() -> None:
    live = LiveJob().start()
    live.succeed(0)
    live.change(0, disrupted="EvictionByEvictionAPI", deleting_since=live.now)
    live.look()
    assert live.state.phase == Phase.RUNNING


def test_suspending_releases_everything_and_is_counted_as_that() -> None:
    live = LiveJob().start()
    live.job = replace(live.job, suspended=True)
    step = live.wait(600).look()
    assert live.state.phase == Phase.SUSPENDED
    assert [entry.grace for entry in step.delete] == [None, None]  # the pod's own, which includes time to save
    assert live.state.restarts == Restarts(suspend=1)
    assert (live.state.attempts[-1].cause, live.state.lost) == ("Suspend", 0)
    assert live.state.conditions["Suspended"].status == "True"
    assert live.state.conditions["Placed"].status == "False"
    live.kubelets()
    assert live.look_until_quiet().state.phase == Phase.SUSPENDED


def test_a_resumed_job_queues_again_behind_the_barrier() -> None:
    live = LiveJob().start()
    live.job = replace(live.job, suspended=True)
    live.look()
    live.job = make_job()
    step = live.look()
    assert (live.state.phase, step.wants_placement) == (Phase.QUEUED, False)
    live.kubelets()
    live.start()
    assert live.state.attempt == 2
    assert live.state.conditions["Suspended"].status == "False"
    assert live.reasons() == ["Accepted", "Placed", "Started", "Suspended", "Resumed", "Placed", "Started"]


def test_a_job_suspended_from_the_first_never_queues_and_is_charged_nothing() -> None:
    live = LiveJob(make_job(suspended=True))
    for _ in range(3):
        assert not live.look().wants_placement
    assert (live.state.phase, live.state.restarts) == (Phase.SUSPENDED, Restarts())
    assert live.reasons() == ["Suspended"]
    live.job = make_job()
    assert live.look().wants_placement


def test_suspending_while_starting_gives_the_room_back_and_forgets_failed_starts() -> None:
    live = LiveJob(make_job(start_timeout=60))
    live.place()
    live.wait(60).look()
    live.kubelets()
    live.wait(10).place()
    live.job = replace(live.job, suspended=True)
    live.look()
    assert (live.state.phase, live.state.start_attempts, live.state.avoid) == (Phase.SUSPENDED, 0, ())
    assert not live.pods  # none was bound


def test_running_time_is_summed_over_attempts_and_waiting_does_not_count() -> None:
    live = LiveJob(make_job(max_duration=3600.0)).start()
    live.wait(2000).fail()
    live.look()
    live.kubelets()
    live.wait(50_000).start()
    assert live.look().wake_after == 1600
    live.wait(1599).look()
    assert live.state.phase == Phase.RUNNING
    step = live.wait(1).look()
    assert live.state.phase == Phase.FAILED
    assert live.state.conditions["Failed"].reason == "DeadlineExceeded"
    assert "spec.maxDuration (1h) over 2 attempts" in live.state.message
    assert [entry.grace for entry in step.delete] == [None, None]


def test_success_at_the_deadline_is_success() -> None:
    live = LiveJob(make_job(max_duration=3600.0)).start()
    live.succeed()
    live.wait(3600).look()
    assert live.state.phase == Phase.SUCCEEDED


@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
def test_a_finished_job_is_removed_after_its_time_to_live(outcome: str) -> None:
    live = LiveJob(make_job(ttl=100.0, max_restarts=0)).start("n0", "n0")
    live.succeed() if outcome == "succeeded" else live.fail()
    live.look()
    live.kubelets()
    assert live.wait(40).look().wake_after == 60
    assert not live.wait(59).look().remove_job
    assert live.wait(1).look().remove_job


def test_without_a_time_to_live_a_finished_job_stays_and_is_never_started_again() -> None:
    live = LiveJob().start()
    live.succeed()
    live.look()
    done = live.state
    live.pods.clear()
    assert live.wait(10**7).look() == Step(done)
    live.job = replace(live.job, suspended=True)
    assert live.look().state == done


def test_pods_left_by_a_failed_job_are_removed() -> None:
    live = LiveJob(make_job(max_restarts=0)).start("n0", "n0")
    live.fail(0)
    live.look()
    assert live.state.phase == Phase.FAILED
    live.pods["llm-1-1"] = replace(live.pods["llm-1-1"], deleting_since=None)
    assert [entry.name for entry in live.look().delete] == ["llm-1-1"]


def test_a_job_that_is_being_deleted_is_left_to_the_garbage_collector() -> None:
    live = LiveJob().start()
    live.job = replace(live.job, deleting=True)
    live.fail()
    assert live.look() == Step(live.state)


@pytest.mark.parametrize(("has_store", "lost"), [(True, 600), (False, 7200)])
def test_work_lost_is_bounded_by_the_checkpoint_interval_where_there_is_a_store(has_store: bool, lost: int) -> None:
    live = LiveJob(make_job(1, has_store=has_store)).start()
    live.state = replace(live.state, checkpoint=Checkpoint(600))
    live.wait(7200).fail()
    live.look()
    assert live.state.lost == lost * 8
