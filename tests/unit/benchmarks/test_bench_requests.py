"""Traces of demand: every format, a folder nobody has seen, and files that are none."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from benchmarks import requests, requests_made
from benchmarks.requests import DAY, PEAK
from berth.values import ConfigProblem

MINUTES = "ts,value\n1628640000,10\n1628640060,20\n1628640120,5\n"
WINDOWS = "timestamp_s,rate_rps,active_clients,mean_input_tokens\n0,10,3,1.5\n300,20,3,\n900,0,2,\n"
DATES = "timestamp,value\n2014-04-10 00:04:00,94.0\n2014-04-10 00:09:00,188.0\n"
SECONDS = "time,requests\n" + "".join(f"{second},{1 if second < 60 else 4}\n" for second in range(120))
MILLISECONDS = "ts,anything\n1628640000000,1\n1628640060000,2\n"


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize(
    ("name", "text", "load"),
    [
        ("minutes.csv", MINUTES, [20, 40, 10]),
        ("minutes.csv.gz", MINUTES, [20, 40, 10]),
        ("windows.csv", WINDOWS, [20, 24, 28, 32, 36, 40, 36, 32, 28, 24, 20, 16, 12, 8, 4, 0]),
        ("dates.csv", DATES, [20, 24, 28, 32, 36, 40]),
        ("seconds.csv", SECONDS, [10, 40]),
        ("milliseconds.csv", MILLISECONDS, [20, 40]),
        ("unsorted.csv", "ts,value\n60,2\n0,1\n60,4\n", [40 / 3, 40]),
        ("gap.csv", "ts,value\n0,1\n60,\n120,nan\n180,4\n", [10, 20, 30, 40]),
        ("negative.csv", "ts,value\n0,-5\n60,4\n", [0, 40]),
    ],
)
def test_a_series_becomes_steps_of_a_minute_with_its_peak_at_forty(
    tmp_path: Path, name: str, text: str, load: list[float]
) -> None:
    trace = requests.read(written(tmp_path, name, text))
    assert trace.name == name.partition(".")[0]
    assert trace.load == pytest.approx(load)


def test_a_coarse_series_is_also_had_in_steps(tmp_path: Path) -> None:
    trace = requests.read(written(tmp_path, "windows.csv", WINDOWS))
    assert trace.stepped is not None
    assert trace.stepped.tolist() == [20] * 5 + [40] * 10 + [0]
    assert requests.read(written(tmp_path, "minutes.csv", MINUTES)).stepped is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", r"bad.csv:1: has no column of time"),
        ("ts,a,b\n1,2,3\n", r"bad.csv:1: has no column of demand"),
        ("ts,value\n0,1\n60,soon\n", r"bad.csv:3: could not convert string to float: 'soon'"),
        ("ts,value\nyesterday,1\n", r"bad.csv:2: Invalid isoformat string: 'yesterday'"),
        ("ts,value\n0,1\n60\n", r"bad.csv: has less than two steps"),
        ("ts,value\n0,0\n60,0\n", r"bad.csv: has no demand above 0"),
        ("ts,value\n0,1\n99999999999,1\n", r"bad.csv: spans 1157407 days"),
    ],
)
def test_a_bad_file_says_what_is_wrong_and_where(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigProblem, match=words):
        requests.read(written(tmp_path, "bad.csv", text))


@pytest.mark.parametrize("raw", [b"\x1f\x8b\x08garbage", b"ts,value\n\xff\xfe,1\n", gzip.compress(b"ts,value")[:-4]])
def test_a_broken_file_cannot_be_read(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "bad.csv.gz").write_bytes(raw)
    with pytest.raises(ConfigProblem, match="cannot be read"):
        requests.read(tmp_path / "bad.csv.gz")


def test_of_a_folder_never_seen_before_the_good_files_are_taken_and_the_others_named(tmp_path: Path) -> None:
    written(tmp_path, "b.csv.gz", MINUTES)
    written(tmp_path, "a.csv", DATES)
    written(tmp_path, "broken.csv", "what,is,this\n")
    written(tmp_path, "README.md", "hello")
    folder = requests.read_folder(tmp_path)
    assert [trace.name for trace in folder.traces] == ["a", "b"]
    assert "README.md: does not end in .csv or .csv.gz" in folder.problems
    assert any("broken.csv:1: has no column of time" in problem for problem in folder.problems)


def test_the_subfolder_of_requests_is_found(tmp_path: Path) -> None:
    (tmp_path / "requests").mkdir()
    written(tmp_path / "requests", "a.csv", DATES)
    written(tmp_path, "README.md", "hello")
    assert [trace.name for trace in requests.read_folder(tmp_path).traces] == ["a"]


def test_a_folder_without_traces_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigProblem, match="it is empty"):
        requests.read_folder(tmp_path)
    written(tmp_path, "notes.txt", "hello")
    with pytest.raises(ConfigProblem, match=r"has no trace that can be read: notes\.txt"):
        requests.read_folder(tmp_path)
    with pytest.raises(ConfigProblem, match="is not a folder"):
        requests.read_folder(tmp_path / "none")


def test_daily_autocorrelation() -> None:
    phase = np.arange(3 * DAY) / DAY
    assert requests.daily_autocorrelation(1 + np.cos(2 * np.pi * phase)) == pytest.approx(1.0)
    assert requests.daily_autocorrelation(1 + np.cos(np.pi * phase)) == pytest.approx(-1.0)
    assert requests.daily_autocorrelation(np.ones(3 * DAY)) == 0.0
    assert requests.daily_autocorrelation(np.arange(DAY, dtype=float)) == 0.0


def test_the_stand_in_is_the_same_every_time_and_holds_easy_and_hard_traces() -> None:
    traces = requests_made.generate(days=6)
    again = requests_made.generate(days=6)
    assert all((one.load == other.load).all() for one, other in zip(traces, again, strict=True))
    assert {len(trace.load) for trace in traces} == {6 * DAY}
    assert all(trace.load.max() == pytest.approx(PEAK) and trace.load.min() >= 0 for trace in traces)
    repeats = [requests.daily_autocorrelation(trace.load) for trace in traces]
    assert max(repeats) > 0.8
    assert min(repeats) < 0.3
