"""A service's forecaster, in the size of its smallest replica.

The forecaster reckons in whole replicas. In work one whole is a *reference* replica, which may be twenty small ones:
a service that needs one small replica must not be told to have room for twenty.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from berth.inference.forecast.model import DemandModel
from berth.inference.records import Variant
from berth.inference.service import Rules
from berth.inference.target import Target

AUTO: Final = "Auto"
PERSISTENCE: Final = "Persistence"
SEASONAL_NAIVE: Final = "SeasonalNaive"
_NOW: Final = "as there is now, nothing is foreseen"
_YESTERDAY: Final = "as there was at this time yesterday, and no less than there is now"
_UNKNOWN_YESTERDAY: Final = "as there is now: what there was at this time yesterday is not known yet"
_LOG: Final = logging.getLogger(__name__)

SAME_UNIT: Final = 1.5
"""A smallest replica whose capacity is another by more than this factor makes what was learned worthless."""


class Forecaster:
    """Hears and tells work; remembers in units of :attr:`unit` work, 0 before :meth:`fit`."""

    def __init__(self, step_seconds: float, record: str = "") -> None:
        self.unit, self.model = 0.0, DemandModel(step_seconds=step_seconds)
        self.last: float | None = None  # work as it was known last
        self._packed: str | None = None  # the record, until something else is heard
        if record:
            self._restore(record, step_seconds)

    def fit(self, variants: Mapping[str, Variant], rules: Rules) -> bool:
        """Reckon in the smallest of ``variants``; whether that begins anew, so that history is to be read again."""
        sizes = [variant.capacity for variant in variants.values() if variant.capacity > 0]
        if not sizes:
            return False
        begins = not self.unit / SAME_UNIT <= min(sizes) <= self.unit * SAME_UNIT
        recent = self._recent() if begins else []
        if begins:
            self.unit, self.model = min(sizes), DemandModel(step_seconds=self.model.step_seconds)
        bounds = (float(rules.min_replicas), float(rules.max_replicas) * max(sizes) / self.unit)
        if begins or bounds != (self.model.lowest, self.model.highest):
            self.model.lowest, self.model.highest = bounds
            self._packed = None
        if recent:
            self.replay(recent)
        return begins

    def observe(self, at: float, work: float | None) -> None:
        """``work`` at ``at``, None where it is not known; nothing is kept before the first :meth:`fit`."""
        self.last = self.last if work is None else work
        if self.unit:
            self._packed = None
            self.model.observe(at, None if work is None else work / self.unit)

    def replay(self, works: Iterable[tuple[float, float | None]]) -> None:
        """What a source remembers, oldest first, in place of the history so far."""
        if self.unit:
            self._packed = None
            self.model.replay((at, None if work is None else work / self.unit) for at, work in works)

    def target(self, now: float, horizon_seconds: float, promise: float, method: str = AUTO) -> Target:
        """What must be ready, in work.

        ``method`` Persistence: what was known last, and nothing is foreseen. SeasonalNaive: what came until the
        horizon at this time yesterday, and no less than what was known last; as Persistence while none of that time
        is known.
        """
        if method != AUTO:
            yesterday = self.model.yesterday(now, horizon_seconds) if method == SEASONAL_NAIVE else None
            if self.last is None or yesterday is None:
                basis = _UNKNOWN_YESTERDAY if method == SEASONAL_NAIVE else _NOW
                return Target(self.last, self.last or 0.0, method=PERSISTENCE, basis=basis)
            work = max(self.last, yesterday * self.unit)
            return Target(work, work, method=SEASONAL_NAIVE, basis=_YESTERDAY)
        self._packed = None  # a step that is over is closed by this too
        target = self.model.target(now, horizon_seconds, promise)
        if target.work is None:
            return target
        return replace(target, work=target.work * self.unit, point=target.point * self.unit)

    def peak(self, seconds: float, method: str = AUTO) -> float | None:
        """The most work that may come within ``seconds``; None where nothing is foreseen or nothing was measured."""
        peak = None if method == PERSISTENCE else self.model.peak(seconds)
        return None if peak is None else peak * self.unit

    def _recent(self) -> list[tuple[float, float]]:
        """The last hour, for a model of another unit where no source remembers it."""
        history, step = self.model.history, self.model.step_seconds
        count = min(history.count, len(history.recent))
        values = history.recent[len(history.recent) - count :].tolist()
        return [((history.last - count + 1 + i) * step, value * self.unit) for i, value in enumerate(values)]

    def record(self) -> str:
        """For status: the unit and the compact record."""
        if not self.unit:
            return ""
        if self._packed is None:
            self._packed = f"{self.unit:.6g}:{base64.b64encode(self.model.pack()).decode()}"
        return self._packed

    def _restore(self, record: str, step_seconds: float) -> None:
        unit, _, packed = record.partition(":")
        try:
            model = DemandModel.unpack(base64.b64decode(packed))
            if model.step_seconds == step_seconds:
                self.unit, self.model = float(unit), model
        except ValueError as problem:
            _LOG.warning("a forecaster begins anew, its record cannot be read: %s", problem)
