"""Ranks that have exited 0 have done their part, whatever becomes of their pods."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.api.trainingjob_status import decode_numbers, encode_numbers
from berth.training.state import NodeState, Phase
from tests.builders.training import LiveJob, StoredJob, make_job, make_worker


def test_a_finished_rank_whose_pod_is_removed_restarts_nothing() -> None:
    live = LiveJob(make_job(3)).start()
    live.succeed(1)
    live.look()
    live.lose_finished(1)
    step = live.look()
    assert (live.state.phase, live.state.ready_workers, step.create, step.delete) == (Phase.RUNNING, 3, (), ())
    live.succeed(0, 2)
    live.look()
    assert live.state.phase == Phase.SUCCEEDED
    assert live.state.message == "All 3 workers exited 0 in attempt 1"


def test_a_job_succeeds_of_which_no_pod_is_left() -> None:
    live = LiveJob(make_job(2)).start()
    live.succeed()
    live.lose_finished(0, 1)
    live.look()
    assert live.state.phase == Phase.SUCCEEDED


def test_the_node_of_a_finished_rank_may_go_with_its_pod() -> None:
    live = LiveJob(make_job(2)).start()
    live.succeed(1)
    live.look()
    live.lose_finished(1)
    live.nodes["n1"] = NodeState.GONE
    live.look()
    assert live.state.phase == Phase.RUNNING


def test_a_rank_that_finished_and_went_while_others_start_is_not_made_again() -> None:
    live = LiveJob(make_job(3))
    live.place()
    live.succeed(0)
    live.look()
    live.lose_finished(0)
    step = live.look()
    assert (step.create, live.state.phase, live.state.ready_workers) == ((), Phase.STARTING, 1)
    live.run()
    assert live.state.phase == Phase.RUNNING


def test_what_the_status_says_of_finished_ranks_is_enough_for_a_new_leader() -> None:
    live = StoredJob(make_job(3)).start()
    live.succeed(0, 1)
    live.lose_finished(0, 1)
    live.look()
    assert live.status["finishedRanks"] == "0-1"
    live.finished.clear()
    live.look_until_quiet()
    assert live.state.phase == Phase.RUNNING
    live.succeed(2)
    live.look()
    assert live.state.phase == Phase.SUCCEEDED
    assert "finishedRanks" not in live.status


def test_the_next_attempt_begins_with_nothing_finished() -> None:
    live = StoredJob(make_job(2)).start()
    live.succeed(0)
    live.lose_finished(0)
    live.look()
    live.fail(1)
    live.look()
    live.finished.clear()
    live.kubelets()
    live.place()
    assert "finishedRanks" not in live.status
    assert {pod.rank for pod in live.living()} == {0, 1}


@pytest.mark.parametrize(("ended_at", "finished"), [(9.0, True), (10.0, False), (11.0, False), (None, True)], ids=str)
def test_a_rank_that_exits_0_because_it_was_told_to_stop_has_not_finished(
    ended_at: float | None, finished: bool
) -> None:
    assert make_worker(phase="Succeeded", deleting_since=10.0, ended_at=ended_at).finished is finished
    live = LiveJob(make_job(1)).start()
    live.succeed(0)
    live.change(0, deleting_since=10.0, ended_at=ended_at)
    live.look()
    assert live.state.phase == (Phase.SUCCEEDED if finished else Phase.RESTARTING)


@given(st.frozensets(st.integers(0, 5000)))
def test_numbers_survive_their_short_form(numbers: frozenset[int]) -> None:
    assert decode_numbers(encode_numbers(numbers)) == numbers


@pytest.mark.parametrize("text", ["x", "1-", "-1", "0-99999999999", "1,,2"])
def test_numbers_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"invalid literal|more than any gang"):
        decode_numbers(text)
