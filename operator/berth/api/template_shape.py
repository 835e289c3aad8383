"""The form of those parts of a pod template that Berth reads itself.

The schema leaves a template open, and the API server judges it only once a pod is made of it. Before that Berth reads
amounts, tolerations, labels and the like, which may be JSON of any kind; here it is made sure that they are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from berth.values import ValueProblem, parse_quantity

_SHOWN: Final = 40
_MOST_SECONDS: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A value by what it ``must`` be, in words for people."""

    must: str


@dataclass(frozen=True, slots=True)
class _Values:
    """An object of any keys whose values are alike."""

    each: _Leaf


@dataclass(frozen=True, slots=True)
class _Whole:
    """An object that has all of its fields but those that ``may`` be left out."""

    fields: dict[str, Any]
    may: tuple[str, ...]


_Shape = _Leaf | _Values | _Whole | dict[str, Any] | list[Any]
"""An object by the fields that are read of it, all of which may be absent; a list by what all of its elements are."""

_TEXT: Final = _Leaf("a text; put it in quotation marks")
_SECONDS: Final = _Leaf("a whole number of seconds, for example 30")
_AMOUNT: Final = _Leaf("a quantity, for example 500m, 4 or 16Gi")
_TEXTS: Final = _Values(_TEXT)
_ANY_OBJECT: Final[dict[str, Any]] = {}

_AMOUNTS: Final = _Values(_AMOUNT)
_RESOURCES: Final = {"requests": _AMOUNTS, "limits": _AMOUNTS, "claims": [_ANY_OBJECT]}
_EXPRESSIONS: Final = [_Whole({"key": _TEXT, "operator": _TEXT, "values": [_TEXT]}, may=("values",))]
_PROBE: Final = dict.fromkeys(("exec", "httpGet", "grpc", "tcpSocket"), _ANY_OBJECT)
_CONTAINER: Final = {
    "name": _TEXT,
    "image": _TEXT,
    "restartPolicy": _TEXT,
    "command": [_TEXT],
    "args": [_TEXT],
    "env": [{"name": _TEXT, "value": _TEXT}],
    "envFrom": [_ANY_OBJECT],
    "ports": [_ANY_OBJECT],
    "resources": _RESOURCES,
    "volumeMounts": [{"name": _TEXT, "mountPath": _TEXT}],
    "securityContext": {"capabilities": {"add": [_TEXT]}},
    "lifecycle": {"preStop": _ANY_OBJECT},
    "startupProbe": _PROBE,
    "readinessProbe": _PROBE,
    "livenessProbe": _PROBE,
}
_TERMS: Final = [{"matchExpressions": _EXPRESSIONS, "matchFields": _EXPRESSIONS}]
_TEMPLATE: Final = {
    "metadata": {"labels": _TEXTS, "annotations": _TEXTS},
    "spec": {
        "containers": [_CONTAINER],
        "initContainers": [_CONTAINER],
        "volumes": [{"name": _TEXT}],
        "resources": _RESOURCES,
        "overhead": _AMOUNTS,
        "tolerations": [{"key": _TEXT, "operator": _TEXT, "value": _TEXT, "effect": _TEXT}],
        "nodeSelector": _TEXTS,
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": _TERMS},
                "preferredDuringSchedulingIgnoredDuringExecution": [_ANY_OBJECT],
            },
        },
        "terminationGracePeriodSeconds": _SECONDS,
        "serviceAccountName": _TEXT,
        "securityContext": _ANY_OBJECT,
        "imagePullSecrets": [_ANY_OBJECT],
        "topologySpreadConstraints": [_ANY_OBJECT],
    },
}


def misshapen(template: Mapping[str, Any]) -> str | None:
    """The first part of ``template`` that has not the form of a PodTemplateSpec, with its path and what it must be."""
    return _problem(_TEMPLATE, template, "spec.template")


def _problem(shape: _Shape, value: Any, path: str) -> str | None:
    if isinstance(shape, _Leaf):
        return None if _is(shape, value) else _must(shape.must, value, path)
    if isinstance(shape, list):
        if not isinstance(value, list):
            return _must("a list", value, path)
        parts = [(shape[0], part, f"{path}[{number}]") for number, part in enumerate(value)]
    elif not isinstance(value, Mapping):
        return _must("an object, that is fields with values", value, path)
    elif isinstance(shape, _Values):
        parts = [(shape.each, part, f"{path}.{key}") for key, part in value.items()]
    else:
        fields = shape.fields if isinstance(shape, _Whole) else shape
        there = [name for name in fields if value.get(name) is not None]  # null is as good as absent
        if isinstance(shape, _Whole):
            for name in fields:
                if name not in there and name not in shape.may:
                    return f"{path}: needs the field {name}"
        parts = [(fields[name], value[name], f"{path}.{name}") for name in there]
    return next((found for part in parts if (found := _problem(*part)) is not None), None)


def _is(leaf: _Leaf, value: Any) -> bool:
    if leaf is _TEXT:
        return isinstance(value, str)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return False
    if leaf is _SECONDS:
        return isinstance(value, int) and 0 <= value < _MOST_SECONDS
    try:
        parse_quantity(value)
    except ValueProblem:
        return False
    return True


def _must(what: str, value: Any, path: str) -> str:
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 1]}…"
    return f"{path}: {shown} must be {what}"
