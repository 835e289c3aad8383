"""Whether a child still is what was applied, though its labels say so.

The API server keeps for every field who set it last. A field of ours that somebody else has changed or taken out is no
longer ours, while what the server or a webhook has filled in never was: so nothing of the object itself has to be
compared, and no default is ever taken for a change.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from berth.cluster import wire

MENDS: Final = 3
"""So often an hour a child is put right at once: people do such things by hand."""
WINDOW_SECONDS: Final = 3600.0
AGAIN_SECONDS: Final = 600.0
"""After that another program changes it as often as we do; it is put right no more often than this, and half as often
each time that it does not last."""
REPLICAS: Final = ("f:spec", "f:replicas")
"""Where the API server keeps who has set a Deployment's count."""


class Lost(NamedTuple):
    """A field that is held no more: ``field`` for people, ``path`` in trees of fields as far as we know it there."""

    field: str
    path: tuple[str, ...]


def lost(body: Mapping[str, Any], fields: Iterable[wire.ManagedFields], manager: str) -> Lost | None:
    """The first field in the ``spec`` of the applied ``body`` that ``manager`` holds no more; None: it holds all."""
    held = next((entry for entry in fields if entry.manager == manager and entry.operation == "Apply"), None)
    tree = held.fields_v1 if held is not None and not held.subresource else {}
    return _lost(body["spec"], tree.get("f:spec"), Lost("spec", ("f:spec",)))


def _lost(stated: Any, tree: Mapping[str, Any] | None, at: Lost) -> Lost | None:
    """``tree`` None: the field is not held; without branches it is held as a whole, as lists without keys are.

    A zero or nothing is left out where an object is stored, and then held by nobody.
    """
    if tree is None:
        return at if stated else None
    branches = {key: branch for key, branch in tree.items() if key != "."}
    if not branches or not isinstance(stated, dict | list):
        return None
    if isinstance(stated, dict):
        found = (
            _lost(value, branches.get(step := f"f:{key}"), Lost(f"{at.field}.{key}", (*at.path, step)))
            for key, value in stated.items()
        )
        return next((entry for entry in found if entry is not None), None)
    for number, value in enumerate(stated):
        step = next((key for key in branches if _is_item(value, key)), "")
        path = (*at.path, step) if step else at.path
        if entry := _lost(value, branches.get(step), Lost(f"{at.field}[{number}]", path)):
            return entry
    return None


def _is_item(value: Any, key: str) -> bool:
    """Whether ``value`` is the item of a list that ``key`` stands for; what it leaves out of the key is a default."""
    if not key.startswith("k:"):
        return key == f"v:{json.dumps(value)}"
    named: dict[str, Any] = json.loads(key[2:])
    return isinstance(value, dict) and all(value.get(name, own) == own for name, own in named.items())


def writers(fields: Iterable[wire.ManagedFields], ours: tuple[str, ...], path: tuple[str, ...]) -> tuple[str, ...]:
    """Who holds the field at ``path`` beside the managers in ``ours``, for people."""

    def holds(tree: Mapping[str, Any]) -> bool:
        for step in path:
            if step not in tree:
                return False
            tree = tree[step] or {}
        return True

    found = {
        f"{entry.manager} (through {entry.subresource})" if entry.subresource else entry.manager
        for entry in fields
        if entry.manager not in ours and holds(entry.fields_v1)
    }
    return tuple(sorted(found))


def changed(kind: str, meta: wire.WrittenMeta, gone: Lost, ours: tuple[str, ...]) -> str:
    """What is told of a field that others have changed. The server keeps no record of who has taken one out."""
    who = " and ".join(writers(meta.managed_fields, ours, gone.path))
    done = f"changed by {who}" if who else "taken out"
    return f"{gone.field} of {kind} {meta.name} was {done} and is put right; change the InferenceService instead"


@dataclass(frozen=True, slots=True)
class _Mended:
    """``at``: when, lately. ``gap``: seconds until it may be done again. ``words``: what it was about."""

    at: tuple[float, ...] = ()
    gap: float = 0.0
    words: str = ""


class Mends:
    """When children were put right, by a key of the caller's: its service, and which child. Seconds of one clock."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], _Mended] = {}

    def waits(self, key: tuple[str, str], now: float) -> bool:
        """Whether it is not to be done yet, because it has not lasted."""
        known = self._known.get(key)
        return known is not None and now - known.at[-1] < known.gap

    def done(self, key: tuple[str, str], now: float, words: str = "") -> None:
        """It was; ``words``: what was changed, and by whom."""
        known = self._known.get(key, _Mended())
        late = (*(at for at in known.at if now - at < WINDOW_SECONDS), now)[-MENDS:]
        gap = AGAIN_SECONDS if len(late) == MENDS else 0.0
        if known.gap and now - known.at[-1] < 2 * known.gap:
            gap = min(2 * known.gap, WINDOW_SECONDS)
        self._known[key] = _Mended(late, gap, words)

    def told(self, uid: str, now: float) -> str:
        """What was put right of the service's children lately, in sentences; empty where nothing was."""
        lately = [
            known.words
            for (owner, _), known in sorted(self._known.items())
            if owner == uid and now - known.at[-1] < WINDOW_SECONDS + known.gap
        ]
        return "; ".join(words for words in lately if words)

    def forget(self, uid: str) -> None:
        """The service, the first part of the keys, is gone."""
        self._known = {key: known for key, known in self._known.items() if key[0] != uid}
