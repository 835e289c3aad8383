"""Time, injected: everything in the shell that waits or measures takes a :class:`Clock`.

Tests drive a fake one by hand, so that a sixteen-minute back-off or a lost lease is tested in microseconds and
never by sleeping. The real one counts time during which the machine was suspended, because a lease runs out
while its holder sleeps.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, Protocol

_SOURCE: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Timer(Protocol):
    """A call that is still to come."""

    def cancel(self) -> None:
        """Forget the call; harmless once it was made."""


class Clock(Protocol):
    """What the shell knows about time."""

    def now(self) -> float:
        """Seconds on a clock that never jumps; only differences mean anything."""

    def wall(self) -> datetime:
        """The date and time in UTC, for stamps that people read; never for decisions."""

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds``; at once, but after other tasks had their turn, when not positive."""

    def call_later(self, seconds: float, call: Callable[[], object]) -> Timer:
        """Have ``call`` made from the event loop in ``seconds``."""


class SystemClock:
    """The clock of the machine; ``sleep`` and ``call_later`` need a running event loop."""

    def now(self) -> float:
        """Seconds since boot, time in suspension included."""
        return time.clock_gettime(_SOURCE)

    def wall(self) -> datetime:
        """The date and time in UTC."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``."""
        await asyncio.sleep(max(seconds, 0.0))

    def call_later(self, seconds: float, call: Callable[[], object]) -> Timer:
        """Make ``call`` in ``seconds``."""
        return asyncio.get_running_loop().call_later(max(seconds, 0.0), call)


SYSTEM_CLOCK: Final[Clock] = SystemClock()


def micro_time(moment: datetime) -> str:
    """A Kubernetes MicroTime, whose parser insists on six digits of a second: ``2026-12-01T10:00:00.000000Z``."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
