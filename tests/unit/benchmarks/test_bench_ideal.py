"""The ideal plays a trace through the real decisions, and time is all that passes."""

from __future__ import annotations

import pytest

from benchmarks import ideal, manifests
from benchmarks.ideal import IdealRun
from benchmarks.replay import facts_of
from benchmarks.trace import TraceJob
from berth.catalogue.load import load

CATALOGUE = load()


def run(*jobs: TraceJob, nodes: int = 1, start: float = 1.0) -> IdealRun:
    hall = facts_of(manifests.fleet(nodes, per_rack=2).nodes)
    return ideal.run(CATALOGUE, hall, jobs, cpu_millicores=1000, start_seconds=start, preferred="rack")


@pytest.mark.parametrize(
    ("jobs", "makespan", "waits"),
    [
        ([TraceJob(0.0, 5.0, 8)], 6.0, [1.0]),
        ([TraceJob(0.0, 5.0, 4), TraceJob(0.0, 5.0, 4)], 6.0, [1.0, 1.0]),
        ([TraceJob(0.0, 5.0, 8), TraceJob(1.0, 5.0, 8)], 12.0, [1.0, 6.0]),
        ([TraceJob(0.0, 5.0, 6), TraceJob(1.0, 1.0, 8), TraceJob(2.0, 1.0, 2)], 10.0, [1.0, 6.0, 7.0]),
    ],
    ids=["one job", "two side by side", "one after the other", "nobody overtakes into room that the head waits for"],
)
def test_jobs_run_as_room_and_the_queue_allow(jobs: list[TraceJob], makespan: float, waits: list[float]) -> None:
    found = run(*jobs)
    assert found.makespan == pytest.approx(makespan)
    assert found.waits == pytest.approx(waits)


def test_a_job_that_can_never_run_is_counted() -> None:
    assert run(TraceJob(0.0, 1.0, 16)).never == 1


def test_utilisation_is_useful_work_over_what_the_fleet_could_do() -> None:
    jobs = [TraceJob(0.0, 3.0, 8)]
    assert run(*jobs).utilisation(jobs, devices=8) == pytest.approx(0.75)


def test_the_same_trace_gives_the_same_run() -> None:
    jobs = [TraceJob(i / 3, 1.0 + i % 4, 1 + i % 8) for i in range(40)]
    assert run(*jobs, nodes=3) == run(*jobs, nodes=3)
