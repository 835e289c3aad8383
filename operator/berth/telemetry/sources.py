"""Several demand sources as one: each signal is answered by the source that it names, and no source harms another."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from berth.telemetry.defects import Defects
from berth.telemetry.readings import DemandSource, History, Reading, ServiceName, ServiceQuery, SignalQuery, Telling

_LOG: Final = logging.getLogger(__name__)


class Sources:
    """A :class:`~berth.telemetry.readings.DemandSource` made of others, by the name that signals use."""

    def __init__(self, by_name: Mapping[str, DemandSource]) -> None:
        self._by_name = by_name
        self._defects = Defects(_LOG)

    async def poll(
        self, services: Sequence[ServiceQuery], percentile: Mapping[ServiceName, int]
    ) -> Mapping[ServiceName, Telling]:
        """Ask every source about the services that name it; signals of no known source are Unknown."""
        told = {service.key: Telling(self._unknown(service)) for service in services}
        asked = {
            name: [service for service in services if any(signal.source == name for signal in service.signals)]
            for name in self._by_name
        }
        asked = {name: mine for name, mine in asked.items() if mine}
        answers = await asyncio.gather(*(self._poll(name, mine, percentile) for name, mine in asked.items()))
        for answer in answers:
            for key, telling in answer.items():
                told[key] = _joined(told[key], telling)
        return told

    async def _poll(
        self, name: str, services: Sequence[ServiceQuery], percentile: Mapping[ServiceName, int]
    ) -> Mapping[ServiceName, Telling]:
        try:
            answer = await self._by_name[name].poll(services, percentile)
        except Exception as problem:  # a defect of ours: what this source should have told is not known, and no more
            self._defects.note(name, f"demand of source {name} cannot be read", problem)
            reading = Reading("Unknown", reason=f"what {name} answers cannot be read ({type(problem).__name__})")
            return {
                service.key: Telling({signal.name: reading for signal in service.signals if signal.source == name})
                for service in services
            }
        self._defects.over(name)
        return answer

    async def history(
        self, service: ServiceQuery, signal: SignalQuery, since: float, until: float, step: float
    ) -> History | str:
        """What the signal's own source remembers."""
        source = self._by_name.get(signal.source)
        return [] if source is None else await source.history(service, signal, since, until, step)

    def _unknown(self, service: ServiceQuery) -> dict[str, Reading]:
        return {
            signal.name: Reading("Unknown", reason=f"no {signal.source} is configured for Berth")
            for signal in service.signals
            if signal.source not in self._by_name
        }


NO_SOURCE: Final = Sources({})
"""Nobody to ask: every signal is Unknown."""


def _joined(one: Telling, other: Telling) -> Telling:
    tokens = [value for value in (one.tokens_per_second, other.tokens_per_second) if value is not None]
    return replace(
        other,
        readings={**one.readings, **other.readings},
        in_flight={**one.in_flight, **other.in_flight},
        waiting={**one.waiting, **other.waiting},
        seconds={**one.seconds, **other.seconds},
        tokens_per_second=max(tokens, default=None),
    )
