"""What ends a running attempt, what it is charged to, and how the next one comes to be."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from berth.training.recovery import Rule
from berth.training.state import Delete, NodeState, Phase, Restarts
from tests.builders.training import LiveJob, make_job

CONFIG = Rule("bad-config", "Fail", "In", (3,))
FREE = Rule("flaky", "RestartFree", "In", (7,))
ANY = Rule("any", "Restart", "NotIn", (3,))
STALL = Rule("stall", "RestartFree", conditions=(("example.com/Stalled", "True"),))


def expect_restarting(live: LiveJob, **restarts: int) -> None:
    """The gang comes down whole and the totals are these."""
    assert live.state.phase == Phase.RESTARTING
    assert live.state.restarts == Restarts(**restarts)
    assert all(pod.deleting_since is not None or pod.ended for pod in live.pods.values())
    assert live.reasons()[-1] == "Restarting"


def test_a_failed_rank_restarts_the_whole_gang_and_is_charged() -> None:
    live = LiveJob(make_job(3)).start()
    live.wait(7200).fail(1, code=137)
    step = live.look()
    expect_restarting(live, failure=1)
    assert {entry.name for entry in step.delete} == {"llm-1-0", "llm-1-2"}
    last = live.state.attempts[-1]
    assert (last.cause, last.exit_code, last.ran) == ("Failure", 137, 7200)
    assert last.lost_accelerator_seconds == 7200 * 24
    assert live.state.message == "Restarting: llm-1-1: container worker ended with exit code 137"
    assert live.events[-1].message.startswith("after attempt 1, 1 of 10 restarts used: llm-1-1")


def test_the_failure_after_the_last_forgiven_one_fails_the_job() -> None:
    live = LiveJob(make_job(max_restarts=1))
    for _ in range(2):
        live.wait(3600).start()
        live.wait(3600).fail()
        live.look()
        live.kubelets()
    assert live.state.message == (
        "llm-2-0: container worker ended with exit code 1; spec.recovery.maxRestarts is 1: the job fails, unless "
        "a node is found lost within 1m"
    )
    assert not live.wait(59).look_until_quiet().wants_placement
    live.wait(1).look()
    assert live.state.phase == Phase.FAILED
    assert live.state.restarts.failure == 2
    assert live.state.conditions["Failed"].reason == "MaxRestartsExceeded"
    assert live.state.message.endswith("spec.recovery.maxRestarts is 1")
    assert live.look_until_quiet().wake_after is None


def test_failures_soon_after_the_start_wait_longer_each_time() -> None:
    live = LiveJob(make_job(max_restarts=100))
    waits = []
    for _ in range(5):
        live.start()
        live.wait(30).fail()
        live.look()
        live.kubelets()
        waits.append(live.look().wake_after or 0)
        live.wait(waits[-1])
    assert waits == [0, 10, 20, 40, 80]


def test_a_failure_after_a_long_run_restarts_at_once() -> None:
    live = LiveJob()
    for _ in range(3):
        live.start()
        live.wait(7200).fail()
        live.look()
        live.kubelets()
        assert live.look().wants_placement


@pytest.mark.parametrize(
    ("rules", "code", "cause", "rule", "phase", "failure", "infrastructure"),
    [
        ((CONFIG, ANY), 3, "Failure", "bad-config", Phase.FAILED, 1, 0),
        ((ANY, CONFIG), 5, "Failure", "any", Phase.RESTARTING, 1, 0),
        ((FREE, ANY), 7, "Infrastructure", "flaky", Phase.RESTARTING, 0, 1),
        ((ANY, FREE), 7, "Failure", "any", Phase.RESTARTING, 1, 0),
        ((CONFIG,), 4, "Failure", "", Phase.RESTARTING, 1, 0),
    ],
    ids=["Fail", "Restart", "RestartFree", "the first that matches decides", "none matches"],
)
def test_a_rule_decides_by_exit_code(
    rules: tuple[Rule, ...], code: int, cause: str, rule: str, phase: Phase, failure: int, infrastructure: int
) -> None:
    live = LiveJob(make_job(rules=rules)).start()
    live.wait(3600).fail(0, code=code)
    live.look()
    last = live.state.attempts[-1]
    assert (last.cause, last.rule, live.state.phase) == (cause, rule, phase)
    assert (live.state.restarts.failure, live.state.restarts.infrastructure) == (failure, infrastructure)
    assert (live.state.conditions.get("Failed") is not None) == (phase == Phase.FAILED)


def test_a_rule_that_fails_the_job_gives_its_reason() -> None:
    live = LiveJob(make_job(rules=(CONFIG,))).start()
    live.fail(0, code=3)
    live.look()
    assert live.state.conditions["Failed"].reason == "RuleFailed"
    assert "rule bad-config: Fail" in live.state.message


def test_exit_code_0_matches_no_rule() -> None:
    live = LiveJob(make_job(rules=(Rule("not-5", "Fail", "NotIn", (5,)),))).start()
    live.succeed(0)
    live.look()
    assert live.state.phase == Phase.RUNNING


def test_a_rule_for_one_container_ignores_the_others() -> None:
    rule = Rule("sidecar", "Fail", "In", (9,), container="logger")
    live = LiveJob(make_job(rules=(rule,))).start()
    live.fail(0, code=9)
    live.look()
    expect_restarting(live, failure=1)
    assert rule.matches(replace(live.pods["llm-1-0"], exits=(("logger", 9),)))


def test_a_rule_by_pod_condition_ends_an_attempt_that_still_runs() -> None:
    live = LiveJob(make_job(rules=(STALL,))).start()
    live.change(1, conditions=(("example.com/Stalled", "False"),))
    live.look()
    assert live.state.phase == Phase.RUNNING
    live.change(1, conditions=(("example.com/Stalled", "True"),))
    live.look()
    expect_restarting(live, infrastructure=1)


@pytest.mark.parametrize("fields", [{"conditions": (("example.com/Stalled", "True"),)}, {"exits": (("log", 143),)}])
def test_no_rule_matches_a_rank_that_has_succeeded(fields: dict[str, Any]) -> None:
    live = LiveJob(make_job(rules=(STALL, ANY))).start()
    live.succeed(0)
    live.change(0, **fields)
    live.look()
    assert live.state.phase == Phase.RUNNING


@pytest.mark.parametrize(
    "words",
    [
        "TerminationByKubelet: pod was rejected: node is shutting down",
        "EvictionByEvictionAPI: Eviction API: evicting",
        "OutOfcpu: Node didn't have enough resource: cpu",
        "UnexpectedAdmissionError: Allocate failed",
        "NodeShutdown: Pod was terminated in response to imminent node shutdown.",
    ],
)
@pytest.mark.parametrize("phase", ["Running", "Failed"])
def test_what_the_infrastructure_takes_is_not_charged_and_its_node_is_avoided(words: str, phase: str) -> None:
    live = LiveJob(make_job(max_restarts=0)).start()
    live.change(1, disrupted=words, phase=phase, exit_code=143, exits=(("worker", 143),))
    live.look()
    expect_restarting(live, infrastructure=1)
    assert live.state.avoid == ("n1",)
    assert words in live.state.message


def test_a_node_that_is_gone_restarts_the_gang_uncharged_without_it() -> None:
    live = LiveJob(make_job(3)).start()
    live.nodes["n1"] = NodeState.GONE
    step = live.look()
    expect_restarting_without = Delete("llm-1-1", live.history[-1].delete[1].uid, 0)
    assert expect_restarting_without in step.delete
    assert "llm-1-1" not in live.pods
    assert live.state.restarts == Restarts(infrastructure=1)
    assert live.state.avoid == ("n1",)
    assert live.state.message == "Restarting: node n1 is gone"
    assert live.reasons()[-2:] == ["NodeLost", "Restarting"]
    live.kubelets()
    assert live.look().wants_placement


def test_several_lost_nodes_are_named_together() -> None:
    live = LiveJob(make_job(5)).start()
    live.nodes.update({f"n{number}": NodeState.GONE for number in (0, 1, 2, 3)})
    live.look()
    assert live.state.message == "Restarting: nodes n0, n1, n2 and 1 more are gone"
    assert live.state.avoid == ("n0", "n1", "n2", "n3")
    assert live.reasons()[-2:] == ["NodeLost", "Restarting"]


def test_survivors_that_fail_with_a_lost_node_are_not_charged() -> None:
    live = LiveJob(make_job(3, rules=(ANY,))).start()
    live.fail(0)
    live.nodes["n1"] = NodeState.GONE
    live.look()
    assert live.state.restarts == Restarts(infrastructure=1)


def test_a_rank_that_failed_on_a_node_that_is_gone_is_not_charged() -> None:
    live = LiveJob().start()
    live.fail(0)
    live.nodes["n0"] = NodeState.GONE
    live.look()
    expect_restarting(live, infrastructure=1)
    assert live.state.avoid == ("n0",)


def test_a_rank_that_succeeded_on_a_node_that_is_gone_is_no_loss() -> None:
    live = LiveJob().start()
    live.succeed(0)
    live.nodes["n0"] = NodeState.GONE
    live.look()
    assert live.state.phase == Phase.RUNNING


def test_a_pod_that_vanished_with_its_node_is_that_node_s_loss() -> None:
    live = LiveJob().start()
    live.nodes["n1"] = NodeState.GONE
    del live.pods["llm-1-1"]
    live.look()
    assert live.state.message == "Restarting: node n1 is gone"
    assert live.state.avoid == ("n1",)


def test_a_pod_deleted_by_somebody_restarts_the_gang_uncharged() -> None:
    live = LiveJob().start()
    live.change(1, deleting_since=live.now)
    live.look()
    expect_restarting(live, infrastructure=1)
    live = LiveJob().start()
    del live.pods["llm-1-1"]
    live.look()
    expect_restarting(live, infrastructure=1)


@pytest.mark.parametrize(
    ("failed_at", "other_failed_at", "cause"),
    [
        (10.0, None, "Infrastructure"),
        (11.0, 12.0, "Infrastructure"),
        (None, 12.0, "Infrastructure"),
        (9.0, None, "Failure"),
        (11.0, 9.0, "Failure"),
        (None, 9.0, "Failure"),
    ],
    ids=["at once", "the rest after it", "the rest first", "before", "another before", "only another, before"],
)
def test_a_failure_after_a_deletion_is_the_deletion_s(
    failed_at: float | None, other_failed_at: float | None, cause: str
) -> None:
    live = LiveJob().start()
    for rank, at in ((0, failed_at), (1, other_failed_at)):
        if at is not None:
            live.fail(rank, code=143, failed_at=live.now + at)
    live.change(0, deleting_since=live.now + 10)
    live.wait(20).look()
    assert live.state.attempts[-1].cause == cause
    assert (live.state.attempts[-1].reason == "PodDeleted") == (cause == "Infrastructure")


def test_rules_are_for_failures_of_the_job_s_own() -> None:
    live = LiveJob(make_job(rules=(CONFIG,))).start()
    live.fail(0, code=3, failed_at=live.now + 1)
    live.change(0, deleting_since=live.now)
    live.look()
    expect_restarting(live, infrastructure=1)


@pytest.mark.parametrize("loss", ["rule", "deleted"])
def test_a_gang_that_goes_down_again_and_again_uncharged_waits_too(loss: str) -> None:
    live = LiveJob(make_job(rules=(FREE,)))
    waits = []
    for _ in range(6):
        live.start()
        if loss == "rule":
            live.fail(0, code=7)
        else:
            live.change(0, deleting_since=live.now)
        live.look()
        live.kubelets()
        waits.append(live.look().wake_after or 0)
        live.wait(waits[-1])
    assert waits == [0, 0, 0, 10, 20, 40]


@pytest.mark.parametrize("state", [NodeState.BARRED, NodeState.UNREACHABLE])
def test_a_running_gang_stays_on_a_node_that_is_cordoned_or_silent(state: NodeState) -> None:
    live = LiveJob().start()
    before = live.state
    live.nodes["n1"] = state
    assert live.look_until_quiet().state == before


def test_a_short_flap_of_readiness_restarts_nothing() -> None:
    live = LiveJob().start()
    live.change(1, ready=False)
    live.nodes["n1"] = NodeState.UNREACHABLE
    step = live.wait(20).look()
    assert (live.state.phase, live.state.ready_workers) == (Phase.RUNNING, 1)
    assert not step.events
    live.change(1, ready=True)
    live.nodes["n1"] = NodeState.OK
    live.wait(20).look()
    assert (live.state.phase, live.state.ready_workers, live.state.attempt) == (Phase.RUNNING, 2, 1)
    assert live.state.conditions["AllRunning"].status == "True"


def test_a_rank_that_fails_while_another_s_node_is_silent_is_not_charged() -> None:
    live = LiveJob(make_job(max_restarts=0)).start()
    live.nodes["n1"] = NodeState.UNREACHABLE
    live.fail(0)
    live.look()
    expect_restarting(live, infrastructure=1)
    assert live.state.avoid == ("n1",)
    assert "n1 is unreachable" in live.state.attempts[-1].message


def test_the_user_s_rule_decides_even_while_a_node_is_silent() -> None:
    live = LiveJob(make_job(rules=(CONFIG,))).start()
    live.nodes["n1"] = NodeState.UNREACHABLE
    live.fail(0, code=3)
    live.look()
    assert live.state.phase == Phase.FAILED


def taken_by_an_unreachable_node(**fields: Any) -> LiveJob:
    live = LiveJob(make_job(**fields)).start()
    live.nodes["n1"] = NodeState.UNREACHABLE
    live.change(1, deleting_since=live.now, disrupted="DeletionByTaintManager: taint manager: deleting", ready=False)
    live.look()
    live.kubelets()
    live.look()
    return live


def test_a_restart_says_which_unreachable_node_holds_it_and_what_to_do() -> None:
    live = taken_by_an_unreachable_node()
    assert live.state.message == (
        "Restarting: node n1 is unreachable and holds 1 of the old pods; add the taint "
        "node.kubernetes.io/out-of-service to it, or set spec.recovery.forceDeleteAfter"
    )
    assert not live.wait(7200).look_until_quiet().wants_placement
    live.nodes["n1"] = NodeState.GONE
    live.look()
    assert not live.pods
    assert live.look().wants_placement


def test_pods_of_an_unreachable_node_are_forced_only_after_the_time_asked_for() -> None:
    live = taken_by_an_unreachable_node(force_delete_after=600.0)
    assert live.look().wake_after == 600
    assert not live.wait(599).look().delete
    assert [entry.grace for entry in live.wait(1).look().delete] == [0]
    assert live.look().wants_placement


def test_the_node_that_holds_the_gang_may_come_back() -> None:
    live = taken_by_an_unreachable_node()
    live.nodes["n1"] = NodeState.OK
    live.kubelets()
    assert live.look().wants_placement


def test_a_pod_that_survives_its_removal_by_force_is_not_removed_again_and_again() -> None:
    live = LiveJob().start()
    live.nodes["n1"] = NodeState.GONE
    kept = live.pods["llm-1-1"]
    live.look()
    live.pods[kept.name] = replace(kept, deleting_since=live.now, forced=True)
    live.kubelets()
    live.pods[kept.name] = replace(kept, deleting_since=live.now, forced=True)
    step = live.look_until_quiet()
    assert not step.wants_placement


def test_the_ledger_keeps_ten_attempts_and_the_totals_count_all() -> None:
    live = LiveJob(make_job(1, max_restarts=100), price=Decimal(2))
    for _ in range(12):
        live.start()
        live.wait(3600).fail()
        live.look()
        live.kubelets()
    assert [attempt.number for attempt in live.state.attempts] == list(range(3, 13))
    assert live.state.restarts.failure == 12
    assert live.state.ran_before == 12 * 3600
    assert live.state.held_before == 12 * 3600 * 8
    assert live.state.usd == 12 * 8 * 2
    assert live.state.lost == 12 * 3600 * 8


@pytest.mark.parametrize(("code", "phase"), [(1, Phase.RESTARTING), (0, Phase.RUNNING)])
def test_a_worker_that_fails_beside_a_container_that_runs_on_ends_the_attempt(code: int, phase: Phase) -> None:
    live = LiveJob(make_job(2)).start()
    live.change(0, ready=False, worker_exit=code, exits=(("worker", code),), failure="ended" if code else "")
    live.look()
    assert live.state.phase == phase
