"""Watch streams: lines of any length out of chunks of any size, and events out of lines.

Stream readers limit a line to 64 or 128 KiB, but one object may have 1.5 MB. Chunks are therefore collected and
joined once per line end, so that a long line costs no more than its bytes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Protocol, TypeVar

import msgspec

from berth.cluster import wire
from berth.cluster.errors import ApiError, Status, Unreadable, status_error
from berth.cluster.kinds import Kind, WatchEvent

T = TypeVar("T", bound=wire.Object)


class Source(Protocol):
    """Where chunks come from; ``readany`` returns no bytes at the end, as aiohttp's StreamReader does."""

    async def readany(self) -> bytes:
        """The next chunk of whatever size is there."""


class LineSplitter:
    """Cuts chunks into lines; keeps what has no end yet."""

    def __init__(self) -> None:
        self._pending: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The lines that ``chunk`` completes, without their ends; empty lines are left out."""
        if b"\n" not in chunk:
            self._pending.append(chunk)
            return
        self._pending.append(chunk)
        *lines, rest = b"".join(self._pending).split(b"\n")
        self._pending = [rest] if rest else []
        yield from filter(None, lines)


class _Type(msgspec.Struct):
    type: str


class _Stated(msgspec.Struct):
    object: Status


_TYPE = msgspec.json.Decoder(_Type)
_STATED = msgspec.json.Decoder(_Stated)


def read_event(kind: Kind[T], line: bytes) -> WatchEvent[T]:
    """One event.

    Raises:
        ApiError: the line is an ERROR event; Expired when the watch must start again from a list.
        Unreadable: the line is neither an event of this kind nor a failure.
    """
    try:
        event = kind.decode_event(line)
        if event.type != "ERROR":
            return event
    except msgspec.MsgspecError as problem:
        failure: ApiError | None = _failure(line)
        if failure is None:
            raise Unreadable(f"a watch event of {kind.plural} cannot be read: {problem}") from problem
        raise failure from None
    failure = _failure(line)
    raise failure or Unreadable(f"an error event of {kind.plural} cannot be read")


def _failure(line: bytes) -> ApiError | None:
    """The failure that an ERROR event states; None when the line is no such event."""
    try:
        if _TYPE.decode(line).type != "ERROR":
            return None
        return status_error(_STATED.decode(line).object)
    except msgspec.MsgspecError:
        return None


async def read_events(
    kind: Kind[T], source: Source, on_bytes: Callable[[], object] | None = None
) -> AsyncGenerator[WatchEvent[T], None]:
    """The events of a stream until it ends. ``on_bytes`` is called at every sign of life."""
    splitter = LineSplitter()
    while chunk := await source.readany():
        if on_bytes is not None:
            on_bytes()
        for line in splitter.feed(chunk):
            yield read_event(kind, line)
