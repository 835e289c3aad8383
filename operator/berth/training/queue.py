"""Who is placed next: one pass over the jobs that wait, against one ledger.

Order is priority, then age. A job that cannot be placed keeps the nodes it could use free of those behind it, so that
it starts when enough of them are free at once; nodes that it could never use stay open to everybody. The pass claims
the room of each job it places before it looks at the next, so no two jobs are ever promised the same device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from berth.fleet.fleet import Fleet
from berth.fleet.records import Claim
from berth.training.placement import place, usable_rows
from berth.training.records import GangRequest, Placement, Refusal

SHOWN: Final = 100
"""Positions in the queue that people are told of."""

BEHIND: Final = Refusal("NoCapacity", "Behind other jobs in the queue, which may use every free node")
"""Says nothing of who stands ahead: that changes all the time, and this is said of every job behind."""

Rows = dict[str, npt.NDArray[np.bool_]]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job that wants a placement. ``key`` is ``namespace/name``; ``created`` Unix seconds."""

    key: str
    uid: str
    attempt: int
    request: GangRequest
    priority: int = 0
    created: float = 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one pass decided of one job. ``behind`` names the job whose nodes it must leave free, if that is why."""

    waiting: Waiting
    outcome: Placement | Refusal
    position: int
    behind: str = ""


def order(waiting: Iterable[Waiting]) -> list[Waiting]:
    """Highest priority first, then oldest, then by name."""
    return sorted(waiting, key=lambda job: (-job.priority, job.created, job.key))


def schedule(
    fleet: Fleet,
    waiting: Sequence[Waiting],
    claims: Callable[[Waiting, Placement], Iterable[Claim]],
    *,
    most: int = 64,
    shown: int = SHOWN,
) -> list[Verdict]:
    """One pass over ``waiting`` (in the order of :func:`order`), claiming in ``fleet`` what it places.

    Stops after ``most`` placements, so that the caller can carry them out and let others run, and once every free node
    is kept, past position ``shown``; jobs not reached have no verdict. The result depends on the arguments alone.
    """
    held: Rows = {}
    head = ""
    verdicts: list[Verdict] = []
    placed, closed = 0, False
    for position, job in enumerate(waiting, 1):
        if closed or (held and not _open(fleet, held)):
            closed = True
            if position > shown:
                break
            verdicts.append(Verdict(job, BEHIND, position, head))
            continue
        outcome = place(fleet, job.request, held=held or None)
        verdicts.append(Verdict(job, outcome, position, head if held else ""))
        if isinstance(outcome, Placement):
            fleet.claim(claims(job, outcome))
            placed += 1
            if placed >= most:
                break
        elif outcome.reason in ("NoCapacity", "SearchGaveUp"):
            head = head or job.key
            _hold(held, usable_rows(fleet, job.request))
    return verdicts


def _hold(held: Rows, rows: Mapping[str, npt.NDArray[np.bool_]]) -> None:
    for pool, mask in rows.items():
        before = held.get(pool)
        held[pool] = mask.copy() if before is None else before | mask


def _open(fleet: Fleet, held: Rows) -> bool:
    """Whether any pool has a usable row with a free device that nobody holds."""
    for name, pool in fleet.pools.items():
        free = pool.usable & (pool.free_devices > 0)
        mask = held.get(name)
        if bool(np.any(free if mask is None else free & ~mask)):
            return True
    return False
