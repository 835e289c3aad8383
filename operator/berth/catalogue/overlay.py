"""A user's additions to the catalogue, read again when they change.

Prices move and clusters differ, so the catalogue can be laid over by files in a directory, in a cluster a mounted
ConfigMap. A slip in one must not stop the operator: the last catalogue that loaded stays in force and the problem is
there to be reported.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Final

from berth.catalogue.load import load
from berth.catalogue.records import Catalogue
from berth.values import ConfigProblem

Texts = tuple[tuple[str, str], ...]
"""Pairs of source and text, in the order in which they are laid on."""
SUFFIXES: Final = (".yaml", ".yml")
MAX_BYTES: Final = 1 << 20


class OverlayFiles:
    """The YAML files of a directory, by name; names with a leading dot are not ours.

    A ConfigMap is mounted as links through ``..data``, which the kubelet swaps in one step; reading behind that link
    never mixes two versions.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._seen: str | None = None

    def read(self) -> Texts:
        """The texts there are now. Raises: ConfigProblem where a file cannot be read."""
        if not self._directory.is_dir():
            raise ConfigProblem("is not a directory", source=str(self._directory))
        link = self._directory / "..data"
        folder = link.resolve() if link.exists() else self._directory
        try:
            names = sorted(path.name for path in folder.iterdir() if path.suffix in SUFFIXES and path.name[0] != ".")
        except OSError as problem:
            raise ConfigProblem(f"cannot be read: {problem.strerror}", source=str(self._directory)) from problem
        return tuple((name, _text(folder / name, name)) for name in names)

    def changed(self) -> Texts | None:
        """The texts, when they differ from those that the last call saw or failed to see; else ``None``.

        Raises:
            ConfigProblem: as :meth:`read`, once for each change.
        """
        try:
            texts, problem = self.read(), None
        except ConfigProblem as found:
            texts, problem = (), found
        digest = sha256(repr((texts, str(problem))).encode()).hexdigest()
        if digest == self._seen:
            return None
        self._seen = digest
        if problem is not None:
            raise problem
        return texts


class LiveCatalogue:
    """The catalogue in force. ``problem`` says why the newest overlay is not, ``None`` when it is."""

    def __init__(self, directory: Path | None = None) -> None:
        self.catalogue: Catalogue = load()
        self.problem: ConfigProblem | None = None
        self._files = OverlayFiles(directory) if directory is not None else None
        self.refresh()

    def refresh(self) -> bool:
        """Look at the files again. True when another catalogue took effect."""
        if self._files is None:
            return False
        try:
            texts = self._files.changed()
            if texts is None:
                return False
            loaded = load(texts)
        except ConfigProblem as problem:
            self.problem = problem
            return False
        self.problem = None
        if loaded == self.catalogue:
            return False
        self.catalogue = loaded
        return True


def _text(path: Path, source: str) -> str:
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise ConfigProblem(f"cannot be read: {problem.strerror}", source=source) from problem
    if len(data) > MAX_BYTES:
        raise ConfigProblem(f"has {len(data)} bytes; at most {MAX_BYTES} are read", source=source)
    try:
        return data.decode()
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        raise ConfigProblem("is not UTF-8", source=source, line=line) from problem
