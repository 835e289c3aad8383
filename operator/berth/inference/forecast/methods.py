"""Ways to foresee the peak of demand until the horizon, from what was seen.

All are cheap rules: which of them is worth anything differs from service to service and is found by back-test. A rule
that lacks what it looks back on answers as persistence does, so that it never wins for want of data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from berth.inference.forecast.history import BANDS, CORRECTIONS, DAY_RATES, SMOOTHING, Floats, History

_RECENT_PEAKS: Final = (3, 8, 20, 60)  # steps
_PEAK_HOURS: Final = 5
_SLOPES: Final = (1, 5)  # steps that a trend is taken over, followed up and down
_RISES: Final = (1, 15)  # the same, followed upwards only
_LEAST: Final = 1e-3
_RATIO: Final = 5.0  # a profile is stretched by no more than this either way


@dataclass(frozen=True, slots=True)
class Method:
    """``name`` is what a status shows; ``detail`` tells those of one name apart. ``prior``: doubt without evidence."""

    name: str
    detail: str
    prior: float


def _methods() -> tuple[Method, ...]:
    found = [Method("Persistence", "", 0.5)]
    doubts = dict(zip(_RECENT_PEAKS, (0.2, 0.0, 0.2, 0.5), strict=True))
    found += [Method("RecentPeak", f"{steps} steps", doubt) for steps, doubt in doubts.items()]
    found += [Method("Smoothed", f"rate {rate:g}", 0.5) for rate in SMOOTHING]
    found += [Method("Level", f"within {band:.0%}", 0.2) for band in BANDS]
    found += [Method("Drift", f"over {steps}", 0.5) for steps in _SLOPES]
    found += [Method("Drift", f"upwards over {steps}", 0.5) for steps in _RISES]
    found += [Method("LongPeak", span, 0.5) for span in (f"{_PEAK_HOURS} hours", "day", "ever")]
    found += [
        Method("SeasonalDay", f"{rate:g} of the last day, {kind} {speed:g}", 0.5)
        for rate in DAY_RATES
        for kind in ("offset", "ratio")
        for speed in CORRECTIONS
    ]
    found += [Method("SeasonalWeek", f"{kind} {speed:g}", 0.5) for kind in ("offset", "ratio") for speed in CORRECTIONS]
    return tuple(found)


METHODS: Final = _methods()
PERSISTENCE: Final = 0
TRENDS: Final = frozenset(number for number, method in enumerate(METHODS) if method.name == "Drift")
"""Methods that say nothing of what lies far beyond the horizon at which they were tried."""


def peaks(history: History, span: int) -> Floats:
    """The peak of demand over the next ``span`` steps as each of ``METHODS`` foresees it, none below 0."""
    recent = history.recent
    last = float(recent[-1])
    plain = [last, *(float(recent[-steps:].max()) for steps in _RECENT_PEAKS)]
    plain += [*history.smooth.tolist(), *history.steady.tolist()]
    slopes = {steps: (last - float(recent[-1 - steps])) / steps for steps in (*_SLOPES, *_RISES)}
    plain += [last + slopes[steps] * span for steps in _SLOPES]
    plain += [last + max(slopes[steps], 0.0) * span for steps in _RISES]
    hour = history.last // history.hour
    plain.append(max(float(history.hours[(hour - age) % 24]) for age in range(_PEAK_HOURS)))
    plain += [float(history.hours.max()), history.peak]
    answer: Floats = np.concatenate([np.array(plain), _seasonal(history, span, last).ravel()])
    np.maximum(answer, 0.0, out=answer)
    return answer


def _seasonal(history: History, span: int, last: float) -> Floats:
    # Shape (profiles, 2, corrections): the profile's peak moved by the offset, and stretched by the ratio.
    ahead = history.last + 1 + np.arange(span)
    profile = history.expect(ahead)
    known = ~np.isnan(profile)
    top: Floats = np.where(known, profile, -np.inf).max(axis=1)
    ratio = np.clip(history.level / np.maximum(history.expected, _LEAST), 1 / _RATIO, _RATIO)
    both: Floats = np.stack([top[:, None] + history.offset, top[:, None] * ratio], axis=1)
    both[~np.isfinite(top)] = last
    return both
