"""The cheapest schedule that serves everything, by one who knows every reclaim; below it nobody can go.

A dynamic program over (spot replicas ready, on-demand replicas ready) by step. A replica can be ready in a zone only on
a node that has been there for a whole cold start, so a zone's room is the least of its nodes over that time. Each
increase is paid one cold start beforehand; decreases are free. It is a lower bound on every schedule that serves all of
the demand and keeps the rules with what it has ready, because whatever is simplified only makes it cheaper: spot moves
between zones for nothing, the best nodes are always its own, and replicas that start take no room.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.spot_policies.base import COLD_STEPS, ON_DEMAND_PRICE, SPOT_PRICE, Rules, ahead
from benchmarks.spot_traces import STEP_SECONDS, Group, Ints

SPARE = 4
"""Replicas over the demand that it may hold, where that makes room under the zone rule."""


def cheapest(group: Group, demand: Ints, rules: Rules) -> float:
    """Its cost in hours of a replica on demand. It starts, as all do, with ready replicas on demand."""
    room = _standing(group.nodes)
    most = int(demand.max()) + SPARE
    spot = np.arange(most + 1)[:, None]
    on_demand = np.arange(most + 1)[None, :]
    total = spot + on_demand
    per_zone = np.floor(rules.max_zone_loss * total + 1e-9)
    hourly = SPOT_PRICE * spot + ON_DEMAND_PRICE * on_demand
    value = np.full((most + 1, most + 1), np.inf)
    value[0, int(ahead(demand)[0])] = 0.0
    same = np.any(np.diff(room, axis=1) != 0, axis=0) | (np.diff(demand) != 0)
    begins = [0, *(np.flatnonzero(same) + 1).tolist()]
    for begin, end in zip(begins, [*begins[1:], len(demand)], strict=True):
        value = _grow(_grow(value, COLD_STEPS * SPOT_PRICE, axis=0), COLD_STEPS * ON_DEMAND_PRICE, axis=1)
        fits = np.minimum(room[:, begin][:, None, None], per_zone[None]).sum(axis=0)
        allowed = (spot <= fits) & (total >= demand[begin]) & (on_demand >= min(rules.floor, int(demand[begin])))
        value = np.where(allowed, value + hourly * (end - begin), np.inf)
    return float(value.min()) * STEP_SECONDS / 3600


def _standing(nodes: Ints) -> Ints:
    """Of each zone the nodes that have been there for a cold start at least."""
    padded = np.concatenate([np.zeros((len(nodes), COLD_STEPS), dtype=nodes.dtype), nodes], axis=1)
    least: Ints = np.min(np.stack([padded[:, i : i + nodes.shape[1]] for i in range(COLD_STEPS + 1)]), axis=0)
    return least


def _grow(value: NDArray[np.float64], price: float, axis: int) -> NDArray[np.float64]:
    """The least cost of every count where an increase costs ``price`` each and a decrease nothing."""
    turned = np.moveaxis(value, axis, 0)
    less = np.minimum.accumulate(turned[::-1], axis=0)[::-1]
    slope = price * np.arange(len(turned)).reshape(-1, *[1] * (turned.ndim - 1))
    more = np.minimum.accumulate(turned - slope, axis=0) + slope
    return np.moveaxis(np.minimum(less, more), 0, axis)
