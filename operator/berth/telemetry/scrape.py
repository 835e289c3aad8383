"""Demand from the replicas themselves, where no Prometheus is there to ask.

Every started pod is asked for its ``/metrics``, within bounds of count, size and time: a replica is the user's own code
and may answer slowly, endlessly or not at all. Some silent pods are made up for by the others; where more than half are
silent the demand is not known. Pods remember nothing, so there is no history, and a rate needs two rounds.

Time is spent on those first that may be expected to answer: services have their turns pod by pod, and a pod that let
its time pass comes after all others, or a namespace that drops what is sent to it would leave no time for the rest.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final

import httpx
from prometheus_client.parser import text_string_to_metric_families

from berth.telemetry.counters import Counter
from berth.telemetry.presets import Preset, presets
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

SOURCE: Final = "Pods"
MOST_OF_A_LINE: Final = 8 << 10
"""Characters of one sample: the time to parse one grows with the square of its labels."""
MOST_OF_ALL_LINES: Final = 512 << 10
"""Characters of all samples of one pod that are wanted; an engine has a few, a web server some hundreds."""
PodName = tuple[str, str]
"""(namespace, name)."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a pod shows its metrics, over HTTP."""

    host: str
    port: int
    path: str = "/metrics"


Resolver = Callable[[str, str], Endpoint | None]
"""From (namespace, pod); None while there is nothing to ask yet."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a round may take: ``pods`` of each service, ``parallel`` requests at once, and of each answer ``bytes``.

    ``seconds`` for one answer, ``round_seconds`` for all; what has not answered by then is silent.
    """

    pods: int = 200
    parallel: int = 32
    bytes: int = 4 << 20
    seconds: float = 3.0
    round_seconds: float = 10.0


DEFAULT_BOUNDS: Final = Bounds()


class Silent(Exception):
    """A pod gave no answer that can be used; the message says why in a few words."""


@dataclass(slots=True)
class _Sum:
    """One signal over the pods of one service."""

    asked: int = 0
    by_pod: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def reading(self, pods: int, now: float) -> Reading:
        """What is known; ``pods`` is the number of those that could be asked, of which ``asked`` were."""
        if not self.asked:
            return Reading("Unknown", at=now, reason="no replica has started")
        silent = self.asked - len(self.by_pod)
        if 2 * silent > self.asked:
            why = max(self.problems, key=self.problems.count)
            return Reading("Unknown", at=now, reason=f"{silent} of {self.asked} replicas are silent: {why}")
        return measured(sum(self.by_pod.values()) * pods / len(self.by_pod), now)


class PodSource:
    """A :class:`~berth.telemetry.readings.DemandSource` for the signals whose source is Pods. Close it at the end."""

    def __init__(
        self,
        resolve: Resolver,
        bounds: Bounds = DEFAULT_BOUNDS,
        transport: httpx.AsyncBaseTransport | None = None,
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._resolve, self._bounds, self._wall = resolve, bounds, wall
        limits = httpx.Limits(max_connections=bounds.parallel, max_keepalive_connections=bounds.parallel)
        self._client = session(timeout=bounds.seconds, limits=limits, transport=transport, trust_env=False)
        self._gate = asyncio.Semaphore(bounds.parallel)
        self._counters: dict[tuple[PodName, str], Counter] = {}
        self._late: dict[PodName, float] = {}  # when a pod last let its time pass

    async def close(self) -> None:
        """End its connections."""
        await self._client.aclose()

    async def poll(
        self, services: Sequence[ServiceQuery], percentile: Mapping[ServiceName, int]
    ) -> Mapping[ServiceName, Telling]:
        """Ask the pods of all ``services`` once. Times at a percentile are not told by this source."""
        known = {service.key: self._places(service) for service in services}
        asked = {service.key: dict(list(known[service.key].items())[: self._bounds.pods]) for service in services}
        wanted = {service.key: _names(service) for service in services}
        turns = {
            (key[0], pod): (turn, place, wanted[key])
            for key, places in asked.items()
            if wanted[key]
            for turn, (pod, place) in enumerate(places.items())
        }
        order = sorted(turns, key=lambda name: (self._late.get(name, -math.inf), turns[name][0]))
        answers = await self._ask_all({name: turns[name][1:] for name in order})
        told = {
            service.key: self._telling(service, list(asked[service.key]), len(known[service.key]), answers)
            for service in services
        }
        live = {(service.namespace, pod) for service in services for pod in service.pods}
        self._counters = {key: counter for key, counter in self._counters.items() if key[0] in live}
        self._late = {name: at for name, at in self._late.items() if name in live}
        return told

    async def history(
        self, service: ServiceQuery, signal: SignalQuery, since: float, until: float, step: float
    ) -> History | str:
        """Nothing: pods do not remember."""
        return []

    def _places(self, service: ServiceQuery) -> dict[str, Endpoint]:
        found = {pod: self._resolve(service.namespace, pod) for pod in sorted(service.pods)}
        return {pod: place for pod, place in found.items() if place is not None}

    async def _ask_all(
        self, questions: Mapping[PodName, tuple[Endpoint, frozenset[str]]]
    ) -> Mapping[PodName, Mapping[str, float] | Silent]:
        tasks = {pod: asyncio.create_task(self._ask(pod, place, names)) for pod, (place, names) in questions.items()}
        try:
            if tasks:
                await asyncio.wait(tasks.values(), timeout=self._bounds.round_seconds)
        finally:
            for task in tasks.values():
                task.cancel()
        return {
            pod: task.result() if task.done() and not task.cancelled() else Silent("no time was left to ask it")
            for pod, task in tasks.items()
        }

    async def _ask(self, pod: PodName, place: Endpoint, names: frozenset[str]) -> Mapping[str, float] | Silent:
        try:
            async with self._gate, asyncio.timeout(self._bounds.seconds):
                found = totals(await self._read(place), names)
        except Silent as problem:
            return problem
        except (TimeoutError, httpx.TimeoutException):
            self._late[pod] = self._wall()
            return Silent("no answer in time")
        except ValueError:
            return Silent("the answer is no exposition text")
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as problem:
            return Silent(f"no answer ({type(problem).__name__})")
        except Exception as problem:  # the text is the user's own, and whatever it does to a parser harms nobody else
            return Silent(f"the answer cannot be read ({type(problem).__name__})")
        self._late.pop(pod, None)
        return found

    async def _read(self, place: Endpoint) -> str:
        url = httpx.URL(scheme="http", host=place.host, port=place.port, path=place.path)
        headers = {"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "identity"}
        async with self._client.stream("GET", url, headers=headers) as answer:
            if answer.status_code != 200:
                raise Silent(f"status {answer.status_code}")
            if answer.headers.get("Content-Encoding", "identity") != "identity":
                raise Silent("the answer is compressed though that was not asked for")
            body = bytearray()
            async for part in answer.aiter_raw():
                body += part
                if len(body) > self._bounds.bytes:
                    raise Silent(f"the answer is longer than {self._bounds.bytes >> 10} KiB")
        return body.decode("utf-8")

    def _telling(
        self,
        service: ServiceQuery,
        asked: Sequence[str],
        pods: int,
        answers: Mapping[PodName, Mapping[str, float] | Silent],
    ) -> Telling:
        now = self._wall()
        readings: dict[str, Reading] = {}
        in_flight: dict[str, float] = {}
        waiting: dict[str, float] = {}
        tokens: float | None = None
        rates: dict[PodName, Mapping[str, float]] = {}
        for signal in service.signals:
            if signal.source != SOURCE:
                continue
            preset = _preset(signal)
            if preset is None:
                reason = f"replicas do not report {signal.preset}; ask Prometheus for it"
                readings[signal.name] = Reading("Unknown", at=now, reason=reason)
                continue
            summed = _Sum(len(asked))
            for pod in asked:
                name = (service.namespace, pod)
                answer = answers[name]
                if isinstance(answer, Silent):
                    summed.problems.append(str(answer))
                    continue
                if name not in rates:
                    rates[name] = self._rates(name, answer, _counted(service), now)
                try:
                    summed.by_pod[pod] = _load(preset, rates[name] if preset.kind == "counter" else answer, answer)
                except Silent as problem:
                    summed.problems.append(str(problem))
            readings[signal.name] = summed.reading(pods, now)
            if preset.kind == "gauge":
                in_flight |= summed.by_pod
                waiting |= _waiting(preset, {pod: answers[service.namespace, pod] for pod in summed.by_pod})
            made = [value for each in rates.values() if (value := _first(preset.tokens, each)) is not None]
            tokens = sum(made) if made else tokens
        return Telling(readings, in_flight, waiting, tokens_per_second=tokens)

    def _rates(self, pod: PodName, answer: Mapping[str, float], names: Iterable[str], now: float) -> dict[str, float]:
        """Of every counter that the pod showed before too."""
        found: dict[str, float] = {}
        for name in names:
            if name not in answer or not plausible(answer[name]):
                continue
            before = self._counters.get((pod, name))
            self._counters[(pod, name)] = Counter(answer[name], now)
            rate = before.rate(answer[name], now) if before is not None else None
            if rate is not None:
                found[name] = rate
        return found


def totals(text: str, names: frozenset[str]) -> dict[str, float]:
    """The sum over the samples of each of ``names`` in an exposition text; what is not there is left out.

    Only the lines that carry one of the names are parsed. Raises: ValueError for a line that is none, Silent where the
    lines are more or longer than those of an engine can be: to parse them would hold up everybody.
    """
    lines, length = list[str](), 0
    for match in _lines(names).finditer(text):
        line = match.group()
        length += len(line)
        if len(line) > MOST_OF_A_LINE or length > MOST_OF_ALL_LINES:
            raise Silent("its series or their labels are too many")
        lines.append(line)
    found: dict[str, float] = {}
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


@cache
def _lines(names: frozenset[str]) -> re.Pattern[str]:
    return re.compile(rf"^(?:{'|'.join(map(re.escape, sorted(names)))})[ \t{{].*", re.MULTILINE)


def _preset(signal: SignalQuery) -> Preset | None:
    preset = presets().get(signal.preset)
    return preset if preset is not None and preset.from_replicas else None


def _mine(service: ServiceQuery) -> list[Preset]:
    found = [_preset(signal) for signal in service.signals if signal.source == SOURCE]
    return [preset for preset in found if preset is not None]


def _names(service: ServiceQuery) -> frozenset[str]:
    return frozenset(name for preset in _mine(service) for name in (*preset.names, *preset.tokens))


def _counted(service: ServiceQuery) -> set[str]:
    counted = {name for preset in _mine(service) if preset.kind == "counter" for name in preset.names}
    return counted | {name for preset in _mine(service) for name in preset.tokens}


def _load(preset: Preset, values: Mapping[str, float], shown: Mapping[str, float]) -> float:
    """The load of one pod: each figure under the first of its names that is there. Raises: Silent."""
    total = 0.0
    for aliases in preset.load:
        value = _first(aliases, values)
        if value is None:
            if _first(aliases, shown) is not None:
                raise Silent("a rate needs two rounds")
            raise Silent(f"it does not show {' or '.join(aliases)}")
        if not plausible(value):
            raise Silent(f"{aliases[0]} is {value}")
        total += value
    return total


def _waiting(preset: Preset, answers: Mapping[str, Mapping[str, float] | Silent]) -> dict[str, float]:
    """Requests by pod that have not begun; empty where the engine does not tell."""
    shown = {pod: _first(preset.waiting, answer) for pod, answer in answers.items() if not isinstance(answer, Silent)}
    return {pod: value for pod, value in shown.items() if value is not None}


def _first(aliases: Sequence[str], values: Mapping[str, float]) -> float | None:
    return next((values[name] for name in aliases if name in values), None)
