"""When a replica is about to be taken away: what its node or it itself shows, and how long that leaves.

The clock starts when a signal was first seen here, unless the object says when it was written.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from berth.cluster import wire
from berth.fleet.fleet import Fleet
from berth.inference.reclaim import Sign, leaving_at, signs

DISRUPTED: Final = "DisruptionTarget"
MOST_NODES: Final = 20_000
"""So many nodes with a signal are remembered, those looked at last, since nobody tells here of nodes that are gone."""


class Notices:
    """Answers with the deadline of a pod, in unix seconds; None while nothing says that it goes."""

    def __init__(self, fleet: Fleet, *, wall: Callable[[], float] = time.time) -> None:
        self._fleet, self._wall = fleet, wall
        self._seen: dict[str, dict[str, float]] = {}  # node uid -> signal -> when first seen, for those that do not say

    def __call__(self, pod: wire.Pod, node: wire.Node | None) -> float | None:
        stated = wire.condition(pod.status.conditions, DISRUPTED)
        since: float | None = None
        if stated is not None and stated.status == "True":
            since = stated.last_transition_time.timestamp() if stated.last_transition_time else self._wall()
        if node is None:
            return leaving_at((), {}, spot=False, disrupted_since=since)
        found = node_signs(node, self._fleet)
        known = self._seen.get(node.metadata.uid, {})
        first = {sign.signal.name: known.get(sign.signal.name, self._wall()) for sign in found}
        self._seen.pop(node.metadata.uid, None)
        if first:
            self._seen[node.metadata.uid] = first  # the last looked at is the last in turn
            if len(self._seen) > MOST_NODES:
                del self._seen[next(iter(self._seen))]
        spot = self._fleet.catalogue.labels.capacity_type(node.metadata.labels) == "Spot"
        return leaving_at(found, first, spot=spot, disrupted_since=since)


def node_signs(node: wire.Node, fleet: Fleet) -> list[Sign]:
    """What ``node`` shows of the catalogue's signals."""
    taints = {
        taint.key: taint.time_added.timestamp() if taint.time_added is not None else None for taint in node.spec.taints
    }
    conditions = {
        each.type: each.last_transition_time.timestamp() if each.last_transition_time is not None else None
        for each in node.status.conditions
        if each.status == "True"
    }
    return signs(taints, conditions, fleet.catalogue.serving.reclaims)
