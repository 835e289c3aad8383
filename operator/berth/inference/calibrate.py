"""What a replica really carries, learned from what it is seen to carry.

The roofline that sizes a replica (:mod:`berth.inference.capacity`) assumes a shape of requests and a share of the
hardware's rates; both may be wrong by half. Every window of a few minutes is a trial of it: so much load on each ready
replica, and the promise was kept or it was missed. Capacity is the load at which the one turns into the other.

A trial bounds it from one side only. Kept at a load says that capacity is no less, so that an idle replica proves
nothing and moves nothing; missed says that it is less, and only where the load was near the capacity believed in or
requests queued, for a service misses its promise for many reasons. What is believed is the load that contradicts the
fewest trials, the estimate counting as a few of them: a one-dimensional threshold fitted by counting errors, in which a
trial weighs the same however far off it is, so that a bad one does little. A trial is forgotten only as others
contradict it: a quiet week keeps what a busy day has taught, and a capacity that changed is followed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from math import log2
from statistics import median
from typing import Any, Final, NamedTuple

WINDOW_SECONDS: Final = 300.0
"""Of one trial: engines' times at a percentile are measured over as much, so windows share no request."""
STEPS_PER_DOUBLING: Final = 8
"""Loads are told apart by 9 %, far below what a capacity varies by itself."""
MOST_STEPS: Final = 24
"""From an eighth of the estimate to eight times of it."""
TELLS_ABOVE: Final = 0.5
"""Kept at less than this share of what is believed says nothing new."""
SATURATED_ABOVE: Final = 0.7
"""Missed at less than this share of what is believed, with no queue, has another cause."""
MISS_WEIGHT: Final = 1.5
"""At the capacity settled on three trials of five are kept: too little breaks promises, too much is only paid for."""
ESTIMATE_WEIGHT: Final = 6.0
"""Trials that the estimate stands for, by the factor of two that capacity is away from it."""
HYSTERESIS: Final = 1.0
"""Trials by which another capacity must explain more than the one in use."""
FADES: Final = 0.8
"""What is left of a trial that a new one contradicts."""
KEPT: Final = 20.0
"""Trials of one load and outcome that are counted."""
MOST_MOVED: Final = 1
"""Steps of capacity after one trial, at the most. More would let one bad trial do more than that where many loads
explain the trials alike, and would follow a capacity that falls hardly sooner: what that takes is trials."""
ALL_OF_IT: Final = 0.8
"""A miss is laid at the door of replicas that carry this share of the load."""
SOME_OF_IT: Final = 0.2
"""Replicas that carry less of the load are not tried by it."""


class Kind(NamedTuple):
    """Replicas of one service that carry alike: catalogue name, and devices of each."""

    accelerator: str
    devices: int


@dataclass(frozen=True, slots=True)
class Load:
    """What is on the ready replicas of one kind at one moment, in estimated capacities.

    ``each``: load of one replica, and ``running`` what of it did not wait in the engine. ``queued``: some did; None:
    the source does not tell. ``share``: of the service's load, 0 to 1.
    """

    each: float
    running: float
    queued: bool | None
    share: float


@dataclass(frozen=True, slots=True)
class Trial:
    """A window: ``load`` of each replica in estimated capacities, and whether the promise was ``kept``."""

    load: float
    kept: bool


def kept(promised: Mapping[str, float], seconds: Mapping[str, float]) -> bool | None:
    """Whether every time promised that was measured is kept, both in seconds by name; None: none was."""
    measured = [seconds[name] <= bound for name, bound in promised.items() if name in seconds]
    return all(measured) if measured else None


def basis_of(*facts: object) -> str:
    """A short name of what capacity depends on; other facts, another name."""
    return sha256(repr(facts).encode()).hexdigest()[:12]


def judge(loads: Iterable[Load], kept: bool | None, believed: float, *, timed: bool) -> Trial | None:
    """What a window says of one kind of replicas, None if nothing.

    ``kept``: the promised times over the window, None not measured. ``believed``: the capacity in use, in estimates.
    ``timed``: times are promised; else a replica without a queue keeps all there is to keep.
    """
    seen = list(loads)
    if not seen:
        return None
    queued = 2 * sum(load.queued is True for load in seen) > len(seen)
    if kept is None and queued:
        kept = False
    if kept is None and not timed and all(load.queued is False for load in seen):
        kept = True
    if kept is None:
        return None
    if kept:
        carried = median(load.each for load in seen)
        return Trial(carried, True) if carried >= TELLS_ABOVE * believed else None
    highest = _high(load.running if queued else load.each for load in seen)
    return Trial(highest, False) if queued or highest >= SATURATED_ABOVE * believed else None


def _high(loads: Iterable[float]) -> float:
    """The load that one in ten moments exceeds: a percentile is missed by the busiest of them."""
    ordered = sorted(loads)
    return ordered[int(0.9 * (len(ordered) - 1))]


@dataclass(slots=True)
class Curve:
    """Trials of one kind of replicas by load, and the capacity that is believed.

    ``kept`` and ``missed`` count by step, ``STEPS_PER_DOUBLING × log2(load)``. ``step`` is that of the capacity in
    use, 0 the estimate. ``trials``: all that there were.
    """

    kept: dict[int, float] = field(default_factory=dict)
    missed: dict[int, float] = field(default_factory=dict)
    step: int = 0
    trials: int = 0

    @property
    def factor(self) -> float:
        """The capacity in use, in estimates."""
        return float(2.0 ** (self.step / STEPS_PER_DOUBLING))

    def learn(self, trial: Trial) -> bool:
        """Take a trial in; whether the capacity in use is another one now."""
        at = _step(trial.load)
        mine, other = (self.kept, self.missed) if trial.kept else (self.missed, self.kept)
        mine[at] = min(mine.get(at, 0.0) + 1.0, KEPT)
        for step in other:
            if (step <= at) if trial.kept else (step >= at):
                other[step] *= FADES
        self.trials += 1
        best = min(range(-MOST_STEPS, MOST_STEPS + 1), key=lambda step: (self.contradicted(step), abs(step)))
        if self.contradicted(self.step) - self.contradicted(best) < HYSTERESIS:
            return False
        before, self.step = self.step, min(max(best, self.step - MOST_MOVED), self.step + MOST_MOVED)
        return self.step != before

    def contradicted(self, step: int) -> float:
        """The weight of what a capacity at ``step`` contradicts, the estimate's included."""
        kept = sum(count for at, count in self.kept.items() if at > step)
        missed = sum(count for at, count in self.missed.items() if at <= step)
        return kept + MISS_WEIGHT * missed + ESTIMATE_WEIGHT * abs(step) / STEPS_PER_DOUBLING

    def record(self) -> str:
        """Compact: the step and the number of trials, then ``step:kept:missed`` of each load tried."""
        steps = sorted(step for step in self.kept.keys() | self.missed.keys() if self._weight(step) >= 0.1)
        seen = [f"{step}:{self.kept.get(step, 0.0):.1f}:{self.missed.get(step, 0.0):.1f}" for step in steps]
        return " ".join((f"{self.step}/{self.trials}", *seen))

    @classmethod
    def restore(cls, record: str) -> Curve:
        """The inverse of :meth:`record`. Raises: ValueError."""
        head, *seen = record.split()
        step, trials = head.split("/")
        curve = cls(step=max(-MOST_STEPS, min(int(step), MOST_STEPS)), trials=max(0, int(trials)))
        for entry in seen:
            at, kept, missed = entry.split(":")
            curve.kept[int(at)], curve.missed[int(at)] = _count(kept), _count(missed)
        return curve

    def _weight(self, step: int) -> float:
        return self.kept.get(step, 0.0) + self.missed.get(step, 0.0)


def _step(load: float) -> int:
    if load <= 0:
        return -MOST_STEPS
    return max(-MOST_STEPS, min(round(STEPS_PER_DOUBLING * log2(load)), MOST_STEPS))


def _count(text: str) -> float:
    count = float(text)
    if not 0 <= count <= KEPT:
        raise ValueError(f"{text} trials")
    return count


def in_use(record: Iterable[Mapping[str, Any]] | None) -> dict[Kind, str]:
    """Of :meth:`Capacities.record`: the capacity in use by kind, which is worth a write; trials alone are not."""
    return {
        Kind(str(entry.get("accelerator")), entry.get("devices") or 0): str(entry.get("record")).partition("/")[0]
        for entry in record or ()
    }


@dataclass(slots=True)
class Capacities:
    """What one service's replicas carry, by kind. ``version`` is another one whenever a capacity in use is.

    ``basis`` says what it was learned of, such as a digest of model, engine and promise: another one begins anew.
    """

    basis: str = ""
    curves: dict[Kind, Curve] = field(default_factory=dict)
    version: int = 0
    _loads: dict[Kind, list[Load]] = field(default_factory=dict)
    _since: float = 0.0
    _last: float = 0.0

    def factor(self, kind: Kind) -> float:
        """Capacity over its estimate, 1 before anything was learned."""
        known = self.curves.get(kind)
        return known.factor if known is not None else 1.0

    def trials(self, kind: Kind) -> int:
        """How many there were."""
        known = self.curves.get(kind)
        return known.trials if known is not None else 0

    def concern(self, basis: str) -> None:
        """Learn of ``basis`` from now on."""
        if basis != self.basis:
            self.version += bool(self.curves)
            self.basis, self.curves = basis, {}
            self._loads.clear()

    def hear(self, at: float, loads: Mapping[Kind, Load], kept: bool | None, *, timed: bool) -> None:
        """One look at the loads of every kind, and at the promised times over the last :data:`WINDOW_SECONDS`."""
        if not self._loads or at - self._last > WINDOW_SECONDS / 2 or at < self._last:
            self._loads.clear()
            self._since = at
        self._last = at
        for kind, load in loads.items():
            self._loads.setdefault(kind, []).append(load)
        if at - self._since >= WINDOW_SECONDS:
            self._close(kept, timed)

    def _close(self, kept: bool | None, timed: bool) -> None:
        most = max((len(loads) for loads in self._loads.values()), default=0)
        for kind, loads in self._loads.items():
            curve = self.curves.get(kind) or Curve()
            trial = judge(loads, kept, curve.factor, timed=timed) if 2 * len(loads) > most else None
            share = median(load.share for load in loads)
            if trial is None or share < (SOME_OF_IT if trial.kept else ALL_OF_IT):
                continue
            self.curves[kind] = curve
            self.version += curve.learn(trial)
        self._loads.clear()

    def record(self) -> list[dict[str, Any]]:
        """For status: plain values by kind, in order."""
        return [
            {"accelerator": kind.accelerator, "devices": kind.devices, "basis": self.basis, "record": curve.record()}
            for kind, curve in sorted(self.curves.items())
        ]

    @classmethod
    def restore(cls, record: Iterable[Mapping[str, Any]]) -> Capacities:
        """The inverse of :meth:`record`; entries that cannot be read, or are of another basis, are left out."""
        found = cls()
        for entry in record:
            try:
                kind, basis = Kind(str(entry["accelerator"]), int(entry["devices"])), str(entry["basis"])
                curve = Curve.restore(entry["record"])
            except (KeyError, TypeError, ValueError, AttributeError):
                continue
            if found.curves and basis != found.basis:
                continue
            found.basis, found.curves[kind] = basis, curve
        return found
