"""Whose moving figures are written next.

All services share a few writes a second. A crowd of them, as after a start, would be out of date for long with those
alone, while what is set aside for jobs lies idle: that is used too, as far as jobs always find some left. How many
replicas there are goes before other figures, because people and programs wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from berth.cluster.clock import Clock, Timer
from berth.cluster.ratelimit import TokenBucket
from berth.controllers.services.view import ServiceKey

LEFT: Final = 3
"""So many of its tokens the other's bucket keeps: whoever owns it must not find it empty."""


class WriteTurns:
    """Turns in the order in which they were asked for; ``call`` is told of a service whose turn it is.

    ``own`` is the budget of services, ``spare`` that of others, of which the unused part is taken.
    """

    def __init__(
        self, own: TokenBucket, clock: Clock, *, call: Callable[[ServiceKey], object], spare: TokenBucket | None = None
    ) -> None:
        self._own, self._spare, self._clock, self._call = own, spare, clock, call
        self._counts: dict[str, ServiceKey] = {}
        self._figures: dict[str, ServiceKey] = {}
        self._given: set[str] = set()
        self._timer: Timer | None = None

    def take(self, uid: str, key: ServiceKey, *, count: bool) -> bool:
        """Whether it is the turn of ``uid``, which ends it; else it is called when it is. ``count``: before others."""
        if uid in self._given or (not self._next() and self._try()):
            self.drop(uid)
            return True
        if count:
            self._figures.pop(uid, None)
            self._counts.setdefault(uid, key)
        elif uid not in self._counts:
            self._figures.setdefault(uid, key)
        self._plan()
        return False

    def drop(self, uid: str) -> None:
        """It has nothing to write any more."""
        self._counts.pop(uid, None)
        self._figures.pop(uid, None)
        self._given.discard(uid)

    def _next(self) -> dict[str, ServiceKey]:
        return self._counts or self._figures

    def _try(self) -> bool:
        if self._own.try_take():
            return True
        return self._spare is not None and self._spare.ready(1 + LEFT) <= 0 and self._spare.try_take()

    def _plan(self) -> None:
        if self._timer is None and self._next():
            waits = [self._own.ready(), *([self._spare.ready(1 + LEFT)] if self._spare is not None else [])]
            self._timer = self._clock.call_later(min(waits), self._give)

    def _give(self) -> None:
        self._timer = None
        while (waiting := self._next()) and self._try():
            uid = next(iter(waiting))
            self._call(waiting.pop(uid))
            self._given.add(uid)
        self._plan()
