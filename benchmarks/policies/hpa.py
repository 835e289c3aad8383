"""Kubernetes' HorizontalPodAutoscaler (autoscaling/v2), all settings at once: the baseline to beat.

The rule for a metric of pods, as ``replica_calculator.go`` has it. With R ready pods of the load L and the target T per
pod, r = L / (R T). Within the tolerance of 0.1 nothing changes; with all pods ready the answer is ceil(r R). Pods not
ready are left out of a decrease and count as idle in an increase: r' = L / ((R + U) T), and if that no longer asks for
more, nothing changes. Then the behaviour: no window upwards and at most max(4 pods, 100 %) per 15 s, so four times that
in a step of 60 s; downwards the highest answer within the window, the window's far end included. The metric is fresh at
every step, and nothing is lost to the 30 s initial readiness delay, so this is the HPA at its best.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.policies.base import STEP_SECONDS, Floats, Ints
from benchmarks.policies.sweep import Sweep, pods_for

TOLERANCE = 0.1
TARGETS = tuple(percent / 100 for percent in range(10, 151))
WINDOWS = (0, 60, 300)

_PERIODS = round(STEP_SECONDS / 15)


class HpaPanel(Sweep):
    """By default 423 settings: 141 targets with 3 windows."""

    def __init__(self, targets: Sequence[float] = TARGETS, windows: Sequence[int] = WINDOWS) -> None:
        super().__init__(targets, windows)

    def rule(self, step: int, seen: float, ready: Ints, starting: Ints) -> Ints:
        """See ``Sweep``."""
        return np.minimum(replicas(seen, self.targets, ready, starting), raised(ready + starting))


def replicas(load: float, targets: Floats, ready: Ints, starting: Ints) -> Ints:
    """What the metric alone asks for, by setting: the rule of the module's docstring. ``ready`` is at least 1."""
    current = ready + starting
    needed = load / targets
    up = needed > current * (1 + TOLERANCE)
    down = needed < ready * (1 - TOLERANCE)
    return np.where(up | down, pods_for(load, targets), current)


def raised(current: Ints) -> Ints:
    """The most that the default scale-up policies allow from ``current`` within one step."""
    for _ in range(_PERIODS):
        current = np.maximum(current + 4, 2 * current)
    return current
