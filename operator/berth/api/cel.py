"""CEL rules as values: what the API server checks beyond the schema's own bounds.

A rule sits on the model or type that it speaks about (``model_config = validated(...)``) and is written into the CRD
by :mod:`berth.api.crd`. Its message names the field and the fix, because it is all that ``kubectl apply`` shows.

Every rule of a kind runs on every write of its status too, and the server pays for a field by the width of the object
that it is read from: each access builds the map of all properties which that object declares, and one to a nested
object builds the map of that as well. So a rule sits as deep as it can, reads a wide object once and binds what it
read (``[self.x].all(x, …)``), and asks first what is cheap and mostly decides.
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
    numbers at hand explain more than a fixed text; ``message`` is its fallback. With ``at_birth`` a rule that reads
    oldSelf is also checked when there is none yet; oldSelf is then an optional value.
    """

    rule: str
    message: str
    path: str = ""
    reason: Reason = "FieldValueInvalid"
    says: str = ""
    at_birth: bool = False

    def as_schema(self) -> dict[str, Any]:
        """The rule as the API server reads it."""
        entry: dict[str, Any] = {"rule": self.rule, "message": self.message}
        if self.says:
            entry["messageExpression"] = self.says
        if self.path:
            entry["fieldPath"] = self.path
        if self.reason != "FieldValueInvalid":
            entry["reason"] = self.reason
        if self.at_birth:
            entry["optionalOldSelf"] = True
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
    """The expression that one duration is not longer than another, where both are given and have the form.

    The form is asked last: only where it is wrong can the comparison fail, and then its error does not count.
    """
    malformed = " || ".join(f"!{matches(text, DURATION_PATTERN)}" for text in (shorter, longer))
    return f"!has({shorter}) || !has({longer}) || duration({shorter}) <= duration({longer}) || {malformed}"


def at_least(text: str, least: str) -> str:
    """The expression that a duration is no shorter than ``least``, where it is given and has the form."""
    return f"!has({text}) || duration({text}) >= duration('{least}') || !{matches(text, DURATION_PATTERN)}"


def forbidden(path: str, when: str, message: str) -> Rule:
    """Refuses a field where ``when`` holds."""
    return Rule(f"!({when})", message, path=path, reason="FieldValueForbidden")


def absent(why: str) -> Rule:
    """Refuses the field that holds it; costs nothing where the field is left out."""
    return Rule("false", why, reason="FieldValueForbidden")


def required(path: str, when: str, message: str) -> Rule:
    """Demands a field, and the objects on the way to it, where ``when`` holds."""
    steps = path.lstrip(".").split(".")
    present = " && ".join(f"has(self.{'.'.join(steps[: depth + 1])})" for depth in range(len(steps)))
    return Rule(f"!({when}) || {present}", message, path=path, reason="FieldValueRequired")


def formatted(text: str, *values: str) -> str:
    """A message expression: ``text`` with ``%d`` or ``%s`` for each CEL expression in ``values``.

    Joining strings with ``+`` would exceed the server's cost budget, for the length of a number as text is unknown.
    """
    return f"'{text}'.format([{', '.join(values)}])"


def first_of(*failures: tuple[str, str]) -> str:
    """A message expression: of pairs (what must hold, message expression), the message of the first that does not."""
    *others, (_, last) = failures
    return "".join(f"!({holds}) ? {says} : " for holds, says in others) + last


def unique(message: str, field: str = "") -> Rule:
    """No two items of an atomic list are the same, or agree in ``field``."""
    if not field:
        return Rule("self.all(x, self.exists_one(y, y == x))", message)
    return Rule(f"self.all(x, [x.{field}].all(key, self.exists_one(y, y.{field} == key)))", message)


def frozen(fields: Mapping[str, bool]) -> Rule:
    """Spec fields (name to whether it may be absent) that change only before the first attempt or once suspended.

    A rule for the root of an object whose status has ``phase``, ``readyWorkers`` and ``attempt``, and never an attempt
    without a phase. Suspended is what the phase says, not what the spec asks for: until it does, a gang may run that
    was made from the spec as it was.

    One rule for all fields, whose message names those that would change. A write changes spec or status, never both:
    where a field of the status that most writes of it change has changed, the spec has not, and nothing else is read.
    That test stands first, and may fail to read what is not there yet: an operand that is true makes up for it.

    Written with ``has`` rather than optional values, whose size the server's cost estimate cannot bound; for the same
    reason only one side of a comparison is bound by the macro.
    """
    unchanged = " && ".join(_unchanged(name, optional, "was") for name, optional in fields.items())
    changed = [f"{_unchanged(name, optional, 'oldSelf.spec')} ? '' : ' {name}'" for name, optional in fields.items()]
    fix = (
        "set spec.suspend to true and wait until status.phase is Suspended,"
        " then change what is frozen since the first attempt"
    )
    return Rule(
        "self.status.phase != oldSelf.status.phase"
        " || !has(oldSelf.status) || !has(oldSelf.status.attempt)"
        " || self.status.?readyWorkers != oldSelf.status.?readyWorkers"
        f" || [oldSelf.spec].all(was, was.suspend && oldSelf.status.phase == 'Suspended' || {unchanged})",
        f"{fix}: {', '.join(fields)}",
        path=".spec",
        reason="FieldValueForbidden",
        says=formatted(f"{fix}:{'%s' * len(changed)}", *changed),
    )


def _unchanged(field: str, optional: bool, was: str) -> str:
    now, before = f"self.spec.{field}", f"{was}.{field}"
    return f"(has({now}) ? has({before}) && {now} == {before} : !has({before}))" if optional else f"{now} == {before}"


def named() -> tuple[Rule, ...]:
    """The object's name must leave room for what children append to it; a rule for the object's root.

    Names never change, so that it is checked at birth only.
    """
    between = f"([-a-z0-9]{{0,{MAX_NAME_LENGTH - 2}}}[a-z0-9])?"
    return (
        Rule(
            f"oldSelf.hasValue() || {matches('self.metadata.name', f'^[a-z]{between}$')}",
            f"must be at most {MAX_NAME_LENGTH} lower-case letters, digits and '-', beginning with a letter:"
            " names of children are made from it",
            path=".metadata.name",
            at_birth=True,
        ),
    )
