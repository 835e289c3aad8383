"""Between two attempts: the next one waits until the pods of the last are gone, and says for which."""

from __future__ import annotations

from berth.training.state import Phase, Reason, Refused
from tests.builders.training import LiveJob, expect_condition, make_job, make_worker, ranks_of


def test_the_next_attempt_waits_until_every_pod_of_the_last_one_is_gone() -> None:
    live = LiveJob(make_job(3)).start()
    live.fail(0)
    live.look()
    for name in ("llm-1-1", "llm-1-2"):
        step = live.look()
        assert not step.wants_placement
        assert not step.create
        del live.pods[name]
    assert live.look().wants_placement
    live.place()
    assert ranks_of(pod for pod in live.pods.values() if not pod.ended) == [(2, 0), (2, 1), (2, 2)]


def test_a_restart_says_which_pod_it_waits_for_and_since_when() -> None:
    live = LiveJob().start()
    live.fail(0)
    live.look()
    cause = "Restarting: llm-1-0: container worker ended with exit code 1"
    assert live.state.message == cause
    live.wait(7200).look()
    assert live.state.message == (
        f"{cause}; waiting until pod llm-1-1 on n1 has ended, which is being deleted since 2027-01-15T08:00:00Z"
    )


def test_a_job_resumed_before_its_pods_have_ended_says_so_and_takes_it_back() -> None:
    live = LiveJob().start()
    live.job = make_job(suspended=True)
    live.look()
    live.job = make_job()
    live.look()
    words = "Waiting until pod llm-1-0 on n0 has ended, which is being deleted since 2027-01-15T08:00:00Z"
    assert (live.state.phase, live.state.message) == (Phase.QUEUED, words)
    expect_condition(live, "Placed", "False", "PodsEnding")
    live.kubelets()
    assert live.look().wants_placement
    assert live.state.message == "Waiting for a placement"
    assert "Placed" not in live.state.conditions


def test_a_gang_that_a_quota_took_down_goes_on_saying_so_while_its_pods_end() -> None:
    live = LiveJob()
    live.place()
    live.change(0, bound=True)
    live.refused = Refused(Reason.QUOTA_EXCEEDED, "exceeded quota: gpus")
    live.look()
    live.look()
    live.kubelets()
    live.look()
    assert (live.state.phase, live.state.message) == (Phase.QUEUED, "exceeded quota: gpus")


def test_pods_that_ended_stay_for_their_logs_until_the_attempt_after_the_next() -> None:
    live = LiveJob()
    for attempt in (1, 2, 3):
        live.wait(3600).start()
        live.wait(3600).fail(0)
        live.look()
        live.kubelets()
        ended = sorted({pod.attempt for pod in live.pods.values()})
        assert ended == [attempt - 1, attempt][attempt == 1 :]


def test_a_stray_pod_of_another_attempt_is_removed() -> None:
    live = LiveJob().start()
    live.wait(3600).fail()
    live.look()
    live.kubelets()
    live.start()
    stray = make_worker(1, attempt=1, uid="stray")
    live.pods[stray.name] = stray
    assert [entry.uid for entry in live.look().delete] == ["stray"]
    assert live.state.phase == Phase.RUNNING
