"""When a job's status is written, and that it is not written otherwise.

A transition is written at once. Everything else that moves (an explanation, a position, how many pods are ready) waits
until the object has been left alone for a while, and shares a budget of a few writes a second over all jobs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from berth.api.common import rfc3339
from berth.api.names import FIELD_MANAGER, PLACEMENT_MANAGER
from berth.cluster.client import ApiClient
from berth.cluster.clock import SYSTEM_CLOCK, Clock
from berth.cluster.errors import ClusterError, Conflict, TooManyRequests, Unavailable, Unreachable
from berth.cluster.kinds import TRAINING_JOBS
from berth.cluster.queue import WorkQueue
from berth.cluster.ratelimit import TokenBucket
from berth.controllers.observe import JobKey, JobView, Observer
from berth.controllers.scheduler import Waits
from berth.controllers.status import Json, placement_patch, status_body, status_patch
from berth.training.queue import SHOWN
from berth.training.records import Refusal
from berth.training.state import JobState, Phase

MOVING_PER_SECOND: Final = 4.0
MOVING_BURST: Final = 5
MOVING_SECONDS: Final = 60.0
"""Moving figures of one object are written at most so often."""
FIRST_SECONDS: Final = 2.0
"""A new job that is placed within this time never shows Queued."""
SILENT_SECONDS: Final = 5.0
"""A new job of which there is nothing to say yet, perhaps because it is about to be placed, shows Queued after this."""
FIRST_PER_SECOND: Final = 1.0
FIRST_BURST: Final = 10
"""So many new jobs show Queued at once, others as the rate allows: of a crowd most are placed before their turn."""
CROWD_SECONDS: Final = 10.0
"""The longest that a job of a crowd waits before it asks again for its part of the budget."""
EXPLAIN_SECONDS: Final = 5.0
"""How long a refusal is held back for the explanation that will go with it."""
CHANGED_SECONDS: Final = 0.05
"""When a job is looked at again that had changed under a placement."""
RUNNING_PER_SECOND: Final = 1.0
RUNNING_BURST: Final = 10
RUNNING_SECONDS: Final = 10.0
"""So many gangs that have started show Running at once. Of a crowd the others follow as the rate allows, and none later
than after these seconds: nothing waits for the word, while placements, pods and ends wait for the same API server."""
START_SECONDS: Final = 10.0
"""A gang that still starts after this time shows how far it is, at most this often."""
UNSATISFIED: Final = {"FabricUnsatisfied": "FabricSatisfied", "MemoryUnsatisfied": "MemoryFits"}
"""Refusals that have a condition of their own."""


class StatusWriter:
    """Writes statuses of training jobs; the answers go back into the cache, so that the next look sees them.

    ``budget`` is for moving figures of every object, of jobs and whatever else shows some.
    """

    def __init__(
        self,
        client: ApiClient,
        observer: Observer,
        queue: WorkQueue[JobKey],
        *,
        wall: Callable[[], float] = time.time,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._client, self._observer, self._queue = client, observer, queue
        self._wall = wall
        self.budget = TokenBucket(MOVING_PER_SECOND, MOVING_BURST, clock)
        self._firsts = TokenBucket(FIRST_PER_SECOND, FIRST_BURST, clock)
        self._running = TokenBucket(RUNNING_PER_SECOND, RUNNING_BURST, clock)
        self._held: dict[str, float] = {}  # job that runs and does not say so yet -> since when
        self._crowd: set[str] = set()  # jobs that have something to say and no part of the budget yet
        self._moved: dict[str, float] = {}
        self._refused: dict[str, float] = {}

    def forget(self, uid: str) -> None:
        """The job is gone."""
        self._crowd.discard(uid)
        for remembered in (self._held, self._moved, self._refused):
            remembered.pop(uid, None)

    async def write_placement(self, view: JobView, state: JobState) -> bool:
        """Record where the ranks of a new attempt go, if the job still is the one that was looked at.

        If it is not, or the server will not have it, the promise is given back; it stays where the same write may
        succeed later, or may have. Raises: ClusterError.
        """
        namespace, name = view.key
        body = _identified(placement_patch(name, state, view.object.metadata.resource_version), view)
        try:
            answer = await self._client.apply(
                TRAINING_JOBS, name, body, namespace, manager=PLACEMENT_MANAGER, subresource="status"
            )
        except (Unreachable, TooManyRequests, Unavailable):
            raise
        except Conflict:
            await self._look_anew(view)
            return False
        except ClusterError:
            self._observer.retract(view.uid)
            raise
        self._observer.absorb(answer)
        return True

    async def _look_anew(self, view: JobView) -> None:
        """Take in the job as it is now before its promise is given back: an earlier try may be what changed it."""
        namespace, name = view.key
        found = await self._client.find(TRAINING_JOBS, name, namespace)
        if found is not None:
            self._observer.absorb(found)
        self._observer.retract(view.uid)
        self._queue.add_after(view.key, CHANGED_SECONDS)

    async def write(self, view: JobView, state: JobState) -> None:
        """Write everything but the placement, at once. Raises: ClusterError."""
        await self._apply(view, status_body(state, view.object.metadata.generation))

    async def _apply(self, view: JobView, body: Json) -> None:
        namespace, name = view.key
        answer = await self._client.apply(
            TRAINING_JOBS, name, _identified(status_patch(name, body), view), namespace,
            manager=FIELD_MANAGER, subresource="status",
        )  # fmt: skip
        self._observer.absorb(answer)

    async def consider(self, view: JobView, before: JobState, state: JobState, waits: Waits | None) -> bool:
        """Write if it is due; returns whether it was written. What is not due yet puts the job on the queue again."""
        self._crowd.discard(view.uid)
        if waits is None and view.settled and state == before:
            return False
        if waits is not None and waits.refusal is not None and (waits.explained or not _says(before, waits.refusal)):
            state = with_refusal(state, waits.refusal, self._wall())
        queue = self._queue_status(view, state, waits)
        body = status_body(state, view.object.metadata.generation)
        if queue:
            body["queue"] = queue
        known = {key: value for key, value in view.persisted.items() if key != "placement"}
        if _plain(body) == _plain(known):
            view.settled = state == before
            return False
        if (
            _is_transition(before, state)
            or view.persisted.get("observedGeneration", body["observedGeneration"]) != (body["observedGeneration"])
        ):
            await self._apply(view, body)
            return True
        wait = self._not_before(view, state, waits) - self._wall()
        if wait > 0:
            self._queue.add_after(view.key, wait)
            return False
        if not self._has_part(first=view.state.phase is None):
            self._crowd.add(view.uid)
            self._queue.add_after(view.key, min(max(len(self._crowd) / MOVING_PER_SECOND, 0.5), CROWD_SECONDS))
            return False
        self._moved[view.uid] = self._wall()
        await self._apply(view, body)
        return True

    def holds(self, view: JobView, before: JobState, state: JobState) -> bool:
        """Whether the word that a gang runs must wait, because many start at once; the job comes back for it."""
        if before.phase != Phase.STARTING or state.phase != Phase.RUNNING:
            self._held.pop(view.uid, None)
            return False
        now = self._wall()
        left = self._held.setdefault(view.uid, now) + RUNNING_SECONDS - now
        if left <= 0 or self._running.try_take():
            del self._held[view.uid]
            return False
        self._queue.add_after(view.key, min(max(len(self._held) / RUNNING_PER_SECOND, 0.5), left))
        return True

    def _has_part(self, *, first: bool) -> bool:
        """Take from the budget; the first words of new jobs must not take all of it."""
        if first and (self.budget.ready() > 0 or not self._firsts.try_take()):
            return False
        return self.budget.try_take()

    def _not_before(self, view: JobView, state: JobState, waits: Waits | None) -> float:
        unexplained = 0.0
        if waits is not None and waits.refusal is not None and not waits.explained:
            unexplained = self._refused.setdefault(view.uid, self._wall()) + EXPLAIN_SECONDS
        if view.state.phase is None:
            self._moved[view.uid] = 0.0
            told = waits is not None and waits.explained
            return view.object.metadata.created + (FIRST_SECONDS if told else SILENT_SECONDS)
        seen = self._moved.setdefault(view.uid, self._wall())  # what an earlier leader wrote counts as just written
        last = max(seen, unexplained - MOVING_SECONDS)
        if state.phase == Phase.STARTING:
            return max(state.placement_time + START_SECONDS, last + START_SECONDS)
        if state.phase == Phase.RUNNING:
            return last + START_SECONDS
        if "queue" not in view.persisted and state.phase == Phase.QUEUED:
            return last + START_SECONDS
        return last + MOVING_SECONDS

    def _queue_status(self, view: JobView, state: JobState, waits: Waits | None) -> Json | None:
        """The place in the queue; a move of less than a tenth is not worth a write."""
        if waits is None or state.phase not in (Phase.QUEUED, Phase.RESTARTING):
            return None
        known = view.persisted.get("queue") or {}
        shown = known.get("position") or 0
        if not waits.position or (shown and abs(shown - waits.position) * 10 <= shown):
            return dict(known)
        if waits.position > SHOWN:
            return None
        return {"position": waits.position, "asOf": rfc3339(self._wall())}


def _says(state: JobState, refusal: Refusal) -> bool:
    """Whether the state gives this reason already, perhaps in more words."""
    placed = state.conditions.get("Placed")
    return placed is not None and placed.status == "False" and placed.reason == refusal.reason


def with_refusal(state: JobState, refusal: Refusal, now: float) -> JobState:
    """``state`` saying why there is no placement."""
    state = state.with_condition("Placed", False, refusal.reason, refusal.message, now=now)
    for reason, kind in UNSATISFIED.items():
        if refusal.reason == reason:
            state = state.with_condition(kind, False, reason, refusal.message, now=now)
        elif state.is_false(kind):
            state = state.without_condition(kind)  # some pool may do by now, or none was looked at
    return replace(state, message=refusal.message)


def _is_transition(before: JobState, after: JobState) -> bool:
    if before.phase is None and after.phase == Phase.QUEUED and not _refused(after):
        return False
    return _outline(before) != _outline(after)


def _refused(state: JobState) -> bool:
    accepted = state.conditions.get("Accepted")
    return accepted is not None and accepted.status != "True"


def _outline(state: JobState) -> tuple[object, ...]:
    """What makes a transition: everything but figures and words that move by themselves."""
    conditions = tuple(
        (kind, condition.status)
        for kind, condition in sorted(state.conditions.items())
        if kind not in ("Placed", *UNSATISFIED.values())
    )
    problem = state.conditions.get("AllRunning")
    stuck = problem.reason if problem is not None else ""
    return (state.phase, state.attempt, state.restarts, state.start_attempts, state.avoid, conditions, stuck)


def _identified(patch: Json, view: JobView) -> Json:
    """With the uid, so that a job of the same name made anew is never written to."""
    patch["metadata"]["uid"] = view.uid
    return patch


def _plain(status: Mapping[str, Any]) -> bytes:
    """A form in which two statuses are the same exactly if nothing is to be written."""
    body = dict(status)
    for name, key in (("conditions", "type"), ("attempts", "number")):
        if name in body:
            body[name] = sorted(body[name], key=lambda entry: str(entry[key]))
    return msgspec.json.encode(body, order="deterministic")
