"""The fleet computed again beside the one that is kept, while that one goes on changing.

Usage is derived from claims, so the derivation can be done again, and where the two differ the new one is right. At
ten thousand nodes that takes most of a second, in which no decision could be made; so it is done a slice of nodes at a
time. Nodes about which something was said meanwhile are told to the recount, which brings them up to date before each
comparison: at every moment both fleets speak of the same nodes, pools and claims.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from berth.fleet.audit import differences, rows_differ
from berth.fleet.fleet import Fleet

SLICE: Final = 100
"""Nodes at a time: a few milliseconds."""


def recount(fleet: Fleet, size: int = SLICE) -> Iterator[list[str]]:
    """Compute ``fleet`` again; yields after every ``size`` nodes what differs among them, a sentence each.

    The fleet may be changed between the slices. If anything differed, it holds what was computed when the last slice
    has been yielded, and its version is another. A change of the pools or the catalogue meanwhile ends the recount
    without a result.
    """
    touched: set[str] = set()
    fresh, pools = fleet.second(touched), fleet.membership
    try:
        for part in _slices(list(fleet.nodes), size):
            touched.update(part)
            _follow(fleet, fresh, touched)
            yield []
            if fleet.membership is not pools:
                return
        drifted = False
        for name in sorted(fleet.pools.keys() | fresh.pools.keys()):
            for part in _slices(_nodes_of(fleet, fresh, name), size):
                _follow(fleet, fresh, touched)
                found = _compare(fleet, fresh, name, part)
                drifted = drifted or bool(found)
                yield found
                if fleet.membership is not pools:
                    return
        _follow(fleet, fresh, touched)
        found = differences(fleet.pools, fresh.pools, nodes=())
        if found or drifted:
            fleet.become(fresh)
        yield found
    finally:
        fleet.forget_second()


def _follow(fleet: Fleet, fresh: Fleet, touched: set[str]) -> None:
    """Make ``fresh`` say of the nodes ``touched`` what nodes and claims say now."""
    for name in touched:
        facts = fleet.nodes.get(name)
        if facts is None:
            fresh.remove_node(name)
        elif not fresh.set_node(facts) and (pool := fresh.pool_of(name)) is not None:
            pool.put(fresh.nodes[name])
    touched.clear()


def _nodes_of(fleet: Fleet, fresh: Fleet, name: str) -> list[str]:
    pools = [each.pools[name] for each in (fleet, fresh) if name in each.pools]
    return sorted({node for pool in pools for node in pool.row})


def _compare(fleet: Fleet, fresh: Fleet, name: str, nodes: Sequence[str]) -> list[str]:
    kept, again = fleet.pools.get(name), fresh.pools.get(name)
    if kept is None or again is None:
        return []  # that one of them lacks the pool is found at the end
    return [f"pool {name}: {text}" for text in rows_differ(kept, again, nodes)]


def _slices(names: list[str], size: int) -> Iterator[list[str]]:
    return (names[start : start + size] for start in range(0, len(names), size))
