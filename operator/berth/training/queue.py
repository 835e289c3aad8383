"""Who is placed next: one pass over the jobs that wait, against one ledger.

Order is priority, then age. A job that cannot be placed keeps the nodes it could use free of those behind it, so that
it starts when enough of them are free at once; nodes that it could never use stay open to everybody. So does a gang
that restarts with the nodes it had, until its last pods are gone and it asks for its next placement. The pass claims
the room of each job it places before it looks at the next, so no two jobs are ever promised the same device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from berth.fleet.fleet import Fleet
from berth.fleet.records import Claim
from berth.training.placement import place
from berth.training.records import GangRequest, Placement, Refusal
from berth.training.refusals import KEEPING, Look, Refusals

SHOWN: Final = 100
"""Positions in the queue that people are told of."""

BEHIND: Final = Refusal("NoCapacity", "Behind other jobs in the queue, which may use every free node")
"""Says nothing of who stands ahead: that changes all the time, and this is said of every job behind."""


FAILED: Final = Refusal(
    "InternalError", "Berth failed to search a place for this job, which is a defect of its own; its log has the trace",
    proven=False,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job that wants a placement. ``key`` is ``namespace/name``; ``created`` Unix seconds.

    ``generation`` is that of the spec which ``request`` was read from; None stands for any.
    """

    key: str
    uid: str
    attempt: int
    request: GangRequest
    priority: int = 0
    created: float = 0.0
    generation: int | None = None


@dataclass(frozen=True, slots=True)
class Returning:
    """A gang whose old pods still end: it has no turn yet, and keeps ``nodes`` of ``pool`` from those behind it."""

    key: str
    uid: str
    pool: str
    nodes: tuple[str, ...]
    priority: int = 0
    created: float = 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one pass decided of one job.

    ``behind`` names the job whose nodes it must leave free, if that is why. ``problem`` is what the search raised.
    """

    waiting: Waiting
    outcome: Placement | Refusal
    position: int
    behind: str = ""
    problem: Exception | None = None


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass decided, in the queue's order; not ``complete`` when it stopped early and another has to go on."""

    verdicts: list[Verdict]
    complete: bool


def order(waiting: Iterable[Waiting]) -> list[Waiting]:
    """Highest priority first, then oldest, then by name."""
    return sorted(waiting, key=_turn)


def _turn(job: Waiting | Returning) -> tuple[int, float, str]:
    return (-job.priority, job.created, job.key)


def schedule(
    fleet: Fleet,
    waiting: Sequence[Waiting],
    claims: Callable[[Waiting, Placement], Iterable[Claim]],
    *,
    returning: Sequence[Returning] = (),
    refusals: Refusals | None = None,
    most: int = 64,
    tries: int | None = None,
    shown: int = SHOWN,
) -> Pass:
    """One pass over ``waiting`` (in the order of :func:`order`), claiming in ``fleet`` what it places.

    Stops after ``most`` placements, or before the search after the one that was the ``tries``-th in vain, so that the
    caller can carry placements out and let others run; passes repeated until one is complete place together what a
    single one would. Only ``refusals`` kept from pass to pass let those with ``tries`` get on: what still stands is
    not searched for again. Once every free node is kept, jobs past position ``shown`` get no verdict, as do those not
    reached. Who is placed where depends on ``fleet``, ``waiting`` and ``returning`` alone. A job on which the search or
    ``claims`` raises is refused and keeps no node.
    """
    memory = refusals if refusals is not None else Refusals()
    look = Look(fleet, memory)
    head, verdicts = "", list[Verdict]()
    placed = 0
    coming = sorted(returning, key=_turn, reverse=True)
    for position, job in enumerate(waiting, 1):
        while coming and _turn(coming[-1]) < _turn(job):
            ahead = coming.pop()
            look.keep_nodes(ahead.pool, ahead.nodes)
            head = head or ahead.key
        if look.closed:
            if position > shown:
                break
            verdicts.append(Verdict(job, BEHIND, position, head))
            continue
        behind = head if look.held else ""
        problem: Exception | None = None
        try:
            outcome = _decided(fleet, look, job, claims, search=look.given != tries)
        except Exception as raised:  # one bad job must not stop the others
            outcome, problem = FAILED, raised
        if outcome is None:
            return Pass(verdicts, complete=False)
        verdicts.append(Verdict(job, outcome, position, behind, problem))
        if isinstance(outcome, Placement):
            placed += 1
            if placed == most:
                return Pass(verdicts, complete=False)
            look.placed()
        elif outcome.reason in KEEPING:
            head = head or job.key
            look.keep(job.uid, job.request)
    memory.trim(len(waiting))
    return Pass(verdicts, complete=True)


def _decided(
    fleet: Fleet, look: Look, job: Waiting, claims: Callable[[Waiting, Placement], Iterable[Claim]], *, search: bool
) -> Placement | Refusal | None:
    """What becomes of ``job``, its room claimed where it is placed; None where only a search could tell."""
    known = look.recall(job.uid, job.request)
    if known is not None or not search:
        return known
    outcome = place(fleet, job.request, held=look.held or None)
    if isinstance(outcome, Placement):
        fleet.claim(claims(job, outcome))
    else:
        look.remember(job.uid, job.request, outcome)
    return outcome
