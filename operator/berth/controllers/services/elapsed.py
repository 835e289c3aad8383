"""Time that passes, from a clock that may be set: it goes on when that is set back, and never falls."""

from __future__ import annotations


class Elapsed:
    """Adds up what passes from one reading of a clock to the next; seconds."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._at = 0.0

    def at(self, now: float) -> float:
        """The time that belongs to the clock's ``now``: that, for as long as the clock is not set back."""
        self._at = now if self._last is None else self._at + max(0.0, now - self._last)
        self._last = now
        return self._at
