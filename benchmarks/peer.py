"""The peer measured in the same call, by its own harness: started, read, compared.

The harness is a folder with ``run.sh``, which brings up its own control plane from the binaries it is given, runs the
measurements named on its command line, and prints one JSON object per repetition.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from berth.devcluster.problems import BuildFailed

MODULE, VERSION, COMMAND = "sigs.k8s.io/kueue", "v0.17.0", "sigs.k8s.io/kueue/cmd/kueue"

FIGURES: Mapping[str, tuple[str, str]] = {
    "m1": ("m1", "all_running"),
    "m2": ("m2", "all_running"),
    "m3": ("m3", "makespan"),
    "m5": ("m5", "whole_again"),
    "m5b": ("m5", "2nd_whole_again"),
}
"""Our figure to the measurement and field of the harness that it is compared with."""

DETAILS = ("pods_replaced", "2nd_pods_replaced", "racks", "used", "free", "api_writes", "kueue_cpu_s", "foreign_cores")

Row = Mapping[str, Any]


def parse(lines: Iterable[str]) -> dict[str, list[Row]]:
    """Repetitions by measurement, from the harness's output; a line that is no JSON object is commentary."""
    rows: dict[str, list[Row]] = {}
    for line in lines:
        if line.startswith("{"):
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if "m" in row and "rep" in row:
                rows.setdefault(row["m"], []).append(row)
    return rows


def figures(rows: Mapping[str, Sequence[Row]]) -> dict[str, float]:
    """The median of each figure in :data:`FIGURES` over the repetitions that went well."""
    found = {}
    for figure, (measurement, name) in FIGURES.items():
        values = [row[name] for row in rows.get(measurement, ()) if row.get("ok", True) and row.get("2nd_ok", True)]
        if values:
            found[figure] = round(statistics.median(values), 3)
    return found


def details(rows: Mapping[str, Sequence[Row]]) -> dict[str, list[dict[str, Any]]]:
    """What else is worth keeping of each repetition."""
    return {
        measurement: [{name: row[name] for name in DETAILS if name in row} for row in repetitions]
        for measurement, repetitions in rows.items()
    }


def ratios(ours: Mapping[str, float], theirs: Mapping[str, float]) -> dict[str, float]:
    """Ours over theirs, where both are known."""
    return {name: round(ours[name] / theirs[name], 3) for name in FIGURES if name in ours and name in theirs}


def run(
    folder: Path, *, binaries: Mapping[str, Path], source: Path, todo: Sequence[str], reps: int,
    progress: Callable[[str], None],
) -> dict[str, list[Row]]:  # fmt: skip
    """Run the harness in ``folder``; ``binaries`` by the names it wants, ``source`` the peer's module.

    Raises: BuildFailed with its last lines when it ends with an error.
    """
    with tempfile.TemporaryDirectory(prefix="berth-peer-") as scratch:
        programs = Path(scratch) / "bin"
        programs.mkdir()
        for name, path in binaries.items():
            (programs / name).symlink_to(path.resolve())
        environment = {
            **os.environ,
            "BIN": str(programs),
            "KUEUE_SRC": str(source),
            "WORK": str(Path(scratch) / "work"),
            "REPS": str(reps),
            "PATH": os.pathsep.join((str(programs), os.environ.get("PATH", ""))),
        }
        harness = subprocess.Popen(
            ["bash", str((folder / "run.sh").resolve()), *todo],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        lines: list[str] = []
        try:
            for line in harness.stdout or ():
                lines.append(line.rstrip("\n"))
                if line.startswith(("{", "#")):
                    progress(f"peer: {line.strip()[:160]}")
        finally:
            if harness.poll() is None:
                harness.terminate()
            code = harness.wait()
        if code != 0:
            raise BuildFailed(f"the peer's harness ended with {code}:\n" + "\n".join(lines[-25:]))
    return parse(lines)
