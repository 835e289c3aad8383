"""The planner of this project under the benchmark: the operator's forecaster, each step one decision.

Cases of one trace with the same cold start ask one ``DemandModel``, as the model's answer to one promise does not
depend on which others are asked for; so a step is learned from once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from benchmarks.policies.base import STEP_SECONDS, Limits, Policy
from berth.inference.forecast.model import DemandModel

Shared = dict[tuple[int, Limits], DemandModel]


def planners(promises: Sequence[float]) -> list[Policy]:
    """A policy for each of ``promises`` (unserved shares), for cases of one trace run in lockstep."""
    shared: Shared = {}
    return [Planner(promise, shared) for promise in promises]


class Planner:
    """One promise at one cold start. ``shared`` holds the models by cold start in steps, and limits."""

    def __init__(self, promise: float, shared: Shared | None = None) -> None:
        self._promise = promise
        self._shared: Shared = {} if shared is None else shared

    def reset(self, cold_steps: int, limits: Limits) -> None:
        """See ``Policy``."""
        self._cold_seconds = cold_steps * STEP_SECONDS
        key = (cold_steps, limits)
        self._model = self._shared[key] = DemandModel(
            STEP_SECONDS, lowest=limits.min_replicas, highest=limits.max_replicas
        )
        self._key = key

    def decide(self, step: int, seen: float | None, ready: int, starting: int) -> int:
        """See ``Policy``."""
        if seen is None:
            return ready + starting
        model = self._shared[self._key]
        if model.history.count < step:
            model.observe((step - 1) * STEP_SECONDS, seen)
        target = model.target(step * STEP_SECONDS, self._cold_seconds, self._promise)
        assert target.work is not None
        return math.ceil(target.work - 1e-9)
