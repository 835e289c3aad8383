"""A quantile from a histogram's buckets, as Prometheus computes it, over the pods of one service."""

from __future__ import annotations

import math
from collections.abc import Mapping


def bound_of(labels: Mapping[str, str]) -> float | None:
    """The upper bound that a bucket's series states in ``le``; None where it states no number."""
    try:
        bound = float(labels.get("le", ""))
    except ValueError:
        return None
    return None if math.isnan(bound) else bound


def from_buckets(counts: Mapping[float, float], share: float) -> float | None:
    """The quantile ``share`` of cumulative ``counts`` by upper bound; None where nothing was counted.

    Linear within a bucket; in the last, unbounded one the lower bound of it (Prometheus ``histogram_quantile``).
    """
    bounds = sorted(counts)
    if not bounds or not math.isinf(bounds[-1]) or not counts[bounds[-1]] > 0:
        return None
    rank = share * counts[bounds[-1]]
    below, start = 0.0, 0.0
    for bound in bounds:
        reached = max(counts[bound], below)
        if reached >= rank:
            if math.isinf(bound):
                return start if start > 0 else None
            return start + (bound - start) * ((rank - below) / (reached - below) if reached > below else 1.0)
        below, start = reached, bound
    return start
