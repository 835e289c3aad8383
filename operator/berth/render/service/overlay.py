"""The user's pod template laid over the generated one.

What the user states wins, part by part, so that one field of a probe can be changed without repeating the probe:

* objects are merged, ``null`` takes out what is generated;
* ``containers``, ``initContainers``, ``env``, ``volumes`` and ``imagePullSecrets`` are matched by name, ``ports`` by
  name or number, ``volumeMounts`` by path. Containers and ports of both are merged; of the others the user's entry
  stands in place of the generated one, because a value and a reference, or two sources of a volume, exclude each other;
* ``tolerations`` and ``envFrom`` are added to the generated ones;
* of a probe or a hook with another handler only the timing is kept;
* every other list, ``command``, ``args`` and ``topologySpreadConstraints`` among them, replaces the generated one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

Json = dict[str, Any]

_HANDLERS: Final = frozenset({"exec", "httpGet", "grpc", "tcpSocket", "sleep"})


def overlaid(ours: Mapping[str, Any], own: Mapping[str, Any]) -> Json:
    """``own`` (the user's) over ``ours``; neither is changed."""
    merged = dict(ours)
    if own.keys() & _HANDLERS:
        merged = {key: value for key, value in ours.items() if key not in _HANDLERS or key in own}
    for key, value in own.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _part(key, merged.get(key), value)
    return merged


def _part(key: str, ours: Any, own: Any) -> Any:
    if isinstance(own, Mapping):
        return overlaid(ours if isinstance(ours, Mapping) else {}, own)
    if isinstance(own, Sequence) and not isinstance(own, str) and isinstance(ours, Sequence):
        combine = _LISTS.get(key)
        return combine(ours, own) if combine is not None else list(own)
    return own


def _replaced(field: str) -> Callable[[Sequence[Json], Sequence[Json]], list[Json]]:
    def combine(ours: Sequence[Json], own: Sequence[Json]) -> list[Json]:
        stated = {entry.get(field) for entry in own}
        return [*(entry for entry in ours if entry.get(field) not in stated), *own]

    return combine


def _merged(alike: Callable[[Json, Json], bool]) -> Callable[[Sequence[Json], Sequence[Json]], list[Json]]:
    def combine(ours: Sequence[Json], own: Sequence[Json]) -> list[Json]:
        left = list(own)
        merged: list[Json] = []
        for entry in ours:
            match = next((other for other in left if alike(entry, other)), None)
            if match is not None:
                left.remove(match)
            merged.append(overlaid(entry, match or {}))
        return merged + left

    return combine


def _same_name(ours: Json, own: Json) -> bool:
    return ours.get("name") == own.get("name")


def _same_port(ours: Json, own: Json) -> bool:
    return ours.get("name") == own["name"] if "name" in own else ours.get("containerPort") == own.get("containerPort")


def _added(ours: Sequence[Json], own: Sequence[Json]) -> list[Json]:
    return [*ours, *(entry for entry in own if entry not in ours)]


_LISTS: Final[Mapping[str, Callable[[Sequence[Json], Sequence[Json]], list[Json]]]] = {
    "containers": _merged(_same_name),
    "initContainers": _merged(_same_name),
    "ports": _merged(_same_port),
    "env": _replaced("name"),
    "volumes": _replaced("name"),
    "imagePullSecrets": _replaced("name"),
    "volumeMounts": _replaced("mountPath"),
    "tolerations": _added,
    "envFrom": _added,
}
