"""YAML whose every value knows its file and line.

An overlay is written by hand and read by a process that nobody watches: "prices.yaml:7: accelerators.H200.memory:
'141 GB' is not a quantity" is worth more than a stack trace. ``yaml.safe_load`` forgets lines and turns 7.91 into a
float, so the composed nodes are kept and scalars stay text until a reader asks for a kind of value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from typing import Final, TypeVar

import yaml

from berth.values import ConfigProblem, ValueProblem, parse_count, parse_quantity

T = TypeVar("T", bound=str)
MAX_DEPTH: Final = 16
MOST_USD: Final = 10**9
_NULL: Final = "tag:yaml.org,2002:null"


@dataclass(frozen=True, slots=True)
class Located:
    """One value: text (``None`` for null), a sequence or a mapping, with the place where it is written."""

    content: str | Sequence[Located] | Mapping[str, Located] | None
    source: str
    line: int
    field: str

    def problem(self, message: str) -> ConfigProblem:
        """The error to raise about this value."""
        return ConfigProblem(message, source=self.source, line=self.line, field=self.field)

    def text(self) -> str:
        """Text that is not empty. Raises: ConfigProblem."""
        if not isinstance(self.content, str) or not self.content.strip():
            raise self.problem("must be a text")
        return self.content.strip()

    def flag(self) -> bool:
        """``true`` or ``false``. Raises: ConfigProblem."""
        if self.content not in ("true", "false"):
            raise self.problem("must be true or false")
        return self.content == "true"

    def whole(self, least: int = 0) -> int:
        """A whole number from ``least``. Raises: ConfigProblem."""
        text = self.text()
        if not text.isdecimal() or int(text) < least:
            raise self.problem(f"{text!r} is not a whole number of at least {least}")
        return int(text)

    def money(self) -> Decimal:
        """US dollars or another exact figure, not negative. Raises: ConfigProblem."""
        text = self.text()
        try:
            amount = Decimal(text)
        except InvalidOperation:
            amount = Decimal("NaN")
        if not amount.is_finite() or not 0 <= amount < MOST_USD:
            raise self.problem(f"{text!r} is not an amount; write for example 7.91")
        return amount

    def size(self) -> int:
        """Bytes, or bytes per second, as a Kubernetes quantity. Raises: ConfigProblem."""
        try:
            amount = parse_quantity(self.text())
        except ValueProblem as problem:
            raise self.problem(str(problem)) from problem
        if amount < 0 or amount != int(amount):
            raise self.problem(f"{self.text()!r} is not a whole number of bytes; write for example 80G")
        return int(amount)

    def count(self) -> int:
        """A number of parameters such as ``7B``. Raises: ConfigProblem."""
        try:
            return parse_count(self.text())
        except ValueProblem as problem:
            raise self.problem(str(problem)) from problem

    def one_of(self, allowed: Sequence[T]) -> T:
        """One of ``allowed``. Raises: ConfigProblem."""
        text = self.text()
        for choice in allowed:
            if choice == text:
                return choice
        raise self.problem(f"{text!r} is not one of {', '.join(allowed)}{suggestion(text, allowed)}")

    def items(self) -> Sequence[Located]:
        """The elements of a list. Raises: ConfigProblem."""
        if isinstance(self.content, str | Mapping) or self.content is None:
            raise self.problem("must be a list")
        return self.content

    def texts(self) -> tuple[str, ...]:
        """The elements of a list of texts. Raises: ConfigProblem."""
        return tuple(item.text() for item in self.items())

    def entries(self) -> Mapping[str, Located]:
        """The values of a mapping by key. Raises: ConfigProblem."""
        if not isinstance(self.content, Mapping):
            raise self.problem("must be a mapping")
        return self.content

    def fields(self, required: Iterable[str], optional: Iterable[str] = ()) -> Mapping[str, Located]:
        """The values of a mapping that has ``required`` and may have ``optional`` keys, nulls left out.

        Raises:
            ConfigProblem: an unknown key, with the nearest known one, or a missing one.
        """
        wanted, known = tuple(required), (*required, *optional)
        entries = self.entries()
        for key, value in entries.items():
            if key not in known:
                raise value.problem(f"is not a field{suggestion(key, known)}")
        given = {key: value for key, value in entries.items() if value.content is not None}
        for key in wanted:
            if key not in given:
                raise self.problem(f"needs the field {key}")
        return given


def suggestion(word: str, known: Iterable[str]) -> str:
    """``; did you mean X?`` where a known word is near, else the words there are."""
    words = sorted(known)
    lowered = {entry.lower(): entry for entry in words}
    near = get_close_matches(word.lower(), lowered, n=1, cutoff=0.6)
    return f"; did you mean {lowered[near[0]]}?" if near else f"; there are: {', '.join(words)}"


class _Loader(yaml.SafeLoader):
    """Composes nodes; refuses aliases, with which a few lines can become gigabytes or a loop."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.get_event()  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(
                problem="aliases are not allowed; write the value out", problem_mark=event.start_mark
            )
        return super().compose_node(parent, index)


def parse(source: str, text: str) -> Located:
    """The document in ``text``; an empty one is an empty mapping.

    Raises:
        ConfigProblem: not YAML, more than one document, an alias, a repeated key, or nested too deeply.
    """
    try:
        node = _compose(text)
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        message = problem.problem or problem.context or "is not YAML"
        raise ConfigProblem(message, source=source, line=mark.line + 1 if mark else 0) from problem
    except yaml.reader.ReaderError as problem:
        line = text.count("\n", 0, problem.position) + 1
        raise ConfigProblem("holds a character that YAML does not allow", source=source, line=line) from problem
    except RecursionError as problem:
        raise ConfigProblem("is nested too deeply", source=source) from problem
    if node is None:
        return Located({}, source, 0, "")
    return _locate(node, source, "", 0)


def _compose(text: str) -> yaml.Node | None:
    loader = _Loader(text)
    try:
        return loader.get_single_node()
    finally:
        loader.dispose()


def _locate(node: yaml.Node, source: str, field: str, depth: int) -> Located:
    line = node.start_mark.line + 1
    if depth > MAX_DEPTH:
        raise ConfigProblem("is nested too deeply", source=source, line=line, field=field)
    if isinstance(node, yaml.MappingNode):
        return Located(dict(_pairs(node, source, field, depth)), source, line, field)
    if isinstance(node, yaml.SequenceNode):
        items = [_locate(item, source, f"{field}[{n}]", depth + 1) for n, item in enumerate(node.value)]
        return Located(items, source, line, field)
    return Located(None if node.tag == _NULL else str(node.value), source, line, field)


def _pairs(node: yaml.MappingNode, source: str, field: str, depth: int) -> Iterator[tuple[str, Located]]:
    seen: set[str] = set()
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise ConfigProblem("a key must be a text", source=source, line=line, field=field)
        inner = f"{field}.{key.value}" if field else str(key.value)
        if key.value in seen:
            raise ConfigProblem("is written twice", source=source, line=line, field=inner)
        seen.add(key.value)
        located = _locate(value, source, inner, depth + 1)
        yield str(key.value), Located(located.content, source, line, inner)


def merge(base: Located, over: Located) -> Located:
    """``base`` with ``over`` laid on it: mappings merge key by key, anything else is replaced, null removes.

    Keys that ``over`` adds come first, so that where the first of several that fit is taken, the user's is.

    Raises:
        ConfigProblem: null for a key that ``base`` does not have, most likely a slip of the pen.
    """
    if not (isinstance(base.content, Mapping) and isinstance(over.content, Mapping)):
        return over
    kept, added = dict(base.content), {}
    for key, value in over.content.items():
        if value.content is None:
            if key not in kept:
                raise value.problem(f"removes what is not there{suggestion(key, kept)}")
            del kept[key]
        elif key in kept:
            kept[key] = merge(kept[key], value)
        else:
            added[key] = value
    return Located({**added, **kept}, base.source, base.line, base.field)
