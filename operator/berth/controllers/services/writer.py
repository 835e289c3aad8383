"""When a service's status is written.

A transition at once, as is the first time that all replicas of a decision are ready; figures that move by themselves at
most once a minute per service, when one moved by more than a tenth, and within a few writes a second over all services.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from berth.api.names import FIELD_MANAGER
from berth.cluster.client import ApiClient
from berth.cluster.kinds import INFERENCE_SERVICES
from berth.controllers.services.observe import ServiceObserver
from berth.controllers.services.status import complete, counted, goal, moved, patch, transition
from berth.controllers.services.view import ServiceKey, ServiceView
from berth.controllers.services.writeturns import WriteTurns

MOVING_SECONDS: Final = 60.0
COUNT_SECONDS: Final = 5.0
"""How many replicas there are and are ready is waited for by people and programs, so it follows sooner."""


class ServiceWriter:
    """Writes statuses; the answers go back into the cache.

    ``turns`` says when moving figures may be written; ``again`` is called with the key and the seconds after which to
    look again, where they were written a moment ago.
    """

    def __init__(
        self,
        client: ApiClient,
        observer: ServiceObserver,
        turns: WriteTurns,
        *,
        again: Callable[[ServiceKey, float], object],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._client, self._observer, self._turns = client, observer, turns
        self._again, self._wall = again, wall
        self._moved: dict[str, float] = {}
        self._arrived: dict[str, object] = {}  # uid -> the decision whose replicas were all ready once

    def forget(self, uid: str) -> None:
        """The service is gone."""
        self._moved.pop(uid, None)
        self._arrived.pop(uid, None)
        self._turns.drop(uid)

    async def consider(self, view: ServiceView, status: Mapping[str, Any]) -> bool:
        """Write ``status`` if it is due; whether it was written. Raises: ClusterError."""
        before = view.persisted
        arrives = complete(status) and not complete(before) and self._arrived.get(view.uid) != goal(status)
        if not (arrives or transition(before, status)):
            if not moved(before, status):
                self._turns.drop(view.uid)
                return False
            last = self._moved.setdefault(view.uid, self._wall() - (MOVING_SECONDS if not before else 0.0))
            count = counted(before, status)
            wait = (COUNT_SECONDS if count else MOVING_SECONDS) - abs(self._wall() - last)
            if wait > 0:
                self._again(view.key, wait)
                return False
            if not self._turns.take(view.uid, view.key, count=count):
                return False
        self._moved[view.uid] = self._wall()
        self._turns.drop(view.uid)
        body = patch(view.key[1], view.uid, dict(status))
        answer = await self._client.apply(
            INFERENCE_SERVICES, view.key[1], body, view.key[0], manager=FIELD_MANAGER, subresource="status"
        )
        self._observer.absorb(answer)
        if complete(status):
            self._arrived[view.uid] = goal(status)
        return True
