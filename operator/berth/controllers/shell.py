"""kopf's part: the login, and the watch of our three kinds, whose handlers do nothing but wake the queue.

Everything that kopf would write to objects is switched off: no annotations, no finalizers, no events, no peering.
So every replica runs it, leading or not, and it costs no write. As it only wakes, nothing that happens to it may end
the process: requests are repeated for ever, and where it ends all the same (an error event that is no 410, a kind that
is not served for a moment) it starts anew.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import kopf

from berth.api.names import GROUP, KINDS, VERSION
from berth.cluster.session import Connection
from berth.controllers.observe import JobKey

WATCH_SECONDS: Final = 270
IDLE_SECONDS: Final = 30.0
"""How long kopf keeps an object's worker without events. Over a gang's start: making one costs as much as an event."""
SETTLED_SECONDS: Final = 300.0
"""A life of kopf this long was a good one."""
END_SECONDS: Final = 5.0

_LOG: Final = logging.getLogger(__name__)
_KOPF: Final = str(Path(kopf.__file__).parent)


class Backoffs:
    """Seconds between tries, doubled up to a limit, jittered, without end; every iteration starts anew."""

    def __init__(self, first: float = 1.0, longest: float = 30.0) -> None:
        self.first, self.longest = first, longest

    def __iter__(self) -> Iterator[float]:
        delay = self.first
        while True:
            yield delay * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing
            delay = min(2 * delay, self.longest)


class NoProgress(kopf.ProgressStorage):
    """Keeps nothing: there is no handler whose progress could matter."""

    def fetch(self, **_: Any) -> None:
        """Nothing was kept."""

    def store(self, **_: Any) -> None:
        """Keep nothing."""

    def purge(self, **_: Any) -> None:
        """Nothing to remove."""

    def touch(self, **_: Any) -> None:
        """Nothing to touch."""

    def clear(self, *, essence: Any) -> Any:
        """The essence as it is."""
        return essence


class NoDiff(kopf.DiffBaseStorage):
    """Keeps nothing, and spares the deep copies that building an essence costs on every event."""

    def build(self, *, body: Any, extra_fields: Any = None) -> Any:
        """No essence."""
        return {}

    def fetch(self, **_: Any) -> None:
        """Nothing was kept."""

    def store(self, **_: Any) -> None:
        """Keep nothing."""


BACKOFFS: Final = Backoffs()


def build_registry(
    connection: Callable[[], Connection],
    wake: Callable[[str, JobKey], object],
    known: Callable[[str, JobKey, int], bool],
) -> kopf.OperatorRegistry:
    """Handlers for the three kinds; ``wake`` gets the plural and the (namespace, name) of what changed.

    Of a version that is ``known`` already no handler hears: running one costs more than all else that kopf does with
    an event.
    """
    registry = kopf.OperatorRegistry()

    async def login(**_: Any) -> kopf.AiohttpSession:
        return connection().for_kopf()

    async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        configure_settings(settings)

    kopf.on.login(registry=registry)(login)
    kopf.on.startup(registry=registry)(configure)
    for kind in KINDS:

        async def changed(namespace: str | None, name: str | None, _plural: str = kind.plural, **_: Any) -> None:
            wake(_plural, (namespace or "", name or ""))

        def is_news(
            namespace: str | None, name: str | None, meta: Mapping[str, Any], _plural: str = kind.plural, **_: Any
        ) -> bool:
            return not known(_plural, (namespace or "", name or ""), int(meta.get("resourceVersion") or 0))

        kopf.on.event(GROUP, VERSION, kind.plural, registry=registry, id=f"wake-{kind.plural}", when=is_news)(changed)
    return registry


def configure_settings(settings: kopf.OperatorSettings) -> None:
    """What measurements of kopf 1.45 say: see each line's effect in its documentation."""
    settings.scanning.disabled = True
    settings.peering.standalone = True
    settings.posting.enabled = False
    settings.watching.chunk_size = 500
    settings.watching.server_timeout = WATCH_SECONDS
    settings.watching.client_timeout = WATCH_SECONDS + 60
    settings.watching.reconnect_backoff = 1.5
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.networking.enforce_retry_after = True
    settings.networking.error_backoffs = BACKOFFS
    settings.queueing.idle_timeout = IDLE_SECONDS
    settings.process.ultimate_exiting_timeout = None  # else a life that ends by itself has the process killed later
    settings.persistence.progress_storage = NoProgress()
    settings.persistence.diffbase_storage = NoDiff()


async def run(registry: kopf.OperatorRegistry, stop: asyncio.Event, started: Callable[[], object]) -> None:
    """kopf's loop until ``stop``, begun anew whenever it ends before.

    ``started`` is called each time that it begins: kopf has just taken SIGTERM and SIGINT for itself.
    """
    loop, waits = asyncio.get_running_loop(), iter(BACKOFFS)
    while not stop.is_set():
        began = loop.time()
        try:
            await _live(registry, stop, started)
            problem = "it was told to stop by somebody else"
        except Exception as failure:  # whatever it is, our own caches go on
            problem = repr(failure)
        if stop.is_set():
            return
        if loop.time() - began > SETTLED_SECONDS:
            waits = iter(BACKOFFS)
        wait = next(waits)
        _LOG.warning("kopf has ended, which costs wake-ups only, and begins anew in %.1f s: %s", wait, problem)
        await _within(wait, [asyncio.create_task(stop.wait())])


async def _live(registry: kopf.OperatorRegistry, stop: asyncio.Event, started: Callable[[], object]) -> None:
    """One life of kopf. Raises: what ended it, if that was not ``stop``.

    Its own way to run its tasks would in the end cancel every task of the loop that is younger than they, ours too.
    """
    root = await kopf.spawn_tasks(
        registry=registry, clusterwide=True, standalone=True, stop_flag=stop, ready_flag=asyncio.Event(),
        memo=kopf.Memo(),
    )  # fmt: skip
    started()
    try:
        done, _ = await asyncio.wait(root, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _end(root)
    for task in done:
        if not task.cancelled():
            task.result()


async def _end(root: Collection[asyncio.Task[None]]) -> None:
    """End one life: the watches first, which stay behind when one of them has failed, then all else.

    What is left would be a task that did not heed its cancellation, which kopf's do when their connection breaks too.
    """
    await _cancel([task for task in _of_kopf() if task.get_name().startswith("watcher for ")])
    await _cancel(root)
    for _ in range(3):
        await _cancel(_of_kopf())


async def _cancel(tasks: Collection[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await _within(END_SECONDS, tasks)


def _of_kopf() -> list[asyncio.Task[Any]]:
    """The tasks of this loop that run kopf's code."""
    codes = [(task, getattr(task.get_coro(), "cr_code", None)) for task in asyncio.all_tasks()]
    return [task for task, code in codes if code is not None and code.co_filename.startswith(_KOPF)]


async def _within(seconds: float, tasks: Collection[asyncio.Task[Any]]) -> None:
    """Wait for all of ``tasks``, but not for longer; what is not done by then is cancelled."""
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=seconds)
        for task in late:
            task.cancel()
