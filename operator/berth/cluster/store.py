"""What a cache knows: objects by name, each the newest seen, whichever way it came.

Objects arrive on three ways that overtake each other: list pages, watch events, and the answers to our own writes.
One rule orders them: resourceVersions of a resource are integers that only grow, so the larger one is newer. And one
rule decides about an object that is absent: when the watch is already past the version of an answer, the object was
deleted since, and must not be put back. Identity is the uid: another object under the same name is a removal and an
addition, never a change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from berth.cluster import wire

T = TypeVar("T", bound=wire.Object)
Key = tuple[str, str]
"""(namespace, name); the namespace is empty for cluster-scoped objects."""

Subscriber = Callable[[T | None, T | None], object]
"""Called with (old, new): (None, new) added, (old, new) changed, (old, None) gone."""

_LOG: Final = logging.getLogger(__name__)
_NONE: Final[Mapping[Key, Any]] = MappingProxyType({})


class Index(Generic[T]):
    """Objects by a key computed from each; kept current by the store before subscribers hear of a change."""

    def __init__(self, key_of: Callable[[T], Hashable | None]) -> None:
        self._key_of = key_of
        self._groups: dict[Hashable, dict[Key, T]] = {}

    def get(self, key: Hashable) -> Mapping[Key, T]:
        """The objects under ``key``: a live view, empty when there are none; copy it before awaiting anything."""
        return self._groups.get(key, _NONE)

    def keys(self) -> Iterator[Hashable]:
        """The keys that have objects."""
        return iter(self._groups)

    def _replace(self, old: T | None, new: T | None) -> None:
        before = None if old is None else self._key_of(old)
        after = None if new is None else self._key_of(new)
        if old is not None and before is not None and (new is None or before != after):
            group = self._groups[before]
            del group[old.metadata.key]
            if not group:
                del self._groups[before]
        if new is not None and after is not None:
            self._groups.setdefault(after, {})[new.metadata.key] = new


class Store(Generic[T]):
    """The objects of one kind. Not thread-safe; every method returns before anybody else can see a half change."""

    def __init__(self) -> None:
        self._objects: dict[Key, T] = {}
        self._subscribers: tuple[Subscriber[T], ...] = ()
        self._indexes: list[Index[T]] = []
        self.version = 0  # every change up to this resourceVersion is in the store

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        return iter(self._objects.values())

    def get(self, name: str, namespace: str = "") -> T | None:
        """The object of that name."""
        return self._objects.get((namespace, name))

    def objects(self) -> Mapping[Key, T]:
        """All objects by (namespace, name): a live view; copy it before awaiting anything."""
        return MappingProxyType(self._objects)

    def subscribe(self, subscriber: Subscriber[T]) -> Callable[[], None]:
        """Tell ``subscriber`` of every change from now on, in order; returns what ends that.

        It runs inside the change, so it must be quick and not await. Its exceptions are logged and stop nobody.
        """
        self._subscribers += (subscriber,)
        return lambda: self._unsubscribe(subscriber)

    def index(self, key_of: Callable[[T], Hashable | None]) -> Index[T]:
        """A new index over everything that is and will be here; objects whose key is None are left out."""
        index = Index(key_of)
        for known in self._objects.values():
            index._replace(None, known)
        self._indexes.append(index)
        return index

    def put(self, new: T) -> bool:
        """Take in ``new`` if it is news; whether it was.

        Older than what is known, or absent although the watch is past its version: not news.
        """
        meta = new.metadata
        if meta.key not in self._objects and self.version >= meta.version > 0:
            return False
        return self.observe(new)

    def observe(self, new: T) -> bool:
        """Take in an object that a list or a watch shows: as :meth:`put`, but absence proves nothing."""
        old = self._objects.get(new.metadata.key)
        if old is not None and old.metadata.version >= new.metadata.version > 0:
            return False
        if old is not None and old.metadata.uid != new.metadata.uid:
            self._change(old, None)
            old = None
        self._change(old, new)
        return True

    def remove(self, gone: T) -> bool:
        """Take out the object with the uid of ``gone``; whether it was here. Another one of its name stays."""
        old = self._objects.get(gone.metadata.key)
        if old is None or old.metadata.uid != gone.metadata.uid:
            return False
        self._change(old, None)
        return True

    def retain(self, seen: set[str], version: int) -> int:
        """After a complete list at ``version`` with the uids ``seen``: take out what is not on it; how many.

        What is newer than the list (the answer to a write of ours) stays; the watch that follows decides about it.
        """
        gone = [
            known
            for known in self._objects.values()
            if known.metadata.uid not in seen and known.metadata.version <= version
        ]
        for known in gone:
            self._change(known, None)
        self.version = version
        return len(gone)

    def _unsubscribe(self, subscriber: Subscriber[T]) -> None:
        self._subscribers = tuple(other for other in self._subscribers if other is not subscriber)

    def _change(self, old: T | None, new: T | None) -> None:
        if new is not None:
            self._objects[new.metadata.key] = new
        elif old is not None:
            del self._objects[old.metadata.key]
        for index in self._indexes:
            index._replace(old, new)
        for subscriber in self._subscribers:
            try:
                subscriber(old, new)
            except Exception:
                key = (new or old).metadata.key  # type: ignore[union-attr]
                _LOG.exception("a subscriber failed on %s/%s", *key)
