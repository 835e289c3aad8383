"""A YAML file that remembers its lines, so that every complaint about it can name one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from berth.values import ConfigProblem

Path = tuple[Any, ...]


class Document:
    """A parsed file; ``root`` is its top mapping. Raises ConfigProblem with source, line and field throughout."""

    def __init__(self, text: str, source: str) -> None:
        self.source = source
        self._lines: dict[Path, int] = {}
        try:
            tree = yaml.compose(text, Loader=yaml.SafeLoader)
            self.root: Mapping[str, Any] = yaml.safe_load(text) or {}
        except yaml.MarkedYAMLError as problem:
            line = problem.problem_mark.line + 1 if problem.problem_mark else 0
            raise ConfigProblem(problem.problem or "is not YAML", source=source, line=line) from problem
        if tree is not None:
            self._remember(tree, ())
        if not isinstance(self.root, Mapping):
            raise ConfigProblem("must be a mapping", source=source, line=1)

    def problem(self, path: Path, message: str) -> ConfigProblem:
        """The error ``message`` about the value at ``path``."""
        line = next((self._lines[path[:end]] for end in range(len(path), -1, -1) if path[:end] in self._lines), 0)
        return ConfigProblem(message, source=self.source, line=line, field=".".join(map(str, path)))

    def mapping(self, path: Path, allowed: frozenset[str]) -> Mapping[str, Any]:
        """The mapping at ``path``, whose keys must all be ``allowed``."""
        value: Any = self.root
        for step in path:
            value = value[step]
        if not isinstance(value, Mapping):
            raise self.problem(path, "must be a mapping")
        for key in value:
            if key not in allowed:
                raise self.problem((*path, key), f"is unknown; allowed are {', '.join(sorted(allowed))}")
        return value

    def section(self, name: str) -> Mapping[str, Any]:
        """The top-level mapping called so, empty when there is none."""
        value = self.root.get(name) or {}
        if not isinstance(value, Mapping):
            raise self.problem((name,), "must be a mapping")
        return value

    def integer(self, path: Path) -> int:
        """The integer at ``path``."""
        value: Any = self.root
        for step in path:
            value = value[step]
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.problem(path, "must be an integer")
        return value

    def _remember(self, tree: yaml.Node, path: Path) -> None:
        self._lines.setdefault(path, tree.start_mark.line + 1)
        if isinstance(tree, yaml.MappingNode):
            for key, value in tree.value:
                self._lines[(*path, key.value)] = key.start_mark.line + 1
                self._remember(value, (*path, key.value))
        elif isinstance(tree, yaml.SequenceNode):
            for index, value in enumerate(tree.value):
                self._remember(value, (*path, index))
