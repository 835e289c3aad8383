"""The generated schemas: structural, bounded, described, and no default that a release might change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from berth.api import crd, names, reference
from berth.api.crd import DEFINITIONS, Definition

Json = dict[str, Any]

each_kind = pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: definition.names.kind)


def nodes(schema: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    """Every schema node with its path; what lies below a preserved template is a node too."""
    yield path, schema
    for name, field in schema.get("properties", {}).items():
        yield from nodes(field, f"{path}.{name}")
    for keyword, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        if keyword in schema:
            yield from nodes(schema[keyword], path + suffix)


def expect_all(
    schema: Json, holds: Callable[[Json], bool], *, where: Callable[[Json], bool] = lambda node: True
) -> None:
    wrong = [path for path, node in nodes(schema) if where(node) and not holds(node)]
    assert wrong == []


def of_type(name: str) -> Callable[[Json], bool]:
    return lambda node: node.get("type") == name


@each_kind
def test_no_keyword_that_a_structural_schema_forbids(definition: Definition) -> None:
    forbidden = {"$ref", "$defs", "anyOf", "oneOf", "allOf", "const", "title", "discriminator", "exclusiveMinimum"}
    forbidden |= {"exclusiveMaximum", "patternProperties", "uniqueItems", "nullable", *crd.NOTES}
    expect_all(definition.schema(), lambda node: not forbidden & node.keys())
    expect_all(definition.schema(), lambda node: node.get("additionalProperties") is not False)


@each_kind
def test_every_node_has_a_type(definition: Definition) -> None:
    expect_all(definition.schema(), lambda node: "type" in node or "x-kubernetes-int-or-string" in node)


@each_kind
def test_everything_is_bounded(definition: Definition) -> None:
    schema = {"properties": {part: definition.schema()["properties"][part] for part in ("spec", "status")}}
    bounded = lambda node: "maxLength" in node or "enum" in node  # noqa: E731
    expect_all(schema, bounded, where=of_type("string"))
    expect_all(schema, lambda node: "maxLength" in node, where=lambda node: "x-kubernetes-int-or-string" in node)
    expect_all(schema, lambda node: "maxItems" in node, where=of_type("array"))
    expect_all(schema, lambda node: "maxProperties" in node, where=lambda node: "additionalProperties" in node)
    expect_all(schema, lambda node: {"minimum", "maximum"} <= node.keys() or "enum" in node, where=of_type("integer"))


@each_kind
def test_every_list_says_how_it_merges(definition: Definition) -> None:
    expect_all(definition.schema(), lambda node: "x-kubernetes-list-type" in node, where=of_type("array"))


@each_kind
def test_every_field_is_described(definition: Definition) -> None:
    undescribed = [
        path
        for path, field, _ in reference._fields(definition.schema(), "")
        if path.startswith(("spec", "status")) and not field.get("description")
    ]
    assert undescribed == []


@each_kind
def test_root_rules_name_their_field(definition: Definition) -> None:
    rules = definition.schema()["x-kubernetes-validations"]
    assert all(rule["fieldPath"] for rule in rules), "without it the server's message starts with <nil>"


@each_kind
def test_message_expressions_do_not_join_strings(definition: Definition) -> None:
    said = [rule.get("messageExpression", "") for _, node in nodes(definition.schema()) for rule in rules_of(node)]
    assert not any(" + " in expression.partition(".format(")[0] for expression in said)


def rules_of(node: Json) -> list[Json]:
    return list(node.get("x-kubernetes-validations", ()))


DEFAULTS = {
    "TrainingJob": {
        ".spec.parallelism.tensor": 1, ".spec.parallelism.pipeline": 1, ".spec.parallelism.context": 1,
        ".spec.parallelism.expert": 1, ".spec.framework": "None", ".spec.suspend": False,
        ".spec.recovery.rules[].onPodConditions[].status": "True",
    },
    "InferenceService": {
        ".spec.replicas": 1, ".spec.runtime.engine": "Custom", ".spec.accelerators.allowTrainingPools": False,
        ".spec.mode": "Interactive", ".spec.objective": "Cost", ".spec.scaling.mode": "Auto",
        ".spec.scaling.minReplicas": 1, ".spec.scaling.forecast.method": "Auto",
        ".spec.spot.mode": "Never", ".spec.coldStart.modelCache": "None",
        ".spec.coldStart.warmReplicas": 0, ".spec.expose.scope": "Cluster", ".spec.expose.auth.type": "None",
    },
    "AcceleratorPool": {".spec.fabric.redundantPaths": False, ".spec.growth.provisioner": "None"},
}  # fmt: skip


@each_kind
def test_only_defaults_that_never_change_are_in_the_schema(definition: Definition) -> None:
    found = {path: node["default"] for path, node in nodes(definition.schema()) if "default" in node}
    assert found == DEFAULTS[definition.names.kind]


ENUMS_OPEN_IN_STATUS = ".status.conditions[].status"


@each_kind
def test_enumerations_are_closed_in_spec_and_open_in_status(definition: Definition) -> None:
    closed = {path for path, node in nodes(definition.schema()) if path.startswith(".status") and "enum" in node}
    assert closed == {ENUMS_OPEN_IN_STATUS}, "metav1.Condition closes its own status; nothing else may be closed"


@each_kind
def test_selectable_fields_are_scalars_of_the_schema(definition: Definition) -> None:
    known = dict(nodes(definition.schema()))
    assert all(known[path]["type"] == "string" for path in definition.selectable)
    assert len(definition.selectable) <= 8


def test_defaults_in_code_are_told_but_not_set() -> None:
    timeout = dict(nodes(DEFINITIONS[0].schema()))[".spec.startTimeout"]
    assert timeout["description"].endswith("Default: 10m.")
    assert "default" not in timeout


def test_generation_is_deterministic_and_loads_as_what_it_describes() -> None:
    files = crd.crd_files()
    assert files == crd.crd_files()
    assert [yaml.safe_load(text) for text in files.values()] == crd.crd_objects()
    assert list(files) == [f"berth.dev_{kind.plural}.yaml" for kind in names.KINDS]


def test_crds_are_small_enough_for_client_side_apply() -> None:
    sizes = {name: len(text) for name, text in crd.crd_files().items()}
    assert max(sizes.values()) < 262_144, "`kubectl apply` without --server-side must work too"


@each_kind
def test_no_column_is_of_a_field_that_nothing_reports(definition: Definition) -> None:
    """Such a column of ``kubectl get`` would be blank for ever, which looks like something missing."""
    described = dict(nodes(definition.schema()))
    for column in definition.columns:
        path = column.path.split("[?")[0].removesuffix(".*")
        if path.startswith(".metadata"):
            continue
        assert path in described, f"{column.name} is of no field"
        assert "not reported yet" not in described[path]["description"].lower(), column.name
