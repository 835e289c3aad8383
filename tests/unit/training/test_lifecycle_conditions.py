"""What conditions say besides Accepted and Placed, that none of them outlives what it says, and what else is shown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from berth.training.recovery import backoff_left
from berth.training.state import Attempt, Cause, JobState, Lineage, Phase, Reason, Refused, Restarts
from tests.builders.training import LiveJob, StoredJob, make_job, make_worker

FABRIC_AND_MODEL = ("FabricSatisfied", "MemoryFits")
QUOTA = Refused(Reason.QUOTA_EXCEEDED, "exceeded quota: gpus")


def reason_of(live: LiveJob, kind: str) -> tuple[str, str]:
    condition = live.state.conditions[kind]
    return condition.status, condition.reason


@pytest.mark.parametrize("asked", [(), ("MemoryFits",), FABRIC_AND_MODEL])
def test_a_placement_fulfils_what_the_spec_asks_for_and_says_nothing_of_the_rest(asked: tuple[str, ...]) -> None:
    live = StoredJob(make_job(asked=asked))
    live.place()
    for kind in FABRIC_AND_MODEL:
        condition = live.recall().conditions.get(kind)
        assert (condition is not None and condition.status == "True") == (kind in asked)


def test_a_fabric_that_was_not_there_is_there_once_the_job_is_placed() -> None:
    live = LiveJob(make_job(asked=FABRIC_AND_MODEL))
    live.look()
    live.state = live.state.with_condition("FabricSatisfied", False, "FabricUnsatisfied", "none", now=live.now)
    live.start()
    assert reason_of(live, "FabricSatisfied") == ("True", "Satisfied")
    live.job = make_job()
    live.fail()
    live.look()
    live.kubelets()
    live.start()
    assert "FabricSatisfied" not in live.state.conditions


@pytest.mark.parametrize("end", ["failed", "deadline", "succeeded"])
def test_a_job_that_has_ended_is_placed_no_more(end: str) -> None:
    job = make_job(max_restarts=0, max_duration=60.0 if end == "deadline" else None)
    live = LiveJob(job).start("n0", "n0")
    if end == "failed":
        live.fail()
    elif end == "succeeded":
        live.succeed()
    live.wait(60).look()
    assert live.state.phase == (Phase.SUCCEEDED if end == "succeeded" else Phase.FAILED)
    assert reason_of(live, "Placed") == ("False", "Released")


def test_a_quota_that_refuses_a_pod_ends_the_attempt_uncharged_and_waits() -> None:
    live = LiveJob(make_job(max_start_attempts=1))
    waits = []
    for _ in range(6):
        live.place()
        live.refused = QUOTA
        step = live.look()
        assert [event.reason for event in step.events] == ["Rejected"]
        live.kubelets()
        waits.append(live.look().wake_after or 0)
        assert reason_of(live, "QuotaReserved") == ("False", "QuotaExceeded")
        assert (live.state.phase, live.state.message) == (Phase.QUEUED, QUOTA.message)
        live.wait(waits[-1])
    assert live.state.start_attempts == 0
    assert live.state.restarts == Restarts()
    assert live.state.attempts[-1].cause == Cause.QUOTA
    assert [round(wait / waits[0], 6) for wait in waits] == [1, 2, 4, 8, 10, 10]
    assert 30 <= waits[0] <= 45
    live.start()
    assert reason_of(live, "QuotaReserved") == ("True", "Admitted")


def test_gangs_that_took_each_other_s_quota_do_not_try_again_together() -> None:
    waits = set()
    for name in ("a", "b", "c", "d"):
        live = LiveJob(replace(make_job(), name=name))
        live.place()
        live.refused = QUOTA
        live.look()
        live.pods.clear()
        waits.add(live.look().wake_after)
    assert len(waits) == 4


def test_a_job_resumed_from_its_wait_for_a_quota_asks_at_once() -> None:
    live = LiveJob()
    live.place()
    live.refused = QUOTA
    live.look()
    live.kubelets()
    live.job = make_job(suspended=True)
    live.look()
    assert "QuotaReserved" not in live.state.conditions
    live.job = make_job()
    assert live.look().wants_placement


def test_a_name_that_an_earlier_job_s_pod_has_holds_the_placement_back() -> None:
    live = LiveJob()
    live.name_held = "llm-1-0"
    step = live.look()
    assert not step.wants_placement
    assert step.wake_after is not None
    assert "llm-1-0" in live.state.message
    assert reason_of(live, "Placed") == ("False", "NameHeld")
    live.name_held = ""
    assert live.look().wants_placement
    assert live.state.message == "Waiting for a placement"
    assert "Placed" not in live.state.conditions


@pytest.mark.parametrize(
    ("cause", "reason", "wait"),
    [
        (Cause.START, Reason.UNSCHEDULABLE, 0.0),
        (Cause.START, Reason.TIMED_OUT, 10.0),
        (Cause.START, "", 10.0),
        (Cause.START, "AReasonOfALaterRelease", 10.0),
    ],
)
@pytest.mark.parametrize("message", ["", "kube-scheduler refuses llm-1-0 on n0", "in other words"])
def test_how_long_a_start_waits_follows_the_reason_and_never_the_sentence(
    cause: Cause, reason: str, wait: float, message: str
) -> None:
    last = Attempt(1, 0.0, 2, "p", end=100.0, cause=cause.value, reason=reason, message=message)
    assert backoff_left("llm", JobState(attempts=(last,), start_attempts=1), 100.0) == wait


@pytest.mark.parametrize(
    ("images", "shown"),
    [
        (("llm@sha256:0a", "llm@sha256:0a"), "llm@sha256:0a"),
        (("llm@sha256:0a", "llm@sha256:0b"), ""),
        (("", ""), ""),
    ],
    ids=["one", "different", "not known"],
)
def test_what_a_start_resolved_is_shown(images: tuple[str, ...], shown: str) -> None:
    live = StoredJob(make_job(dataset="s3://data/pile@v12"))
    live.place()
    assert live.recall().lineage == Lineage()
    for rank, image in enumerate(images):
        live.change(rank, image_id=image)
    live.run()
    assert live.recall().lineage == Lineage(shown, "s3://data/pile@v12")


def test_a_gang_that_was_never_seen_running_shows_what_it_ran_all_the_same() -> None:
    live = LiveJob(make_job(1))
    live.place()
    live.pods = {"llm-1-0": make_worker(0, phase="Succeeded", image_id="llm@sha256:0a")}
    live.look()
    assert live.state.lineage.image_id == "llm@sha256:0a"
