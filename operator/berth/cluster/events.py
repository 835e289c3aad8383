"""Events that people read, written so that they never cost more than they tell.

Reconcilers call :meth:`EventRecorder.normal` and :meth:`EventRecorder.warning` and go on: nothing here blocks,
raises, or grows without bound. What keeps the writes few:

* *Fold.* A gang that is accepted, placed and started within three seconds deserves one event, not three. A Normal
  event whose reason another reason supersedes waits ``hold`` seconds and is dropped if that one comes meanwhile.
* *Count.* The same event again (object, type, reason, note) becomes a series: one write when it has grown, at most
  one in ``series_interval``.
* *Drop.* An object that talks too much, a full queue or a server that refuses lose events, which is counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from berth.cluster.bookkeeping import Event, EventSeries, ObjectReference
from berth.cluster.client import ApiClient
from berth.cluster.clock import Timer, micro_time
from berth.cluster.errors import AlreadyExists, ClusterError, Forbidden, Invalid, NotFound, NotLeading
from berth.cluster.kinds import EVENTS, Kind
from berth.cluster.ratelimit import TokenBucket
from berth.cluster.wire import Meta

HOLD: Final = 3.0
CAPACITY: Final = 2000
SERIES_INTERVAL: Final = 300.0
FORGET: Final = 1800.0  # seconds; servers keep events for an hour, so the same event later is a new one
REMEMBERED: Final = 4096  # identities and talkative objects kept in mind
_NOTE_BYTES: Final = 1024  # the API's limit
_TRIES: Final = 3
_OBJECT_BURST: Final = 25  # events of one object at once, as in client-go's spam filter
_OBJECT_RATE: Final = 1 / 30
_HOPELESS: Final = (Forbidden, Invalid, NotFound, NotLeading)

_LOG: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class Counts:
    """What became of the events, for metrics; each event is counted once, a series write not at all."""

    written: int = 0
    folded: int = 0
    repeated: int = 0
    dropped: int = 0
    failed: int = 0


@dataclass(slots=True)
class _Story:
    """One distinct event and how often it was told."""

    event: Event
    count: int = 1
    told: int = 0  # of them, how many the server knows of
    last_at: float = 0.0
    last_time: str = ""
    alarm: Timer | None = None


@dataclass(slots=True)
class _Held:
    story: _Story
    identity: tuple[str, ...]
    alarm: Timer


def about(kind: Kind[Any], meta: Meta) -> ObjectReference:
    """The reference that an event on this object carries."""
    return ObjectReference(kind.api_version, kind.kind, meta.namespace, meta.name, meta.uid)


class EventRecorder:
    """Records events as ``controller`` (a qualified name) on ``instance`` (this pod).

    ``supersedes`` maps a reason to the reasons that it makes superfluous, such as
    ``{"Started": {"Accepted", "Placed"}, "Placed": {"Accepted"}}``. Run :meth:`run` as a task; on a clean stop await
    :meth:`flush` while writing is still allowed.
    """

    def __init__(
        self,
        client: ApiClient,
        controller: str,
        instance: str,
        *,
        supersedes: Mapping[str, Collection[str]] | None = None,
        hold: float = HOLD,
        capacity: int = CAPACITY,
        limiter: TokenBucket | None = None,
        series_interval: float = SERIES_INTERVAL,
    ) -> None:
        self.counts = Counts()
        self._client, self._clock = client, client.transport.clock
        self._controller, self._instance = controller, instance[:128]
        self._supersedes = supersedes or {}
        self._foldable = frozenset(reason for reasons in self._supersedes.values() for reason in reasons)
        self._hold, self._capacity, self._series_interval = hold, capacity, series_interval
        self._limiter = limiter or TokenBucket(25.0, 100, self._clock)
        self._stories: OrderedDict[tuple[str, ...], _Story] = OrderedDict()
        self._talkers: OrderedDict[str, TokenBucket] = OrderedDict()
        self._held: dict[str, list[_Held]] = {}  # uid -> held events, oldest first
        self._queue: deque[_Story] = deque()
        self._wake = asyncio.Event()
        self._names = 0

    @property
    def pending(self) -> int:
        """Events that are held or wait to be written."""
        return len(self._queue) + sum(len(held) for held in self._held.values())

    def normal(self, regarding: ObjectReference, reason: str, note: str, action: str = "") -> None:
        """Something happened as it should. ``action`` is what was done (the reason where it says that already)."""
        self._record(regarding, "Normal", reason, note, action)

    def supersede(self, regarding: ObjectReference, reason: str) -> None:
        """An event of ``reason`` is to come, or whatever follows it: what it makes superfluous waits no more."""
        self._fold(regarding.uid, reason)

    def warning(self, regarding: ObjectReference, reason: str, note: str, action: str = "") -> None:
        """Something that somebody may have to act on; never held back."""
        self._record(regarding, "Warning", reason, note, action)

    async def run(self) -> None:
        """Write events until cancelled."""
        while True:
            while self._queue:
                await self._limiter.take()
                if self._queue:
                    await self._tell(self._queue.popleft())
            self._wake.clear()
            await self._wake.wait()

    async def flush(self, within: float = 5.0) -> None:
        """Write what is held, queued or counted, ``within`` seconds; what remains is lost and counted."""
        for held in [each for group in self._held.values() for each in group]:
            held.alarm.cancel()
            self._queue.append(held.story)
        self._held.clear()
        for story in self._stories.values():
            if story.alarm is not None:
                story.alarm.cancel()
                story.alarm = None
                self._queue.append(story)
        try:
            async with asyncio.timeout(within):
                while self._queue:
                    await self._tell(self._queue.popleft())
        except TimeoutError:
            self.counts.dropped += len(self._queue) + 1
            self._queue.clear()

    def _record(self, regarding: ObjectReference, type_: str, reason: str, note: str, action: str) -> None:
        note = note.encode()[:_NOTE_BYTES].decode(errors="ignore")
        identity = (regarding.uid, regarding.namespace, regarding.name, type_, reason, note)
        self._fold(regarding.uid, reason)
        if self._repeat(identity):
            return
        if self.pending >= self._capacity or self._talker(regarding.uid).ready() > 0:
            self.counts.dropped += 1
            return
        self._talker(regarding.uid).reserve()
        story = _Story(self._event(regarding, type_, reason, note, action), last_at=self._clock.now())
        self._remember(identity, story)
        if type_ == "Normal" and reason in self._foldable:
            alarm = self._clock.call_later(self._hold, lambda: self._release(regarding.uid, story))
            self._held.setdefault(regarding.uid, []).append(_Held(story, identity, alarm))
        else:
            self._enqueue(story)

    def _fold(self, uid: str, reason: str) -> None:
        superfluous = self._supersedes.get(reason, ())
        group = self._held.get(uid)
        if not superfluous or not group:
            return
        for held in [each for each in group if each.story.event.reason in superfluous]:
            held.alarm.cancel()
            group.remove(held)
            self._stories.pop(held.identity, None)
            self.counts.folded += 1
        if not group:
            del self._held[uid]

    def _release(self, uid: str, story: _Story) -> None:
        group = self._held.pop(uid, [])
        rest = [held for held in group if held.story is not story]
        if rest:
            self._held[uid] = rest
        self._enqueue(story)

    def _repeat(self, identity: tuple[str, ...]) -> bool:
        """Count the event if it was told before, and plan to say so."""
        story = self._stories.get(identity)
        if story is None:
            return False
        if self._clock.now() - story.last_at > FORGET:
            del self._stories[identity]
            return False
        self._stories.move_to_end(identity)
        self.counts.repeated += 1
        story.count += 1
        story.last_at, story.last_time = self._clock.now(), micro_time(self._clock.wall())
        if story.alarm is None:
            story.alarm = self._clock.call_later(self._series_interval, lambda: self._grown(story))
        return True

    def _grown(self, story: _Story) -> None:
        story.alarm = None
        self._enqueue(story)

    def _remember(self, identity: tuple[str, ...], story: _Story) -> None:
        self._stories[identity] = story
        if len(self._stories) > REMEMBERED:
            _, oldest = self._stories.popitem(last=False)
            if oldest.alarm is not None:
                oldest.alarm.cancel()

    def _talker(self, uid: str) -> TokenBucket:
        bucket = self._talkers.get(uid)
        if bucket is None:
            bucket = self._talkers[uid] = TokenBucket(_OBJECT_RATE, _OBJECT_BURST, self._clock)
            if len(self._talkers) > REMEMBERED:
                self._talkers.popitem(last=False)
        self._talkers.move_to_end(uid)
        return bucket

    def _event(self, regarding: ObjectReference, type_: str, reason: str, note: str, action: str) -> Event:
        now = self._clock.wall()
        self._names += 1
        name = f"{regarding.name[:200]}.{int(now.timestamp() * 1e6):x}{self._names & 0xFFFF:04x}"
        return Event(
            metadata=Meta(name=name, namespace=regarding.namespace or "default"),
            event_time=micro_time(now),
            reporting_controller=self._controller,
            reporting_instance=self._instance,
            action=action or reason,
            reason=reason,
            regarding=regarding,
            note=note,
            type=type_,
        )

    def _enqueue(self, story: _Story) -> None:
        self._queue.append(story)
        self._wake.set()

    async def _tell(self, story: _Story) -> None:
        for attempt in range(_TRIES):
            try:
                await self._write(story)
            except _HOPELESS as problem:
                _LOG.debug("event %s is lost: %s", story.event.metadata.name, problem)
                break
            except ClusterError as problem:
                _LOG.info("event %s: %s", story.event.metadata.name, problem)
                if attempt + 1 < _TRIES:
                    await self._clock.sleep(2.0**attempt)
            else:
                return
        self.counts.failed += 1

    async def _write(self, story: _Story) -> None:
        event, meta = story.event, story.event.metadata
        if story.told == 0:
            try:
                await self._client.create(EVENTS, event, meta.namespace)
            except AlreadyExists:
                _LOG.debug("event %s was written by a try that got no answer", meta.name)
            story.told = 1
            self.counts.written += 1
        elif story.count > story.told:
            told = story.count
            series = EventSeries(count=told, last_observed_time=story.last_time)
            try:
                await self._client.patch(EVENTS, meta.name, {"series": series}, meta.namespace)
            except NotFound:  # deleted, or older than the server keeps events
                await self._client.create(EVENTS, msgspec.structs.replace(event, series=series), meta.namespace)
            story.told = told
