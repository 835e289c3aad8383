"""Demand from a Prometheus server: one query per figure for all services, and range queries for what was before.

An empty answer means that nobody reports, which is not a zero; NaN and infinity are not known either. An answer from
which a store is missing counts for the services all of whose pods it shows. Error texts are short and carry neither
credentials nor addresses beyond the server's own name.
"""

from __future__ import annotations

import asyncio
import math
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from berth.telemetry.answers import NotWhole, PrometheusError, Series, series_of
from berth.telemetry.loads import Answer, Loads, pod_of
from berth.telemetry.presets import Preset, presets
from berth.telemetry.promql import (
    begun_query,
    buckets_query,
    load_query,
    owner_by_labels,
    owner_by_pod,
    service_query,
)
from berth.telemetry.quantiles import bound_of, from_buckets
from berth.telemetry.readings import (
    History,
    Reading,
    ServiceName,
    ServiceQuery,
    SignalQuery,
    Telling,
    measured,
    plausible,
)
from berth.telemetry.sessions import session
from berth.telemetry.times import TIMES_SECONDS, Times

MOST_POINTS: Final = 10_000
"""Of one range query; servers refuse 11,000."""
ROUND_SECONDS: Final = 10.0
"""Of all that a round asks: decisions wait for it. What has not been answered by then is not known."""
CUSTOM_PARALLEL: Final = 16
"""Custom queries under way at once, beside all others; how long they take is up to whoever wrote them."""
CUSTOM_PER_NAMESPACE: Final = 2
MOST_BYTES: Final = 64 << 20
"""Of one answer; of a custom query's, which has to give one series, far less."""
MOST_CUSTOM_BYTES: Final = 1 << 20
BYTES_AT_ONCE: Final = 256 << 10
"""A longer answer is read in a thread, beside the loop."""


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """Where the server is and how to speak with it. Paths of files are read at each use, so that they may rotate.

    ``allow_custom``: run users' own PromQL, through ``enforcer_url``, a proxy that binds a query to the namespace given
    in its parameter ``namespace``; without one Custom is refused.
    """

    url: str
    token_file: Path | None = None
    ca_file: Path | None = None
    timeout_seconds: float = 10.0
    allow_custom: bool = False
    enforcer_url: str = ""
    parallel: int = 4


class Prometheus:
    """The API of one server. Use as an async context manager, or call :meth:`close`."""

    def __init__(self, settings: PrometheusSettings, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.settings, self._transport = settings, transport
        self._sessions: list[httpx.AsyncClient] = []  # the one in use is the last
        self._trusted: bytes | None = None  # what the file of the authority held when that was made
        self._gate = asyncio.Semaphore(settings.parallel)
        self._custom_gate = asyncio.Semaphore(CUSTOM_PARALLEL)

    async def close(self) -> None:
        """End its connections."""
        while self._sessions:
            await self._sessions.pop().aclose()

    async def _session(self) -> httpx.AsyncClient:
        """A client that trusts what the file of the authority holds now. Raises: OSError, ValueError."""
        file = self.settings.ca_file
        trusted = file.read_bytes() if file is not None else b""
        if trusted != self._trusted:
            verify = ssl.create_default_context(cadata=trusted.decode()) if file is not None else True
            made = session(timeout=self.settings.timeout_seconds, verify=verify, transport=self._transport)
            older, self._trusted = self._sessions[:-1], trusted
            self._sessions = [*self._sessions[-1:], made]  # the last one may still be waited for
            for each in older:
                await each.aclose()
        return self._sessions[-1]

    async def instant(self, query: str, *, url: str = "", **parameters: str) -> list[Series]:
        """The value of ``query`` now. Raises: PrometheusError."""
        return await self._ask("query", {"query": query, **parameters}, url)

    async def range(self, query: str, start: float, end: float, step: float) -> list[Series]:
        """The values of ``query`` from ``start`` to ``end``, in as many requests as the server's limit asks for.

        Raises: PrometheusError.
        """
        series: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
        at = start
        while at <= end:
            until = min(end, at + (MOST_POINTS - 1) * step)
            limits = {"start": f"{at:.3f}", "end": f"{until:.3f}", "step": f"{step:g}"}
            for found in await self._ask("query_range", {"query": query, **limits}, ""):
                series.setdefault(tuple(sorted(found.labels.items())), []).extend(found.points)
            at = until + step
        return [Series(dict(labels), tuple(points)) for labels, points in series.items()]

    async def _ask(self, path: str, form: Mapping[str, str], url: str) -> list[Series]:
        place = httpx.URL(f"{(url or self.settings.url).rstrip('/')}/api/v1/{path}")
        most = MOST_CUSTOM_BYTES if url else MOST_BYTES
        try:
            async with (
                self._custom_gate if url else self._gate,
                (await self._session()).stream("POST", place, data=dict(form), headers=self._headers(place)) as answer,
            ):
                body = bytearray()
                async for part in answer.aiter_bytes():
                    body += part
                    if len(body) > most:
                        raise PrometheusError(f"Prometheus' answer is longer than {most >> 10} KiB")
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, OSError) as problem:
            raise PrometheusError(f"Prometheus does not answer ({type(problem).__name__})") from problem
        custom = bool(url)
        if len(body) > BYTES_AT_ONCE:
            return await asyncio.to_thread(series_of, bytes(body), answer.status_code, strict=custom)
        return series_of(bytes(body), answer.status_code, strict=custom)

    def _headers(self, place: httpx.URL) -> dict[str, str]:
        """The token, for the server that it is meant for: another host never sees it, nor does a plainer scheme."""
        file, server = self.settings.token_file, httpx.URL(self.settings.url)
        if file is None or place.host != server.host or (server.scheme == "https" and place.scheme != "https"):
            return {}
        return {"Authorization": f"Bearer {file.read_text().strip()}"}


class PrometheusSource:
    """A :class:`~berth.telemetry.readings.DemandSource` for the signals whose source is Prometheus."""

    def __init__(
        self, server: Prometheus, *, round_seconds: float = ROUND_SECONDS, wall: Callable[[], float] = time.time
    ) -> None:
        self._server, self._round, self._wall = server, round_seconds, wall
        self._times = Times()
        self._times_at = -math.inf
        self._reported: dict[tuple[ServiceName, str], frozenset[str]] = {}  # service, preset -> pods heard of before

    async def poll(
        self, services: Sequence[ServiceQuery], percentile: Mapping[ServiceName, int]
    ) -> Mapping[ServiceName, Telling]:
        """Ask about all ``services``: one query per figure of each preset in use, one per custom query."""
        deadline = asyncio.get_running_loop().time() + self._round
        (loads, tokens), customs = await asyncio.gather(
            self._figures(services, percentile, deadline), self._customs(services, deadline)
        )
        told: dict[ServiceName, Telling] = {}
        reported: dict[tuple[ServiceName, str], frozenset[str]] = {}
        for service in services:
            readings: dict[str, Reading] = {}
            in_flight: dict[str, float] = {}
            waiting: dict[str, float] = {}
            for signal in service.signals:
                if signal.source != "Prometheus":
                    continue
                if signal.preset == "Custom":
                    readings[signal.name] = customs[service.key, signal.name]
                else:
                    answer = loads[signal.preset]
                    place = (service.key, signal.preset)
                    before = self._reported.get(place, frozenset()) & frozenset(service.pods)
                    reported[place] = before | answer.pods.get(service.key, frozenset())
                    readings[signal.name] = answer.reading(service, presets()[signal.preset], self._wall(), before)
                    in_flight |= answer.by_pod.get(service.key, {})
                    waiting |= answer.waiting.get(service.key, {})
            times = self._times.of(service.key, self._wall())
            told[service.key] = Telling(readings, in_flight, waiting, times, tokens.get(service.key))
        self._reported = reported
        return told

    async def history(
        self, service: ServiceQuery, signal: SignalQuery, since: float, until: float, step: float
    ) -> History | str:
        """The load of one signal on a grid; empty where the server knows nothing, why where it does not answer.

        Nor does an answer count that is not whole: what is missing would look like a past without load.
        """
        preset = presets().get(signal.preset)
        if signal.source != "Prometheus" or preset is None or not (preset.matchers or service.variants):
            return []
        total: dict[float, float] = {}
        try:
            for aliases in preset.load:
                for series in await self._server.range(service_query(aliases, preset, service), since, until, step):
                    for at, value in series.points:
                        if plausible(value) and since - step <= at <= until + step:
                            total[at] = total.get(at, 0.0) + value
        except PrometheusError as problem:
            return str(problem)
        if not total:
            return []
        first = min(total)
        count = round((max(total) - first) / step)
        return [(first + i * step, total.get(first + i * step)) for i in range(count + 1)]

    async def _figures(
        self, services: Sequence[ServiceQuery], percentile: Mapping[ServiceName, int], deadline: float
    ) -> tuple[dict[str, Loads], dict[ServiceName, float]]:
        """Loads by preset and tokens by service; of a preset whose loads are not told nothing more is asked."""
        used = {signal.preset for service in services for signal in service.signals if signal.source == "Prometheus"}
        asked = [preset for name, preset in presets().items() if name in used]
        answers = await asyncio.gather(*(self._loads(preset, services, deadline) for preset in asked))
        loads = {preset.name: answer for preset, answer in zip(asked, answers, strict=True)}
        heard = [preset for preset in asked if not loads[preset.name].problem]
        await self._measure_times(heard, services, percentile, deadline)
        return loads, await self._tokens(heard, services, deadline)

    async def _instant(self, query: str, deadline: float) -> Answer:
        """Raises: PrometheusError, also when ``deadline`` of the loop's clock is over."""
        try:
            async with asyncio.timeout_at(deadline):
                return Answer(await self._server.instant(query))
        except NotWhole as problem:
            return Answer(problem.series, str(problem))
        except TimeoutError as problem:
            raise PrometheusError("Prometheus does not answer in time") from problem

    async def _loads(self, preset: Preset, services: Sequence[ServiceQuery], deadline: float) -> Loads:
        loads = Loads()
        pods, by_key = owner_by_pod(services), {service.key: service for service in services}
        asleep = {service.key: service for service in _users(preset, services) if not service.pods}
        for aliases in preset.load:
            for place, labels in enumerate(preset.labels()):
                query = load_query(aliases, labels, counter=preset.kind == "counter")
                try:
                    answer = await self._instant(query, deadline)
                except PrometheusError as problem:
                    loads.problem = str(problem)
                    return loads
                loads.answers.append(answer)
                for series in answer.series:
                    value = series.points[0][1]
                    if preset.matchers:
                        owner = owner_by_labels(preset.matchers[place], series.labels, by_key)
                    else:
                        owner = pods.get(pod_of(series))
                    if owner is not None:
                        pod = series.labels.get("pod", "") if not preset.matchers else ""
                        loads.add(owner, pod, value, waits=aliases == preset.waiting)
                if asleep and preset.counts_at_zero and preset.kind == "counter":
                    loads.wake(await self._begun(aliases, labels, preset.matchers[place], asleep, deadline))
        return loads

    async def _begun(
        self,
        aliases: Sequence[str],
        labels: Sequence[str],
        matcher: Mapping[str, str],
        asleep: Mapping[ServiceName, ServiceQuery],
        deadline: float,
    ) -> dict[ServiceName, float]:
        """Of services without a replica the requests a second of counters that have just begun."""
        try:
            answer = await self._instant(begun_query(aliases, labels), deadline)
        except PrometheusError:
            return {}
        found = ((owner_by_labels(matcher, series.labels, asleep), series.points[0][1]) for series in answer.series)
        return {owner: value for owner, value in found if owner is not None and plausible(value)}

    async def _measure_times(
        self,
        asked: Sequence[Preset],
        services: Sequence[ServiceQuery],
        percentile: Mapping[ServiceName, int],
        deadline: float,
    ) -> None:
        if not asked:
            self._times_at = -math.inf  # anew as soon as something answers
        if not asked or abs(self._wall() - self._times_at) < TIMES_SECONDS:
            return
        self._times_at = self._wall()
        owners = owner_by_pod(services)
        for preset in asked:
            mine = _users(preset, services)
            for name, aliases in preset.seconds.items():
                try:
                    answer = await self._instant(buckets_query(aliases), deadline)
                except PrometheusError:
                    continue
                buckets: dict[ServiceName, dict[float, float]] = {}
                for series in answer.series:
                    owner = owners.get(pod_of(series))
                    bound, count = bound_of(series.labels), series.points[0][1]
                    if owner is not None and bound is not None and plausible(count):
                        counts = buckets.setdefault(owner, {})
                        counts[bound] = counts.get(bound, 0.0) + count
                heard = [service.key for service in mine if answer.covers(service)]
                values = {key: from_buckets(buckets.get(key, {}), percentile.get(key, 99) / 100) for key in heard}
                self._times.hear(preset.name, name, values, self._wall())
        self._times.forget_all_but({service.key for service in services})

    async def _tokens(
        self, asked: Sequence[Preset], services: Sequence[ServiceQuery], deadline: float
    ) -> dict[ServiceName, float]:
        owners = owner_by_pod(services)
        rates: dict[ServiceName, float] = {}
        partly: set[ServiceName] = set()
        for preset in asked:
            if not preset.tokens:
                continue
            mine = _users(preset, services)
            try:
                answer = await self._instant(load_query(preset.tokens, ("namespace", "pod"), counter=True), deadline)
            except PrometheusError:
                partly |= {service.key for service in mine}
                continue
            partly |= {service.key for service in mine if not answer.covers(service)}
            for series in answer.series:
                owner = owners.get(pod_of(series))
                if owner is not None and plausible(series.points[0][1]):
                    rates[owner] = rates.get(owner, 0.0) + series.points[0][1]
        return {key: rate for key, rate in rates.items() if key not in partly}

    async def _customs(
        self, services: Sequence[ServiceQuery], deadline: float
    ) -> dict[tuple[ServiceName, str], Reading]:
        """The answers to users' own queries, by service and signal; slow ones keep only their own namespace waiting."""
        asked = {
            (service.key, signal.name): (service, signal)
            for service in services
            for signal in service.signals
            if signal.source == "Prometheus" and signal.preset == "Custom"
        }
        turns = {service.namespace: asyncio.Semaphore(CUSTOM_PER_NAMESPACE) for service, _ in asked.values()}

        async def answer(service: ServiceQuery, signal: SignalQuery) -> Reading:
            try:
                async with asyncio.timeout_at(deadline), turns[service.namespace]:
                    return await self._custom(service, signal)
            except TimeoutError:
                return Reading("Unknown", reason=f"the query was not answered within {self._round:g} s")

        answers = await asyncio.gather(*(answer(service, signal) for service, signal in asked.values()))
        return dict(zip(asked, answers, strict=True))

    async def _custom(self, service: ServiceQuery, signal: SignalQuery) -> Reading:
        settings = self._server.settings
        if not settings.allow_custom:
            return Reading("Unknown", reason="custom queries are switched off in this installation (prometheus.custom)")
        if not settings.enforcer_url:
            return Reading(
                "Unknown",
                reason="custom queries need prometheus.custom.enforcerUrl, which binds a query to its namespace",
            )
        try:
            found = await self._server.instant(signal.query, url=settings.enforcer_url, namespace=service.namespace)
        except PrometheusError as problem:
            return Reading("Unknown", reason=str(problem))
        if len(found) != 1:
            return Reading("Unknown", reason=f"the query gives {len(found)} series; aggregate it to one")
        return measured(found[0].points[0][1], self._wall())


def _users(preset: Preset, services: Sequence[ServiceQuery]) -> list[ServiceQuery]:
    """Those that have a signal of ``preset``."""
    return [service for service in services if any(signal.preset == preset.name for signal in service.signals)]
