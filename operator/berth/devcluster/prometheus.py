"""A real Prometheus on loopback: what demand is asked of must be the thing itself, not what we believe of it.

The program is taken from PATH, else out of Debian's package, which is only unpacked, else built from its Go module.
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from berth.devcluster import build, gomodule, paths, ports
from berth.devcluster.problems import ComponentDied, ToolMissing
from berth.devcluster.process import Process, Progress, quiet, wait_until

PROGRAM: Final = "prometheus"
_READY_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 10.0


def program(progress: Progress = quiet) -> Path:
    """A Prometheus, obtained once and kept outside any checkout.

    Raises:
        ToolMissing: it is not on PATH, apt has no such package, and there is no Go to build it with.
        BuildFailed: the build failed.
    """
    present = shutil.which(PROGRAM)
    if present:
        return Path(present)
    packaged, built = _folders()
    for folder in (packaged, built):
        if (folder / PROGRAM).exists():
            return folder / PROGRAM
    problem = _unpack(packaged, progress)
    if not problem:
        return packaged / PROGRAM
    progress(f"no Prometheus on PATH and none by apt ({problem}): building it")
    try:
        build.prometheus(built, progress)
    except ToolMissing as missing:
        raise ToolMissing(f"Prometheus: not on PATH; apt: {problem}; {missing}") from missing
    return built / PROGRAM


def _folders() -> tuple[Path, Path]:
    """Where the one of Debian's package and the one that was built are kept."""
    system = f"{platform.system()}-{platform.machine()}".lower()
    base = paths.cache_dir() / "bin"
    return base / f"{PROGRAM}-debian_{system}", base / f"{PROGRAM}-{gomodule.PROMETHEUS}_{system}"


def _unpack(folder: Path, progress: Progress) -> str:
    """Unpack Debian's package into ``folder`` without installing it; why not, or nothing."""
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        return "this is no Debian"
    with paths.locked(folder.parent / f"{folder.name}.lock"):
        if (folder / PROGRAM).exists():
            return ""
        progress("downloading Debian's package of Prometheus; it is unpacked, not installed")
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            for command in (["apt-get", "download", "--quiet", PROGRAM], ["dpkg-deb", "-x", "{deb}", "root"]):
                found = next(Path(scratch).glob("*.deb"), None)
                filled = [str(found) if part == "{deb}" else part for part in command]
                result = subprocess.run(  # noqa: S603 - our own command line
                    filled, cwd=scratch, capture_output=True, text=True, check=False
                )
                if result.returncode:
                    return (result.stderr.strip() or "no such package").splitlines()[-1][:200]
            binary = Path(scratch) / "root" / "usr" / "bin" / PROGRAM
            if not binary.exists():
                return "the package does not hold the program where it should"
            ready = Path(scratch) / folder.name
            ready.mkdir(mode=0o755)
            binary.rename(ready / PROGRAM)
            ready.rename(folder)
    return ""


@dataclass
class PrometheusServer:
    """One server on a free port of loopback. It keeps its port and its data over :meth:`stop` and :meth:`start`.

    ``targets`` are ``host:port``; labels that a target states itself win (honor_labels), so that one exporter can speak
    for many pods. ``jobs`` are its scrape jobs, each of which finds all of them.
    """

    folder: Path
    targets: Sequence[str]
    scrape_seconds: float = 1.0
    port: int = 0
    jobs: Sequence[str] = ("engines",)
    _process: Process | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def process(self) -> Process:
        """The running process. Raises: ComponentDied while it is stopped."""
        if self._process is None:
            raise ComponentDied("Prometheus is not running")
        return self._process

    @property
    def stopped(self) -> bool:
        """Whether it does not run."""
        return self._process is None or not self._process.alive()

    def start(self, progress: Progress = quiet) -> PrometheusServer:
        """Start it and return when it answers queries.

        Raises: ToolMissing and BuildFailed as :func:`program`, ComponentDied with its last log lines.
        """
        binary = program(progress)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = self.port or ports.pick(1)[0]
        config = self.folder / "prometheus.yml"
        config.write_text(yaml.safe_dump(self._config(), sort_keys=False))
        command = [
            str(binary), f"--config.file={config}", f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=warn",
        ]  # fmt: skip
        process = self._process = Process.spawn(PROGRAM, command, self.folder / "prometheus.log")

        def ready() -> bool:
            process.expect_alive()
            return self._answers()

        if not wait_until(ready, _READY_SECONDS):
            self.stop()
            raise ComponentDied(f"Prometheus was not ready in {_READY_SECONDS:.0f} s:\n{process.tail()}")
        return self

    def stop(self) -> None:
        """End it; a no-op when it is not running."""
        if self._process is not None:
            self._process.stop(_STOP_SECONDS)
            self._process = None

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The result of an instant query, for waits and checks."""
        form = urllib.parse.urlencode({"query": expression}).encode()
        with urllib.request.urlopen(f"{self.url}/api/v1/query", form, timeout=10) as answer:  # noqa: S310 - our own URL
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
            return found

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=2) as answer:  # noqa: S310 - our own URL
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _config(self) -> dict[str, Any]:
        every = f"{round(self.scrape_seconds * 1000)}ms"
        return {
            "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
            "scrape_configs": [
                {"job_name": job, "honor_labels": True, "static_configs": [{"targets": list(self.targets)}]}
                for job in self.jobs
            ],
        }
