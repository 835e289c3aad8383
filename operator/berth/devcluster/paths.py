"""Where binaries and clusters live: outside any checkout, so that a fresh clone starts at once."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from berth.devcluster.problems import DevClusterProblem

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def cache_dir() -> Path:
    """``$XDG_CACHE_HOME/berth``, by default ``~/.cache/berth``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache") / "berth"


def clusters_dir() -> Path:
    """The folder that holds one folder per cluster."""
    return cache_dir() / "clusters"


def cluster_dir(name: str) -> Path:
    """The folder of cluster ``name``. Raises: DevClusterProblem when the name is no DNS label."""
    if _NAME.fullmatch(name) is None:
        raise DevClusterProblem(f"cluster name {name!r}: use lower-case letters, digits and '-', at most 63")
    return clusters_dir() / name


@contextmanager
def locked(path: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold an exclusive lock on ``path`` against other processes; the kernel drops it when the holder dies.

    ``on_wait`` is called once when somebody else has it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
