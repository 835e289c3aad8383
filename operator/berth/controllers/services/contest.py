"""Whether somebody else keeps setting the counts that Berth sets.

A HorizontalPodAutoscaler that targets the Deployment of a variant, or a program that applies it, writes ``replicas``
back as often as Berth does. Neither would ever stop, replicas would come and go, and nobody would be told. So a count
that is lost again and again is written ever more seldom, and who else writes it is said.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

LOSSES: Final = 3
"""So often may a count be changed by others: people do that by hand."""
WINDOW_SECONDS: Final = 3600.0
RAISE_SECONDS: Final = 60.0
LOWER_SECONDS: Final = 600.0
"""A contested count is written no more often than this; to be short of replicas for long is worse than to pay for
some."""


@dataclass(frozen=True, slots=True)
class Count:
    """A Deployment's count as it was last seen or set; ``losses``: when others were found to have changed it."""

    count: int
    written: float
    losses: tuple[float, ...] = ()


class Contests:
    """Remembers the counts that were set, by a key of the caller's. Times are in seconds, of one clock."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Count] = {}

    def forget(self, uid: str) -> None:
        """The service, the first part of its Deployments' keys, is gone."""
        self._known = {key: known for key, known in self._known.items() if key[0] != uid}

    def wrote(self, key: tuple[str, str], count: int, now: float) -> None:
        """``count`` was set."""
        self._known[key] = replace(self._known.get(key, Count(count, now)), count=count, written=now)

    def found(self, key: tuple[str, str], count: int, now: float) -> None:
        """``count`` is what the Deployment asks for."""
        known = self._known.setdefault(key, Count(count, now))
        if known.count != count:
            losses = (*known.losses, now)[-LOSSES:]
            self._known[key] = replace(known, count=count, losses=losses)

    def contested(self, key: tuple[str, str], now: float) -> bool:
        """Whether others have changed the count :data:`LOSSES` times of late."""
        known = self._known.get(key)
        return known is not None and len([at for at in known.losses if abs(now - at) < WINDOW_SECONDS]) >= LOSSES

    def waits(self, key: tuple[str, str], now: float, *, lowers: bool) -> bool:
        """Whether the count is not to be set yet."""
        gap = LOWER_SECONDS if lowers else RAISE_SECONDS
        return self.contested(key, now) and abs(now - self._known[key].written) < gap
