"""Defects of ours that come back each round are logged once, so that the log shows the next one too."""

from __future__ import annotations

import logging
from collections.abc import Container


class Defects:
    """What failed last, by key: a service's uid, a source's name."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._last: dict[str, str] = {}

    def note(self, key: str, text: str, problem: Exception) -> bool:
        """Log ``text`` and ``problem`` unless they came last for ``key`` too; whether they are new."""
        if self._last.get(key) == repr(problem):
            return False
        self._last[key] = repr(problem)
        self._logger.error(text, exc_info=problem)
        return True

    def over(self, key: str) -> None:
        """All is well with ``key``, or it is gone: what fails next is new."""
        self._last.pop(key, None)

    def forget_all_but(self, keys: Container[str]) -> None:
        """The others are gone."""
        self._last = {key: last for key, last in self._last.items() if key in keys}
