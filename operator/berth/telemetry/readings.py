"""What demand sources are asked and what they answer.

An answer is one of three things. *Value* and *Idle* were measured; *Unknown* says what was tried. Nothing that is
missing ever becomes a zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

State = Literal["Value", "Idle", "Unknown"]
SourceName = Literal["Prometheus", "Pods"]
ServiceName = tuple[str, str]
"""(namespace, name)."""
History = list[tuple[float, float | None]]
"""(unix seconds, load); None where nothing is known."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One answer of one signal; ``load`` is None exactly with Unknown, ``at`` (unix seconds) when it was true."""

    state: State
    load: float | None = None
    at: float = 0.0
    reason: str = ""


MOST_LOAD: Final = 1e15
"""Of one service or replica: what is more has not been counted."""


def plausible(value: float) -> bool:
    """Whether ``value`` can be a load: a number, not negative and not beyond all bounds."""
    return 0 <= value <= MOST_LOAD


def measured(value: float, at: float) -> Reading:
    """A number that was measured: Value, Idle at zero, Unknown where it is no load."""
    if not plausible(value):
        return Reading("Unknown", at=at, reason=f"the answer is {value}")
    return Reading("Value" if value > 0 else "Idle", value, at)


@dataclass(frozen=True, slots=True)
class SignalQuery:
    """One signal of a service; ``query`` with the preset Custom only."""

    name: str
    source: SourceName
    preset: str
    query: str = ""


@dataclass(frozen=True, slots=True)
class ServiceQuery:
    """A service, the names of its live pods, and of the Deployments that it has or may have.

    ``steady`` are the pods that have been ready for so long that whoever scrapes them has a sample by now.
    """

    namespace: str
    name: str
    signals: tuple[SignalQuery, ...]
    pods: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    steady: frozenset[str] = frozenset()

    @property
    def key(self) -> ServiceName:
        """(namespace, name)."""
        return (self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class Telling:
    """Everything read of one service in one round.

    ``readings`` by signal. ``in_flight`` by pod name, for the choice of victims; ``waiting`` is what of it waits in the
    engine. ``seconds`` are measured times at a percentile by ``ttft``, ``itl`` and ``latency``; ``tokens_per_second``
    is what it generates. Absent: not measured.
    """

    readings: Mapping[str, Reading]
    in_flight: Mapping[str, float] = field(default_factory=dict)
    waiting: Mapping[str, float] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    tokens_per_second: float | None = None


class DemandSource(Protocol):
    """Who can be asked. No method raises for a source that cannot be reached: it answers Unknown, and why."""

    async def poll(
        self, services: Sequence[ServiceQuery], percentile: Mapping[ServiceName, int]
    ) -> Mapping[ServiceName, Telling]:
        """Ask about all ``services`` at once, in as few requests as that takes."""

    async def history(
        self, service: ServiceQuery, signal: SignalQuery, since: float, until: float, step: float
    ) -> History | str:
        """Load on a grid of ``step`` seconds, empty without a record; why where no answer came, so ask again later."""
