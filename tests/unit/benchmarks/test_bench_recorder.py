"""The times of pods and jobs are kept as they are first seen."""

from __future__ import annotations

from bench_objects import job, pod

from benchmarks.recorder import Recorder, last


def test_a_pod_goes_through_its_life_once() -> None:
    recorder = Recorder()
    recorder.on_pod("ADDED", pod(), 1.0)
    recorder.on_pod("MODIFIED", pod(node="n1"), 2.0)
    for at in (3.0, 4.0):
        recorder.on_pod("MODIFIED", pod(node="n1", phase="Running"), at)
    (line,) = recorder.pods({"llama"})
    assert (line.created, line.bound, line.running, line.node, line.alive) == (1.0, 2.0, 3.0, "n1", True)
    recorder.on_pod("MODIFIED", pod(node="n1", phase="Succeeded"), 5.0)
    recorder.on_pod("DELETED", pod(node="n1", phase="Succeeded"), 6.0)
    assert (line.ended, line.deleted, line.succeeded, line.alive) == (5.0, 6.0, True, False)


def test_a_job_is_finished_when_its_condition_says_so() -> None:
    recorder = Recorder()
    recorder.on_job("ADDED", job(), 1.0)
    recorder.on_job("MODIFIED", job(status={"phase": "Running", "attempt": 1}), 2.0)
    assert recorder.finished() == 0
    complete = {"phase": "Succeeded", "conditions": [{"type": "Complete", "status": "True"}]}
    recorder.on_job("MODIFIED", job(status=complete), 3.0)
    line = recorder.job("llama")
    assert line is not None
    assert (line.running, line.complete, line.phase, recorder.finished()) == (2.0, 3.0, "Succeeded", 1)


def test_the_latest_time_needs_every_time() -> None:
    assert last([1.0, 3.0, 2.0]) == 3.0
    assert last([1.0, None]) is None
    assert last([]) is None
