"""The programs a control plane consists of: found where they are, else built once and kept."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from berth.devcluster import paths
from berth.devcluster.components import START_ORDER
from berth.devcluster.problems import ToolMissing


@dataclass(frozen=True, slots=True)
class Binaries:
    """Component name to program."""

    components: Mapping[str, Path]

    @classmethod
    def find(cls) -> Binaries | None:
        """Those in ``KUBEBUILDER_ASSETS``, on PATH or in the cache; None when one is in none of them."""
        assets = os.environ.get("KUBEBUILDER_ASSETS", "")
        folders = [Path(assets)] if assets else []
        search = os.pathsep.join([*map(str, folders), os.environ.get("PATH", ""), str(paths.cache_dir() / "bin")])
        found = {name: shutil.which(name, path=search) for name in START_ORDER}
        if not all(found.values()):
            return None
        return cls({name: Path(path) for name, path in found.items() if path})

    @classmethod
    def ensure(cls, progress: Callable[[str], None]) -> Binaries:
        """Those that can be found. Raises: ToolMissing."""
        found = cls.find()
        if found is None:
            raise ToolMissing("control plane binaries: set KUBEBUILDER_ASSETS")
        return found
