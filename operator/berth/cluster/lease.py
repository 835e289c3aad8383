"""Which replica may write: an election over one ``coordination.k8s.io`` Lease.

Clocks of different machines are never compared. A candidate watches the lease's resourceVersion and counts, on its
own clock, how long it has stood still; only after the holder's full duration may it take over, and the write that
takes it carries that resourceVersion, so that one of two candidates wins. The holder counts from the moment *before*
it sent the renewal that succeeded, which is earlier than any moment at which a candidate can have seen it; and it
stops believing in itself ``renew_deadline`` after that, which is before any candidate may begin (10 s against 15 s).

At that deadline the process is ended by ``end``, not asked to wind up: whatever still runs in it must not write. A
process that was paused cannot notice the deadline in time, so :meth:`Election.fence` asks the clock again before each
write. After a clean stop the lease is released, and the next replica takes it at its next look, within 3 s.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Final

import msgspec

from berth.cluster.bookkeeping import Lease, LeaseSpec
from berth.cluster.client import ApiClient
from berth.cluster.clock import Timer, micro_time
from berth.cluster.errors import AlreadyExists, ClusterError, Conflict, NotFound, NotLeading
from berth.cluster.kinds import LEASES
from berth.cluster.wire import Meta

DURATION: Final = 15.0
RENEW_DEADLINE: Final = 10.0
RETRY: Final = 2.0
_RELEASES: Final = 3

_LOG: Final = logging.getLogger(__name__)


class Election:
    """One candidate. ``identity`` must be unique to this process, so that a restart is another candidate.

    ``on_started`` is called once, when this replica begins to lead; ``on_stopped`` once, when it ceases to, for
    whatever reason; ``end`` after that if it ceased against its will, and must not return in production.
    """

    def __init__(
        self,
        client: ApiClient,
        name: str,
        namespace: str,
        identity: str,
        *,
        end: Callable[[], object],
        on_started: Callable[[], object] | None = None,
        on_stopped: Callable[[], object] | None = None,
        duration: float = DURATION,
        renew_deadline: float = RENEW_DEADLINE,
        retry: float = RETRY,
    ) -> None:
        if not duration > renew_deadline > retry > 0:
            raise ValueError("a lease needs duration > renew deadline > retry > 0")
        self.identity, self.elected = identity, asyncio.Event()
        self._client, self._clock = client, client.transport.clock
        self._name, self._namespace = name, namespace
        self._on_started, self._on_stopped, self._end = on_started, on_stopped, end
        self._duration, self._renew_deadline, self._retry = duration, renew_deadline, retry
        self._seen = Lease()
        self._seen_at = 0.0
        self._leading = self._over = False
        self._renewed_at = 0.0
        self._alarm: Timer | None = None

    @property
    def leading(self) -> bool:
        """Whether this replica certainly leads at this moment."""
        return self._leading and self._clock.now() < self._renewed_at + self._renew_deadline

    @property
    def holder(self) -> str:
        """The identity last seen in the lease; empty when nobody's."""
        return self._seen.spec.holder_identity or ""

    def fence(self) -> None:
        """Called before each write. Raises: NotLeading."""
        if not self.leading:
            raise NotLeading(f"{self.identity} does not hold the lease {self._namespace}/{self._name}")

    async def run(self) -> None:
        """Stand for election, then lead, until cancelled or until the leadership is lost."""
        while not await self._attempt():
            await self._clock.sleep(self._retry * random.uniform(1.0, 1.5))  # noqa: S311 - only spreads load
        _LOG.info("%s leads", self.identity)
        self.elected.set()
        if self._on_started is not None:
            self._on_started()
        while self._leading:
            await self._clock.sleep(self._retry)
            if self._leading and not await self._attempt() and self.holder not in ("", self.identity):
                self._lose(f"{self.holder} holds the lease")

    async def release(self) -> None:
        """Give the lease up, after everything that writes has stopped and :meth:`run` was cancelled. Never raises."""
        if not self._leading:
            return
        self._cease()
        for _ in range(_RELEASES):
            try:
                await self._write(self._nobodys())
            except ClusterError as problem:  # a renewal was under way, or kopf has just closed the session
                _LOG.info("the lease is not released yet: %s", problem)
                await self._look_again()
                if self.holder == self.identity:
                    continue
            return
        _LOG.warning("the lease could not be released and will run out instead")

    def _nobodys(self) -> LeaseSpec:
        now, transitions = micro_time(self._clock.wall()), self._seen.spec.lease_transitions
        return LeaseSpec(lease_duration_seconds=1, renew_time=now, lease_transitions=transitions)

    async def _attempt(self) -> bool:
        """Acquire or renew; whether this replica holds the lease for certain afterwards."""
        began = self._clock.now()
        try:
            if not self._leading:
                await self._look()
                if not self._free():
                    return False
            await self._write(self._claim())
        except (Conflict, AlreadyExists, NotFound):
            await self._look_again()
            return False
        except ClusterError as problem:
            _LOG.warning("lease %s/%s: %s", self._namespace, self._name, problem)
            return False
        self._hold(began)
        return self._leading

    async def _look(self) -> None:
        try:
            self._note(await self._client.get(LEASES, self._name, self._namespace, urgent=True))
        except NotFound:
            self._seen = Lease()

    async def _look_again(self) -> None:
        """After a write that was refused: see whose the lease is."""
        try:
            await self._look()
        except ClusterError as problem:
            _LOG.warning("lease %s/%s: %s", self._namespace, self._name, problem)

    def _note(self, lease: Lease) -> None:
        if lease.metadata.resource_version != self._seen.metadata.resource_version:
            self._seen, self._seen_at = lease, self._clock.now()

    def _free(self) -> bool:
        """Whether the lease may be taken: nobody's, ours, or unchanged for the whole duration that it states."""
        if self.holder in ("", self.identity):
            return True
        stated = self._seen.spec.lease_duration_seconds or self._duration
        return self._clock.now() >= self._seen_at + stated

    def _claim(self) -> LeaseSpec:
        now = micro_time(self._clock.wall())
        before = self._seen.spec
        ours = self.holder == self.identity
        transitions = before.lease_transitions or 0
        return LeaseSpec(
            holder_identity=self.identity,
            lease_duration_seconds=int(self._duration),
            acquire_time=before.acquire_time if ours else now,
            renew_time=now,
            lease_transitions=transitions if ours or not self._seen.metadata.uid else transitions + 1,
        )

    async def _write(self, spec: LeaseSpec) -> None:
        if self._seen.metadata.uid:
            lease = msgspec.structs.replace(self._seen, spec=spec)
            written = await self._client.update(LEASES, self._name, lease, self._namespace, urgent=True)
        else:
            lease = Lease(metadata=Meta(name=self._name, namespace=self._namespace), spec=spec)
            written = await self._client.create(LEASES, lease, self._namespace, urgent=True)
        self._note(written)

    def _hold(self, since: float) -> None:
        """The lease is ours as of ``since``: put the hard deadline off."""
        if self._over:
            return
        self._leading, self._renewed_at = True, since
        if self._alarm is not None:
            self._alarm.cancel()
        left = since + self._renew_deadline - self._clock.now()
        self._alarm = self._clock.call_later(left, lambda: self._lose("it could not be renewed in time"))

    def _lose(self, why: str) -> None:
        if not self._leading:
            return
        _LOG.error("%s no longer leads: %s", self.identity, why)
        self._cease()
        self._end()

    def _cease(self) -> None:
        self._leading, self._over = False, True
        self.elected.clear()
        if self._alarm is not None:
            self._alarm.cancel()
        if self._on_stopped is not None:
            self._on_stopped()
