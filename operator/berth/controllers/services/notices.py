"""When a replica is about to be taken away: what its node or it itself shows, and how long that leaves.

Providers and their helpers write a taint or a condition; which, and how long a notice is, is data of the catalogue. The
clock starts when it was first seen here, unless the object says when it was written.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from berth.catalogue.serving import ReclaimSignal
from berth.cluster import wire
from berth.fleet.fleet import Fleet

DISRUPTED: Final = "DisruptionTarget"
SHORTEST: Final = 30.0
"""Seconds that a pod told of its disruption has where nothing says more: the API's default grace period."""
_ACTS: Final = frozenset({"Reclaim", "Maintenance", "Leaving"})


class Notices:
    """Answers with the deadline of a pod, in unix seconds; None while nothing says that it goes."""

    def __init__(self, fleet: Fleet, *, wall: Callable[[], float] = time.time) -> None:
        self._fleet, self._wall = fleet, wall
        self._seen: dict[tuple[str, str], float] = {}  # node uid, signal -> when first seen

    def __call__(self, pod: wire.Pod, node: wire.Node | None) -> float | None:
        stated = wire.condition(pod.status.conditions, DISRUPTED)
        ends: list[float] = []
        if stated is not None and stated.status == "True":
            began = stated.last_transition_time
            ends.append((began.timestamp() if began else self._wall()) + SHORTEST)
        if node is not None:
            ends += self._of_node(node)
        return min(ends, default=None)

    def _of_node(self, node: wire.Node) -> list[float]:
        labels = node.metadata.labels
        spot = self._fleet.catalogue.labels.capacity_type(labels) == "Spot"
        ends: list[float] = []
        for signal in self._fleet.catalogue.serving.reclaims:
            key = (node.metadata.uid, signal.name)
            written = _written(node, signal)
            if written is None:
                self._seen.pop(key, None)
                continue
            began = written or self._seen.setdefault(key, self._wall())
            seconds = signal.seconds(spot=spot)
            if signal.means in _ACTS:
                ends.append(began + (float("inf") if seconds is None else seconds))
        return ends


def _written(node: wire.Node, signal: ReclaimSignal) -> float | None:
    """When the node began to show ``signal``: 0 where it does not say, None where it does not show it."""
    for taint in node.spec.taints if signal.taint else ():
        if taint.key == signal.taint:
            return taint.time_added.timestamp() if taint.time_added is not None else 0.0
    stated = wire.condition(node.status.conditions, signal.condition) if signal.condition else None
    if stated is None or stated.status != "True":
        return None
    return stated.last_transition_time.timestamp() if stated.last_transition_time is not None else 0.0
