"""Whether a job can be accepted as it stands, before anything is placed for it.

The API server itself is asked, by a dry run of one pod: quota, Pod Security, LimitRanges and the template's own
mistakes are reported in its words, and no copy of its rules can age here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from zlib import crc32

import msgspec

from berth.api.trainingjob import TrainingJobSpec
from berth.cluster.client import ApiClient
from berth.cluster.errors import ApiError, Forbidden, Invalid, NotFound
from berth.cluster.kinds import PODS
from berth.cluster.queue import WorkQueue
from berth.controllers.facts import shorten
from berth.controllers.gangs import Settings, probe_plan
from berth.controllers.observe import JobKey, JobView, Observer
from berth.render.gang import probe_pod

ACCEPTED_SECONDS: Final = 60.0
"""An accepted template is not tried again for so long, by whichever job of the namespace brings it."""
REFUSED_SECONDS: Final = 30.0
"""A refused one is tried again after so long: quotas are raised and templates' secrets appear."""

Rejection = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class _Opinion:
    rejection: Rejection | None
    until: float


class Judge:
    """Answers with (condition type, reason, message), or None where nothing speaks against a job."""

    def __init__(
        self,
        client: ApiClient,
        observer: Observer,
        queue: WorkQueue[JobKey],
        settings: Settings,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._observer, self._queue = client, observer, queue
        self._settings, self._clock = settings, clock
        self._opinions: dict[tuple[str, int], _Opinion] = {}
        self._asking: dict[tuple[str, int], asyncio.Lock] = {}

    def forget(self, uid: str) -> None:
        """Opinions are by template; they age by themselves, a few more are dropped here."""
        if len(self._opinions) > 1000:
            now = self._clock()
            self._opinions = {key: opinion for key, opinion in self._opinions.items() if opinion.until > now}
            self._asking = {key: lock for key, lock in self._asking.items() if key in self._opinions or lock.locked()}

    def priority(self, spec: TrainingJobSpec) -> int:
        """The value of the job's PriorityClass; 0 without one."""
        found = self._observer.caches.priority_classes.get(spec.priority_class_name or "")
        return found.value if found is not None else 0

    async def rejection(self, view: JobView) -> Rejection | None:
        """Why the job cannot be accepted. Raises: ClusterError when the API server cannot be asked."""
        if view.problem is not None:
            return ("Accepted", *view.problem)
        spec = view.spec
        assert spec is not None
        name = spec.priority_class_name
        if name and self._observer.caches.priority_classes.get(name) is None:
            return ("Accepted", "UnknownPriorityClass", f"spec.priorityClassName: there is no PriorityClass {name}")
        namespace = self._observer.caches.namespaces.get(view.key[0])
        if namespace is not None and namespace.terminating:
            return ("Accepted", "NamespaceTerminating", f"namespace {view.key[0]} is being deleted")
        return await self._ask(view)

    async def _ask(self, view: JobView) -> Rejection | None:
        body = probe_pod(probe_plan(view, self._settings, self._observer.fleet))
        key = (view.key[0], crc32(msgspec.json.encode(body)))
        async with self._asking.setdefault(key, asyncio.Lock()):
            known = self._opinions.get(key)
            if known is None or known.until <= self._clock():
                rejection = await self._dry_run(view, body)
                keep = ACCEPTED_SECONDS if rejection is None else REFUSED_SECONDS
                known = self._opinions[key] = _Opinion(rejection, self._clock() + keep)
        if known.rejection is not None:
            self._queue.add_after(view.key, max(known.until - self._clock(), 0.0) + 0.1)
        return known.rejection

    async def _dry_run(self, view: JobView, body: dict[str, object]) -> Rejection | None:
        try:
            await self._client.create(PODS, body, view.key[0], dry_run=True)
        except Forbidden as problem:
            return _forbidden(problem)
        except (Invalid, NotFound) as problem:
            return ("Accepted", "TemplateRefused", f"spec.template: {shorten(problem.message)}")
        except ApiError as problem:
            if problem.status == 400:
                return ("Accepted", "TemplateRefused", f"spec.template: {shorten(problem.message)}")
            raise
        return None


def _forbidden(problem: Forbidden) -> Rejection:
    words = shorten(problem.message)
    if "exceeded quota" in words or "quota" in words.lower():
        return ("QuotaReserved", "QuotaExceeded", words)
    return ("Accepted", "TemplateRefused", words)
