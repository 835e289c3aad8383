"""A warm copy of one kind: list once, then watch, for ever, through everything that can go wrong.

The rules come from the ways in which operators were found blind or wrong:

* Deletions that happen while nobody watches are found by comparing a complete new list with what is known.
* A stream that says nothing for longer than bookmarks take is dead, whatever TCP thinks; it is replaced, from the
  last version seen, which costs the server almost nothing.
* No answer of the server is fatal: errors are kept in ``last_error``, retried with jittered back-off and become
  visible through ``staleness``, on which liveness decides.
* The first list asks for the latest state rather than for what the answering server has cached: after a restart an
  old state would be acted on.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine
from contextlib import aclosing
from typing import Any, Final, Generic, TypeVar

from berth.cluster import wire
from berth.cluster.client import PAGE, SILENCE_SECONDS, ApiClient
from berth.cluster.errors import ApiError, ClusterError, Expired
from berth.cluster.kinds import Kind, WatchEvent
from berth.cluster.store import Index, Key, Store, Subscriber

T = TypeVar("T", bound=wire.Object)

__all__ = ["Cache", "Index", "Key", "Subscriber"]

_LOG: Final = logging.getLogger(__name__)
_FIRST_BACKOFF: Final = 0.5
_LONGEST_BACKOFF: Final = 30.0
_AWAITED_BACKOFF: Final = 1.0  # the longest while a refresh waits for a list
_SETTLED: Final = 10.0  # seconds after which a stream counts as having worked


class Cache(Store[T], Generic[T]):
    """All objects of ``kind`` in ``namespace`` (or everywhere) that match the selectors.

    Run :meth:`run` as a task for as long as the cache is needed. ``synced`` is set after the first complete list and
    stays set. Counters for metrics: ``events``, ``relists``, ``reconnects``; ``last_error`` is None as soon as the
    watch has brought something after it.
    """

    def __init__(
        self,
        client: ApiClient,
        kind: Kind[T],
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        page: int = PAGE,
        silence: float = SILENCE_SECONDS,
    ) -> None:
        super().__init__()
        self.kind, self.namespace = kind, namespace
        self.synced = asyncio.Event()
        self.last_error: ClusterError | None = None
        self.events = self.relists = self.reconnects = 0
        self._client, self._clock = client, client.transport.clock
        self._label_selector, self._field_selector = label_selector, field_selector
        self._page, self._silence = page, silence
        self._alive = self._clock.now()
        self._backoff = _FIRST_BACKOFF
        self._turn: asyncio.Task[None] | None = None
        self._asked = self._answered = 0  # refreshes, and the last of them that a list answers which began after it
        self._listed = asyncio.Event()  # set and replaced at the end of every list
        self._resume = ""  # the version to watch from; empty: list first
        self._pages = 0  # the most that a list has brought since the last one that was complete

    def staleness(self, now: float | None = None) -> float:
        """Seconds since the server last gave a sign of life for this kind (or since the start, before any)."""
        return max((self._clock.now() if now is None else now) - self._alive, 0.0)

    async def run(self) -> None:
        """Keep the cache current until cancelled."""
        while True:
            began, asked = self._clock.now(), self._asked
            turn = await self._spend(self._list_and_watch())
            if turn.cancelled():
                continue  # refresh wants a new list
            problem = turn.exception()
            if isinstance(problem, ClusterError):
                wait = self._wait_after(problem, began)
                if self._asked == asked:  # else a refresh came when there was nothing left to cut short
                    await self._spend(self._clock.sleep(wait))
            elif problem is not None:
                raise problem
            elif self._clock.now() - began < 1.0:
                await self._spend(self._clock.sleep(self._wait()))

    async def refresh(self) -> None:
        """Return when the cache shows at least what the server holds at the time of this call.

        It asks for a new list and waits for it, through errors if need be: how far a watch lags behind cannot be
        known, least of all of one whose connection died in silence. Call it before the first decision as leader,
        and set a limit of your own.
        """
        self._asked += 1
        wanted = self._asked
        self._backoff = _FIRST_BACKOFF
        if self._turn is not None:
            self._turn.cancel()  # a watch, or the wait after an error
        while self._answered < wanted:
            await self._listed.wait()

    async def _spend(self, turn: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """See ``turn`` through to its end, as a task of its own that a refresh may cut short."""
        task = self._turn = asyncio.create_task(turn)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
            raise
        return task

    @property
    def _due(self) -> bool:
        """Whether a refresh waits for a list that has not begun."""
        return self._answered < self._asked

    async def _list_and_watch(self) -> None:
        if self._due or not self._resume:
            await self._list()
        try:
            await self._watch()
        except Expired:
            self._resume = ""
            raise

    async def _list(self) -> None:
        try:
            await self._read_pages(self._page)
        except Expired:  # the continue token aged under way: one answer is always consistent
            await self._read_pages(0)

    async def _read_pages(self, limit: int) -> None:
        seen: set[str] = set()
        version, asked, count = "", self._asked, 0
        pages = self._client.pages(
            self.kind,
            self.namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            limit=limit,
            attempts=1,
        )
        async with aclosing(pages):
            async for page in pages:
                version = page.metadata.resource_version
                if int(version) < self.version:
                    self._forget_versions()
                for item in page.items or ():
                    seen.add(item.metadata.uid)
                    self.observe(item)
                count += 1
                if count > self._pages:  # a list that ends at the same page again and again is no sign of life
                    self._pages = count
                    self._sign_of_life()
        self.retain(seen, int(version))
        self._pages = 0
        self._sign_of_life()
        self._resume = version
        self.relists += 1
        self.synced.set()
        self._answered = asked
        self._listed.set()
        self._listed = asyncio.Event()

    async def _watch(self) -> None:
        events = self._client.watch(
            self.kind,
            self._resume,
            self.namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            silence=self._silence,
            on_bytes=self._sign_of_life,
        )
        self.reconnects += 1
        async with aclosing(events):
            async for event in events:
                self._take(event)
                if self._due:
                    return  # a refresh whose cancellation was swallowed on its way here

    def _take(self, event: WatchEvent[T]) -> None:
        version = event.object.metadata.version
        if version < self.version:
            raise Expired(410, "Rewound", f"version {version} came after {self.version}")
        if event.type == "DELETED":
            self.remove(event.object)
        elif event.type != "BOOKMARK":
            self.observe(event.object)
        self.events += 1
        self._resume = event.object.metadata.resource_version
        self.version = version
        self._backoff = _FIRST_BACKOFF
        self.last_error = None

    def _sign_of_life(self) -> None:
        self._alive = self._clock.now()

    def _forget_versions(self) -> None:
        """The server's history was replaced by an older one (a restored backup): what we know compares with nothing."""
        _LOG.warning("%s: the server's versions went back; starting over", self.kind.plural)
        for known in list(self):
            self.remove(known)
        self.version = 0

    def _wait_after(self, problem: ClusterError, began: float) -> float:
        """Take note of what ended a turn that ``began`` then; seconds to wait before the next."""
        level = (
            logging.INFO if isinstance(problem, Expired) or type(problem) is type(self.last_error) else logging.WARNING
        )
        _LOG.log(level, "%s: %s", self.kind.plural, problem)
        self.last_error = problem
        if self._clock.now() - began >= _SETTLED:
            self._backoff = _FIRST_BACKOFF
        return max(self._wait(), problem.retry_after or 0.0 if isinstance(problem, ApiError) else 0.0)

    def _wait(self) -> float:
        """The next back-off, jittered."""
        jittered = self._backoff * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing
        self._backoff = min(self._backoff * 2, _AWAITED_BACKOFF if self._due else _LONGEST_BACKOFF)
        return jittered
