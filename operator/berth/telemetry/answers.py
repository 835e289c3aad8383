"""A Prometheus server's answer becomes series, within bounds: only the fields that are needed are read.

An answer with a warning is not whole: a store was not reached, or samples were left out. What is missing from it would
look like a service without load; such an answer stands only for what it is seen to show in full.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

MOST_SERIES: Final = 250_000
"""Of one answer: buckets of 10,000 replicas."""
INFO: Final = "PromQL info"
"""Begins notes about how a query is written, which older servers put among the warnings."""
REMARK: Final = "PromQL "
"""Begins these, and notes that series were left out of the answer for what they hold, which harms nobody else."""
FIX: Final = "mend that store, or set prometheus.url to a server that has all series"


class PrometheusError(Exception):
    """The server did not answer a query; the message says how, in a few words."""


class NotWhole(PrometheusError):
    """Some store or series is missing from an answer; ``series`` is what came."""

    def __init__(self, why: str, series: list[Series]) -> None:
        fix = "" if why.startswith(REMARK) else f"; {FIX}"
        super().__init__(f"Prometheus' answer is not whole: {why[:200]}{fix}")
        self.series = series


@dataclass(frozen=True, slots=True)
class Series:
    """One series of an answer: labels, and (unix seconds, value) pairs, one for an instant query."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]


class _Found(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str] | None = None
    values: list[tuple[float, str]] | None = None


class _Data(msgspec.Struct, rename="camel"):
    result_type: str
    result: msgspec.Raw


class _Answer(msgspec.Struct):
    status: str
    data: _Data | None = None
    error: str = ""
    warnings: list[str] | None = None


_ANSWER: Final = msgspec.json.Decoder(_Answer)
_RESULT: Final = msgspec.json.Decoder(list[_Found])


def series_of(body: bytes, status: int, *, strict: bool = False) -> list[Series]:
    """The series in an answer of HTTP ``status``; none for a scalar.

    ``strict``: a series that was left out for what it holds matters too. Raises: PrometheusError, NotWhole.
    """
    try:
        answer = _ANSWER.decode(body)
        if answer.status != "success":
            raise PrometheusError(f"Prometheus refuses the query ({status}): {answer.error[:200]}".rstrip(": "))
        if answer.data is None:
            raise PrometheusError("Prometheus' answer cannot be read (no data)")
        found = [] if answer.data.result_type == "scalar" else _RESULT.decode(answer.data.result)
        if len(found) > MOST_SERIES:
            raise PrometheusError(f"Prometheus' answer has {len(found)} series, more than {MOST_SERIES}")
        series = [_series(entry) for entry in found]
    except ValueError as problem:  # also what msgspec raises
        raise PrometheusError(f"Prometheus' answer cannot be read ({status})") from problem
    remark = INFO if strict else REMARK
    missing = next((text for text in answer.warnings or () if not text.startswith(remark)), None)
    if missing is not None:
        raise NotWhole(missing, series)
    return series


def _series(entry: _Found) -> Series:
    points = entry.values if entry.values is not None else [entry.value] if entry.value is not None else None
    if points is None:
        raise ValueError("a series without a number")
    return Series(entry.metric, tuple((at, float(value)) for at, value in points))
