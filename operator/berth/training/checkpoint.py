"""How often a gang should save, known before it has run.

The interval balances the time that saving stalls the job against the work that a failure throws away. Both can be
estimated at the start: the stall from the size of the state and the store's bandwidth, the failure rate from a prior
per node. What the job reports later replaces these estimates; the formula stays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from berth.values import format_bytes, format_duration, plural

PRIOR_FAILURES_PER_NODE_DAY = 6.5e-3
"""Prior rate of failures that end a job, per node and day (Kokolis et al. 2024, arXiv 2410.21680, larger cluster)."""

UNKNOWN_SIZE_INTERVAL_SECONDS = 3600
"""Used when neither the size of a checkpoint nor the bandwidth to its store can be known: one an hour."""

DAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """``interval_seconds`` between checkpoints, with what it was computed from; 0 where a figure is unknown."""

    interval_seconds: int
    size_bytes: int
    stall_seconds: float
    mtbf_seconds: float
    reason: str


def mtbf_seconds(nodes: int, failures_per_node_day: float = PRIOR_FAILURES_PER_NODE_DAY) -> float:
    """Mean time between failures of a gang on ``nodes`` nodes, in seconds.

    Raises:
        ValueError: ``nodes`` or the rate is not positive.
    """
    if nodes <= 0 or failures_per_node_day <= 0:
        raise ValueError("nodes and failures_per_node_day must be positive")
    return DAY_SECONDS / (nodes * failures_per_node_day)


def daly_interval(stall_seconds: float, mtbf: float) -> float:
    """Seconds of work between two checkpoints that waste the least time, all arguments in seconds.

    Daly 2006, "A higher order estimate of the optimum checkpoint interval for restart dumps", equation 37:
    √(2CM)·(1 + ⅓√(C/2M) + C/18M) − C for a stall C below 2M, else M.

    Raises:
        ValueError: an argument is not positive.
    """
    if stall_seconds <= 0 or mtbf <= 0:
        raise ValueError("stall_seconds and mtbf must be positive")
    if stall_seconds >= 2 * mtbf:
        return mtbf
    ratio = stall_seconds / (2 * mtbf)
    return math.sqrt(2 * stall_seconds * mtbf) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - stall_seconds


def initial_policy(
    *,
    nodes: int,
    size_bytes: int,
    write_bytes_per_second: int,
    fixed_interval_seconds: float | None = None,
    failures_per_node_day: float = PRIOR_FAILURES_PER_NODE_DAY,
) -> CheckpointPolicy:
    """The policy at the start of an attempt.

    ``size_bytes`` and ``write_bytes_per_second`` are 0 where unknown; ``fixed_interval_seconds`` is the user's own
    interval, which always wins. ``nodes`` is how many nodes the gang holds.
    """
    mtbf = mtbf_seconds(nodes, failures_per_node_day)
    known = size_bytes > 0 and write_bytes_per_second > 0
    stall = size_bytes / write_bytes_per_second if known else 0.0
    rate = f"{plural(nodes, 'node')} at {failures_per_node_day * 1000:.3g} failures per 1,000 node-days"
    if fixed_interval_seconds is not None:
        return CheckpointPolicy(round(fixed_interval_seconds), size_bytes, stall, mtbf, "spec.checkpoint.interval")
    if not known:
        missing = "spec.model or spec.checkpoint.size" if size_bytes <= 0 else "spec.checkpoint.writeBandwidth"
        return CheckpointPolicy(
            UNKNOWN_SIZE_INTERVAL_SECONDS, size_bytes, 0.0, mtbf,
            f"one an hour: the stall of a save is unknown; set {missing}",
        )  # fmt: skip
    interval = max(1, round(daly_interval(stall, mtbf)))
    reason = (
        f"Daly: {format_bytes(size_bytes)} at {format_bytes(write_bytes_per_second)}/s stall {stall:.3g} s, "
        f"{rate} fail every {format_duration(mtbf)}"
    )
    return CheckpointPolicy(interval, size_bytes, stall, mtbf, reason)
