"""A failure that turns out to be a lost node is given back."""

from __future__ import annotations

from typing import Any

import pytest

from berth.training.recovery import Rule
from berth.training.state import NodeState, Phase, Restarts, Step
from tests.builders.training import LiveJob, StoredJob, make_job

ANY = Rule("any", "Restart", "NotIn", (3,))


def failed_before_the_loss_was_known(**fields: Any) -> LiveJob:
    live = LiveJob(make_job(3, **fields)).start()
    live.wait(900).fail(0)
    live.look()
    assert live.state.phase == Phase.RESTARTING
    assert live.state.restarts == Restarts(failure=1)
    assert all(pod.deleting_since is not None or pod.ended for pod in live.pods.values())
    return live


def test_a_failure_that_turns_out_to_be_a_lost_node_is_refunded_once() -> None:
    live = failed_before_the_loss_was_known()
    live.nodes["n2"] = NodeState.GONE
    live.wait(120).look_until_quiet()
    assert live.state.restarts == Restarts(infrastructure=1)
    last = live.state.attempts[-1]
    assert (last.cause, last.exit_code) == ("Infrastructure", 1)
    assert last.message.startswith("node n2 is gone")
    assert "llm-1-0: container worker ended with exit code 1" in last.message
    assert live.state.avoid == ("n2",)
    assert "node n2 is gone" in live.state.message
    assert live.reasons().count("NodeLost") == 1
    assert "not charged" in live.events[-1].message


def test_a_refund_comes_even_when_the_last_pod_went_with_the_node() -> None:
    live = failed_before_the_loss_was_known()
    live.nodes["n1"] = NodeState.GONE
    for name in ("llm-1-1", "llm-1-2"):
        del live.pods[name]
    step: Step = live.wait(5).look()
    assert live.state.restarts == Restarts(infrastructure=1)
    assert step.wants_placement


def test_a_node_lost_long_after_the_barrier_refunds_nothing() -> None:
    live = failed_before_the_loss_was_known()
    live.kubelets()
    assert live.look().wants_placement
    live.nodes["n1"] = NodeState.GONE
    live.wait(3600).look()
    assert live.state.restarts == Restarts(failure=1)


def test_a_failure_that_a_rule_decided_is_not_refunded() -> None:
    live = failed_before_the_loss_was_known(rules=(ANY,))
    live.nodes["n1"] = NodeState.GONE
    live.look_until_quiet()
    assert live.state.restarts == Restarts(failure=1)


@pytest.mark.parametrize(("after", "charged"), [(45, 0), (120, 1)])
def test_a_node_that_falls_silent_soon_after_a_peer_failed_was_the_cause(after: float, charged: int) -> None:
    live = failed_before_the_loss_was_known()
    live.nodes["n1"] = NodeState.UNREACHABLE
    live.wait(after).look()
    assert live.state.restarts == Restarts(failure=charged, infrastructure=1 - charged)
    assert ("node n1 is unreachable" in live.state.attempts[-1].message) == (not charged)


@pytest.mark.parametrize("state", [NodeState.GONE, NodeState.UNREACHABLE])
@pytest.mark.parametrize("ended", [False, True])
def test_the_last_failure_forgiven_no_more_ends_no_job_whose_node_is_found_lost_after_it(
    state: NodeState, ended: bool
) -> None:
    live = failed_before_the_loss_was_known(max_restarts=0)
    if ended:
        live.pods.clear()
        live.look()
    live.nodes["n2"] = state
    live.wait(45).look()
    assert live.state.restarts == Restarts(infrastructure=1)
    live.nodes["n2"] = NodeState.GONE
    live.look()
    live.kubelets()
    live.look()
    live.start("n0", "n1", "n3")
    assert live.state.attempt == 2


def test_a_gang_on_one_node_fails_at_once_when_no_more_is_forgiven() -> None:
    live = LiveJob(make_job(2, max_restarts=0)).start("n0", "n0")
    live.fail(0)
    live.look()
    assert (live.state.phase, live.state.conditions["Failed"].reason) == (Phase.FAILED, "MaxRestartsExceeded")


def test_what_awaits_its_end_goes_on_where_the_user_forgives_more() -> None:
    live = StoredJob(make_job(2, max_restarts=0)).start()
    live.fail(0)
    live.look()
    live.kubelets()
    assert not live.look_until_quiet().wants_placement
    live.job = make_job(2, max_restarts=1)
    assert live.look().wants_placement


def test_a_restart_of_the_operator_lengthens_no_wait_for_the_end() -> None:
    live = StoredJob(make_job(2, max_restarts=0)).start()
    live.fail(0)
    live.look()
    assert live.look().wake_after == 60
    live.wait(60).look()
    assert live.state.phase == Phase.FAILED
    assert live.reasons()[-1] == "Failed"
