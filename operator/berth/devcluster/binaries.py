"""The programs a control plane consists of: found where they are, else built once and kept.

The three of Kubernetes are taken from one place together, so that no scheduler meets an API server of another
version. etcd and kwok speak stable protocols and may come from anywhere.

As a command, ``python -m berth.devcluster.binaries`` makes sure of all programs and prints where they are, and
``… run helm lint chart`` runs one of them.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from berth.devcluster import build, gomodule, paths, tools
from berth.devcluster.components import API_SERVER, CONTROLLER_MANAGER, ETCD, KWOK, SCHEDULER, START_ORDER
from berth.devcluster.problems import DevClusterProblem
from berth.devcluster.process import Progress, quiet

_TRIO = (API_SERVER, SCHEDULER, CONTROLLER_MANAGER)
_MINIMUM = (1, 34)
_VERSION = re.compile(r"v(\d+)\.(\d+)\.\d+")


@dataclass(frozen=True, slots=True)
class Binaries:
    """Component name to program."""

    components: Mapping[str, Path]

    @classmethod
    def ensure(cls, progress: Progress = quiet, only: Collection[str] = START_ORDER) -> Binaries:
        """Those of ``only`` that are present, else built; says what it does by ``progress``.

        Raises:
            ToolMissing: they are not there and there is no Go to build them with.
            BuildFailed: the build failed.
        """
        missing = set(only) - find().keys()
        control_plane, kwok = cache_folders()
        if KWOK in missing:
            build.kwok(kwok, progress)
        if missing - {KWOK}:
            build.control_plane(control_plane, progress)
        return cls({name: program for name, program in find().items() if name in only})


def cache_folders() -> tuple[Path, Path]:
    """Where the control plane's programs and kwok, of these versions and for this machine, are kept."""
    control_plane, kwok = gomodule.cache_keys(platform.system(), platform.machine())
    return paths.cache_dir() / "bin" / control_plane, paths.cache_dir() / "bin" / kwok


def find(assets: str | None = None, path: str | None = None, caches: Sequence[Path] | None = None) -> dict[str, Path]:
    """The programs in the folder ``assets``, else on the search ``path``, else in ``caches``; those missing left out.

    By default that is ``KUBEBUILDER_ASSETS``, ``PATH`` and :func:`cache_folders`. The three of Kubernetes come from
    the first place that has them all in one version of at least 1.34.
    """
    assets = os.environ.get("KUBEBUILDER_ASSETS", "") if assets is None else assets
    path = os.environ.get("PATH", "") if path is None else path
    cache = os.pathsep.join(map(str, cache_folders() if caches is None else caches))
    places = [place for place in (assets, path, cache) if place]
    found: dict[str, Path] = {}
    for name in (ETCD, KWOK):
        hit = next(filter(None, (shutil.which(name, path=place) for place in places)), None)
        if hit:
            found[name] = Path(hit)
    for place in places:
        trio = {name: Path(hit) for name in _TRIO if (hit := shutil.which(name, path=place))}
        if len(trio) == len(_TRIO) and (place == cache or _one_version(trio)):
            return {**found, **trio}
    return found


def _one_version(trio: Mapping[str, Path]) -> bool:
    versions = {_version(program) for program in trio.values()}
    return len(versions) == 1 and versions.pop() >= _MINIMUM


def _version(program: Path) -> tuple[int, int]:
    try:
        result = subprocess.run(  # noqa: S603 - asked for its version only
            [program, "--version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return (0, 0)
    match = _VERSION.search(result.stdout)
    return (int(match.group(1)), int(match.group(2))) if match else (0, 0)


def main(arguments: Sequence[str]) -> int:
    """The command of this module; its exit code."""

    def progress(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    try:
        if arguments[:1] == ["run"] and arguments[1:2]:
            name, *rest = arguments[1:]
            finders = {"kubectl": tools.kubectl, "helm": tools.helm}
            program = finders[name](progress) if name in finders else find().get(name, Path(name))
            return subprocess.run([program, *rest], check=False).returncode  # noqa: S603 - what was asked for
        if arguments:
            print("usage: python -m berth.devcluster.binaries [run PROGRAM ARGUMENT…]", file=sys.stderr)
            return 2
        programs = {**Binaries.ensure(progress).components, "kubectl": tools.kubectl(progress)}
        programs["helm"] = tools.helm(progress)
    except DevClusterProblem as problem:
        print(problem, file=sys.stderr)
        return 1
    for name, program in programs.items():
        print(f"{name:24} {program}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
