"""Whether a child still is what was applied, though its labels say so.

The API server keeps for every field who set it last. A field of ours that somebody else has changed or taken out is no
longer ours, while what the server or a webhook has filled in never was: so nothing of the object itself has to be
compared, and no default is ever taken for a change.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from berth.cluster import wire

MENDS: Final = 3
"""So often an hour a child is put right at once: people do such things by hand."""
WINDOW_SECONDS: Final = 3600.0
AGAIN_SECONDS: Final = 600.0
"""After that another program changes it as often as we do; it is put right no more often than this."""


def lost(body: Mapping[str, Any], fields: Iterable[wire.ManagedFields], manager: str) -> str:
    """The first field in the ``spec`` of the applied ``body`` that ``manager`` holds no more; empty: it holds all."""
    held = next((entry for entry in fields if entry.manager == manager and entry.operation == "Apply"), None)
    tree = held.fields_v1 if held is not None and not held.subresource else {}
    return _lost(body["spec"], tree.get("f:spec"), "spec")


def _lost(stated: Any, tree: Mapping[str, Any] | None, path: str) -> str:
    """``tree`` None: the field is not held; without branches it is held as a whole, as lists without keys are."""
    if tree is None:
        return path
    branches = {key: branch for key, branch in tree.items() if key != "."}
    if not branches or not isinstance(stated, dict | list):
        return ""
    if isinstance(stated, dict):
        found = (_lost(value, branches.get(f"f:{key}"), f"{path}.{key}") for key, value in stated.items())
        return next((entry for entry in found if entry), "")
    items = [(json.loads(key[2:]), branch) for key, branch in branches.items() if key.startswith("k:")]
    for number, value in enumerate(stated):
        own = next((branch for keys, branch in items if keys.items() <= value.items()), None)
        if entry := _lost(value, own, f"{path}[{number}]"):
            return entry
    return ""


def others(fields: Iterable[wire.ManagedFields], manager: str) -> str:
    """Who else has set fields of the spec, for people."""
    found = {entry.manager for entry in fields if entry.manager != manager and "f:spec" in entry.fields_v1}
    return " and ".join(sorted(found)) or "somebody"


class Mends:
    """When children were put right, by a key of the caller's. Seconds of one clock."""

    def __init__(self) -> None:
        self._at: dict[tuple[str, str], tuple[float, ...]] = {}

    def waits(self, key: tuple[str, str], now: float) -> bool:
        """Whether it is not to be done yet, because it has not lasted."""
        late = [at for at in self._at.get(key, ()) if now - at < WINDOW_SECONDS]
        return len(late) >= MENDS and now - late[-1] < AGAIN_SECONDS

    def done(self, key: tuple[str, str], now: float) -> None:
        """It was."""
        self._at[key] = (*self._at.get(key, ()), now)[-MENDS:]

    def forget(self, uid: str) -> None:
        """The service, the first part of the keys, is gone."""
        self._at = {key: at for key, at in self._at.items() if key[0] != uid}
