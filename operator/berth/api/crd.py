"""CustomResourceDefinitions from the models: ``python -m berth.api.crd --out crds [--check]``.

pydantic speaks JSON Schema; the API server takes a dialect, "structural" schemas: no ``$ref``, no ``null`` types, no
``const``, a type at every node. The difference is small enough to bridge in one subclass and one pass, so the models
stay the only place where a field is described.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from berth.api import names
from berth.api.acceleratorpool import AcceleratorPool
from berth.api.common import CODE_DEFAULT, FORM
from berth.api.inferenceservice import InferenceService
from berth.api.output import write_generated
from berth.api.trainingjob import TrainingJob

HEADER: Final = "# Generated from operator/berth/api by `make crds`. Do not edit.\n"
_DROPPED: Final = ("title", "$defs")
NOTES: Final = (CODE_DEFAULT, FORM)
"""Keywords for people who read the reference; the API server would refuse them."""


class StructuralSchema(GenerateJsonSchema):
    """JSON Schema as the API server spells it: absence instead of null, enumerations instead of constants."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        """Absent is absent: the optional type is the type."""
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Only a default that says something is in the schema; None, () and factories mean absent."""
        if schema.get("default") in (None, ()):
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Never: the field's name is its title."""
        return False


def structural(model: type[BaseModel], *, without: Collection[str] = NOTES) -> dict[str, Any]:
    """The structural schema of ``model`` ``without`` some keywords; a server can read it without :data:`NOTES`."""
    generated = model.model_json_schema(schema_generator=StructuralSchema, by_alias=True)
    inlined = _inlined(generated, generated.get("$defs", {}), without)
    assert isinstance(inlined, dict)
    return inlined


def _inlined(node: object, definitions: Mapping[str, Any], without: Collection[str]) -> object:
    """``node`` with references replaced by what they refer to; keywords beside a reference win."""
    if isinstance(node, list):
        return [_inlined(item, definitions, without) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        beside = {key: value for key, value in node.items() if key != "$ref"}
        return _inlined({**definitions[node["$ref"].rsplit("/", 1)[1]], **beside}, definitions, without)
    kept: dict[str, object] = {}
    for key, value in node.items():
        if key == "properties":
            kept[key] = {name: _inlined(field, definitions, without) for name, field in value.items()}
        elif key not in _DROPPED and key not in without:
            kept[key] = _inlined(value, definitions, without)
    if CODE_DEFAULT in node and CODE_DEFAULT in without:
        kept["description"] = f"{kept['description']} Default: {node[CODE_DEFAULT]}."
    if kept.get("type") == "integer":
        kept["format"] = "int64"  # of an int32 out of range the server says so a second time, without the field
    return kept


@dataclass(frozen=True, slots=True)
class Column:
    """One column of ``kubectl get``; ``wide`` ones need ``-o wide``."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False

    def as_schema(self) -> dict[str, Any]:
        """The column as the API server reads it."""
        column: dict[str, Any] = {"name": self.name, "type": self.type, "jsonPath": self.path}
        return column | ({"priority": 1} if self.wide else {})


@dataclass(frozen=True, slots=True)
class Definition:
    """One CRD: a model and how its objects are listed, selected and scaled."""

    names: names.KindNames
    model: type[BaseModel]
    columns: tuple[Column, ...]
    selectable: tuple[str, ...]
    scale: Mapping[str, str] | None = None

    @property
    def file_name(self) -> str:
        """Where the CRD is committed."""
        return f"{names.GROUP}_{self.names.plural}.yaml"

    def schema(self, *, without: Collection[str] = NOTES) -> dict[str, Any]:
        """The structural schema of the whole object; a status has no defaults, for it says what was found."""
        whole = structural(self.model, without=without)
        status = structural(self.model, without=(*without, "default"))["properties"]["status"]
        properties = {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
            "spec": whole["properties"]["spec"],
            "status": status,
        }
        return {**whole, "properties": properties}

    def crd(self) -> dict[str, Any]:
        """The CustomResourceDefinition."""
        subresources: dict[str, Any] = {"status": {}}
        if self.scale:
            subresources["scale"] = dict(self.scale)
        version = {
            "name": names.VERSION,
            "served": True,
            "storage": True,
            "additionalPrinterColumns": [column.as_schema() for column in self.columns],
            "selectableFields": [{"jsonPath": path} for path in self.selectable],
            "subresources": subresources,
            "schema": {"openAPIV3Schema": self.schema()},
        }
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": self.names.crd_name},
            "spec": {
                "group": names.GROUP,
                "scope": "Namespaced" if self.names.namespaced else "Cluster",
                "names": {
                    "kind": self.names.kind,
                    "listKind": f"{self.names.kind}List",
                    "plural": self.names.plural,
                    "singular": self.names.singular,
                    "shortNames": list(self.names.short_names),
                    "categories": [names.CATEGORY],
                },
                "versions": [version],
            },
        }


_AGE: Final = Column("Age", ".metadata.creationTimestamp", "date")

DEFINITIONS: Final = (
    Definition(
        names.TRAINING_JOB,
        TrainingJob,
        columns=(
            Column("Phase", ".status.phase"),
            Column("Workers", ".spec.workers", "integer"),
            Column("Ready", ".status.readyWorkers", "integer"),
            Column("Pool", ".status.placement.pool"),
            Column("Attempt", ".status.attempt", "integer"),
            _AGE,
            Column("Queue", ".spec.queueName", wide=True),
            Column("Position", ".status.queue.position", "integer", wide=True),
            Column("Message", ".status.message", wide=True),
        ),
        selectable=(".status.phase", ".spec.queueName"),
    ),
    Definition(
        names.INFERENCE_SERVICE,
        InferenceService,
        columns=(
            Column("Phase", ".status.phase"),
            Column("Ready", ".status.readyReplicas", "integer"),
            Column("Replicas", ".status.replicas", "integer"),
            Column("Min", ".spec.scaling.minReplicas", "integer"),
            Column("Max", ".spec.scaling.maxReplicas", "integer"),
            Column("USD/h", ".status.cost.usdPerHour"),
            _AGE,
            Column("Method", ".status.forecast.method", wide=True),
            Column("Message", ".status.message", wide=True),
        ),
        selectable=(".status.phase",),
        scale={
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    ),
    Definition(
        names.ACCELERATOR_POOL,
        AcceleratorPool,
        columns=(
            Column("Accelerator", ".spec.accelerator"),
            Column("Roles", ".spec.roles"),
            Column("Capacity", ".spec.capacityType.*"),
            Column("Nodes", ".status.nodes", "integer"),
            Column("Accelerators", ".status.accelerators", "integer"),
            Column("Free", ".status.free", "integer"),
            Column("Ready", ".status.conditions[?(@.type=='Ready')].status"),
            _AGE,
        ),
        selectable=(".spec.accelerator",),
    ),
)


def crd_objects() -> list[dict[str, Any]]:
    """The three CRDs as objects, in the order of :data:`berth.api.names.KINDS`."""
    return [definition.crd() for definition in DEFINITIONS]


def crd_files() -> dict[str, str]:
    """File name to content of what is committed in ``crds/``."""
    return {
        definition.file_name: HEADER + yaml.safe_dump(definition.crd(), sort_keys=False, width=120, allow_unicode=True)
        for definition in DEFINITIONS
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the CRDs, or with ``--check`` say which of them are stale; 1 when any is."""
    return write_generated(crd_files(), "make crds", arguments)


if __name__ == "__main__":
    sys.exit(main())
