"""CEL rules as values: what the API server checks beyond the schema's own bounds.

A rule sits on the model or type that it speaks about (``model_config = validated(...)``) and is written into the CRD
by :mod:`berth.api.crd`. Its message names the field and the fix, because it is all that ``kubectl apply`` shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from berth.api.names import MAX_NAME_LENGTH

Reason = Literal["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate"]
VALIDATIONS: Final = "x-kubernetes-validations"
DURATION_PATTERN: Final = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry of ``x-kubernetes-validations``.

    ``path`` is the JSON path, below the node that holds the rule, of the field at fault: rules on the root must have
    one, or the server's message starts with ``<nil>``. ``says`` is a CEL expression for the message, used where the
    numbers at hand explain more than a fixed text; ``message`` is its fallback.
    """

    rule: str
    message: str
    path: str = ""
    reason: Reason = "FieldValueInvalid"
    says: str = ""

    def as_schema(self) -> dict[str, str]:
        """The rule as the API server reads it."""
        entry = {"rule": self.rule, "message": self.message}
        if self.says:
            entry["messageExpression"] = self.says
        if self.path:
            entry["fieldPath"] = self.path
        if self.reason != "FieldValueInvalid":
            entry["reason"] = self.reason
        return entry


@dataclass(frozen=True, slots=True, eq=False)
class Schema:
    """JSON-schema keywords laid over what pydantic derives from a type; None takes one away, rules are added.

    ``whole`` replaces the derived schema: for types that structural schemas spell their own way.
    """

    keywords: Mapping[str, Any]
    whole: bool = False

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        derived = {} if self.whole else handler(core)
        rules = [*derived.get(VALIDATIONS, ()), *self.keywords.get(VALIDATIONS, ())]
        merged = {**derived, **self.keywords, **({VALIDATIONS: rules} if rules else {})}
        return {key: value for key, value in merged.items() if value is not None}


def checked(*rules: Rule, **keywords: Any) -> Schema:
    """``rules`` and ``keywords`` on a field's type, for use inside ``Annotated``."""
    return Schema({**keywords, **validated(*rules)})


def validated(*rules: Rule) -> dict[str, Any]:
    """``rules`` as ``json_schema_extra`` of a model."""
    return {VALIDATIONS: [rule.as_schema() for rule in rules]} if rules else {}


def matches(text: str, pattern: str) -> str:
    """The expression that ``text`` has the form ``pattern``."""
    assert "'" not in pattern
    return f"{text}.matches(r'{pattern}')"


def not_longer(shorter: str, longer: str) -> str:
    """The expression that one duration is not longer than another, where both are given and have the form."""
    given = " && ".join(f"has({text}) && {matches(text, DURATION_PATTERN)}" for text in (shorter, longer))
    return f"!({given}) || duration({shorter}) <= duration({longer})"


def forbidden(path: str, when: str, message: str) -> Rule:
    """Refuses a field where ``when`` holds."""
    return Rule(f"!({when})", message, path=path, reason="FieldValueForbidden")


def required(path: str, when: str, message: str) -> Rule:
    """Demands a field, and the objects on the way to it, where ``when`` holds."""
    steps = path.lstrip(".").split(".")
    present = " && ".join(f"has(self.{'.'.join(steps[: depth + 1])})" for depth in range(len(steps)))
    return Rule(f"!({when}) || {present}", message, path=path, reason="FieldValueRequired")


def formatted(text: str, *values: str) -> str:
    """A message expression: ``text`` with ``%d`` for each CEL expression in ``values``.

    Joining strings with ``+`` would exceed the server's cost budget, for the length of a number as text is unknown.
    """
    return f"'{text}'.format([{', '.join(values)}])"


def unique(message: str, field: str = "") -> Rule:
    """No two items of an atomic list are the same, or agree in ``field``."""
    member = f".{field}" if field else ""
    return Rule(f"self.all(x, self.exists_one(y, y{member} == x{member}))", message)


def frozen(field: str, *, optional: bool) -> Rule:
    """A spec field that changes only before the first attempt or while suspended; a rule for the object's root.

    Written with ``has`` rather than optional values, whose size the server's cost estimate cannot bound.
    """
    now, before = f"self.spec.{field}", f"oldSelf.spec.{field}"
    same = f"has({now}) == has({before}) && (!has({now}) || {now} == {before})" if optional else f"{now} == {before}"
    return Rule(
        f"!has(oldSelf.status) || !has(oldSelf.status.attempt) || oldSelf.spec.suspend || {same}",
        "is frozen since the first attempt: set spec.suspend to true first, then change it",
        path=f".spec.{field}",
        reason="FieldValueForbidden",
    )


def named() -> tuple[Rule, ...]:
    """The object's name must leave room for what children append to it; a rule for the object's root."""
    return (
        Rule(
            f"size(self.metadata.name) <= {MAX_NAME_LENGTH}"
            " && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
            f"must be at most {MAX_NAME_LENGTH} lower-case letters, digits and '-', beginning with a letter:"
            " names of children are made from it",
            path=".metadata.name",
        ),
    )
