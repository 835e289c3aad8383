"""On which nodes the replicas of a variant may run, and how they spread: by labels alone, never by a node's name.

kube-scheduler chooses the node. It is told what a variant stands for (its pool, its capacity type, its zone), where the
weights already lie, and that one rack or zone should not take the whole service with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from berth.api.names import LABEL_SERVICE_NAME
from berth.render.service.plan import DeploymentPlan, Json
from berth.render.service.weights import cached, model_cache_label
from berth.values import CPU, Requirement, Requirements, Toleration

SPREAD_OVER: Final = ("topology.kubernetes.io/zone", "kubernetes.io/hostname")
_CACHED_WEIGHT: Final = 100
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def affinity(plan: DeploymentPlan, own: Mapping[str, Any]) -> Json:
    """``own`` (the template's) within the variant's nodes, those with the weights first."""
    found = dict(own)
    node = dict(found.get("nodeAffinity") or {})
    terms = _anded((node.get(_REQUIRED) or {}).get("nodeSelectorTerms") or (), plan.nodes)
    if terms:
        node[_REQUIRED] = {"nodeSelectorTerms": terms}
    uri = plan.service.spec.model.uri
    if uri is not None and cached(plan.service):
        has_weights = {"matchExpressions": [{"key": model_cache_label(uri), "operator": "Exists"}]}
        node[_PREFERRED] = [*(node.get(_PREFERRED) or ()), {"weight": _CACHED_WEIGHT, "preference": has_weights}]
    if node:
        found["nodeAffinity"] = node
    return found


def _anded(own: Iterable[Mapping[str, Any]], ours: Iterable[Requirements]) -> list[Json]:
    """Terms are ORed: each of the template's with each of ours, so that none of them lets go."""
    mine: list[list[Json]] = [[_expression(requirement) for requirement in term] for term in ours]
    given = [dict(term) for term in own]
    if not mine or not given:
        return given or [{"matchExpressions": term} for term in mine if term]
    return [
        {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), *added]}
        for term in given
        for added in mine
    ]


def added_terms(own: Mapping[str, Any], found: Mapping[str, Any]) -> tuple[Requirements, ...]:
    """What :func:`affinity` has added to the node selector of ``own`` (the user's pod spec), read off the affinity that
    came out: the inverse, where that is of this ``own``.

    Else of another one, so that what is made of the answer differs from what ``found`` was read of.
    """
    before, after = _required(own.get("affinity") or {}), _required(found)
    if not after:
        return ()
    skipped = len(before[0].get("matchExpressions") or ()) if before else 0
    entries = (after[0].get("matchExpressions") or ())[skipped:]
    return (tuple(Requirement(entry["key"], entry["operator"], tuple(entry.get("values") or ())) for entry in entries),)


def _required(affinity: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(((affinity.get("nodeAffinity") or {}).get(_REQUIRED) or {}).get("nodeSelectorTerms") or ())


def _expression(requirement: Requirement) -> Json:
    expression: Json = {"key": requirement.key, "operator": requirement.operator}
    return expression | ({"values": list(requirement.values)} if requirement.values else {})


def spread(plan: DeploymentPlan) -> list[Json]:
    """Over zones and hosts, all replicas of the service together; a wish, for a full zone must not stop a start."""
    return [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {LABEL_SERVICE_NAME: plan.service.name}},
        }
        for key in SPREAD_OVER
    ]


def tolerations(plan: DeploymentPlan) -> list[Json]:
    """Of the device's own taint and of what the plan names."""
    resource = plan.accelerator.resource
    device = (Toleration(resource, "Exists"),) if resource not in ("", CPU) else ()
    return [_toleration(entry) for entry in (*device, *(entry for entry in plan.tolerations if entry not in device))]


def _toleration(entry: Toleration) -> Json:
    named = {"key": entry.key, "operator": entry.operator, "value": entry.value, "effect": entry.effect}
    return {name: text for name, text in named.items() if text}
