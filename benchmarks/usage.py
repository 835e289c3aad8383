"""CPU and memory of processes by id, from /proc: what a component costs while something is measured.

The share of the machine that others used meanwhile is reported too: on a shared machine a time without it says little.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_MIB = 1024.0  # /proc counts in KiB


@dataclass(frozen=True, slots=True)
class Usage:
    """Of one process: CPU seconds since its start, resident MiB now and at its peak. All 0 once it is gone."""

    cpu_seconds: float = 0.0
    rss_mib: float = 0.0
    peak_mib: float = 0.0


def of(pid: int) -> Usage:
    """The usage of process ``pid``."""
    try:
        times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
        )
    except OSError:
        return Usage()
    sizes = [float(status[name].split()[0]) / _MIB if name in status else 0.0 for name in ("VmRSS", "VmHWM")]
    return Usage((int(times[11]) + int(times[12])) / _TICK, *sizes)


def machine_seconds() -> float:
    """CPU seconds that all processes together have used since boot."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / _TICK


class Meter:
    """Usage of named processes over a ``with`` block; read the attributes after it.

    ``cpu`` maps each name, and ``bench`` for this process, to CPU seconds used in the block. ``foreign_cores`` is what
    processes that are not named used, in cores.
    """

    def __init__(self, pids: Mapping[str, int]) -> None:
        self.pids = {**pids, "bench": os.getpid()}
        self.seconds = 0.0
        self.cpu: dict[str, float] = {}
        self.foreign_cores = 0.0

    def __enter__(self) -> Meter:
        self._start, self._machine, self._before = time.monotonic(), machine_seconds(), self._read()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.monotonic() - self._start
        self.cpu = {name: round(spent - self._before[name], 2) for name, spent in self._read().items()}
        foreign = machine_seconds() - self._machine - sum(self.cpu.values())
        self.foreign_cores = round(max(0.0, foreign / self.seconds), 2)

    def _read(self) -> dict[str, float]:
        return {name: of(pid).cpu_seconds for name, pid in self.pids.items()}
