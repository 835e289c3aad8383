"""The forecaster of one service: hears work as it is measured, answers what must be ready at a horizon."""

from __future__ import annotations

import json
import math
from collections import deque

import numpy as np

from berth.inference.target import Target

KEPT = 1440


class DemandModel:
    """Persistence with the quantile of its own past errors at the horizon. Time is unix seconds, work as observed."""

    def __init__(self, step_seconds: float = 60.0) -> None:
        self._step = step_seconds
        self._series: deque[tuple[float, float]] = deque(maxlen=KEPT)

    def observe(self, at: float, work: float | None) -> None:
        """``work`` at ``at``; None where it is not known. A step's largest value stands for the step."""
        if work is None or not math.isfinite(work):
            return
        slot = at // self._step * self._step
        if self._series and self._series[-1][0] >= slot:
            last = self._series.pop()
            self._series.append((last[0], max(last[1], work)))
        else:
            self._series.append((slot, work))

    def target(self, now: float, horizon_seconds: float, promise: float) -> Target:
        """What must be ready ``horizon_seconds`` from ``now`` so that at most ``promise`` of the work is late."""
        if not self._series:
            return Target(None)
        values = np.array([work for _, work in self._series])
        last = float(values[-1])
        steps = max(1, round(horizon_seconds / self._step))
        share = 1 - promise
        if len(values) <= 2 * steps:
            return Target(last, last, share, "Persistence")
        ahead = np.array([values[i + 1 : i + 1 + steps].max() for i in range(len(values) - steps)])
        errors = ahead - values[: len(ahead)]
        work = max(last, last + float(np.quantile(errors, share)))
        scale = float(values[steps:].sum()) or 1.0
        wape = float(np.abs(values[steps:] - values[:-steps]).sum()) / scale
        return Target(work, last, share, "Persistence", wape, wape, share, len(values) >= 120)

    def pack(self) -> bytes:
        """A compact record: the last hour."""
        return json.dumps([self._step, [(int(at), round(work, 4)) for at, work in list(self._series)[-60:]]]).encode()

    @classmethod
    def unpack(cls, record: str | bytes) -> DemandModel:
        """The inverse of :meth:`pack`. Raises: ValueError."""
        step, series = json.loads(record)
        model = cls(step)
        for at, work in series:
            model.observe(at, work)
        return model
