"""A failure that turns out to be a lost node is given back."""

from __future__ import annotations

from typing import Any

import pytest

from berth.training.recovery import Rule
from berth.training.state import NodeState, Phase, Restarts, Step
from tests.builders.training import LiveJob, make_job

ANY = Rule("any", "Restart", "NotIn", (3,))


def failed_before_the_loss_was_known(**fields: Any) -> LiveJob:
    live = LiveJob(make_job(3, **fields)).start()
    live.wait(900).fail(0)
    live.look()
    assert live.state.phase == Phase.RESTARTING
    assert live.state.restarts == Restarts(failure=1)
    assert all(pod.deleting_since is not None or pod.ended for pod in live.pods.values())
    assert live.reasons()[-1] == "Restarting"
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
