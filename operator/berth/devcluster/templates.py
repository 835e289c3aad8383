"""The small language of fleet files: ``{expression:format}`` inside text, and ranges such as ``0..{racks - 1}``.

Expressions are names, integers and ``+ - * // %`` with brackets, evaluated over Python's own syntax tree; nothing
else is let through.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from berth.devcluster.problems import DevClusterProblem

Scope = Mapping[str, int | str]


class TemplateProblem(DevClusterProblem):
    """A text of a fleet file that cannot be filled in."""


_FIELD: Final = re.compile(r"\{([^{}:]+)(?::([^{}]*))?\}")
_RANGE: Final = re.compile(r"(\d+)\.\.(\d+)")
_OPERATORS: Final[Mapping[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_MAX_SPAN: Final = 100_000


def fill(text: str, scope: Scope) -> str:
    """``text`` with every ``{expression:format}`` replaced by its value. Raises: TemplateProblem."""

    def replace(match: re.Match[str]) -> str:
        value = evaluate(match.group(1), scope)
        try:
            return format(value, match.group(2) or "")
        except ValueError as problem:
            raise TemplateProblem(f"{match.group(0)}: {problem}") from problem

    return _FIELD.sub(replace, text)


def evaluate(text: str, scope: Scope) -> int | str:
    """The value of one expression. Raises: TemplateProblem."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        return _value(tree, scope)
    except (SyntaxError, ZeroDivisionError) as problem:
        raise TemplateProblem(f"{{{text}}}: not an expression of names, integers and + - * // %") from problem


def span(value: Any, scope: Scope) -> list[int | str]:
    """The values of one ``each`` entry: a list, or a range ``first..last`` with both ends. Raises: TemplateProblem."""
    if isinstance(value, list):
        return [item if isinstance(item, int) else fill(str(item), scope) for item in value]
    match = _RANGE.fullmatch(fill(str(value), scope).strip())
    if match is None:
        raise TemplateProblem(f"{value!r} is neither a list nor a range such as 0..15")
    first, last = int(match.group(1)), int(match.group(2))
    if last - first >= _MAX_SPAN:
        raise TemplateProblem(f"{value!r} has more than {_MAX_SPAN} values")
    return list(range(first, last + 1))


def _value(tree: ast.expr, scope: Scope) -> int | str:
    match tree:
        case ast.Constant(value=int() as number):
            return number
        case ast.Name(id=name):
            if name not in scope:
                raise TemplateProblem(f"{{{name}}} is not defined; there are {', '.join(sorted(scope)) or 'none'}")
            return scope[name]
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
            one, other = _value(left, scope), _value(right, scope)
            if isinstance(one, str) or isinstance(other, str):
                raise TemplateProblem(f"{{{ast.unparse(tree)}}}: texts cannot be reckoned with")
            return _OPERATORS[type(sign)](one, other)
    raise TemplateProblem(f"{{{ast.unparse(tree)}}}: use names, integers and + - * // % only")
