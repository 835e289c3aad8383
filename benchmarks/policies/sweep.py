"""What the rivals share: a sweep of headroom and of scale-down windows over one rule.

Each rival is given the choice of its setting in hindsight, per trace and cold start, which no user has. So a rival that
loses here loses by its algorithm, not by a default.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.policies.base import STEP_SECONDS, Floats, Ints, Limits

TARGETS = tuple(percent / 100 for percent in range(10, 151, 5))
WINDOWS = (0, 300)


class Sweep:
    """Every target (load per replica that is aimed at, share of its capacity) with every down-window in seconds.

    A rival overrides ``rule``, and ``begin`` where it remembers something.
    """

    window_name = "window"

    def __init__(self, targets: Sequence[float] = TARGETS, windows: Sequence[int] = WINDOWS) -> None:
        self.settings = [
            f"target {target:.0%}, {self.window_name} {window} s" for window in windows for target in targets
        ]
        self.targets: Floats = np.tile(np.array(targets), len(windows))
        self._windows, self._each = tuple(windows), len(targets)

    def reset(self, cold_steps: int, limits: Limits) -> None:
        """See ``Panel``."""
        self.limits = limits
        self._down = DownWindows(self._windows, self._each)
        self.begin(cold_steps)

    def decide(self, step: int, seen: float | None, ready: Ints, starting: Ints) -> Ints:
        """See ``Panel``."""
        current = ready + starting
        if seen is None:
            return current
        wanted = self.rule(step, seen, ready, starting)
        wanted = np.clip(wanted, self.limits.min_replicas, self.limits.max_replicas)
        return self._down.stabilise(step, wanted, current)

    def begin(self, cold_steps: int) -> None:
        """Forget what was seen."""

    def rule(self, step: int, seen: float, ready: Ints, starting: Ints) -> Ints:
        """Replicas wanted before bounds and windows, by setting."""
        raise NotImplementedError


class DownWindows:
    """Scale-down stabilisation for blocks of equally many settings, one block per window in seconds."""

    def __init__(self, windows: Sequence[int], each: int) -> None:
        self._spans = [1 + round(window / STEP_SECONDS) for window in windows]
        self._each = each
        self._recent = np.zeros((max(self._spans), each * len(self._spans)), dtype=np.int64)

    def stabilise(self, step: int, wanted: Ints, current: Ints) -> Ints:
        """``wanted`` where it is not below ``current``, else the highest of the window, never above ``current``."""
        rows = len(self._recent)
        self._recent[step % rows] = wanted
        highest = wanted.copy()
        for block, span in enumerate(self._spans):
            part = slice(block * self._each, (block + 1) * self._each)
            if span == rows:
                highest[part] = self._recent[:, part].max(axis=0)
            elif span > 1:
                ages = [(step - age) % rows for age in range(span)]
                highest[part] = self._recent[ages, part].max(axis=0)
        return np.minimum(np.maximum(wanted, current), highest)


def pods_for(load: float | Floats, targets: Floats) -> Ints:
    """ceil(load / target), by setting."""
    return np.ceil(load / targets - 1e-9).astype(np.int64)
