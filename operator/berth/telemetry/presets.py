"""The names under which demand is found, read from ``data/metrics.yaml``.

Engines and gateways rename their metrics; that changes a data file and no code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import yaml

Kind = Literal["gauge", "counter"]
POD_LABELS = ("namespace", "pod")


@dataclass(frozen=True, slots=True)
class Preset:
    """One way to count demand. ``load``: figures to be summed, each as its names, the current one first.

    ``waiting`` is the one of them that has not begun. ``counts_at_zero``: requests that find no replica are in it.
    ``matchers`` are label patterns by label, with ``{namespace}``, ``{name}`` and a trailing ``*``; empty: by pod.
    """

    name: str
    kind: Kind
    from_replicas: bool
    counts_at_zero: bool
    load: tuple[tuple[str, ...], ...]
    matchers: tuple[Mapping[str, str], ...] = ()
    seconds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    waiting: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that is tried."""
        return tuple(name for aliases in self.load for name in aliases)

    def labels(self) -> tuple[tuple[str, ...], ...]:
        """The label sets by which series are told apart, one per matcher."""
        return tuple(tuple(sorted(matcher)) for matcher in self.matchers) or (POD_LABELS,)


@cache
def presets() -> Mapping[str, Preset]:
    """All of them by name."""
    text = files("berth.telemetry").joinpath("data/metrics.yaml").read_text(encoding="utf-8")
    return {name: _preset(name, entry) for name, entry in yaml.safe_load(text)["presets"].items()}


def _preset(name: str, entry: Mapping[str, Any]) -> Preset:
    by = entry["by"]
    return Preset(
        name=name,
        kind=entry["kind"],
        from_replicas=entry["fromReplicas"],
        counts_at_zero=entry["countsAtZero"],
        load=tuple(tuple(aliases) for aliases in entry["load"]),
        matchers=() if by == "pod" else tuple(by),
        seconds={key: tuple(aliases) for key, aliases in (entry.get("seconds") or {}).items()},
        waiting=tuple(entry.get("waiting") or ()),
        tokens=tuple(entry.get("tokens") or ()),
    )


def counts_requests_in_flight(preset: str) -> bool:
    """Whether the load of ``preset`` is requests in flight; else it is requests a second, or anything for Custom."""
    known = presets().get(preset)
    return known is not None and known.kind == "gauge"


def counts_arrivals(preset: str) -> bool:
    """Whether ``preset`` counts the requests that come, in front of the replicas."""
    known = presets().get(preset)
    return known is not None and known.kind == "counter" and not known.from_replicas


def reported_by_replicas(preset: str) -> bool:
    """Whether there is nothing to hear of ``preset`` at zero replicas."""
    known = presets().get(preset)
    return known is not None and known.from_replicas


def counts_at_zero(preset: str) -> bool:
    """Whether ``preset`` sees requests that find no replica; of Custom that is believed."""
    known = presets().get(preset)
    return known is None or known.counts_at_zero
