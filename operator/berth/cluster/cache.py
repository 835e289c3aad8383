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
from contextlib import aclosing
from typing import Final, Generic, TypeVar

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
        self._listed = asyncio.Event()  # a list that began after the last refresh was asked for is complete
        self._resume = ""  # the version to watch from; empty: list first

    def staleness(self, now: float | None = None) -> float:
        """Seconds since the server last gave a sign of life for this kind (or since the start, before any)."""
        return max((self._clock.now() if now is None else now) - self._alive, 0.0)

    async def run(self) -> None:
        """Keep the cache current until cancelled."""
        while True:
            began = self._clock.now()
            self._turn = asyncio.create_task(self._list_and_watch())
            try:
                await asyncio.wait({self._turn})
            except asyncio.CancelledError:
                self._turn.cancel()
                await asyncio.wait({self._turn})
                raise
            if self._turn.cancelled():
                continue  # refresh wants a new list
            problem = self._turn.exception()
            if isinstance(problem, ClusterError):
                await self._recover(problem, began)
            elif problem is not None:
                raise problem
            elif self._clock.now() - began < 1.0:
                await self._pause()

    async def refresh(self) -> None:
        """Return when the cache shows at least what the server holds at the time of this call.

        It asks for a new list and waits for it, through errors if need be: how far a watch lags behind cannot be
        known, least of all of one whose connection died in silence. Call it before the first decision as leader.
        """
        self._listed.clear()
        self._resume = ""
        if self._turn is not None:
            self._turn.cancel()
        await self._listed.wait()

    async def _list_and_watch(self) -> None:
        if not self._resume:
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
        version = ""
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
                self._alive = self._clock.now()
        self.retain(seen, int(version))
        self._resume = version
        self.relists += 1
        self.synced.set()
        self._listed.set()

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

    async def _recover(self, problem: ClusterError, began: float) -> None:
        level = (
            logging.INFO if isinstance(problem, Expired) or type(problem) is type(self.last_error) else logging.WARNING
        )
        _LOG.log(level, "%s: %s", self.kind.plural, problem)
        self.last_error = problem
        if self._clock.now() - began >= _SETTLED:
            self._backoff = _FIRST_BACKOFF
        await self._pause(problem.retry_after or 0.0 if isinstance(problem, ApiError) else 0.0)

    async def _pause(self, at_least: float = 0.0) -> None:
        jittered = self._backoff * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing
        self._backoff = min(self._backoff * 2, _LONGEST_BACKOFF)
        await self._clock.sleep(max(jittered, at_least))
