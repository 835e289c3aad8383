"""CPU for a pod whose template names none.

A worker that asks for no CPU starves beside its neighbours, and one that asks for too much strands accelerators. Its
fair share is what the node has for each accelerator once the daemons that come with every node are served.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from berth.fleet.arrays import Ints64
from berth.fleet.pool import Pool

MOST_CPU_PER_ACCELERATOR: Final = 32_000
"""Millicores; more cores than this do not feed an accelerator any faster."""


def cpu_shares(pool: Pool) -> Ints64:
    """By row, millicores per accelerator: min(32 cores, (allocatable − daemon pods) / accelerators); 0 without any."""
    room = np.maximum(pool.total_cpu - pool.daemon_cpu, 0)
    accelerators = pool.total_devices // pool.unit
    each = room // np.maximum(accelerators, 1)
    return np.where(accelerators > 0, np.minimum(each, MOST_CPU_PER_ACCELERATOR), 0)


def cpu_per_accelerator(pool: Pool, rows: NDArray[np.integer] | list[int]) -> int:
    """The share that every node of ``rows`` can give, in millicores: the least, so that a gang asks for one value."""
    shares = cpu_shares(pool)[rows]
    return int(shares.min()) if len(shares) else 0
