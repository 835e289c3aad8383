"""Demand of every service, asked for in one round each control period, and the forecaster that it feeds."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from berth.api.inferenceservice_parts import Signal
from berth.catalogue.records import Catalogue
from berth.controllers.services.calibration import load_of
from berth.controllers.services.forecaster import AUTO, Forecaster
from berth.controllers.services.measure import stated
from berth.controllers.services.supply import Choice
from berth.controllers.services.view import ServiceKey, ServiceView
from berth.fleet.fleet import Fleet
from berth.inference.calibrate import kept
from berth.inference.demand import EXPIRES_SECONDS, PHANTOM_SECONDS, Sample, SignalFacts, combine, phantom
from berth.inference.records import DemandState
from berth.inference.service import Seen, Verdict
from berth.inference.target import Target
from berth.telemetry.defects import Defects
from berth.telemetry.presets import (
    counts_arrivals,
    counts_at_zero,
    counts_requests_in_flight,
    presets,
    reported_by_replicas,
)
from berth.telemetry.readings import DemandSource, ServiceQuery, SignalQuery, SourceName, Telling
from berth.values import parse_duration, percent

_LOG: Final = logging.getLogger(__name__)

HISTORY_SECONDS: Final = 14 * 86_400.0
READING_SECONDS: Final = 3.0
"""Of a round that begins to read what was before: with many services that takes minutes, and no decision waits."""
AGAIN_SECONDS: Final = 60.0
"""After which a source that did not answer what was before is asked again."""
STEADY_SECONDS: Final = 180.0
"""A replica that has been ready for so long has been found and scraped twice by whoever does it once a minute."""
STEP_SECONDS: Final = 60.0
"""Of the forecaster, where nothing else is said."""


@dataclass(slots=True)
class Known:
    """What is known of one service's demand."""

    model: Forecaster
    signals: tuple[Signal, ...] = ()
    telling: Telling = field(default_factory=lambda: Telling({}))
    seen: Seen = field(default_factory=lambda: Seen(DemandState.UNKNOWN, reason="not asked yet"))
    read_history: bool = False
    unread: str = ""  # why it could not be read
    asked: float = -math.inf  # when the source was asked for history last
    doubted_at: float | None = None  # since when replicas report load while nothing comes in
    lost_at: float = 0.0  # when demand was lost last
    heard: bool = False  # demand has been known since this process began
    target: Target | None = None  # as the last decision saw it
    horizon: float = 0.0  # in seconds, of that
    times: dict[str, tuple[float, float]] = field(default_factory=dict)  # name -> (seconds, when it was told last)

    def hear(self, telling: Telling, now: float) -> None:
        """Take ``telling`` in; times that it does not have stand as they were until they are too old."""
        self.times |= {name: (value, now) for name, value in telling.seconds.items()}
        self.times = {name: told for name, told in self.times.items() if abs(now - told[1]) <= EXPIRES_SECONDS}
        self.telling = replace(telling, seconds={name: value for name, (value, _) in self.times.items()})

    def doubted(self, seen: Seen, why: str, now: float) -> Seen:
        """``seen`` with the reason to doubt it, once there has been one for long."""
        self.doubted_at = min(now if self.doubted_at is None else self.doubted_at, now) if why else None
        lasts = self.doubted_at is not None and now - self.doubted_at >= PHANTOM_SECONDS
        return replace(seen, doubt=why) if lasts else seen

    @property
    def trusted(self) -> Verdict:
        """The condition ForecastTrusted."""
        if self.target is not None and self.target.basis:
            return Verdict(None, "NotBackTested", f"scaling.forecast.method has no back-test: {self.target.basis}")
        if self.target is None or not self.target.trusted:
            little = "the back-test has less than two hours of history"
            why = f", none of it from before this process: {self.unread}" if self.unread else ""
            return Verdict(None, "TooLittleHistory", little + why)
        covers = f"{self.target.method} covers {percent(self.target.coverage)} of the time"
        if not self.target.keeps:
            served = f"and served {percent(self.target.served)} of the work"
            return Verdict(False, "PromiseMissed", f"{covers} {served}; {percent(self.target.quantile)} is promised")
        return Verdict(True, "BackTested", covers)


class DemandBook:
    """Demand by service uid. ``poll`` asks; everything else answers from what was last heard.

    ``default_source``: who is asked about a service that names no signal.
    """

    def __init__(
        self,
        source: DemandSource,
        fleet: Fleet,
        *,
        default_source: SourceName = "Prometheus",
        step_seconds: float = STEP_SECONDS,
        patience: float = READING_SECONDS,
    ) -> None:
        self._source, self._fleet, self._step, self._patience = source, fleet, step_seconds, patience
        self._default_source: SourceName = default_source
        self._reading: asyncio.Task[None] | None = None
        self._now = 0.0  # of the last round
        self._known: dict[str, Known] = {}
        self._defects = Defects(_LOG)  # by uid, empty for all

    def of(self, view: ServiceView) -> Known:
        """What is known of ``view``; its forecaster as it was recorded, if it was."""
        known = self._known.get(view.uid)
        if known is None:
            known = self._known[view.uid] = Known(Forecaster(self._step, view.forecast_record))
        return known

    def forget(self, uid: str) -> None:
        """The service is gone."""
        self._known.pop(uid, None)
        self._defects.over(uid)

    def forget_all_but(self, uids: Collection[str]) -> None:
        """The others are gone, also those that were asked for while they went."""
        for uid in self._known.keys() - uids:
            self.forget(uid)

    async def poll(
        self,
        views: Sequence[tuple[ServiceView, Choice]],
        pods: Mapping[ServiceKey, Mapping[str, float | None]],
        now: float,
    ) -> None:
        """Ask about every service in ``views`` once, and let the forecasters hear the answers.

        ``pods``: names of its live pods, and since when each is ready, None: it is not. What was before is read beside
        it, the first of ``views`` first; the round waits for a part of that at most.
        """
        queries: dict[str, ServiceQuery] = {}
        failed: dict[str, str] = {}
        for view, choice in views:
            try:
                query = self._prepare(view, choice, pods.get(view.key, {}), now)
            except Exception as problem:  # of one; the others are asked about
                failed[view.uid] = self._defect(view.uid, view.name, problem)
            else:
                queries |= {view.uid: query} if query.signals else {}
        await self._read_past([(view, choice, queries[view.uid]) for view, choice in views if view.uid in queries], now)
        percentiles = {view.key: _percentile(view) for view, _ in views}
        told, silent = await self._ask(list(queries.values()), percentiles)
        for view, choice in views:
            known, asked = self.of(view), queries.get(view.uid)
            known.hear(Telling({}), now)
            known.seen = Seen(DemandState.UNKNOWN, None, now, silent)
            if view.uid in failed:
                known.seen = replace(known.seen, reason=failed[view.uid])
            elif asked is None:
                known.seen = replace(known.seen, reason="scaling.demand.signals names none")
                continue
            elif not silent:
                self._hear(view, choice, told.get(view.key, Telling({})), len(asked.pods), now)
            if known.seen.state is not DemandState.UNKNOWN:
                known.lost_at, known.heard = 0.0, True
            else:
                known.lost_at = min(known.lost_at or now, now)
            known.model.observe(now, known.seen.work)

    def _prepare(self, view: ServiceView, choice: Choice, pods: Mapping[str, float | None], now: float) -> ServiceQuery:
        known = self.of(view)
        known.signals = signals_of(view, self._fleet.catalogue, self._default_source)
        if known.model.fit(choice.variants, view.rules, choice.measure):
            known.read_history, known.asked = False, -math.inf
        return _query(view, known.signals, pods, choice, now)

    def _hear(self, view: ServiceView, choice: Choice, telling: Telling, pods: int, now: float) -> None:
        """Take in what was told of one service; what cannot be read is not known, and stops no other."""
        known = self.of(view)
        try:
            facts, samples = _facts(known.signals, choice), _samples(known.signals, telling)
            seen = known.doubted(combine(facts, samples, pods, now), phantom(facts, samples, now), now)
            known.seen = replace(seen, doubt=seen.doubt or beyond_reach(known.signals, choice, _own_arguments(view)))
            known.hear(telling, now)
        except Exception as problem:
            known.seen = replace(known.seen, reason=self._defect(view.uid, view.name, problem))
        else:
            self._defects.over(view.uid)

    async def _ask(
        self, queries: Sequence[ServiceQuery], percentiles: Mapping[ServiceKey, int]
    ) -> tuple[Mapping[ServiceKey, Telling], str]:
        """What the source tells, and why it tells nothing of anybody."""
        try:
            told = await self._source.poll(queries, percentiles)
        except Exception as problem:
            return {}, self._defect("", "every service", problem)
        self._defects.over("")
        return told, ""

    def _defect(self, uid: str, whose: str, problem: Exception) -> str:
        """Words for a defect of ours, which is logged once."""
        self._defects.note(uid, f"{whose}: demand cannot be read", problem)
        return f"the answer cannot be read ({type(problem).__name__})"

    def stop(self) -> None:
        """Read no more of what was before."""
        if self._reading is not None:
            self._reading.cancel()

    async def _read_past(self, services: Sequence[tuple[ServiceView, Choice, ServiceQuery]], now: float) -> None:
        """Begin to read what was before of those who lack it, one after the other; that goes on after this returns."""
        self._now = now
        if self._reading is not None and not self._reading.done():
            return
        due = [
            _Past(view, query, _facts(known.signals, choice), _span(view), known.model.unit)
            for view, choice, query in services
            if (known := self.of(view)).model.unit
            and not known.read_history
            and abs(now - known.asked) >= AGAIN_SECONDS
        ]
        if due:
            self._reading = asyncio.create_task(self._read_all(due), name="demand of before")
            await asyncio.wait({self._reading}, timeout=self._patience)

    async def _read_all(self, due: Sequence[_Past]) -> None:
        for past in due:
            known = self._known.get(past.view.uid)
            if known is None:
                continue  # it has gone meanwhile
            try:
                known.read_history = await self._read(past, known)
            except Exception as problem:  # of one; the others are read
                self._defect(past.view.uid, past.view.name, problem)
            known.asked = self._now

    async def _read(self, past: _Past, known: Known) -> bool:
        """What the source remembers from before, once per process and unit; whether it answered."""
        until = self._now
        works: dict[float, float | None] = {}
        for entry, signal in zip(past.facts, past.query.signals, strict=True):
            found = await self._source.history(past.query, signal, until - past.span, until, self._step)
            if isinstance(found, str):
                known.unread = found
                return False
            for at, load in found:
                if load is not None:
                    works[at] = max(works.get(at) or 0.0, load / entry.capacity)
                else:
                    works.setdefault(at, None)
        if known.model.unit != past.unit:
            return False  # sized anew meanwhile, and loads were divided by what is no longer so
        known.unread = ""
        if works:
            known.model.recall(sorted(works.items()))
        return True


@dataclass(frozen=True, slots=True)
class _Past:
    """A service whose past is to be read: ``span`` seconds of it, for a forecaster in units of ``unit`` work."""

    view: ServiceView
    query: ServiceQuery
    facts: Sequence[SignalFacts]
    span: float
    unit: float


def slo_met(view: ServiceView, telling: Telling) -> bool | None:
    """Whether every promised time that was measured is kept; None where none was."""
    slo = view.spec.slo if view.spec is not None else None
    if slo is None:
        return None
    times = {"ttft": slo.ttft, "itl": slo.itl, "latency": slo.latency}
    return kept({name: parse_duration(text) for name, text in times.items() if text is not None}, telling.seconds)


def method_of(view: ServiceView) -> str:
    """The method of forecast that the user asks for."""
    scaling = view.spec.scaling if view.spec is not None else None
    return scaling.forecast.method if scaling is not None and scaling.forecast is not None else AUTO


def _span(view: ServiceView) -> float:
    scaling = view.spec.scaling if view.spec is not None else None
    asked = scaling.forecast.history if scaling is not None and scaling.forecast is not None else None
    return parse_duration(asked) if asked else HISTORY_SECONDS


def signals_of(view: ServiceView, catalogue: Catalogue, source: SourceName) -> tuple[Signal, ...]:
    """The signals of a service; one that names none is scaled on what ``source`` tells of its engine."""
    assert view.spec is not None
    scaling, runtime = view.spec.scaling, view.spec.runtime
    named = scaling.demand.signals if scaling is not None and scaling.demand is not None else None
    if named:
        return named
    engine = catalogue.serving.engines.get(runtime.engine) if runtime is not None else None
    if engine is None or not engine.preset:
        return ()
    return (Signal.model_validate({"name": "engine", "source": source, "preset": engine.preset}),)


def _query(
    view: ServiceView, signals: Sequence[Signal], pods: Mapping[str, float | None], choice: Choice, now: float
) -> ServiceQuery:
    asked = tuple(SignalQuery(entry.name, entry.source, entry.preset, entry.query or "") for entry in signals)
    steady = frozenset(name for name, since in pods.items() if since is not None and since <= now - STEADY_SECONDS)
    return ServiceQuery(*view.key, asked, tuple(pods), tuple(sorted(choice.variants)), steady)


def _facts(signals: Sequence[Signal], choice: Choice) -> list[SignalFacts]:
    return [
        SignalFacts(
            entry.name,
            _capacity(entry, choice),
            counts_at_zero(entry.preset) and entry.source != "Pods",
            counts_arrivals(entry.preset),
        )
        for entry in signals
    ]


def beyond_reach(signals: Sequence[Signal], choice: Choice, own: Sequence[str]) -> str:
    """The signal whose ``perReplica`` is more than a replica works on at once, and the fix; empty: there is none.

    ``own``: the user's arguments of the engine.
    """
    limits = [
        (entry, load)
        for entry in signals
        if (load := stated(entry)) is not None
        and counts_requests_in_flight(entry.preset)
        and reported_by_replicas(entry.preset)
    ]
    at_once = _at_once(choice, own) if limits else 0
    for entry, load in limits:
        if 0 < at_once < load:
            return (
                f"signal {entry.name} asks for a replica more only at {entry.per_replica} requests on each"
                f" (perReplica), and one works on {at_once} at once: the others wait; lower it, or leave it Auto"
            )
    return ""


def _at_once(choice: Choice, own: Sequence[str]) -> int:
    """Requests that a reference replica works on at once, as ``own`` arguments say or as sized; 0 not known."""
    estimate, engine = choice.found.reference_capacity, choice.request.engine
    given = engine.given("concurrency", own) if engine is not None else ""
    if given.isascii() and given.isdigit():
        return int(given)
    return estimate.concurrency if estimate is not None else 0


def _own_arguments(view: ServiceView) -> Sequence[str]:
    return view.spec.runtime.args if view.spec is not None and view.spec.runtime is not None else ()


def _capacity(signal: Signal, choice: Choice) -> float:
    """Load of one reference replica: as stated, else as sized; a replica of unknown size carries one unit."""
    load, estimate = stated(signal), choice.found.reference_capacity
    if load is not None:
        return load
    sized = load_of(estimate, signal.preset) if estimate is not None else 0.0
    return sized if sized > 0 else 1.0


def _samples(signals: Sequence[Signal], telling: Telling) -> dict[str, Sample]:
    """What was read, by signal; a load in a unit that nobody told is not known."""
    samples = {
        name: Sample(DemandState(entry.state), entry.load, entry.at, entry.reason)
        for name, entry in telling.readings.items()
    }
    for signal in signals:
        if signal.preset not in presets() and stated(signal) is None:
            samples[signal.name] = Sample(DemandState.UNKNOWN, reason="perReplica must say what one replica carries")
    return samples


def _percentile(view: ServiceView) -> int:
    slo = view.spec.slo if view.spec is not None else None
    return (slo.percentile if slo is not None else None) or 99
