"""kopf's part: the login, and the watch of our three kinds, whose handlers do nothing but wake the queue.

Everything that kopf would write to objects is switched off: no annotations, no finalizers, no events, no peering.
So every replica runs it, leading or not, and it costs no write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import kopf

from berth.api.names import GROUP, KINDS, VERSION
from berth.cluster.session import Connection
from berth.controllers.observe import JobKey

WATCH_SECONDS: Final = 270


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


def build_registry(
    connection: Callable[[], Connection], wake: Callable[[str, JobKey, int], object]
) -> kopf.OperatorRegistry:
    """Handlers for the three kinds; ``wake`` gets the plural, the (namespace, name) and the version of what changed."""
    registry = kopf.OperatorRegistry()

    async def login(**_: Any) -> kopf.AiohttpSession:
        return connection().for_kopf()

    async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        configure_settings(settings)

    kopf.on.login(registry=registry)(login)
    kopf.on.startup(registry=registry)(configure)
    for kind in KINDS:

        async def changed(
            namespace: str | None, name: str | None, meta: Mapping[str, Any], _plural: str = kind.plural, **_: Any
        ) -> None:
            wake(_plural, (namespace or "", name or ""), int(meta.get("resourceVersion") or 0))

        kopf.on.event(GROUP, VERSION, kind.plural, registry=registry, id=f"wake-{kind.plural}")(changed)
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
    settings.process.ultimate_exiting_timeout = 10
    settings.persistence.progress_storage = NoProgress()
    settings.persistence.diffbase_storage = NoDiff()


async def run(registry: kopf.OperatorRegistry, stop: asyncio.Event, ready: asyncio.Event) -> None:
    """kopf's loop until ``stop``; ``ready`` is set when it has begun to watch."""
    await kopf.operator(
        registry=registry, clusterwide=True, standalone=True, stop_flag=stop, ready_flag=ready, memo=kopf.Memo()
    )
