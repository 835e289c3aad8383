"""A new template reaches the variants one after the other.

The first that does not run it yet has its turn; the others keep what they run, paused, until it is done. A version
that never becomes ready thus stops at the first variant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from berth.api.names import LABEL_TEMPLATE_HASH
from berth.cluster import wire


@dataclass(frozen=True, slots=True)
class Turn:
    """``rolling`` is the variant whose turn it is, ``waiting`` those after it. ``stuck``: its new version is not ready
    within its deadline, and why."""

    rolling: str
    waiting: frozenset[str]
    stuck: str = ""


def turns(live: Mapping[str, wire.Deployment], goals: Mapping[str, str]) -> Turn | None:
    """Whose turn it is, given the digest of the template that each variant should run; None with all done."""
    stale = sorted(name for name, goal in goals.items() if live[name].spec.paused or _hash(live[name]) != goal)
    if not stale:
        return None
    rolling = sorted(name for name, goal in goals.items() if name not in stale and not _done(live[name]))
    first = (rolling or stale)[0]
    return Turn(first, frozenset(stale) - {first}, _stuck(live[first]))


def _hash(deployment: wire.Deployment) -> str:
    return deployment.metadata.labels.get(LABEL_TEMPLATE_HASH, "")


def _done(deployment: wire.Deployment) -> bool:
    """Whether every replica has the template that was applied last and is ready."""
    status = deployment.status
    seen = status.observed_generation >= deployment.metadata.generation
    return seen and status.updated_replicas >= status.replicas and _ready(deployment)


def _ready(deployment: wire.Deployment) -> bool:
    return deployment.status.ready_replicas >= min(deployment.spec.replicas, deployment.status.replicas)


def _stuck(deployment: wire.Deployment) -> str:
    stated = wire.condition(deployment.status.conditions, "Progressing")
    return stated.message if stated is not None and stated.reason == "ProgressDeadlineExceeded" else ""
