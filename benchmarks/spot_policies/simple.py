"""All on demand and all on spot: the two ends between which a policy for spot lies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.spot_policies.base import ON_DEMAND, Rules, View


class OnDemandOnly:
    """No spot at all."""

    name = "on-demand-only"
    patience = 10**9

    def reset(self, zones: Sequence[str], rules: Rules, notice: bool) -> None:
        """Nothing to forget."""

    def decide(self, view: View) -> Mapping[str, int]:
        """What is needed."""
        return {ON_DEMAND: view.needed}


class SpotOnly:
    """Nothing but spot, spread evenly over the zones that have nodes; no floor and no rule."""

    name = "spot-only"
    patience = 10**9

    def reset(self, zones: Sequence[str], rules: Rules, notice: bool) -> None:
        """Start from nothing."""
        self._zones = tuple(zones)

    def decide(self, view: View) -> Mapping[str, int]:
        """What is needed, kept where it is."""
        counts = {zone: len(view.replicas[zone]) for zone in self._zones}
        while sum(counts.values()) < view.needed:
            open_zones = [zone for zone in self._zones if counts[zone] < view.nodes[zone]]
            if not open_zones:
                break
            counts[min(open_zones, key=lambda zone: counts[zone])] += 1
        while sum(counts.values()) > view.needed:
            counts[max(counts, key=lambda zone: counts[zone])] -= 1
        return counts
