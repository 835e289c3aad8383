"""Children that somebody else has deleted, or changed, come back at once.

Only what carries the label of a service is watched, and of that only metadata is kept. Routes are not: their kind may
not be served, and few services have one; they are read again now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from berth.api.names import LABEL_APPLIED_HASH, LABEL_SERVICE_NAME
from berth.cluster import wire
from berth.cluster.cache import Cache
from berth.cluster.client import ApiClient
from berth.cluster.kinds import DISRUPTION_BUDGETS, SERVICES
from berth.controllers.services.view import ServiceKey, ServiceView

WATCHED: Final = (SERVICES, DISRUPTION_BUDGETS)


class ChildWatch:
    """``view`` gives the service of a key, ``wake`` is called with the key of one whose child is another one."""

    def __init__(
        self,
        client: ApiClient,
        *,
        view: Callable[[ServiceKey], ServiceView | None],
        wake: Callable[[ServiceKey], object],
    ) -> None:
        self._view, self._wake = view, wake
        self._caches: list[Cache[Any]] = [Cache(client, kind, label_selector=LABEL_SERVICE_NAME) for kind in WATCHED]
        for cache in self._caches:
            cache.subscribe(self._subscriber(cache.kind.kind))

    def every(self) -> Iterator[Cache[Any]]:
        """The caches that must be warm."""
        yield from self._caches

    def _subscriber(self, kind: str) -> Callable[[wire.Object | None, wire.Object | None], None]:
        def heard(old: wire.Object | None, new: wire.Object | None) -> None:
            known = new or old
            assert known is not None
            key = (known.metadata.namespace, known.metadata.labels.get(LABEL_SERVICE_NAME, ""))
            view = self._view(key)
            found = new.metadata.labels.get(LABEL_APPLIED_HASH) if new is not None else None
            if view is None:
                return
            changed = old is not None and new is not None and _edition(old) != _edition(new)
            if changed or new is None or not new.metadata.owned_by(view.uid) or view.applied.get(kind, found) != found:
                view.checked.pop(kind, None)
                self._wake(key)

        return heard


def _edition(child: wire.Object) -> int:
    """Another number where the spec is another one; of kinds that do not count that, where anything is."""
    return child.metadata.generation or child.metadata.version
