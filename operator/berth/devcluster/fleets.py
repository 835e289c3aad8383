"""Fleets as YAML files: a page that says what stands in the hall, expanded to one Node object per machine.

A file holds ``parameters`` (integers that a caller may override), ``machines`` (shapes by name) and ``groups``.
A group makes one node for every combination of its ``each`` ranges. In its texts, ``{...}`` is an expression over
those variables and the ones that ``let`` reckons out, with an optional format as in ``{rack * 64 + host:04d}``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from berth.devcluster.api import Api, Json
from berth.devcluster.documents import Document
from berth.devcluster.problems import ApiRefused
from berth.devcluster.simulation import MARK
from berth.devcluster.templates import Scope, TemplateProblem, evaluate, fill, span
from berth.values import ConfigProblem, ValueProblem, parse_resources

_DATA = resources.files("berth.devcluster") / "data" / "fleets"
_SECTIONS = frozenset({"parameters", "machines", "groups"})
_SHAPE = frozenset({"labels", "annotations", "allocatable", "capacity", "taints", "unschedulable"})
_GROUP = _SHAPE | {"name", "machine", "each", "let"}
_MAPPINGS = frozenset({"labels", "annotations", "allocatable", "capacity", "each", "let"})
_EFFECTS = frozenset({"NoSchedule", "PreferNoSchedule", "NoExecute"})
_CREATORS = 16


@dataclass(frozen=True, slots=True)
class SimulatedFleet:
    """A fleet's name and its nodes as Kubernetes objects, names unique."""

    name: str
    nodes: tuple[Json, ...]


def names() -> list[str]:
    """The fleets that come with Berth."""
    return sorted(entry.name.removesuffix(".yaml") for entry in _DATA.iterdir() if entry.name.endswith(".yaml"))


def load(name_or_path: str | Path, **parameters: int) -> SimulatedFleet:
    """The fleet called so, or the one in the file at that path, with ``parameters`` overridden.

    Raises:
        ConfigProblem: there is no such fleet, or the file says something that cannot be; names file, line, field.
    """
    text, source = _read(name_or_path)
    return parse(text, source, **parameters)


def parse(text: str, source: str, **parameters: int) -> SimulatedFleet:
    """The fleet that a file's ``text`` describes; ``source`` is its name in errors. Raises: ConfigProblem."""
    document = Document(text, source)
    root = document.mapping((), _SECTIONS)
    known = {key: document.integer(("parameters", key)) for key in document.section("parameters")}
    for unknown in sorted(parameters.keys() - known.keys()):
        raise ConfigProblem(f"has no parameter {unknown!r}; it has {', '.join(sorted(known)) or 'none'}", source=source)
    scope: Scope = {**known, **parameters}
    found: dict[str, Json] = {}
    groups = root.get("groups") or []
    if not isinstance(groups, list):
        raise document.problem(("groups",), "must be a list of groups")
    for index in range(len(groups)):
        for node in _group(document, ("groups", index), scope):
            name = node["metadata"]["name"]
            if name in found:
                raise document.problem(("groups", index, "name"), f"makes node {name!r} a second time")
            found[name] = node
    return SimulatedFleet(Path(source).name.removesuffix(".yaml"), tuple(found.values()))


def create(api: Api, nodes: Iterable[Json]) -> None:
    """Create every one of ``nodes`` that is not there yet, many at a time."""
    with ThreadPoolExecutor(_CREATORS) as pool:
        for _ in pool.map(lambda node: _create_node(api, node), nodes):
            pass


def _create_node(api: Api, node: Json) -> None:
    try:
        api.post("/api/v1/nodes", node)
    except ApiRefused as refused:
        if refused.reason != "AlreadyExists":
            raise


def _read(name_or_path: str | Path) -> tuple[str, str]:
    if isinstance(name_or_path, str) and "/" not in name_or_path and not name_or_path.endswith((".yaml", ".yml")):
        entry = _DATA / f"{name_or_path}.yaml"
        if not entry.is_file():
            raise ConfigProblem(f"no fleet {name_or_path!r}; there are {', '.join(names())}, or give a file")
        return entry.read_text(), f"{name_or_path}.yaml"
    try:
        return Path(name_or_path).read_text(), str(name_or_path)
    except OSError as problem:
        raise ConfigProblem(f"cannot be read: {problem.strerror}", source=str(name_or_path)) from problem


def _group(document: Document, path: tuple[Any, ...], parameters: Scope) -> Iterator[Json]:
    group = _shape(document, path, _GROUP)
    if not group.get("name"):
        raise document.problem(path, "needs a name such as gpu-{rack}-{host}")
    machine: Mapping[str, Any] = {}
    if "machine" in group:
        shape_path = ("machines", str(group["machine"]))
        if group["machine"] not in document.section("machines"):
            raise document.problem((*path, "machine"), f"no machine {group['machine']!r}")
        machine = _shape(document, shape_path, _SHAPE)
    ranges = {}
    for variable, text in (group.get("each") or {}).items():
        try:
            ranges[variable] = span(text, parameters)
        except TemplateProblem as problem:
            raise document.problem((*path, "each", variable), str(problem)) from problem
    for values in itertools.product(*ranges.values()):
        scope = {**parameters, **dict(zip(ranges, values, strict=True))}
        try:
            for variable, text in (group.get("let") or {}).items():
                scope[variable] = evaluate(str(text), scope)
            yield _node(group, machine, scope)
        except (TemplateProblem, ValueProblem) as problem:
            raise document.problem(path, str(problem)) from problem


def _shape(document: Document, path: tuple[Any, ...], allowed: frozenset[str]) -> Mapping[str, Any]:
    """The mapping at ``path`` with the types of its fields checked."""
    shape = document.mapping(path, allowed)
    for key, value in shape.items():
        if key in _MAPPINGS and not isinstance(value or {}, Mapping):
            raise document.problem((*path, key), "must be a mapping")
        if key == "taints" and not isinstance(value or [], list):
            raise document.problem((*path, key), "must be a list")
        if key in ("name", "machine") and not isinstance(value, str):
            raise document.problem((*path, key), "must be a text")
    return shape


def _node(group: Mapping[str, Any], machine: Mapping[str, Any], scope: Scope) -> Json:
    def merged(field: str) -> dict[str, str]:
        texts = {**(machine.get(field) or {}), **(group.get(field) or {})}
        return {fill(key, scope): fill(str(text), scope) for key, text in texts.items() if text is not None}

    name = fill(group["name"], scope)
    allocatable = merged("allocatable")
    parse_resources(allocatable)
    labels = _kubelet_labels(name) | merged("labels")
    labels["beta.kubernetes.io/arch"] = labels["kubernetes.io/arch"]
    taints = [_taint(fill(str(text), scope)) for text in [*(machine.get("taints") or []), *(group.get("taints") or [])]]
    spec: Json = {"taints": taints} if taints else {}
    if group.get("unschedulable", machine.get("unschedulable", False)):
        spec["unschedulable"] = True
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": MARK | merged("annotations")},
        "spec": spec,
        "status": _status(name, allocatable, {**allocatable, **merged("capacity")}),
    }


def _kubelet_labels(name: str) -> dict[str, str]:
    """Labels that a kubelet sets; the old ones too, or the controller manager would add them node by node."""
    return {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "beta.kubernetes.io/os": "linux",
    }


def _taint(text: str) -> Json:
    key_value, _, effect = text.rpartition(":")
    key, _, value = key_value.partition("=")
    if not key or effect not in _EFFECTS:
        raise TemplateProblem(f"taint {text!r}: write for example nvidia.com/gpu=present:NoSchedule")
    return {"key": key, "effect": effect} | ({"value": value} if value else {})


def _status(name: str, allocatable: Mapping[str, str], capacity: Mapping[str, str]) -> Json:
    """A status as a kubelet registers it, already Ready: one write less for each of ten thousand nodes."""
    conditions = [("Ready", "True", "KubeletReady")]
    conditions += [
        (kind, "False", f"KubeletHas{word}")
        for kind, word in (
            ("MemoryPressure", "SufficientMemory"),
            ("DiskPressure", "NoDiskPressure"),
            ("PIDPressure", "SufficientPID"),
        )
    ]
    return {
        "allocatable": dict(allocatable),
        "capacity": dict(capacity),
        "addresses": [{"type": "Hostname", "address": name}],
        "conditions": [
            {"type": kind, "status": status, "reason": reason, "message": "simulated"}
            for kind, status, reason in conditions
        ],
        "nodeInfo": dict.fromkeys(
            ("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion",
             "kubeProxyVersion"), "",
        ) | {"kubeletVersion": "kwok", "operatingSystem": "linux", "architecture": "amd64"},
    }  # fmt: skip
