"""A service's forecaster, in the size of its smallest replica.

The forecaster reckons in whole replicas. In work one whole is a *reference* replica, which may be twenty small ones:
a service that needs one small replica must not be told to have room for twenty.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from berth.controllers.services.measure import ONE, Measure
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

ENOUGH_SECONDS: Final = 8 * 86_400.0
"""A source that remembers so much knows the week, in finer steps than a record."""
SAME_UNIT: Final = 1.5
"""A smallest replica whose capacity is another by more than this factor makes what was learned worthless."""


class Forecaster:
    """Hears and tells work; remembers in units of :attr:`unit` work, 0 before :meth:`fit`.

    ``measure``: of the work, None where a record does not say.
    """

    def __init__(self, step_seconds: float, record: str = "") -> None:
        self.unit, self.model = 0.0, DemandModel(step_seconds=step_seconds)
        self.measure: Measure | None = None
        self.last: float | None = None  # work as it was known last
        self._packed: str | None = None  # the record, until something else is heard
        if record:
            self._restore(record, step_seconds)

    def fit(self, variants: Mapping[str, Variant], rules: Rules, measure: Measure = ONE) -> bool:
        """Reckon in the smallest of ``variants``; whether that begins anew, so that history is to be read again.

        ``measure`` of the work: what is remembered stays the same load where that changes.
        """
        sizes = [variant.capacity for variant in variants.values() if variant.capacity > 0]
        if not sizes:
            return False
        self._count_in(measure)
        begins = not self.unit / SAME_UNIT <= min(sizes) <= self.unit * SAME_UNIT
        recent = self._recent() if begins and self.unit else []
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

    def recall(self, works: Sequence[tuple[float, float | None]]) -> None:
        """What a source remembers, oldest first: in place of the history so far, or only what comes after that.

        The latter where the source remembers less, as one does that is new itself or keeps an hour.
        """
        history, step = self.model.history, self.model.step_seconds
        if works[-1][0] - works[0][0] + step >= min(history.count * step, ENOUGH_SECONDS):
            self.replay(works)
            return
        for at, work in works:
            if at // step > history.last:
                self.observe(at, work)

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

    def _count_in(self, measure: Measure) -> None:
        """Work is told in ``measure`` from now on."""
        if self.measure not in (None, measure):
            assert self.measure is not None
            over = measure.over(self.measure)
            self.unit, self._packed = self.unit / over if over else 0.0, None
            self.last = self.last / over if over and self.last is not None else None
        self.measure = measure

    def _recent(self) -> list[tuple[float, float]]:
        """The last hour, for a model of another unit where no source remembers it."""
        history, step = self.model.history, self.model.step_seconds
        count = min(history.count, len(history.recent))
        values = history.recent[len(history.recent) - count :].tolist()
        return [((history.last - count + 1 + i) * step, value * self.unit) for i, value in enumerate(values)]

    def record(self) -> str:
        """For status: the unit, its measure and the compact record."""
        if not self.unit:
            return ""
        if self._packed is None:
            measure = self.measure or ONE
            head = f"{self.unit:.6g} {measure.load:.6g} {measure.what}".rstrip()
            self._packed = f"{head}:{base64.b64encode(self.model.pack()).decode()}"
        return self._packed

    def _restore(self, record: str, step_seconds: float) -> None:
        head, _, packed = record.partition(":")
        try:
            unit, *measure = head.split()
            model = DemandModel.unpack(base64.b64decode(packed))
            if model.step_seconds == step_seconds:
                self.unit, self.model = float(unit), model
                self.measure = Measure("".join(measure[1:]), float(measure[0])) if measure else None
        except ValueError as problem:
            _LOG.warning("a forecaster begins anew, its record cannot be read: %s", problem)
