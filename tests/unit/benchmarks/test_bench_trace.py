"""Traces are read with their errors by line, cut, capped, compressed, and given a fleet of the right size."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from benchmarks import trace
from benchmarks.trace import TraceJob
from berth.values import ConfigProblem

FILE = """\
timestamp,duration,num_gpus,gpu_time,cluster
2017-09-04 10:30:51,100.0,8,800.0,a
2017-09-04 10:30:41,50.0,1,50.0,b
2017-09-04 10:31:41,7.5,2,15.0,b
"""
JOBS = [TraceJob(0.0, 50.0, 1), TraceJob(10.0, 100.0, 8), TraceJob(60.0, 7.5, 2)]


@pytest.mark.parametrize("zipped", [False, True])
def test_a_trace_is_read_by_arrival(tmp_path: Path, zipped: bool) -> None:
    path = tmp_path / "trace"
    path.write_bytes(gzip.compress(FILE.encode()) if zipped else FILE.encode())
    assert trace.read(path) == JOBS


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("timestamp,duration\n1,2\n", r"trace:1: has no column \['num_gpus'\]"),
        ("timestamp,duration,num_gpus\n1,2,3\n1,soon,3\n", "trace:3: could not convert string to float: 'soon'"),
        ("timestamp,duration,num_gpus\nyesterday,2,3\n", "trace:2: Invalid isoformat string: 'yesterday'"),
    ],
)
def test_a_bad_trace_names_its_line(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "trace").write_text(text)
    with pytest.raises(ConfigProblem, match=words):
        trace.read(tmp_path / "trace")


def test_a_missing_trace_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigProblem, match="cannot be read"):
        trace.read(tmp_path / "none")


def test_the_last_jobs_of_enough_gpus_are_chosen_and_start_at_zero() -> None:
    assert trace.select(JOBS, count=1, min_gpus=2) == [TraceJob(0.0, 7.5, 2)]
    assert [job.arrival for job in trace.select(JOBS, count=5, min_gpus=2)] == [0.0, 50.0]


def test_time_is_compressed_by_one_factor_after_the_cap() -> None:
    jobs = [TraceJob(float(i) * 10, float(i), 2) for i in range(11)]
    short = trace.compress(jobs, seconds=1.0, cap_quantile=0.5)
    assert short[-1].arrival == pytest.approx(1.0)
    assert [round(job.duration * 100) for job in short] == [0, 1, 2, 3, 4, 5, 5, 5, 5, 5, 5]


@pytest.mark.parametrize(("load", "start", "nodes"), [(1.0, 0.0, 3), (0.5, 0.0, 5), (1.0, 1.0, 4)])
def test_the_fleet_fits_the_load(load: float, start: float, nodes: int) -> None:
    jobs = [TraceJob(float(second), 2.0, 8) for second in range(11)]
    assert trace.nodes_for(jobs, load=load, gpus_per_node=8, start_seconds=start) == nodes


def test_the_fleet_holds_the_largest_gang() -> None:
    jobs = [TraceJob(0.0, 0.1, 64), TraceJob(100.0, 0.1, 1)]
    assert trace.nodes_for(jobs, load=0.9, gpus_per_node=8) == 8


def test_the_stand_in_is_the_same_every_time_and_shaped_like_a_cluster() -> None:
    jobs = trace.generate(500)
    assert jobs == trace.generate(500)
    assert len(jobs) == 500
    assert jobs[0].arrival == 0.0
    assert {job.gpus for job in jobs} <= {2, 4, 8, 16, 32}
    assert sorted(job.arrival for job in jobs) == [job.arrival for job in jobs]
