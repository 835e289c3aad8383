"""Traces of demand: whatever is in a folder of CSV files, or a committed, seeded stand-in.

A file is a CSV, plain or gzipped, with one column of time (``ts``, ``timestamp``, ``timestamp_s`` or ``time``: seconds,
milliseconds, or ISO date and time) and one of demand (``value``, ``rate_rps``, ``requests``, ``rate``, ``count``; in a
file of two columns the other one). Its unit does not matter: a trace is scaled so that its peak is ``PEAK`` replicas.
A file that cannot be read is reported and left out, so that one bad file does not cost the measurement of the others.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from benchmarks.policies.base import STEP_SECONDS, Floats
from berth.values import ConfigProblem

PEAK = 40.0
DAY = round(86400 / STEP_SECONDS)

_TIMES = ("ts", "timestamp", "timestamp_s", "time")
_VALUES = ("value", "rate_rps", "requests", "rate", "count")
_ENDINGS = (".csv", ".csv.gz")
_LONGEST = 400 * DAY  # steps; more is a file whose times are wrong
_MILLISECONDS_FROM = 1e11  # as seconds, a date 3,000 years ahead


@dataclass(frozen=True, slots=True)
class Trace:
    """Demand in steps of ``STEP_SECONDS``, in replicas, its peak at ``PEAK``.

    ``stepped`` is the same with each value held until the next, for series coarser than a step; None for others.
    """

    name: str
    load: Floats
    stepped: Floats | None = None


@dataclass(frozen=True, slots=True)
class Folder:
    """What a folder held: traces by name, and a sentence for each file that could not be read as one."""

    traces: tuple[Trace, ...]
    problems: tuple[str, ...]


def read_folder(folder: Path) -> Folder:
    """Every trace directly in ``folder``, or in its subfolder ``requests`` where it holds none itself.

    Raises: ConfigProblem when there is none that can be read.
    """
    if not folder.is_dir():
        raise ConfigProblem("is not a folder", source=str(folder))
    inner = folder / "requests"
    if inner.is_dir() and not any(path.name.endswith(_ENDINGS) for path in folder.iterdir()):
        return read_folder(inner)
    traces, problems = list[Trace](), list[str]()
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        if not path.name.endswith(_ENDINGS):
            problems.append(f"{path.name}: does not end in {' or '.join(_ENDINGS)}")
            continue
        try:
            traces.append(read(path))
        except ConfigProblem as problem:
            problems.append(str(problem))
    if not traces:
        why = "; ".join(problems) or "it is empty"
        raise ConfigProblem(f"has no trace that can be read: {why}", source=str(folder))
    return Folder(tuple(traces), tuple(problems))


def read(path: Path) -> Trace:
    """The trace in the file at ``path``. Raises: ConfigProblem with the line."""
    times, values = _columns(path)
    order = np.argsort(times, kind="stable")
    times, values = _means_of_equal(times[order], values[order])
    if len(times) < 2 or times[-1] - times[0] < STEP_SECONDS:
        raise ConfigProblem("has less than two steps of data", source=str(path))
    if times[-1] - times[0] > _LONGEST * STEP_SECONDS:
        raise ConfigProblem(f"spans {(times[-1] - times[0]) / 86400:.0f} days; its times are wrong", source=str(path))
    if values.max() <= 0:
        raise ConfigProblem("has no demand above 0", source=str(path))
    name = path.name.removesuffix(".gz").removesuffix(".csv")
    spacing = float(np.median(np.diff(times)))
    if spacing < STEP_SECONDS:
        return Trace(name, scaled(_binned(times, values)))
    grid = np.arange(times[0], times[-1] + 1e-6, STEP_SECONDS)
    linear = scaled(np.interp(grid, times, values))
    if spacing == STEP_SECONDS:
        return Trace(name, linear)
    return Trace(name, linear, stepped=scaled(values[np.searchsorted(times, grid, side="right") - 1]))


def scaled(load: Floats) -> Floats:
    """``load`` without what is below 0, its peak at ``PEAK``."""
    load = np.maximum(load, 0.0)
    return load * (PEAK / float(load.max()))


def daily_autocorrelation(load: Floats) -> float:
    """Pearson correlation of x[t] with x[t + 1 day] over all t that have both; 0 where that is not defined."""
    if len(load) < DAY + 2:
        return 0.0
    before, after = load[:-DAY], load[DAY:]
    if before.std() == 0 or after.std() == 0:
        return 0.0
    return float(np.corrcoef(before, after)[0, 1])


def _columns(path: Path) -> tuple[Floats, Floats]:
    rows = csv.DictReader(io.StringIO(_text(path)))
    names = [name.strip() for name in rows.fieldnames or ()]
    rows.fieldnames = names
    time = next((name for name in _TIMES if name in names), None)
    if time is None:
        raise ConfigProblem(f"has no column of time; one of {list(_TIMES)} is needed", source=str(path), line=1)
    others = [name for name in names if name != time]
    value = next((name for name in _VALUES if name in names), others[0] if len(others) == 1 else None)
    if value is None:
        raise ConfigProblem(f"has no column of demand; one of {list(_VALUES)} is needed", source=str(path), line=1)
    times, values = list[float](), list[float]()
    try:
        for row in rows:
            demand = float(row[value] or "nan")
            if not math.isfinite(demand):  # unknown: the neighbours decide
                continue
            times.append(_seconds(row[time]))
            values.append(demand)
    except (ValueError, TypeError, csv.Error) as problem:
        raise ConfigProblem(str(problem), source=str(path), line=rows.line_num) from problem
    return np.array(times), np.array(values)


def _text(path: Path) -> str:
    try:
        raw = path.read_bytes()
        raw = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
        return raw.decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise ConfigProblem(f"cannot be read: {reason}", source=str(path)) from problem


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if not math.isfinite(number):
        raise ValueError(f"{text!r} is not a time")
    return number / 1000 if abs(number) >= _MILLISECONDS_FROM else number


def _means_of_equal(times: Floats, values: Floats) -> tuple[Floats, Floats]:
    unique, place, counts = np.unique(times, return_inverse=True, return_counts=True)
    return unique, np.bincount(place, weights=values, minlength=len(unique)) / np.maximum(counts, 1)


def _binned(times: Floats, values: Floats) -> Floats:
    # Means of finer samples by step; steps without any lie on the line between their neighbours.
    steps = ((times - times[0]) // STEP_SECONDS).astype(np.int64)
    counts = np.bincount(steps)
    have = np.flatnonzero(counts)
    means = np.bincount(steps, weights=values)[have] / counts[have]
    return np.interp(np.arange(len(counts)), have, means)
