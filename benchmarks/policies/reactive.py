"""The rivals that follow what was last seen: Knative, AIBrix and WVA, each with its own rule.

A tick of theirs is 2 s, 10 s and 60 s; within a step of 60 s the load that they see does not change, so several ticks
come to what the last of them says, and their limits of growth per tick (x1000, x2) do not bind within a step.
"""

from __future__ import annotations

import numpy as np

from benchmarks.policies.base import Ints
from benchmarks.policies.sweep import Sweep, pods_for


class KnativePanel(Sweep):
    """Knative's pod autoscaler (``pkg/autoscaler/scaling/autoscaler.go``).

    The stable window of 60 s and the panic window of 6 s both end with the last step seen, so their means are equal
    here. Panic begins when twice the ready replicas are wanted and ends after a stable window without that; in panic
    the answer only rises. The window of the sweep is ``scale-down-delay``.
    """

    window_name = "delay"
    panic_threshold = 2.0
    stable_steps = 1

    def begin(self, cold_steps: int) -> None:
        """See ``Sweep``."""
        self._breached = np.full(len(self.targets), -10, dtype=np.int64)
        self._highest = np.zeros(len(self.targets), dtype=np.int64)

    def rule(self, step: int, seen: float, ready: Ints, starting: Ints) -> Ints:
        """See ``Sweep``."""
        wanted = pods_for(seen, self.targets)
        self._breached[wanted >= self.panic_threshold * np.maximum(ready, 1)] = step
        panic = step - self._breached <= self.stable_steps
        self._highest = np.where(panic, np.maximum(self._highest, wanted), 0)
        return np.where(panic, self._highest, wanted)


class AibrixPanel(Sweep):
    """AIBrix's APA (``pkg/controller/podautoscaler/algorithm/apa.go``), with pods that start counted as supply.

    q = load / (replicas x target); above 1.1 or below 0.9 the answer is ceil(replicas x q). The window of the sweep is
    the scale-down cooldown, 300 s by default, in which the highest answer is kept.
    """

    window_name = "cooldown"
    tolerance = 0.1

    def rule(self, step: int, seen: float, ready: Ints, starting: Ints) -> Ints:
        """See ``Sweep``."""
        current = ready + starting
        use = seen / (current * self.targets)
        return np.where(np.abs(use - 1) > self.tolerance, pods_for(seen, self.targets), current)


class WvaPanel(Sweep):
    """WVA's second analyzer (``saturation_v2``, ``cost_aware_optimizer.go``) with one variant.

    Grows by ceil(demand / up - ready - starting) and shrinks by floor(ready - demand / down), in replicas; the
    thresholds are 0.85 and 0.70, and the sweep moves both by one factor. The window is that of the HPA which carries
    the answer out.
    """

    down_over_up = 0.70 / 0.85

    def rule(self, step: int, seen: float, ready: Ints, starting: Ints) -> Ints:
        """See ``Sweep``."""
        current = ready + starting
        required = seen / self.targets - current
        spare = ready - seen / (self.targets * self.down_over_up)
        more = np.ceil(required - 1e-9).astype(np.int64)
        fewer = np.floor(spare + 1e-9).astype(np.int64)
        return current + np.where(required > 0, more, -np.maximum(fewer, 0))
