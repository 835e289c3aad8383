"""The work queue: keys that need a look, each at most once, the urgent ones first.

The contract is that of controller-runtime's queue. A key is in the queue or not, however often it is added. A key
that is being worked on is never handed to a second worker; if it is added meanwhile, it comes back when the work is
:meth:`done <WorkQueue.done>`. Among waiting keys the higher priority goes first, then the older. A key that failed
returns after a delay that doubles with each failure, from 5 ms to 16 min, until :meth:`forget <WorkQueue.forget>`.

A look at a key makes a later look that was planned for it void, since each look plans the next one anew.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from berth.cluster.clock import SYSTEM_CLOCK, Clock, Timer

K = TypeVar("K", bound=Hashable)

FIRST_DELAY: Final = 0.005
LONGEST_DELAY: Final = 960.0


class QueueClosed(Exception):
    """The queue was closed: the worker may go home."""


@dataclass(slots=True)
class _Entry:
    priority: int
    order: int
    since: float


@dataclass(slots=True)
class _Plan:
    due: float
    order: int
    priority: int


class WorkQueue(Generic[K]):
    """A queue of keys for the tasks of one event loop; delays are seconds, a larger priority is more urgent."""

    def __init__(
        self, clock: Clock = SYSTEM_CLOCK, *, first_delay: float = FIRST_DELAY, longest_delay: float = LONGEST_DELAY
    ) -> None:
        self._clock, self._first, self._longest = clock, first_delay, longest_delay
        self._waiting: dict[K, _Entry] = {}
        self._heap: list[tuple[int, int, K]] = []  # (-priority, order, key); entries that _waiting disowns are skipped
        self._working: set[K] = set()
        self._again: dict[K, int] = {}  # added while worked on -> priority
        self._planned: dict[K, _Plan] = {}
        self._plan: list[tuple[float, int, K]] = []  # (due, order, key); entries that _planned disowns are skipped
        self._failures: dict[K, int] = {}
        self._idle: deque[asyncio.Future[None]] = deque()
        self._alarm: Timer | None = None
        self._alarm_due = 0.0
        self._order = 0
        self._closed = False

    @property
    def depth(self) -> int:
        """Keys that could be worked on now."""
        return len(self._waiting)

    @property
    def working(self) -> int:
        """Keys that are being worked on."""
        return len(self._working)

    @property
    def planned(self) -> int:
        """Keys that come back later."""
        return len(self._planned)

    def busy(self, key: K) -> bool:
        """Whether ``key`` is being worked on."""
        return key in self._working

    def oldest(self, now: float | None = None) -> float:
        """Seconds that the longest waiting key has waited; 0.0 when none waits."""
        now = self._clock.now() if now is None else now
        return max((now - entry.since for entry in self._waiting.values()), default=0.0)

    def failures(self, key: K) -> int:
        """How often ``key`` failed in a row."""
        return self._failures.get(key, 0)

    def add(self, key: K, priority: int = 0) -> None:
        """Have ``key`` looked at as soon as a worker is free."""
        if self._closed:
            return
        self._planned.pop(key, None)
        if key in self._working:
            self._again[key] = max(priority, self._again.get(key, priority))
            return
        entry = self._waiting.get(key)
        if entry is None:
            entry = self._waiting[key] = _Entry(priority, self._next(), self._clock.now())
            self._wake()
        elif entry.priority >= priority:
            return
        else:
            entry.priority = priority
        heapq.heappush(self._heap, (-priority, entry.order, key))

    def add_after(self, key: K, delay: float, priority: int = 0) -> None:
        """Have ``key`` looked at in ``delay`` seconds, unless it is before; of two plans the earlier counts."""
        if delay <= 0:
            self.add(key, priority)
            return
        if self._closed or key in self._waiting or key in self._again:
            return
        due = self._clock.now() + delay
        known = self._planned.get(key)
        if known is not None:
            priority = known.priority = max(priority, known.priority)
            if known.due <= due:
                return
        plan = self._planned[key] = _Plan(due, self._next(), priority)
        heapq.heappush(self._plan, (due, plan.order, key))
        if len(self._plan) > 2 * len(self._planned) + 64:
            self._plan = [each for each in self._plan if self._stands(each)]
            heapq.heapify(self._plan)
        self._set_alarm()

    def retry(self, key: K, priority: int = 0) -> float:
        """After a failure: have ``key`` looked at again after its back-off, which is returned."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = min(self._first * float(2 ** min(failures, 40)), self._longest)
        self.add_after(key, delay, priority)
        return delay

    def forget(self, key: K) -> None:
        """After a success: the next failure of ``key`` starts with the shortest delay again."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """The next key, which is then this worker's until :meth:`done`. Raises: QueueClosed."""
        while True:
            if self._closed:
                raise QueueClosed
            if self._waiting:
                return self._take()
            await self._sleep()

    def done(self, key: K) -> None:
        """The work on ``key`` has ended, well or not."""
        self._working.discard(key)
        again = self._again.pop(key, None)
        if again is not None:
            self.add(key, again)

    def close(self) -> None:
        """Send all workers home; what waits is dropped, for the next start will look at everything."""
        self._closed = True
        self._waiting.clear()
        self._planned.clear()
        self._again.clear()
        if self._alarm is not None:
            self._alarm.cancel()
        while self._idle:
            self._wake()

    def _take(self) -> K:
        while True:
            negative, order, key = heapq.heappop(self._heap)
            entry = self._waiting.get(key)
            if entry is not None and entry.order == order and entry.priority == -negative:
                del self._waiting[key]
                self._working.add(key)
                return key

    async def _sleep(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._wake()  # this worker was called and left: call another
            elif turn in self._idle:
                self._idle.remove(turn)
            raise

    def _wake(self) -> None:
        while self._idle:
            turn = self._idle.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def _set_alarm(self) -> None:
        """Have :meth:`_ring` called when the earliest plan is due."""
        while self._plan and not self._stands(self._plan[0]):
            heapq.heappop(self._plan)
        if not self._plan:
            return
        due = self._plan[0][0]
        if self._alarm is not None:
            if self._alarm_due <= due:
                return
            self._alarm.cancel()
        self._alarm_due = due
        self._alarm = self._clock.call_later(due - self._clock.now(), self._ring)

    def _ring(self) -> None:
        self._alarm = None
        now = self._clock.now()
        while self._plan and self._plan[0][0] <= now:
            entry = heapq.heappop(self._plan)
            if self._stands(entry):
                self.add(entry[2], self._planned[entry[2]].priority)
        self._set_alarm()

    def _stands(self, entry: tuple[float, int, K]) -> bool:
        """Whether a plan on the heap is still the plan for its key."""
        plan = self._planned.get(entry[2])
        return plan is not None and plan.order == entry[1]

    def _next(self) -> int:
        self._order += 1
        return self._order
