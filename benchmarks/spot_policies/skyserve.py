"""SkyServe's dynamic fallback, as its autoscaler and its placer for spot do it.

Spot is brought to target + overprovision - base. On demand is base plus what spot is not ready for, at most the target:
it covers spot that still starts, and leaves when spot is ready. Each new spot replica goes to an active zone that holds
none of this service, else to any active one; a zone that took a replica or refused one is set aside until fewer than
two are active, then all are active again. It takes no note of notices. Where the rule on zones leaves no zone for a
spot replica, it is one on demand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from benchmarks.spot_policies.base import ON_DEMAND, Rules, View


class SkyServe:
    """One setting: the share of the target that is always on demand, and spot replicas over the target."""

    patience = 10**9

    def __init__(self, base: float, overprovision: int) -> None:
        self.name = f"skyserve {base:.0%} +{overprovision}"
        self._base, self._over = base, overprovision

    def reset(self, zones: Sequence[str], rules: Rules, notice: bool) -> None:
        """All zones are active."""
        self._zones, self._rules = tuple(zones), rules
        self._active = set(zones)
        self._before: dict[str, int] = {}

    def decide(self, view: View) -> Mapping[str, int]:
        """The counts of its autoscaler, placed by its placer."""
        counts = {zone: len(view.replicas[zone]) for zone in self._zones}
        for zone in self._zones:
            if counts[zone] < self._before.get(zone, 0):
                self._set_aside(zone)
        zones = len(self._zones)
        base = min(max(self._rules.floor, math.ceil(self._base * view.needed - 1e-9)), view.needed)
        base = max(base, view.needed - zones * self._rules.per_zone(view.needed))
        wanted = view.needed + self._over - base
        while wanted > zones * self._rules.per_zone(base + wanted):
            wanted -= 1
        per_zone = self._rules.per_zone(base + wanted)
        ready = sum(view.ready(zone) for zone in self._zones)
        refused: set[str] = set()
        while sum(counts.values()) < wanted:
            chosen = self._next(counts, per_zone, refused)
            if chosen is None:
                break
            if counts[chosen] < view.nodes[chosen]:
                counts[chosen] += 1
            else:
                refused.add(chosen)
                self._set_aside(chosen)
        while sum(counts.values()) > wanted:
            counts[max(counts, key=lambda zone: counts[zone])] -= 1
        self._before = dict(counts)
        return {**counts, ON_DEMAND: min(base + max(0, wanted - ready), view.needed)}

    def _next(self, counts: Mapping[str, int], per_zone: int, refused: set[str]) -> str | None:
        free = [zone for zone in self._zones if zone not in refused and counts[zone] < per_zone]
        active = [zone for zone in free if zone in self._active]
        if not active and free:  # only the rule on zones does this to it; those set aside are tried again
            self._active = set(self._zones)
            active = free
        return min(active, key=lambda zone: counts[zone], default=None)

    def _set_aside(self, zone: str) -> None:
        self._active.discard(zone)
        if len(self._active) < 2:
            self._active = set(self._zones)
