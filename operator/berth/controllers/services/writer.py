"""When a service's status is written.

A transition at once; figures that move by themselves at most once a minute per service, when one moved by more than a
tenth, and within a few writes a second over all services.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from berth.api.names import FIELD_MANAGER
from berth.cluster.client import ApiClient
from berth.cluster.kinds import INFERENCE_SERVICES
from berth.cluster.ratelimit import TokenBucket
from berth.controllers.services.observe import ServiceObserver
from berth.controllers.services.status import counted, moved, patch, transition
from berth.controllers.services.view import ServiceKey, ServiceView

MOVING_SECONDS: Final = 60.0
COUNT_SECONDS: Final = 5.0
"""How many replicas there are and are ready is waited for by people and programs, so it follows sooner."""


class ServiceWriter:
    """Writes statuses; the answers go back into the cache.

    ``budget`` is shared with whatever else moves; ``again`` is called with the key and the seconds after which to look
    again, where a write has to wait.
    """

    def __init__(
        self,
        client: ApiClient,
        observer: ServiceObserver,
        budget: TokenBucket,
        *,
        again: Callable[[ServiceKey, float], object],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._client, self._observer, self._budget = client, observer, budget
        self._again, self._wall = again, wall
        self._moved: dict[str, float] = {}
        self._turns: dict[str, float] = {}  # uid -> when its share of the budget is there

    def forget(self, uid: str) -> None:
        """The service is gone."""
        self._moved.pop(uid, None)
        self._turns.pop(uid, None)

    async def consider(self, view: ServiceView, status: Mapping[str, Any]) -> bool:
        """Write ``status`` if it is due; whether it was written. Raises: ClusterError."""
        before = view.persisted
        if not transition(before, status):
            if not moved(before, status):
                return False
            last = self._moved.setdefault(view.uid, self._wall() - (MOVING_SECONDS if not before else 0.0))
            gap = COUNT_SECONDS if counted(before, status) else MOVING_SECONDS
            wait = last + gap - self._wall()
            if wait <= 0:
                wait = self._turn(view.uid) - self._wall()
            if wait > 0:
                self._again(view.key, wait)
                return False
        self._moved[view.uid] = self._wall()
        self._turns.pop(view.uid, None)
        body = patch(view.key[1], view.uid, dict(status))
        answer = await self._client.apply(
            INFERENCE_SERVICES, view.key[1], body, view.key[0], manager=FIELD_MANAGER, subresource="status"
        )
        self._observer.absorb(answer)
        return True

    def _turn(self, uid: str) -> float:
        """When the service may write; kept until it does. Who only tried again would be looked at in vain till then."""
        turn = self._turns.get(uid)
        if turn is None:
            turn = self._turns[uid] = self._wall() + self._budget.reserve()
        return turn
