"""``docs/reference/*.md`` from the models: ``python -m berth.api.reference --out docs/reference [--check]``.

The same schema that the API server enforces is printed, so the reference cannot promise a field, bound or default that
is not there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from berth.api import names
from berth.api.cel import VALIDATIONS
from berth.api.common import CODE_DEFAULT, FORM
from berth.api.crd import DEFINITIONS, Definition
from berth.api.meanings import CONDITIONS, EVENTS, ConditionMeaning
from berth.api.output import write_generated

_HEADER: Final = "<!-- Generated from operator/berth/api by `make crds`. Do not edit. -->\n"
_CONVENTIONS: Final = """\
Durations are written as in Gateway API (`90s`, `10m`, `1h30m`; 30 days are `720h`), bytes as quantities (`840G` is not
`840Gi`), shares as `80%`, money as decimal strings. `Auto` says the same as leaving the field out. A default marked
with `*` lives in the operator and not in the object: a later release may choose another."""
_CONDITIONS: Final = """\
True is the good side, but for states that are reached, as in Job, and for ScaleContested. Types and reasons are API;
the sentence beside them is for people and may change. Where nothing is to be done it heals by itself.
"""

Node = Mapping[str, Any]


def reference_files() -> dict[str, str]:
    """File name to content of what is committed in ``docs/reference/``."""
    return {f"{definition.names.singular}.md": page(definition) for definition in DEFINITIONS}


def page(definition: Definition) -> str:
    """The reference page of one kind."""
    schema = definition.schema(without=())
    spec, status = schema["properties"]["spec"], schema["properties"]["status"]
    parts = [
        _HEADER,
        f"# {definition.names.kind}\n",
        f"{schema['description']}\n",
        _identity(definition),
        f"{_CONVENTIONS}\n",
        "## spec\n",
        _table(spec, "spec"),
        "## status\n",
        "Enumerations are open here: a newer operator may write values that are not listed.\n",
        _table(status, "status"),
        "## Conditions\n",
        _CONDITIONS,
        _conditions(CONDITIONS[definition.names.kind]),
        *_events(definition.names.kind),
        "## What the API server refuses\n",
        "Besides a missing required field, a value of another type and a number or length out of bounds:\n",
        _refusals(schema),
        "## Forms\n",
        _forms(schema),
        "## kubectl get\n",
        _columns(definition),
    ]
    return "\n".join(parts)


def _identity(definition: Definition) -> str:
    called = definition.names
    scope = "namespaced" if called.namespaced else "cluster scoped"
    selectable = ", ".join(f"`{path.lstrip('.')}`" for path in definition.selectable)
    lines = [
        f"`apiVersion: {names.API_VERSION}`, `kind: {called.kind}`; {scope}; plural `{called.plural}`, short name"
        f" `{called.short_names[0]}`, category `{names.CATEGORY}`.",
        f"Field selectors: {selectable}.",
    ]
    if definition.scale:
        paths = definition.scale
        lines.append(
            f"Scale subresource: `{paths['specReplicasPath']}`, `{paths['statusReplicasPath']}`,"
            f" `{paths['labelSelectorPath']}`."
        )
    return "\n".join(lines) + "\n"


def _table(node: Node, root: str) -> str:
    rows = ["| Field | Form | Default | What it says |", "|---|---|---|---|"]
    rows += [_row(path, field, required) for path, field, required in _fields(node, "")]
    assert len(rows) > 2, root
    return "\n".join(rows) + "\n"


def _fields(node: Node, prefix: str) -> Iterator[tuple[str, Node, bool]]:
    """Every field below ``node`` in the order of the contract: path, schema, whether its parent requires it."""
    required = node.get("required", ())
    for name, field in node.get("properties", {}).items():
        path = f"{prefix}{name}"
        yield path, field, name in required
        inner, suffix = (field["items"], "[].") if field.get("type") == "array" else (field, ".")
        if not field.get("x-kubernetes-preserve-unknown-fields"):
            yield from _fields(inner, path + suffix)


def _row(path: str, field: Node, required: bool) -> str:
    form = _form(field) + (", **required**" if required else "")
    return f"| `{path}` | {form} | {_default(field)} | {_cell(field.get('description', ''))} |"


def _default(field: Node) -> str:
    if CODE_DEFAULT in field:
        return f"`{field[CODE_DEFAULT]}`*"
    if "default" not in field:
        return ""
    value = field["default"]
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _form(field: Node) -> str:
    if FORM in field:
        return str(field[FORM])
    if "enum" in field:
        return " \\| ".join(f"`{value}`" for value in field["enum"])
    match field.get("type"):
        case "integer":
            return f"integer{_bounds(field)}"
        case "array":
            kind = field.get("x-kubernetes-list-type", "")
            key = f" by `{field['x-kubernetes-list-map-keys'][0]}`" if kind == "map" else ""
            word = {"map": "list", "set": "set", "atomic": "ordered list"}[kind]
            return f"{word}{key} (up to {field['maxItems']}) of {_form(field['items'])}"
        case "object" if "additionalProperties" in field:
            return f"map to {_form(field['additionalProperties'])}"
        case "object" if field.get("x-kubernetes-preserve-unknown-fields"):
            return "PodTemplateSpec"
        case "string" if field.get("format") == "date-time":
            return "time"
        case "string":
            return f"string up to {field['maxLength']}"
    return str(field["type"])


def _bounds(field: Node) -> str:
    low, high = field.get("minimum"), field.get("maximum")
    if high is not None and high >= 2**31 - 1:
        return f" from {low}"
    return f" {low}–{high}"


def _refusals(schema: Node) -> str:
    rows = ["| Field | What the server says |", "|---|---|"]
    rows += [
        f"| `{path}{rule.get('fieldPath', '')}` | {_cell(rule['message'])} |".replace("`.", "`")
        for path, rule in _rules(schema, "")
    ]
    return "\n".join(rows) + "\n"


def _rules(node: Node, path: str) -> Iterator[tuple[str, Node]]:
    """Every rule below ``node`` but those that only state a form."""
    if FORM not in node:
        for rule in node.get(VALIDATIONS, ()):
            yield path, rule
    for name, field in node.get("properties", {}).items():
        yield from _rules(field, f"{path}.{name}")
    if "items" in node:
        yield from _rules(node["items"], f"{path}[]")


def _forms(schema: Node) -> str:
    found: dict[str, list[str]] = {}
    for node in _nodes(schema):
        if FORM in node and node[FORM] not in found:
            found[node[FORM]] = [_cell(rule["message"]) for rule in node.get(VALIDATIONS, ())]
    rows = ["| Form | What the server says of another |", "|---|---|"]
    rows += [f"| {form} | {'; '.join(messages)} |" for form, messages in sorted(found.items())]
    return "\n".join(rows) + "\n"


def _nodes(node: object) -> Iterator[Node]:
    if isinstance(node, Mapping):
        yield node
        for value in node.values():
            yield from _nodes(value)
    elif isinstance(node, list):
        for value in node:
            yield from _nodes(value)


def _conditions(types: Sequence[ConditionMeaning]) -> str:
    rows = ["| Condition | Reason | What it says | What to do |", "|---|---|---|---|"]
    for entry in types:
        rows.append(f"| **{entry.type}** | | {_cell(entry.says)} | |")
        rows += [
            f"| {told.status} | `{told.reason}` | {_cell(told.says)} | {_cell(told.do)} |" for told in entry.reasons
        ]
        if entry.others:
            rows.append(f"| False | others | {_cell(entry.others)} | See the pods. |")
    return "\n".join(rows) + "\n"


def _events(kind: str) -> Iterator[str]:
    """The section on events, where the kind has any."""
    if EVENTS[kind]:
        rows = ["| Event | Type | What it says |", "|---|---|---|"]
        for told in EVENTS[kind]:
            rows.append(f"| `{told.reason}` | {'Warning' if told.warning else 'Normal'} | {_cell(told.says)} |")
        yield "## Events\n"
        yield "\n".join(rows) + "\n"


def _columns(definition: Definition) -> str:
    rows = ["| Column | From | |", "|---|---|---|"]
    rows += [
        f"| {column.name} | `{column.path}` | {'with `-o wide`' if column.wide else ''} |"
        for column in definition.columns
    ]
    return "\n".join(rows) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages, or with ``--check`` say which of them are stale; 1 when any is."""
    return write_generated(reference_files(), "make crds", arguments)


if __name__ == "__main__":
    sys.exit(main())
