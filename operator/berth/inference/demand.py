"""From samples of several signals to one demand: a value, a measured nothing, or not known.

A missing sample is never a zero. A signal whose samples have grown old counts as not known, so that a source that died
neither holds a service up nor lets it fall. The largest answer wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from berth.inference.records import DemandState
from berth.inference.service import Seen
from berth.values import format_duration

EXPIRES_SECONDS: Final = 90.0
"""Three scrapes of 30 s, the longest interval in common use."""

PHANTOM_SECONDS: Final = 900.0
"""Load that nothing has come in for is doubted after so long: few requests run longer."""


@dataclass(frozen=True, slots=True)
class SignalFacts:
    """How one signal is read. ``capacity``: load that the reference replica carries at the SLO.

    ``counts_at_zero``: it sees demand that finds no replica; without one, what any other says or not means nothing.
    ``arrivals``: it counts, in front of the replicas, the requests that come.
    """

    name: str
    capacity: float
    counts_at_zero: bool
    arrivals: bool = False
    expires: float = EXPIRES_SECONDS


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer. ``load`` is None exactly when ``state`` is Unknown; then ``reason`` says what was tried."""

    state: DemandState
    load: float | None = None
    at: float = 0.0
    reason: str = ""


def combine(signals: Iterable[SignalFacts], samples: Mapping[str, Sample], replicas: int, now: float) -> Seen:
    """One demand from the newest sample of each signal, by name. ``replicas``: live pods that could report.

    Value: the largest of the known ones. Idle: every signal that can be asked measured nothing. Unknown: otherwise.
    """
    known: list[tuple[float, Sample, SignalFacts]] = []
    lost: list[str] = []
    at_zero = False
    for signal in signals:
        at_zero = at_zero or signal.counts_at_zero
        if replicas == 0 and not signal.counts_at_zero:
            continue
        sample, problem = _fresh(signal, samples.get(signal.name), now)
        if sample is None:
            lost.append(f"{signal.name}: {problem}")
        else:
            known.append(((sample.load or 0.0) / signal.capacity, sample, signal))
    reason = "; ".join(lost)
    if known:
        work, sample, signal = max(known, key=lambda entry: (entry[0], entry[2].name))
        if work > 0:
            return Seen(DemandState.VALUE, work, sample.at, reason, at_zero)
        if not lost:
            return Seen(DemandState.IDLE, 0.0, min(entry[1].at for entry in known), "", at_zero)
    return Seen(DemandState.UNKNOWN, None, now, reason or "no signal counts demand without a replica", at_zero)


def phantom(signals: Iterable[SignalFacts], samples: Mapping[str, Sample], now: float) -> str:
    """Why the load may not be there: replicas report one while nothing comes in; empty where nothing says so.

    An engine that does not see the end of a stream counts it for ever. The load counts all the same, for a request may
    run for long; people are told.
    """
    loads: list[str] = []
    quiet: list[str] = []
    for signal in signals:
        sample, _ = _fresh(signal, samples.get(signal.name), now)
        if sample is not None and signal.arrivals and sample.state is DemandState.IDLE:
            quiet.append(signal.name)
        elif sample is not None and sample.state is DemandState.VALUE:
            if signal.arrivals or signal.counts_at_zero:
                return ""
            loads.append(signal.name)
    if not (quiet and loads):
        return ""
    return (
        f"{', '.join(quiet)} has counted no request for {format_duration(PHANTOM_SECONDS)} while {', '.join(loads)}"
        " reports load, which is kept up; if no request runs for so long, restart the replica that reports it"
    )


def still(seen: Seen, now: float, expires: float = EXPIRES_SECONDS) -> Seen:
    """``seen`` as it is worth at ``now`` (unix seconds): known no more once it is older than ``expires`` seconds."""
    age = now - seen.as_of
    if seen.state is DemandState.UNKNOWN or age <= expires:
        return seen
    reason = f"demand was last heard of {format_duration(age)} ago"
    return Seen(DemandState.UNKNOWN, None, now, reason, seen.at_zero)


def _fresh(signal: SignalFacts, sample: Sample | None, now: float) -> tuple[Sample | None, str]:
    if sample is None:
        return None, "no sample yet"
    if sample.state is DemandState.UNKNOWN:
        return None, sample.reason or "no answer"
    age = now - sample.at
    if age > signal.expires:
        return None, f"the last sample is {format_duration(age)} old"
    return sample, ""
