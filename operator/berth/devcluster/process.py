"""Child processes that outlive the command that started them.

`berth dev up` ends while its cluster goes on, so a process is known by its id **and** its start time: an id alone
may belong to a stranger by the time somebody wants to stop it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from berth.devcluster.problems import ComponentDied

Progress = Callable[[str], None]
"""Told one line at a time what a slow step is doing."""

_POLL_SECONDS = 0.02
_TAIL_LINES = 25


def quiet(_: str) -> None:
    """A :data:`Progress` that tells nobody."""


def _start_time(pid: int) -> int:
    """Clock ticks after boot at which ``pid`` started; 0 when there is no such live process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


def pid_alive(pid: int, started: int) -> bool:
    """Whether the process that had ``pid`` and began at ``started`` still runs."""
    return started != 0 and _start_time(pid) == started


@dataclass(frozen=True, slots=True)
class Process:
    """A started program. ``started`` is in clock ticks after boot; ``log`` takes both of its output streams."""

    name: str
    pid: int
    started: int
    log: Path

    @classmethod
    def spawn(cls, name: str, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> Process:
        """Start ``command`` in a session of its own with output appended to ``log``."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            child = subprocess.Popen(  # noqa: S603 - our own command line
                list(command), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True, env=None if env is None else dict(env),
            )  # fmt: skip
        started = _start_time(child.pid)
        child.returncode = 0  # `stop` reaps by id; keeps Popen from warning about a child that is meant to live on
        return cls(name, child.pid, started, log)

    @staticmethod
    def this() -> tuple[int, int]:
        """Id and start time of the running program."""
        return os.getpid(), _start_time(os.getpid())

    def alive(self) -> bool:
        """Whether it still runs; reaps it when it was a child of this process."""
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)
        return pid_alive(self.pid, self.started)

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless the process is gone."""
        if self.alive():
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return

    def cpu_seconds(self) -> float:
        """User and system time it has used; 0 when it is gone."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mib(self) -> tuple[float, float]:
        """Resident memory now and at its peak, in MiB; zeros when it is gone."""
        try:
            lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        except OSError:
            return (0.0, 0.0)
        kib = {key: int(rest.split()[0]) for key, _, rest in (line.partition(":") for line in lines) if key[:2] == "Vm"}
        return (kib.get("VmRSS", 0) / 1024, kib.get("VmHWM", 0) / 1024)

    def stop(self, grace_seconds: float = 5.0) -> None:
        """SIGTERM, then SIGKILL after ``grace_seconds``; returns when it is gone. A no-op when it already is."""
        self.send(signal.SIGTERM)
        if not wait_until(lambda: not self.alive(), grace_seconds):
            self.send(signal.SIGKILL)
            wait_until(lambda: not self.alive(), grace_seconds)

    def tail(self, lines: int = _TAIL_LINES) -> str:
        """The last lines of its log."""
        return tail(self.log, lines)

    def expect_alive(self) -> None:
        """Raises: ComponentDied with the last log lines when it has ended."""
        if not self.alive():
            raise ComponentDied(f"{self.name} (pid {self.pid}) ended; the last lines of {self.log}:\n{self.tail()}")


def tail(path: Path, lines: int = _TAIL_LINES) -> str:
    """The last ``lines`` lines of a log file, indented; a remark when there are none."""
    try:
        with path.open("rb") as handle:
            handle.seek(0, os.SEEK_END)
            handle.seek(max(0, handle.tell() - 64 * 1024))
            text = handle.read().decode(errors="replace")
    except OSError:
        text = ""
    found = text.splitlines()[-lines:]
    return "\n".join(f"  | {line}" for line in found) if found else "  | (it wrote nothing)"


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Poll ``condition`` until it holds; False after ``seconds``. A costly condition is asked less often."""
    deadline = time.monotonic() + seconds
    while True:
        asked = time.monotonic()
        if condition():
            return True
        answered = time.monotonic()
        if answered > deadline:
            return False
        time.sleep(max(_POLL_SECONDS, 2 * (answered - asked)))
