"""Mappings that share what thousands of nodes have in common.

A GPU node carries 50 to 100 labels, and nodes of one kind carry the same keys and mostly the same values. As plain
dictionaries the labels of 10,000 nodes take some 60 MB; with the keys kept once per kind and equal values kept once,
they take a tenth. The price is one more look-up for each read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Generic, TypeVar, overload

V = TypeVar("V", bound=str | int)
D = TypeVar("D")

_KEEP: Final = 100_000
"""Values remembered for sharing; past it the memory starts anew, so that nodes that come and go leave nothing."""


class Compact(Mapping[str, V], Generic[V]):
    """A read-only mapping of shared keys to a tuple of values."""

    __slots__ = ("_places", "_values")

    def __init__(self, places: Mapping[str, int], values: tuple[V, ...]) -> None:
        self._places, self._values = places, values

    def __getitem__(self, key: str) -> V:
        return self._values[self._places[key]]

    @overload
    def get(self, key: str, /) -> V | None: ...
    @overload
    def get(self, key: str, /, default: V | D) -> V | D: ...
    def get(self, key: str, /, default: Any = None) -> Any:
        """The value of ``key`` or ``default``."""
        place = self._places.get(key)
        return default if place is None else self._values[place]

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Compact) and other._places is self._places:
            return self._values == other._values
        if not isinstance(other, Mapping) or len(other) != len(self._values):
            return False
        return self.plain() == (other.plain() if isinstance(other, Compact) else other)

    __hash__ = None  # type: ignore[assignment]

    def plain(self) -> dict[str, V]:
        """The same as a dictionary."""
        return dict(zip(self._places, self._values, strict=True))

    def __repr__(self) -> str:
        return repr(dict(self))


class Packer(Generic[V]):
    """Makes compact mappings that share keys and values with those it made before."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, ...], dict[str, int]] = {}
        self._values: dict[V, V] = {}

    def pack(self, mapping: Mapping[str, V]) -> Compact[V]:
        """``mapping`` as a compact one; one that is compact already is returned as it is."""
        if isinstance(mapping, Compact):
            return mapping
        if len(self._values) + len(self._places) > _KEEP:
            self._values.clear()
            self._places.clear()
        keys = tuple(mapping)
        places = self._places.get(keys)
        if places is None:
            places = self._places[keys] = {key: place for place, key in enumerate(keys)}
        share = self._values.setdefault
        return Compact(places, tuple([share(value, value) for value in mapping.values()]))
