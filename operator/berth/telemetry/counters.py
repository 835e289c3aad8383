"""Rates of counters that are read directly, where no server keeps what they were before."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Counter:
    """A reading of a counter that only grows, but for restarts of what counts."""

    total: float
    at: float

    def rate(self, total: float, at: float) -> float | None:
        """Per second since this reading; after a reset what has been counted since; None if no time has passed."""
        if at <= self.at:
            return None
        return (total - self.total if total >= self.total else total) / (at - self.at)
