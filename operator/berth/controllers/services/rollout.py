"""A new template reaches the variants one after the other.

The first that does not run it yet has its turn; the others keep what they run, paused, until it is done. A version
that never becomes ready thus stops at the first variant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from berth.cluster import wire
from berth.render.service.plan import LABEL_TEMPLATE_HASH


@dataclass(frozen=True, slots=True)
class Turn:
    """``rolling`` is the variant whose turn it is, ``waiting`` those after it. ``stuck``: its new version is not ready
    within its deadline, and why."""

    rolling: str
    waiting: frozenset[str]
    stuck: str = ""


def turns(live: Mapping[str, wire.Deployment], goals: Mapping[str, str]) -> Turn | None:
    """Whose turn it is, given the digest of the template that each variant should run; None with all done."""
    behind = sorted(name for name, goal in goals.items() if not _done(live[name], goal))
    if not behind:
        return None
    under_way = [name for name in behind if live[name].metadata.labels.get(LABEL_TEMPLATE_HASH) == goals[name]
                 and not live[name].spec.paused]  # fmt: skip
    first = (under_way or behind)[0]
    return Turn(first, frozenset(behind) - {first}, _stuck(live[first]))


def _done(deployment: wire.Deployment, goal: str) -> bool:
    status = deployment.status
    current = deployment.metadata.labels.get(LABEL_TEMPLATE_HASH) == goal and not deployment.spec.paused
    seen = status.observed_generation >= deployment.metadata.generation
    return current and seen and status.updated_replicas >= status.replicas and _ready(deployment)


def _ready(deployment: wire.Deployment) -> bool:
    return deployment.status.ready_replicas >= min(deployment.spec.replicas, deployment.status.replicas)


def _stuck(deployment: wire.Deployment) -> str:
    stated = wire.condition(deployment.status.conditions, "Progressing")
    return stated.message if stated is not None and stated.reason == "ProgressDeadlineExceeded" else ""
