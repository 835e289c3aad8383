"""Why replicas that should be there are not, in the words of those who know: the server, the kubelet, the engine's end.

A Deployment takes what its pods are refused for, and a pod that cannot start only says so in its own status: people
would have to look for it, so it is said where they look first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from berth.api.names import LABEL_VARIANT
from berth.cluster import wire
from berth.controllers.facts import shorten
from berth.controllers.services.facts import is_ready
from berth.inference.service import Phase, Plan, Verdict
from berth.values import plural

ON_ITS_WAY: Final = frozenset({"ContainerCreating", "PodInitializing"})
SAME: Final = {"ErrImagePull": "ImagePullBackOff", "RunContainerError": "CrashLoopBackOff"}
"""A kubelet that tries again and again says now this, now that: told as one, or it would be told without end."""
WITHOUT_WORDS: Final = frozenset({"CrashLoopBackOff"})
"""What its message says is no more than how long the kubelet waits."""

UNSCHEDULABLE: Final = "Unschedulable"
UNSCHEDULABLE_SECONDS: Final = 60.0

AGAIN: Final = re.compile(r'^Back-off pulling image "[^"]*": ErrImagePull: ')
ODD: Final = re.compile(r"^[^A-Za-z]+|[^A-Za-z0-9]")
"""What no reason of a condition may hold."""
POD_NAME: Final = re.compile(r'pods "[^"]*"')
"""Each try has another name, and would be told anew."""


@dataclass(frozen=True, slots=True, order=True)
class Trouble:
    """``reason`` in one CamelCase word, and a sentence."""

    reason: str
    sentence: str


def trouble(pods: Iterable[wire.Pod], deployments: Mapping[str, wire.Deployment], now: float) -> Trouble | None:
    """The first of what keeps replicas from being there or from starting; None where nothing says so.

    ``now`` in unix seconds: a scheduler that finds no node says so at once, and may find one a moment later.
    """
    for name, deployment in sorted(deployments.items()):
        failure = takes_no_pod(deployment)
        if failure is not None:
            text = f"the server takes no pod of {name}: {POD_NAME.sub('pods', failure.message)}"
            return Trouble("ReplicaFailure", text)
    found: dict[tuple[str, str], list[str]] = {}
    for pod in sorted(pods, key=lambda pod: pod.metadata.name):
        if pod.metadata.deleting or is_ready(pod):
            continue
        variant = pod.metadata.labels.get(LABEL_VARIANT, "")
        if (refused := _unscheduled(pod, now)) is not None:
            found.setdefault((UNSCHEDULABLE, variant), []).append(refused)
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
            said = _waiting(status)
            if said is not None:
                found.setdefault((said[0], f"{variant}, container {status.name}"), []).append(said[1])
                break
    if not found:
        return None
    (reason, where), words = min(found.items())
    text = f"{plural(len(words), 'replica')} of {where}: {reason}"
    return Trouble(reason, f"{text}: {words[0]}" if words[0] else text)


def takes_no_pod(deployment: wire.Deployment) -> wire.Condition | None:
    """What the Deployment says where the server refuses its pods; None where it does not."""
    failure = wire.condition(deployment.status.conditions, "ReplicaFailure")
    return failure if failure is not None and failure.status == "True" else None


def _unscheduled(pod: wire.Pod, now: float) -> str | None:
    """The scheduler's words on a pod for which it has found no node for a while."""
    stated = wire.condition(pod.status.conditions, "PodScheduled")
    if stated is None or stated.status != "False" or stated.reason != UNSCHEDULABLE:
        return None
    since = stated.last_transition_time
    began = since.timestamp() if since is not None else pod.metadata.created
    return stated.message if now - began > UNSCHEDULABLE_SECONDS else None


def waiting(pod: wire.Pod) -> tuple[str, ...]:
    """What of its containers' waiting is worth a look when it changes."""
    every = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return tuple(said[0] for status in every if (said := _waiting(status)) is not None)


def _waiting(status: wire.ContainerStatus) -> tuple[str, str] | None:
    held = status.state.waiting
    if held is None or not held.reason or held.reason in ON_ITS_WAY:
        return None
    word = ODD.sub("", held.reason)  # the kubelet says it in one, other providers of nodes need not
    reason = SAME.get(word, word) or "ContainerWaiting"
    if reason not in WITHOUT_WORDS:
        return reason, AGAIN.sub("", held.message)
    ended = status.last_state.terminated
    return reason, f"it ends with {ended.reason or 'Error'}, exit code {ended.exit_code}" if ended is not None else ""


def refusal(refused: Mapping[str, str]) -> Verdict | None:
    """The condition Accepted where the server would take no pod of some variants, by its words; None: it takes all."""
    if not refused:
        return None
    name, words = min(refused.items())
    return Verdict(False, "TemplateRefused", shorten(f"the server would take no pod of {name}: {words}"))


def told(plan: Plan, refused: Mapping[str, str], found: Trouble | None, unfit: str = "", narrowed: str = "") -> Plan:
    """``plan`` as it is told where templates are refused, fit no node (``unfit``) or some nodes only (``narrowed``), or
    replicas do not start."""
    verdict = refusal(refused)
    if verdict is not None:
        ready = plan.conditions["Ready"].status if "Ready" in plan.conditions else None
        phase = Phase.DEGRADED if ready and plan.replicas else Phase.FAILED
        return replace(plan, phase=phase, message=f"{verdict.message}; what runs stays as it is")
    limited = plan.conditions.get("CapacityAvailable")
    if limited is not None and limited.status is False and (why := unfit or narrowed):
        limited = replace(limited, message=f"{limited.message}; {shorten(why)}")
        plan = replace(plan, conditions={**plan.conditions, "CapacityAvailable": limited})
    if unfit:
        plan = replace(plan, message=f"The template fits no node: {unfit}; {plan.message}")
    if found is None or not plan.replicas:
        return plan
    stated = plan.conditions.get("Ready")
    conditions = dict(plan.conditions)
    if stated is not None and stated.status is False:
        conditions["Ready"] = Verdict(False, found.reason, f"{stated.message}; {found.sentence}")
    return replace(plan, message=f"{plan.message}; {found.sentence}", conditions=conditions)
