"""The pod template: opaque to the contract, but for the names that lists merge by and the fields that are Berth's.

A copied PodSpec would be megabytes of schema that ages; a wholly opaque object would make two appliers conflict on
every container. So containers and volumes are lists keyed by name whose items are free, the fields that Berth decides
are declared just far enough to be refused, and the API server judges the rest in a dry run of one pod.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Final

from berth.api.cel import Rule, Schema, absent, validated
from berth.values import ValueProblem, parse_resource

_OPEN: Final = {"x-kubernetes-preserve-unknown-fields": True}
_TEXT: Final = {"type": "string", "maxLength": 253}
_NAME: Final = {"type": "string", "minLength": 1, "maxLength": 63}


def _named(limit: int, minimum: int = 0) -> dict[str, Any]:
    item = {"type": "object", **_OPEN, "required": ["name"], "properties": {"name": dict(_NAME)}}
    return {
        "type": "array",
        **({"minItems": minimum} if minimum else {}),
        "maxItems": limit,
        "items": item,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    }


_DECLARED: Final[Mapping[str, dict[str, Any]]] = {
    "restartPolicy": _TEXT,
    "nodeName": _TEXT,
    "hostname": _TEXT,
    "schedulerName": _TEXT,
    "priorityClassName": _TEXT,
    "schedulingGates": {
        "type": "array",
        "maxItems": 16,
        "items": {"type": "object", **_OPEN},
        "x-kubernetes-list-type": "atomic",
    },
    "schedulingGroup": {"type": "object", **_OPEN},
}


def _template(restart_policy: Rule, refused: Mapping[str, str], *, must_hold: bool) -> Schema:
    """A PodTemplateSpec with ``refused`` fields (name to why); ``must_hold``: at least one container."""
    rules = {"restartPolicy": restart_policy} | {name: absent(why) for name, why in refused.items()}
    properties: dict[str, Any] = {
        "containers": _named(32, 1 if must_hold else 0),
        "initContainers": _named(32),
        "volumes": _named(128),
        **{name: {**_DECLARED[name], **validated(rule)} for name, rule in rules.items()},
    }
    spec: dict[str, Any] = {"type": "object", **_OPEN, "properties": properties}
    template: dict[str, Any] = {"type": "object", **_OPEN, "properties": {"spec": spec}}
    if must_hold:
        spec["required"] = ["containers"]
        template["required"] = ["spec"]
    return Schema(template, whole=True)


_PRIORITY: Final = (
    "set spec.priorityClassName instead: pods carry the chart's own class, so that kube-scheduler evicts nobody"
)

WorkerTemplate = Annotated[
    dict[str, Any],
    _template(
        Rule("self == 'Never'", "must be Never or left out: Berth restarts the gang as a whole, by spec.recovery"),
        {
            "nodeName": "leave it out: Berth chooses the node of every rank",
            "hostname": "leave it out: the pod's name is its host name, by which ranks find each other",
            "schedulerName": "leave it out: Berth places the gang and kube-scheduler binds it",
            "schedulingGates": "leave it out: Berth creates pods only once the whole gang has its nodes",
            "schedulingGroup": "leave it out: Berth makes the gang's PodGroup where the cluster serves it",
            "priorityClassName": _PRIORITY,
        },
        must_hold=True,
    ),
]
"""A TrainingJob's ``template``; its first container is the worker."""

ServerTemplate = Annotated[
    dict[str, Any],
    _template(
        Rule("self == 'Always'", "must be Always or left out: a replica that ends is started again"),
        {
            "nodeName": "leave it out: Berth chooses the pool of every replica",
            "schedulerName": "leave it out: Berth chooses the pool and kube-scheduler binds",
            "schedulingGates": "leave it out: replicas start as soon as Berth asks for them",
            "schedulingGroup": "leave it out: replicas of a service are no gang",
            "priorityClassName": _PRIORITY,
        },
        must_hold=False,
    ),
]
"""An InferenceService's ``template``, laid over the generated one."""


def accelerator_mismatch(template: Mapping[str, Any], resources: Collection[str], per_worker: int) -> str | None:
    """Why the template's own accelerators contradict ``per_worker``, or None.

    Which resource names are accelerators is catalogue data, so this is no CEL rule: ``resources`` holds them. The
    worker (first container) may ask for ``per_worker`` of one of them, or for none; no other container may ask for any.
    """
    spec = template.get("spec") or {}
    for kind in ("containers", "initContainers"):
        for position, container in enumerate(spec.get(kind) or ()):
            path = f"spec.template.spec.{kind}[{position}].resources"
            is_worker = kind == "containers" and position == 0
            for name, amount in _asked(container, resources):
                if not is_worker:
                    return f"{path}: only the first container, the worker, may ask for {name}; take it out"
                if amount != str(per_worker):
                    return (
                        f"{path}: {name}: {amount} contradicts spec.accelerators.perWorker: {per_worker}; "
                        "take it out, it is filled in"
                    )
    return None


def _asked(container: Mapping[str, Any], resources: Collection[str]) -> list[tuple[str, str]]:
    """Accelerator amounts that a container names, normalised where they are quantities."""
    found = []
    for part in ("limits", "requests"):
        amounts = (container.get("resources") or {}).get(part) or {}
        for name, amount in amounts.items():
            if name in resources:
                try:
                    found.append((name, str(parse_resource(name, amount))))
                except ValueProblem:
                    found.append((name, str(amount)))
    return found
