"""When a node, and the replica on it, is about to be taken away, and which losses of spot nodes were reclaims.

Providers and their helpers write a taint or a condition; which, what it means and how long a notice is, is data of the
catalogue. An autoscaler's own choice looks alike and says nothing of spot, so it is told apart.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from berth.catalogue.serving import Means, ReclaimSignal

SHORTEST_SECONDS: Final = 30.0
"""What a pod told of its disruption has where nothing says more: the API's default grace period."""
ACTS: Final[frozenset[Means]] = frozenset({"Reclaim", "Maintenance", "Leaving"})
"""What is acted on; the rest is advice."""


@dataclass(frozen=True, slots=True)
class Sign:
    """A signal that a node shows, since ``began`` in unix seconds; None where the node does not say."""

    signal: ReclaimSignal
    began: float | None = None


def signs(
    taints: Mapping[str, float | None], conditions: Mapping[str, float | None], table: Iterable[ReclaimSignal]
) -> list[Sign]:
    """What a node with these taints (by key) and true conditions (by type) shows; values are since when, if known."""
    found: list[Sign] = []
    for signal in table:
        for name, shown in ((signal.taint, taints), (signal.condition, conditions)):
            if name and name in shown:
                found.append(Sign(signal, shown[name]))
                break
    return found


def leaving_at(
    found: Sequence[Sign], first_seen: Mapping[str, float], *, spot: bool, disrupted_since: float | None = None
) -> float | None:
    """The unix seconds at which a pod ends, infinite where its node waits for it; None while nothing says that it goes.

    ``first_seen``: by name of a signal, when it was first seen here, for nodes that do not say since when.
    ``disrupted_since``: since when the pod itself has been told.
    """
    ends: list[float] = [] if disrupted_since is None else [disrupted_since + SHORTEST_SECONDS]
    for sign in found:
        if sign.signal.means not in ACTS:
            continue
        began = sign.began if sign.began is not None else first_seen[sign.signal.name]
        seconds = sign.signal.seconds(spot=spot)
        ends.append(math.inf if seconds is None else began + seconds)
    return min(ends, default=None)


@dataclass(frozen=True, slots=True)
class SpotNode:
    """A spot node as it is seen; ``signs`` as in :func:`signs`."""

    uid: str
    place: tuple[str, str]
    signs: tuple[Sign, ...] = ()

    @property
    def means(self) -> frozenset[Means]:
        """What its signs mean, as far as it is acted on."""
        return frozenset(sign.signal.means for sign in self.signs) & ACTS


@dataclass(slots=True)
class Census:
    """Counts the spot nodes that are held and those that were reclaimed, by place.

    A node is reclaimed when it first shows so, or when it is gone without ever having shown that somebody meant it to.
    """

    _nodes: dict[str, SpotNode] = field(default_factory=dict)

    def renamed(self, nodes: Iterable[SpotNode]) -> dict[tuple[str, str], tuple[str, str]]:
        """Places that have another name since the last look, by the old one: all of the nodes that stayed went to one
        place, which had none. From here on they count there."""
        before: dict[tuple[str, str], set[tuple[str, str]]] = {}
        for node in nodes:
            known = self._nodes.get(node.uid)
            before.setdefault(known.place if known is not None else ("", ""), set()).add(node.place)
        had = {node.place for node in self._nodes.values()}
        found = {
            old: new
            for old, (new, *others) in ((old, tuple(news)) for old, news in before.items() if old in had)
            if not others and new != old and new not in had
        }
        came = Counter(found.values())
        found = {old: new for old, new in found.items() if came[new] == 1}
        self._nodes = {uid: replace(node, place=found.get(node.place, node.place)) for uid, node in self._nodes.items()}
        return found

    def look(self, nodes: Iterable[SpotNode]) -> dict[tuple[str, str], tuple[int, int]]:
        """(held, reclaimed since the last look) of every place that has or had nodes; those that go are not held."""
        now = {node.uid: node for node in nodes}
        counts = {node.place: [0, 0] for node in (*self._nodes.values(), *now.values())}
        for uid, node in now.items():
            before = self._nodes.get(uid)
            counts[node.place][0] += not node.means
            counts[node.place][1] += "Reclaim" in node.means and (before is None or "Reclaim" not in before.means)
        for uid, node in self._nodes.items():
            counts[node.place][1] += uid not in now and not node.means
        self._nodes = now
        return {place: (held, reclaimed) for place, (held, reclaimed) in sorted(counts.items())}
