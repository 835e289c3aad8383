"""One object for what repeats over thousands of pods and nodes, so that a pod costs 2 KB instead of 3.

Texts are interned by the interpreter, which forgets them with their last user. Maps of amounts, tolerations and
times are kept in one bounded pool; when it is full it starts over, which only ends the sharing of old with new.
"""

from __future__ import annotations

from sys import intern
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import force_setattr

_POOL: Final[dict[Any, Any]] = {}
_POOL_LIMIT: Final = 8192


def share_texts(struct: Struct, *names: str) -> None:
    """Intern the text fields ``names`` of a struct that was just decoded."""
    for name in names:
        text = getattr(struct, name)
        if text:
            force_setattr(struct, name, intern(text))


def interned(texts: dict[str, str]) -> dict[str, str]:
    """The same map with shared texts; for maps that are unlikely to repeat as a whole."""
    return {intern(key): intern(text) for key, text in texts.items()}


def shared(key: Any, value: Any) -> Any:
    """The first of the values that came with an equal ``key``; they must never be changed."""
    known = _POOL.get(key)
    if known is not None:
        return known
    if len(_POOL) >= _POOL_LIMIT:
        _POOL.clear()
    _POOL[key] = value
    return value


def shared_texts(texts: dict[str, str]) -> dict[str, str]:
    """The first map equal to this one, order included; it must never be changed."""
    key = tuple(texts.items())
    known: dict[str, str] | None = _POOL.get(key)
    if known is None:
        known = shared(key, interned(texts))
    return known
