"""A new template reaches the variants one after the other.

The first that does not run it yet has its turn; the others keep what they run, paused, until it is done. A version
that never becomes ready thus stops at the first variant.

Where there is room a successor comes before its predecessor goes. Room may be taken by others meanwhile: a successor
that waits for it in vain would hold the rollout for ever, so then its predecessor goes first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from berth.api.inferenceservice_parts import Rollout
from berth.api.names import LABEL_TEMPLATE_HASH
from berth.cluster import wire
from berth.values import format_duration

UNBOUND_SECONDS: Final = 30.0
"""Longer than a scheduler takes to bind a pod for which there is room."""
IN_VAIN_SECONDS: Final = 300.0
"""After so long the scheduler has reasons that free devices do not show."""
YIELD_SECONDS: Final = 600.0
"""So long a stated ``maxUnavailable: 0`` waits for the place of a successor, and as much longer as a node takes that
joins: nothing may hold a rollout for ever."""
NONE: Final = (0, "0%")


@dataclass(frozen=True, slots=True)
class Space:
    """``free`` more replicas of a variant would find room now; ``node_seconds``: how long the next one waits for a node
    that is to join, 0 where there is room or none would come."""

    free: int = 0
    node_seconds: float = 0.0

    @property
    def patience(self) -> float:
        """Seconds for which a replica that is not bound may still be expected to be."""
        return IN_VAIN_SECONDS if self.free > 0 else UNBOUND_SECONDS + self.node_seconds


NO_SPACE: Final = Space()


@dataclass(frozen=True, slots=True)
class Turn:
    """``rolling`` is the variant whose turn it is, ``waiting`` those after it. ``stuck``: its new version is not ready
    within its deadline, and why."""

    rolling: str
    waiting: frozenset[str]
    stuck: str = ""


def turns(live: Mapping[str, wire.Deployment], goals: Mapping[str, str]) -> Turn | None:
    """Whose turn it is, given the digest of the template that each variant should run; None with all done, or with
    the last on its way and not stuck."""
    stale = sorted(name for name, goal in goals.items() if live[name].spec.paused or _hash(live[name]) != goal)
    if not stale:
        stuck = sorted(name for name in goals if not rolled(live[name]) and _stuck(live[name]))
        return Turn(stuck[0], frozenset(), _stuck(live[stuck[0]])) if stuck else None
    rolling = sorted(name for name, goal in goals.items() if name not in stale and not _done(live[name]))
    first = (rolling or stale)[0]
    return Turn(first, frozenset(stale) - {first}, _stuck(live[first]))


def _hash(deployment: wire.Deployment) -> str:
    return deployment.metadata.labels.get(LABEL_TEMPLATE_HASH, "")


def rolled(deployment: wire.Deployment) -> bool:
    """Whether no pod has another template than the one that was applied last."""
    status = deployment.status
    return status.observed_generation >= deployment.metadata.generation and status.updated_replicas >= status.replicas


def _done(deployment: wire.Deployment) -> bool:
    return rolled(deployment) and _ready(deployment)


def _ready(deployment: wire.Deployment) -> bool:
    return deployment.status.ready_replicas >= min(deployment.spec.replicas, deployment.status.replicas)


def _stuck(deployment: wire.Deployment) -> str:
    stated = wire.condition(deployment.status.conditions, "Progressing")
    return stated.message if stated is not None and stated.reason == "ProgressDeadlineExceeded" else ""


def held(turn: Turn, rollout: Rollout | None) -> str:
    """What is told of a rollout that is stuck: who waits for it, and what the user's own bounds have to do with it."""
    waiting = f"; {', '.join(sorted(turn.waiting))} wait" if turn.waiting else ""
    unavailable = rollout.max_unavailable if rollout is not None else None
    kept = (
        f"; rollout.maxUnavailable {unavailable} keeps each replica until its successor is ready, and one that finds no"
        f" place in {format_duration(YIELD_SECONDS)} has its predecessor go first where another replica serves"
    )
    return f"{turn.rolling} is not ready: {turn.stuck}{kept if unavailable in NONE else ''}{waiting}"


def blocked(deployment: wire.Deployment, unbound_seconds: float, space: Space) -> bool:
    """Whether a rollout waits in vain for the place of a replica more; ``unbound_seconds``: of the pod that waits
    longest."""
    status = deployment.status
    return status.updated_replicas < status.replicas and unbound_seconds > space.patience


def yields(deployment: wire.Deployment, unbound_seconds: float, space: Space, serving: int) -> bool:
    """Whether a rollout that may miss no replica, and finds no place for one more, takes one all the same.

    ``serving``: ready replicas of the whole service; the only one is never taken.
    """
    waited = unbound_seconds > YIELD_SECONDS + space.node_seconds
    return waited and serving > 1 and blocked(deployment, unbound_seconds, space)


def yielded(name: str, rollout: Rollout | None) -> str:
    """What is told of that."""
    unavailable = rollout.max_unavailable if rollout is not None else None
    return (
        f"no node has had room for a successor in {name} for {format_duration(YIELD_SECONDS)}, so one replica at a time"
        f" goes first though rollout.maxUnavailable is {unavailable}; make room for one replica more, or leave"
        " maxUnavailable out"
    )


def strict(rollout: Rollout | None) -> bool:
    """Whether the user states that no replica may be missing."""
    return rollout is not None and rollout.max_unavailable in NONE


def bounds(rollout: Rollout | None, *, surge: bool, yields: bool = False) -> tuple[int | str, int | str]:
    """Surge and unavailability of a rollout, as the user says, else by whether there is room for a ``surge``.

    Without room a replica goes before its successor comes, unless the user states that none may be missing and states
    a surge; then too where the rollout ``yields``. Never are both none, which the API refuses.
    """
    up = rollout.max_surge if rollout is not None else None
    unavailable = rollout.max_unavailable if rollout is not None else None
    if up is None or up == "Auto":
        up = 1 if surge else 0
    if unavailable is None:
        unavailable = 0 if surge and up not in NONE else 1
    if unavailable in NONE and (yields or up in NONE):
        unavailable = 1
    return up, unavailable
