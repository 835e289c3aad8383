"""How long a replica takes from its creation until it serves: a distribution learned from what was seen.

Plans go by a quantile of it: it sets how far a forecast must look, how long a shrink must wait, and whether a service
may sleep at zero. It differs by model, accelerator, class of node and whether the node holds the weights, and each of
these has few samples, so what is known of a wider group stands in for what is not yet known of a narrower one, and a
prior for both.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from statistics import NormalDist
from typing import Any, Final

from berth.catalogue.serving import Serving

KEPT: Final = 48
"""Samples kept per key; older ones describe older images and drivers."""
KEYS_KEPT: Final = 64
"""Keys kept, those seen last: models are renamed and pools replaced for as long as a service lives."""
ENOUGH: Final = 8
"""With so many samples of its own a key needs nothing from wider groups or the prior."""
STEPS: Final = (60, 120, 180, 300, 600, 900, 1200, 1800, 2700, 3600, 7200)
"""Seconds to which learned budgets are rounded up, so that a day of learning changes no template."""
_Z90: Final = NormalDist().inv_cdf(0.9)


@dataclass(frozen=True, slots=True)
class Prior:
    """What is believed of a start before any was seen: lognormal by its median and 90th percentile, in seconds."""

    p50: float
    p90: float

    def quantile(self, share: float) -> float:
        """The quantile ``share`` (0 to 1, exclusive)."""
        if self.p50 <= 0:
            return max(self.p90, 0.0)
        sigma = math.log(max(self.p90 / self.p50, 1.0)) / _Z90
        return self.p50 * math.exp(sigma * NormalDist().inv_cdf(share))


@lru_cache(maxsize=1024)
def _spread(prior: Prior) -> tuple[float, ...]:
    """Starts that stand for it, ascending. Remembered, for every decision asks."""
    return tuple(prior.quantile((i + 0.5) / (2 * ENOUGH)) for i in range(2 * ENOUGH))


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """What starts alike: ``node_class`` is the node's instance type or pool, ``cached`` whether it held the weights."""

    model: str
    accelerator: str
    node_class: str = ""
    cached: bool = False

    def wider(self) -> tuple[Key, ...]:
        """The groups that stand in for this one, nearest first."""
        return (self, Key(self.model, self.accelerator, "", self.cached)) if self.node_class else (self,)


@dataclass(slots=True)
class ColdStarts:
    """Samples by key, newest last; of keys too the one that was seen last is the last."""

    samples: dict[Key, list[float]] = field(default_factory=dict)

    def observe(self, key: Key, seconds: float) -> None:
        """One start took ``seconds``. What is not positive and finite is no start and is left out."""
        if not (math.isfinite(seconds) and seconds > 0):
            return
        for group in key.wider():
            known = self.samples.pop(group, [])
            known.append(seconds)
            del known[:-KEPT]
            self.samples[group] = known
        while len(self.samples) > KEYS_KEPT:
            del self.samples[next(iter(self.samples))]

    def rename(self, classes: Collection[tuple[str, str, str]], used: Collection[str]) -> None:
        """Nodes of a class are known as another one's: ``classes`` are (accelerator, old, new).

        What was seen of the old goes on in the new; of the old it is forgotten where that is not among ``used``.
        """
        for accelerator, old, new in sorted(classes):
            for key in [key for key in self.samples if (key.accelerator, key.node_class) == (accelerator, old)]:
                fresh = replace(key, node_class=new)
                self.samples[fresh] = [*self.samples.pop(fresh, ()), *self.samples[key]][-KEPT:]
        for accelerator, old, _ in classes:
            if old not in used:
                gone = [key for key in self.samples if (key.accelerator, key.node_class) == (accelerator, old)]
                for key in gone:
                    del self.samples[key]

    def count(self, key: Key) -> int:
        """Starts seen of exactly this key."""
        return len(self.samples.get(key, ()))

    def longest(self, key: Key) -> float:
        """Of the starts kept of exactly this key, in seconds; 0 where none is."""
        return max(self.samples.get(key, ()), default=0.0)

    def quantile(self, key: Key, share: float, prior: Prior) -> float:
        """Seconds within which ``share`` of the starts are done; narrower groups weigh more, up to :data:`ENOUGH`."""
        weighted: list[tuple[float, float]] = []
        missing = float(ENOUGH)
        for group in key.wider():
            known = self.samples.get(group, ())
            if not known or missing <= 0:
                continue
            weight = min(missing, len(known)) / len(known) if group != key else 1.0
            weighted += [(seconds, weight) for seconds in known]
            missing -= len(known) * weight
        if missing > 0:
            steps = _spread(prior)
            weighted += [(seconds, missing / len(steps)) for seconds in steps]
        return _weighted_quantile(weighted, share)

    def cached_quantile(self, key: Key, share: float, prior: Prior, cold: Prior) -> float:
        """:meth:`quantile` of ``key`` where the node holds the weights; ``cold`` is the prior where it does not.

        Weights at hand make no start slower, so it is at most what is learned of starts without them: few samples, or
        the prior beside starts that were seen to be faster, would say otherwise.
        """
        held, bare = replace(key, cached=True), replace(key, cached=False)
        return min(self.quantile(held, share, prior), self.quantile(bare, share, cold))

    def looks_cold(self, key: Key, seconds: float, prior: Prior, cold: Prior) -> bool:
        """Whether a start of ``seconds`` where the weights should have been on the node fetched them all the same.

        It did when it took longer than nine of ten that find them and than half of those that do not.
        """
        warm = self.cached_quantile(key, 0.9, prior, cold)
        return seconds > max(warm, self.quantile(replace(key, cached=False), 0.5, cold))

    def record(self) -> list[dict[str, Any]]:
        """For status: plain values, the key seen last is the last, samples in whole seconds."""
        return [
            {
                "model": key.model,
                "accelerator": key.accelerator,
                **({"nodeClass": key.node_class} if key.node_class else {}),
                "cached": key.cached,
                "seconds": [max(1, round(sample)) for sample in known],
            }
            for key, known in self.samples.items()
        ]

    @classmethod
    def restore(cls, record: Iterable[Mapping[str, Any]]) -> ColdStarts:
        """The inverse of :meth:`record`; entries that cannot be read are left out."""
        starts = cls()
        for entry in record:
            try:
                key = Key(entry["model"], entry["accelerator"], entry.get("nodeClass", ""), bool(entry["cached"]))
                known = [float(sample) for sample in entry["seconds"]]
                starts.samples[key] = [sample for sample in known if math.isfinite(sample) and sample > 0][-KEPT:]
            except (KeyError, TypeError, ValueError):
                continue
        return starts


def prior_of(serving: Serving, weights: int, *, cached: bool, new_node: bool = False) -> Prior:
    """What the catalogue expects of a start: the sum over its phases, with ``weights`` bytes to read.

    Medians add exactly only for independent symmetric phases, and 90th percentiles add to more than that of the sum:
    both err to the long side, which costs money and not requests.
    """
    phases = [phase for phase in serving.cold_start.values() if new_node or phase.name != "Node"]
    reading = {phase.name: phase.reading(weights, cached=cached) for phase in phases}
    return Prior(
        sum(phase.p50 + reading[phase.name] for phase in phases),
        sum(phase.p90 + reading[phase.name] for phase in phases),
    )


def budget(seconds: float) -> int:
    """``seconds`` rounded up to one of :data:`STEPS`; beyond the last, to whole hours."""
    place = bisect_left(STEPS, seconds)
    return STEPS[place] if place < len(STEPS) else math.ceil(seconds / 3600) * 3600


def step_above(seconds: float) -> float:
    """What a start is taken to need that was ended after ``seconds`` in vain: the next of :data:`STEPS`.

    All that is known of it is that it takes longer. Beyond the last step it is taken to hang, and nothing is concluded.
    """
    place = bisect_right(STEPS, seconds)
    return STEPS[place] if place < len(STEPS) else STEPS[-1]


def frozen_budget(frozen: int, learned: float, *, template_changes: bool) -> int:
    """The start-up budget to use, in seconds, given the one in force (0: none yet).

    A new one is taken with the user's own change of the template, or at once when the one in force would end starts
    that are merely slow.
    """
    fresh = budget(learned)
    return fresh if not frozen or template_changes or frozen < learned else frozen


def _weighted_quantile(weighted: Sequence[tuple[float, float]], share: float) -> float:
    """The least value at which ``share`` of the weight is reached."""
    ordered = sorted(weighted)
    goal = share * sum(weight for _, weight in ordered)
    reached = 0.0
    for value, weight in ordered:
        reached += weight
        if reached >= goal - 1e-12:
            return value
    return ordered[-1][0]
