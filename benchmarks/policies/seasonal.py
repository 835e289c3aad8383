"""The rivals that expect yesterday again: Crane's DSP with its HPA, and predictive scaling as AWS describes it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.policies.base import STEP_SECONDS, Floats, Ints
from benchmarks.policies.hpa import raised, replicas
from benchmarks.policies.sweep import TARGETS, Sweep, pods_for

HOUR = round(3600 / STEP_SECONDS)
DAY, WEEK = 24 * HOUR, 7 * 24 * HOUR


class CranePanel(Sweep):
    """Crane's EHPA: the HPA's rule on the larger of the load seen and the highest forecast of the next hour."""

    def begin(self, cold_steps: int) -> None:
        """See ``Sweep``."""
        self._signal = CraneSignal()

    def rule(self, step: int, seen: float, ready: Ints, starting: Ints) -> Ints:
        """See ``Sweep``."""
        load = max(seen, self._signal.update(seen))
        return np.minimum(replicas(load, self.targets, ready, starting), raised(ready + starting))


class CraneSignal:
    """Crane's forecast (``pkg/prediction/dsp``): a day or a week again, if one is found, refreshed every 12 hours.

    15 days of history, cut to whole periods, of which two are needed. The period must be the peak of the
    autocorrelation within 4 hours of it. Candidates are the last period after a low-pass filter and the maximum over
    periods at the same phase, each with margins; the one with the least error on the last period is taken, where the
    error of a forecast below the truth is amplified to -ln(1 - x) / ln 1.25. Margins and thresholds are Crane's.
    """

    history, refresh, ahead = 15 * DAY, 12 * HOUR, HOUR
    filters = tuple(
        (fewest, low, margin) for fewest, low in ((3, 1.0), (50, 0.05)) for margin in (0.01, 0.1, 0.15, 0.2)
    )
    maxima = (0.0, 0.1, 0.15, 0.2)

    def __init__(self) -> None:
        self._seen = np.zeros(self.history)
        self._count = 0
        self._forecast: Floats = np.zeros(0)
        self._made = 0

    def update(self, value: float) -> float:
        """The highest forecast of the next hour after one more value; 0 where nothing is forecast."""
        self._push(value)
        if self._count % self.refresh == 0:
            self._forecast, self._made = self._predict(), self._count
        first = self._count - self._made
        coming = self._forecast[first : first + self.ahead + 1]
        return float(coming.max()) if len(coming) else 0.0

    def _push(self, value: float) -> None:
        if self._count < self.history:
            self._seen[self._count] = value
        else:  # a shift per value, but cheap beside the rest, and the history stays in one piece
            self._seen[:-1] = self._seen[1:]
            self._seen[-1] = value
        self._count += 1

    def _predict(self) -> Floats:
        seen = self._seen[: min(self._count, self.history)]
        for period in (DAY, WEEK):
            cycles = len(seen) // period
            if cycles < 2:
                continue
            whole = _clipped(seen[-cycles * period :])
            if not periodic(whole, period):
                continue
            before, last = whole[:-period], whole[-period:]
            errors = [_error(last, guess) for guess in self._candidates(before, period)]
            return self._candidates(whole, period)[int(np.argmin(errors))]
        return np.zeros(0)

    def _candidates(self, whole: Floats, period: int) -> list[Floats]:
        top = whole.reshape(-1, period).max(axis=0)
        passed = {(fewest, low): _low_pass(whole, fewest, low)[-period:] for fewest, low, _ in self.filters}
        made = [passed[fewest, low] * (1 + margin) for fewest, low, margin in self.filters]
        return made + [top * (1 + margin) for margin in self.maxima]


def periodic(whole: Floats, period: int) -> bool:
    """Whether the circular autocorrelation of ``whole`` has its peak within 4 hours at ``period``, above chance."""
    centred = whole - whole.mean()
    power = np.abs(np.fft.rfft(centred)) ** 2
    if power.sum() == 0:
        return False
    correlation = np.fft.irfft(power, len(whole)) / (centred @ centred)
    near = correlation[period - 4 * HOUR : period + 4 * HOUR + 1]
    peak = int(np.argmax(near)) + period - 4 * HOUR
    return abs(peak - period) <= HOUR // 4 and bool(correlation[period] > 3 / np.sqrt(len(whole) / HOUR))


def _clipped(whole: Floats) -> Floats:
    # Values outside the 0.1 and 99.9 percentile are replaced by the one before.
    low, high = np.quantile(whole, (0.001, 0.999))
    inside = np.where((whole >= low) & (whole <= high), np.arange(len(whole)), 0)
    return whole[np.maximum.accumulate(inside)]


def _low_pass(whole: Floats, fewest: int, low: float, most: int = 100) -> Floats:
    # Drops what is both faster than an hour and of small amplitude.
    spectrum = np.fft.rfft(whole)
    amplitude = np.abs(spectrum) / len(whole)
    ordered = np.sort(amplitude[1:])[::-1]
    least = max(ordered[min(most, len(ordered)) - 1], low)
    if len(ordered) >= fewest:
        least = min(least, ordered[fewest - 1])
    fast = np.arange(len(spectrum)) / len(whole) > 1 / HOUR
    spectrum[fast & (amplitude < least)] = 0
    return np.maximum(np.fft.irfft(spectrum, len(whole)), 0.01)


def _error(truth: Floats, guess: Floats) -> float:
    if truth.min() < 1e-3:
        return float(np.mean(np.abs(truth - guess)))
    share = (truth - guess) / truth
    with np.errstate(divide="ignore", invalid="ignore"):
        below = -np.log1p(-np.clip(share, 0.0, 1 - 1e-9)) / np.log(1.25)
    return float(np.mean(np.where(share > 0, below, -share)))


class AwsPanel(Sweep):
    """Predictive scaling as AWS documents it, with target tracking beside it.

    After 24 hours of data each hour has a forecast: the mean of the same hour of the last 14 days. It is a floor, in
    force from 5 min and a cold start before its hour; it never takes replicas away. Target tracking adds at once and
    takes away only what was too much for the whole window (15 min is its default) by over a tenth.
    """

    window_name = "scale-in after"
    days, ahead_seconds = 14, 300
    tolerance = 0.1

    def __init__(self, targets: Sequence[float] = TARGETS, windows: Sequence[int] = (300, 900)) -> None:
        super().__init__(targets, windows)

    def begin(self, cold_steps: int) -> None:
        """See ``Sweep``."""
        self._ahead = cold_steps + round(self.ahead_seconds / STEP_SECONDS)
        self._sum, self._hours = 0.0, list[float]()

    def rule(self, step: int, seen: float, ready: Ints, starting: Ints) -> Ints:
        """See ``Sweep``."""
        self._sum += seen
        if step % HOUR == 0:  # what was seen is step - 1, the last of its hour
            self._hours.append(self._sum / HOUR)
            self._sum = 0.0
        floor = max(self._forecast(step // HOUR), self._forecast((step + self._ahead) // HOUR))
        current = ready + starting
        needed = seen / self.targets
        tracked = np.where(
            (needed > current) | (needed < current * (1 - self.tolerance)), pods_for(seen, self.targets), current
        )
        return np.maximum(tracked, pods_for(floor, self.targets))

    def _forecast(self, hour: int) -> float:
        if len(self._hours) < 24:
            return 0.0
        same = [self._hours[past] for past in range(hour - 24, max(-1, hour - 24 * self.days - 1), -24)]
        return sum(same) / len(same) if same else 0.0
