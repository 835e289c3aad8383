"""Types shared by the three kinds: how durations, quantities, shares, counts and conditions are written and bounded.

Each has its form as a CEL rule with a sentence for people. The models hold what the user wrote; numbers come from
accessors, so that a default that may change with a release never enters an object.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from berth.api.cel import DURATION_PATTERN, Rule, Schema, checked, matches, validated
from berth.values import BerthError, Requirement, Requirements

AUTO: Final = "Auto"
MESSAGE_LIMIT: Final = 4096
"""Characters of a ``message``: a longer one would have the whole status refused."""
CODE_DEFAULT: Final = "x-berth-default"
"""Carries a default that lives in code to the description of its field; never in a CRD itself."""
FORM: Final = "x-berth-form"
"""Carries the name of a text form, such as duration, to ``docs/reference``; never in a CRD."""

SHARE_PATTERN: Final = r"^(100(\.0{1,4})?|[0-9]{1,2}(\.[0-9]{1,4})?)%$"
MONEY_PATTERN: Final = r"^[0-9]{1,12}(\.[0-9]{1,6})?$"
LABEL_NAME_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
SUBDOMAIN_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
LABEL_KEY_PATTERN: Final = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
)


class ContractProblem(BerthError):
    """An object does not have the form of its kind; the message lists ``field: problem`` pairs."""


class Model(BaseModel):
    """Base of every contract model: camelCase outside, snake_case inside, immutable, unknown fields ignored.

    Unknown fields are ignored because an object may have been written by a newer release.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        extra="ignore",
        frozen=True,
        use_attribute_docstrings=True,
    )

    @classmethod
    def parse(cls, raw: Mapping[str, Any], where: str = "") -> Self:
        """The model of ``raw``; ``where`` prefixes the fields in messages. Raises: ContractProblem."""
        try:
            return cls.model_validate(raw)
        except ValidationError as problem:
            raise ContractProblem(_sentences(problem, where)) from problem

    def dump(self) -> dict[str, Any]:
        """JSON-ready camelCase without absent fields; empty lists and maps count as absent."""
        dumped = _without_empty(self.model_dump(mode="json", by_alias=True, exclude_none=True))
        assert isinstance(dumped, dict)
        return dumped


def _without_empty(value: object) -> object:
    if isinstance(value, dict):
        kept = {key: _without_empty(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item not in ({}, [])}
    return [_without_empty(item) for item in value] if isinstance(value, list) else value


def _sentences(problem: ValidationError, where: str) -> str:
    found = []
    for error in problem.errors(include_url=False, include_input=False):
        path = ".".join(str(part) for part in error["loc"])
        found.append(f"{'.'.join(part for part in (where, path) if part)}: {error['msg']}")
    return "; ".join(found)


def code_default(text: str) -> Schema:
    """Marks a field whose default is ``text`` but lives in code, since a later release may choose another."""
    return Schema({CODE_DEFAULT: text})


def atomic() -> Schema:
    """A list whose order counts: one owner writes it whole."""
    return Schema({"x-kubernetes-list-type": "atomic"})


def list_set() -> Schema:
    """A list of distinct scalars that several owners may add to."""
    return Schema({"x-kubernetes-list-type": "set"})


def list_map(key: str) -> Schema:
    """A list of objects that merge by ``key``."""
    return Schema({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]})


def text(form: str, pattern: str, limit: int, says: str, *, nonzero: bool = False) -> tuple[Any, Schema]:
    """A string of the form named ``form``, at most ``limit`` long; ``says`` ends a sentence that begins with the field.

    ``nonzero`` demands a digit above 0 where the text is not Auto. The form is a CEL rule and not a ``pattern``, for
    which the server's message is the bare expression.
    """
    rule = matches("self", pattern)
    if nonzero:
        rule += " && (self == 'Auto' || self.matches('[1-9]'))"
    return Field(max_length=limit, pattern=pattern), checked(Rule(rule, says), pattern=None, **{FORM: form})


_EXAMPLES: Final = "such as 90s, 10m or 1h30m (30 days = 720h)"

DurationOrZero = Annotated[str, *text("duration", DURATION_PATTERN, 32, f"must be a duration {_EXAMPLES}")]
"""Gateway API's duration: hours, minutes, seconds, milliseconds."""
Duration = Annotated[
    str,
    *text("duration above zero", DURATION_PATTERN, 32, f"must be a duration above zero, {_EXAMPLES}", nonzero=True),
]
"""A duration above zero."""
DurationOrAuto = Annotated[
    str,
    *text(
        "duration or Auto",
        r"^(Auto|([0-9]{1,5}(h|m|s|ms)){1,4})$",
        32,
        f"must be Auto or a duration above zero, {_EXAMPLES}",
        nonzero=True,
    ),
]
Share = Annotated[str, *text("share", SHARE_PATTERN, 9, "must be a share from 0% to 100%, such as 80% or 99.9%")]
Money = Annotated[
    str,
    *text(
        "US dollars", MONEY_PATTERN, 20, 'must be US dollars as a decimal string without a sign or unit, such as "7.91"'
    ),
]
LabelName = Annotated[
    str,
    *text(
        "label",
        LABEL_NAME_PATTERN,
        63,
        "must be lower-case letters, digits and '-', at most 63, such as rack or research",
    ),
]
"""A DNS-1123 label: names of levels, queues, namespaces."""
SubdomainName = Annotated[
    str,
    *text(
        "object name",
        SUBDOMAIN_PATTERN,
        253,
        "must be an object's name: lower-case letters, digits, '-' and '.', such as high",
    ),
]
LabelKey = Annotated[
    str, *text("label key", LABEL_KEY_PATTERN, 317, "must be a label key such as topology.kubernetes.io/zone")
]
CatalogueName = Annotated[str, Field(min_length=1, max_length=63)]
"""An entry of the catalogue, spelled as there; which ones exist is data, so the controller checks it."""


def int_or_string(form: str, *rules: Rule, limit: int) -> Schema:
    """An integer or a string of at most ``limit`` characters, as ``rules`` say; ``form`` names it."""
    keywords = {"x-kubernetes-int-or-string": True, "maxLength": limit, FORM: form}
    return Schema(keywords | validated(*rules), whole=True)


def quantity(form: str, says: str) -> Schema:
    """A ``resource.Quantity`` above zero; ``form`` names it for people, ``says`` what it must be."""
    above_zero = "type(self) == int ? self > 0 : isQuantity(self) && quantity(self).isGreaterThan(quantity('0'))"
    return int_or_string(form, Rule(above_zero, says), limit=32)


Quantity = Annotated[int | str, quantity("quantity", "must be a quantity of bytes above zero, such as 840G or 512Gi")]
"""Bytes, or bytes per second, as a ``resource.Quantity``."""
Cores = Annotated[int | str, quantity("cores", "must be a quantity of cores above zero, such as 192 or 47810m")]
"""Cores as a ``resource.Quantity``."""
Count = Annotated[
    int | str,
    int_or_string(
        "count",
        Rule(
            "type(self) == int ? self > 0 && self <= 1000000000000000"
            " : self.matches(r'^[0-9]{1,6}((\\.[0-9]{1,6})?[MBT]|(\\.[0-9]{1,3})?K)$') && self.matches('[1-9]')",
            "must be a number above zero such as 70B, 1.8T or an integer",
        ),
        limit=16,
    ),
]
"""A number of parameters, whole as well in thousands."""


def int_or_auto(minimum: int, maximum: int) -> Schema:
    """An integer within bounds, or ``Auto``."""
    return int_or_string(
        f"{minimum}–{maximum} or Auto",
        Rule(
            f"type(self) == int ? self >= {minimum} && self <= {maximum} : self == 'Auto'",
            f"must be Auto or an integer from {minimum} to {maximum}",
        ),
        limit=16,
    )


Time = Annotated[str, Field(max_length=32), Schema({"format": "date-time"})]
"""RFC 3339, UTC, whole seconds."""
StatusText = Annotated[str, Field(max_length=256)]
Message = Annotated[str, Field(max_length=MESSAGE_LIMIT)]
StatusShare = Annotated[str, Field(max_length=16)]
StatusMoney = Annotated[str, Field(max_length=32)]
Seconds = Annotated[int, Field(ge=0, le=2**53)]


class Condition(Model):
    """``metav1.Condition``."""

    type: Annotated[str, Field(min_length=1, max_length=316)]
    """What is stated, in CamelCase."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    observed_generation: Annotated[int, Field(ge=0, le=2**53)] | None = None
    """The spec generation that it was concluded from."""
    last_transition_time: Time
    """When status last changed."""
    reason: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")]
    """Why, in one CamelCase word for programs."""
    message: Annotated[str, Field(max_length=32768)]
    """Why, in one sentence for people."""


Conditions = Annotated[tuple[Condition, ...], Field(max_length=32), list_map("type")]


class SecretReference(Model):
    """A Secret in the same namespace."""

    name: SubdomainName
    """The Secret's name."""


_VALUES_FIT: Final = Rule(
    "self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0 : !has(self.values)",
    "values must be given with In and NotIn, and left out with Exists and DoesNotExist",
)
LabelValue = Annotated[str, Field(max_length=63)]


class LabelExpression(Model):
    """``metav1.LabelSelectorRequirement``."""

    model_config = ConfigDict(json_schema_extra=validated(_VALUES_FIT))

    key: LabelKey
    """The label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How the label relates to values."""
    values: Annotated[tuple[LabelValue, ...], Field(max_length=64), atomic()] = ()
    """With In and NotIn."""


_SELECTS: Final = Rule(
    "has(self.matchLabels) && size(self.matchLabels) > 0"
    " || has(self.matchExpressions) && size(self.matchExpressions) > 0",
    "must select by at least one label: an empty selector would take every node",
    reason="FieldValueRequired",
)


class LabelSelector(Model):
    """``metav1.LabelSelector`` that may not be empty."""

    model_config = ConfigDict(json_schema_extra=validated(_SELECTS))

    match_labels: Annotated[dict[str, LabelValue], Field(max_length=32)] = Field(default_factory=dict)
    """Labels and the values they must have."""
    match_expressions: Annotated[tuple[LabelExpression, ...], Field(max_length=32), atomic()] = ()
    """Requirements on labels, all of which must hold."""

    @property
    def requirements(self) -> Requirements:
        """The selector as values that :func:`berth.values.selects` reads."""
        pairs = tuple(Requirement(key, "In", (value,)) for key, value in sorted(self.match_labels.items()))
        return pairs + tuple(Requirement(item.key, item.operator, item.values) for item in self.match_expressions)


def shorten(message: str, limit: int = MESSAGE_LIMIT) -> str:
    """``message`` cut to what the schema admits, with an ellipsis where something is left out."""
    return message if len(message) <= limit else message[: limit - 1] + "…"


def rfc3339(seconds: float) -> str:
    """Unix seconds as the API server writes times."""
    return _stamp(int(seconds))


@lru_cache(maxsize=4096)
def _stamp(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def unix_seconds(text: str) -> float:
    """The inverse of :func:`rfc3339`; also reads fractions and offsets. Raises: ValueError."""
    return datetime.fromisoformat(text).timestamp()
