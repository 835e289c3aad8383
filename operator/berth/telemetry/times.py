"""Measured times at a percentile, which are asked for now and then: one that is not answered leaves the last standing.

A promise is judged by them. Were they forgotten whenever one question fails, a promise that is missed would look kept.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from berth.telemetry.readings import ServiceName

TIMES_SECONDS: Final = 60.0
"""How often measured times are asked for; they move slowly and cost the server most."""
TIMES_EXPIRE_SECONDS: Final = 2.5 * TIMES_SECONDS
"""Two questions may fail. They are measured over five minutes, so that what stands so long is still about now."""


class Times:
    """Seconds by service and name (``ttft``, ``itl``, ``latency``), each as it was last told."""

    def __init__(self) -> None:
        self._told: dict[ServiceName, dict[tuple[str, str], tuple[float, float]]] = {}  # -> (seconds, unix seconds)

    def hear(self, preset: str, name: str, values: Mapping[ServiceName, float | None], at: float) -> None:
        """An answer about ``name`` as engines of ``preset`` report it; None where it says that nothing was counted."""
        for service, value in values.items():
            mine = self._told.setdefault(service, {})
            if value is None:
                mine.pop((preset, name), None)
            else:
                mine[preset, name] = (value, at)

    def of(self, service: ServiceName, now: float) -> dict[str, float]:
        """What is known of one service and not too old; nor of a clock that was ahead and has been set back."""
        told = self._told.get(service, {})
        return {name: value for (_, name), (value, at) in told.items() if abs(now - at) <= TIMES_EXPIRE_SECONDS}

    def forget_all_but(self, services: Collection[ServiceName]) -> None:
        """The others are gone."""
        self._told = {service: told for service, told in self._told.items() if service in services}
