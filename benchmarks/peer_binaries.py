"""The peer's program and module source: found, else built once from the Go module proxy and kept.

Its own go.mod must hold, replacements and all, so it is built inside a copy of its module.
"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks import peer
from berth.devcluster import paths
from berth.devcluster.binaries import Binaries
from berth.devcluster.build import Go, find_go
from berth.devcluster.components import ETCD
from berth.devcluster.tools import kubectl

Progress = Callable[[str], None]

_PROGRAM = "kueue"


def ensure(progress: Progress) -> tuple[dict[str, Path], Path]:
    """Programs by the names the harness wants, and the folder of the peer's module.

    Raises: ToolMissing or BuildFailed.
    """
    components = dict(Binaries.ensure(progress).components)
    programs = {**components, "server": components[ETCD], "kubectl": kubectl(progress)}
    go = Go(find_go(progress), progress)
    paths.cache_dir().mkdir(parents=True, exist_ok=True)
    source = Path(go.download(peer.MODULE, peer.VERSION.removeprefix("v"))["Dir"])
    search = os.pathsep.join((os.environ.get("KUBEBUILDER_ASSETS", ""), os.environ.get("PATH", "")))
    present = shutil.which(_PROGRAM, path=search)
    programs[_PROGRAM] = Path(present) if present else _built(go, source, progress)
    return programs, source


def _built(go: Go, source: Path, progress: Progress) -> Path:
    kept = paths.cache_dir() / "peer" / f"{_PROGRAM}-{peer.VERSION}_{platform.system()}-{platform.machine()}".lower()
    with paths.locked(kept.with_suffix(".lock")):
        if not kept.exists():
            with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
                folder = Path(scratch) / "module"
                shutil.copytree(source, folder, copy_function=shutil.copyfile)
                for path in [folder, *folder.rglob("*")]:
                    path.chmod(0o755 if path.is_dir() else 0o644)
                go.build(folder, _PROGRAM, peer.COMMAND, str(Path(scratch) / _PROGRAM), "-s -w")
                (Path(scratch) / _PROGRAM).rename(kept)
    return kept
