"""Traces of spot capacity by zone: whatever is in a folder, or a committed, seeded stand-in.

Read are a JSON with ``metadata.gap_seconds`` and ``data`` (nodes there, one value per gap), a CSV of
``milliseconds, add|remove, node`` without a header, and lines of ``date, time, nodes``. JSON files of one kind whose
names hold the same date and whose gap is the same are the zones of one group; every other file is a group of one zone.
A zone is scaled so that its highest value is ``NODES``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from berth.values import ConfigProblem

STEP_SECONDS: Final = 60.0
NODES: Final = 16
_DATE: Final = re.compile(r"\d{2}-\d{2}-\d{4}|\d{4}-\d{2}-\d{2}")
_ENDINGS: Final = (".json", ".csv", ".txt")
_LONGEST: Final = 400 * 86400

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Group:
    """Zones seen at the same time. ``nodes[zone, step]``: how many nodes are there, 0 to ``NODES``, all of a step."""

    name: str
    zones: tuple[str, ...]
    nodes: Ints


@dataclass(frozen=True, slots=True)
class Folder:
    """What a folder held: groups by name, and a sentence for each file that could not be read."""

    groups: tuple[Group, ...]
    problems: tuple[str, ...]


def read_folder(folder: Path) -> Folder:
    """Every trace in ``folder`` and the folders in it; of a folder that has one, only its subfolder ``spot``.

    Raises: ConfigProblem when there is none that can be read.
    """
    if not folder.is_dir():
        raise ConfigProblem("is not a folder", source=str(folder))
    if (folder / "spot").is_dir():
        return read_folder(folder / "spot")
    zones: dict[str, list[tuple[str, Ints]]] = {}
    problems: list[str] = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        if path.suffix not in _ENDINGS:
            problems.append(f"{path.name}: does not end in {', '.join(_ENDINGS)}")
            continue
        try:
            group, steps = read(path)
        except ConfigProblem as problem:
            problems.append(str(problem))
            continue
        zones.setdefault(group, []).append((path.stem, steps))
    if not zones:
        raise ConfigProblem(f"has no trace that can be read: {'; '.join(problems) or 'empty'}", source=str(folder))
    return Folder(tuple(_group(name, entries) for name, entries in sorted(zones.items())), tuple(problems))


def read(path: Path) -> tuple[str, Ints]:
    """The name of the group that the file belongs to, and its nodes by step. Raises: ConfigProblem."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix == ".json":
            kind, times, values = _json(path, json.loads(text))
        else:
            kind, (times, values) = path.stem, _lines(text)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise ConfigProblem(f"cannot be read: {problem}", source=str(path)) from problem
    if len(times) < 2 or not np.isfinite(values).all() or values.max() <= 0:
        raise ConfigProblem("has no nodes, or values that are none", source=str(path))
    if not 2 * STEP_SECONDS <= times[-1] - times[0] <= _LONGEST:
        raise ConfigProblem(f"spans {times[-1] - times[0]:.0f} s; its times are wrong", source=str(path))
    return kind, _steps(times, values)


def _json(path: Path, document: Any) -> tuple[str, Floats, Floats]:
    gap = float(document["metadata"]["gap_seconds"])
    values = np.array(document["data"], dtype=np.float64)
    if not gap > 0 or values.ndim != 1:
        raise ValueError("gap_seconds must be above 0 and data a list of numbers")
    date = _DATE.search(path.stem)
    kind = path.stem.split("_", 1)[0]
    name = f"{kind}-{date.group()}-{gap:g}s" if date else path.stem
    times: Floats = np.arange(len(values) + 1, dtype=np.float64) * gap
    return name, times, np.append(values, values[-1:])


def _lines(text: str) -> tuple[Floats, Floats]:
    times: list[float] = []
    values: list[float] = []
    held: set[str] = set()
    for number, line in enumerate(text.splitlines(), start=1):
        fields = [part.strip() for part in line.split(",")]
        if fields == [""]:
            continue
        if len(fields) != 3:
            raise ValueError(f"line {number} has {len(fields)} fields, not 3")
        if fields[1] in ("add", "remove"):
            (held.add if fields[1] == "add" else held.discard)(fields[2])
            times.append(float(fields[0]) / 1000)
            values.append(len(held))
        else:
            times.append(datetime.fromisoformat(f"{fields[0]} {fields[1]}").replace(tzinfo=UTC).timestamp())
            values.append(float(fields[2]))
    order = np.argsort(np.array(times), kind="stable")
    return np.array(times)[order], np.array(values)[order]


def _steps(times: Floats, values: Floats) -> Ints:
    # The least of each step, its first value being the one that held before: a short loss is a loss.
    edges = np.arange(times[0], times[-1], STEP_SECONDS)
    start = np.searchsorted(times, edges, side="right") - 1
    end = np.searchsorted(times, edges + STEP_SECONDS, side="left")
    least = np.array([values[a : max(b, a + 1)].min() for a, b in zip(start, end, strict=True)])
    nodes: Ints = np.floor(least / values.max() * NODES + 0.5).astype(np.int64)
    return nodes


def _group(name: str, entries: Sequence[tuple[str, Ints]]) -> Group:
    steps = min(len(nodes) for _, nodes in entries)
    return Group(name, tuple(zone for zone, _ in entries), np.stack([nodes[:steps] for _, nodes in entries]))


def generate(days: int = 10, seed: int = 5) -> list[Group]:
    """Groups of one to four zones whose stands have gamma-distributed rates; the same for the same arguments."""
    rng = np.random.default_rng(seed)
    groups = []
    for zones, mean_up, mean_down in ((4, 3.0, 2.0), (3, 12.0, 1.0), (1, 5.0, 1.0)):
        nodes = np.stack([_zone(rng, round(days * 86400 / STEP_SECONDS), mean_up, mean_down) for _ in range(zones)])
        groups.append(Group(f"made-{zones}-zones", tuple(f"zone-{i}" for i in range(zones)), nodes))
    return groups


def _zone(rng: np.random.Generator, steps: int, mean_up: float, mean_down: float) -> Ints:
    hour = 3600 / STEP_SECONDS
    nodes = np.zeros(steps, dtype=np.int64)
    at = int(rng.exponential(mean_down * hour))
    while at < steps:
        rate = rng.gamma(2.0, 1.0 / mean_up) / hour
        end = at + max(1, math.ceil(rng.exponential(1 / max(rate, 1e-6))))
        nodes[at:end] = NODES
        at = end + max(1, math.ceil(rng.exponential(mean_down * hour)))
    return nodes
