"""Which reasons of conditions and events the package can set, read from its syntax trees.

An expression is worked out where constants, enumerations and literals of its module are enough. What depends on a local
variable is listed in :data:`LOCALS` with the type that bounds it; another one fails until it is listed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_type_hints

import berth
from berth.api.meanings import CONDITIONS
from berth.controllers.services import troubles
from berth.controllers.writer import UNSATISFIED
from berth.inference.fallback import Turn
from berth.inference.records import DemandState
from berth.training.attempts import FULFILLED
from berth.training.records import Placement, RefusalReason
from berth.training.state import Cause

PACKAGE = Path(berth.__file__).parent
ANY = "*"
"""Stands for a status or type that the call does not tell."""
ELSEWHERE: frozenset[str] = frozenset()
"""What a function passes on: its callers are read themselves."""

LOCALS: dict[tuple[str, str], frozenset[str]] = {
    ("training.acceptance", "kind"): ELSEWHERE,
    ("training.acceptance", "reason"): frozenset({"NameHeld", "PodsEnding"}),
    ("training.attempts", "placement.certificate"): frozenset(get_args(get_type_hints(Placement)["certificate"])),
    ("training.attempts", "fault.cause.value"): frozenset(Cause),
    ("training.attempts", "cause"): frozenset({Cause.INFRASTRUCTURE}),
    ("training.request", "reason"): ELSEWHERE,
    ("training.attempts", "reason"): ELSEWHERE,
    ("training.lifecycle", "reason"): frozenset({"AllRanksRun", "Starting"}),
    ("training.lifecycle", "fault.reason.value"): frozenset({"QuotaExceeded"}),
    ("controllers.observe", "problem.reason"): ELSEWHERE,
    ("controllers.writer", "refusal.reason"): frozenset(get_args(RefusalReason)),
    ("controllers.trainingjobs", "reason"): ELSEWHERE,
    ("controllers.services.reconcile", "reason"): ELSEWHERE,
    ("controllers.services.status", "reason"): ELSEWHERE,
    ("controllers.services.troubles", "found.reason"): ELSEWHERE,
    ("controllers.services.troubles", "reason"): frozenset({troubles.UNSCHEDULABLE}),
    ("inference.need", "sight.seen.state.value"): frozenset(DemandState) - {DemandState.UNKNOWN},
}
"""Local expressions by module, with the values that they can have."""

PAIRS = {
    "training.attempts": {kind: reason for kind, (reason, _) in FULFILLED.items()},
    "controllers.writer": {kind: reason for reason, kind in UNSATISFIED.items()},
}
"""Reasons by type where a module sets ``kind`` and ``reason`` together."""

EVENT_LOCALS: dict[tuple[str, str], frozenset[str]] = {
    ("controllers.trainingjobs", "event.reason"): ELSEWHERE,
    ("controllers.services.reconcile", "event.reason"): ELSEWHERE,
    ("inference.words", "turn"): frozenset(get_args(Turn)),
    ("inference.words", "name"): frozenset({"ScaledUp", "ScaledDown", "Woken", "Idled"}),
    ("inference.leaving", "reason"): frozenset({"SpotReclaimed", "NodeLeaving"}),
    ("training.lifecycle", "_EVENTS.get(fault.reason, 'WorkerFailed')"): frozenset(
        {"NodeLost", "StartTimedOut", "Rejected", "WorkerFailed"}
    ),
}


@dataclass(frozen=True, slots=True)
class Set:
    """A place that sets a condition or event; ``type`` and ``status`` may be :data:`ANY`."""

    kind: str
    type: str
    status: str
    reason: str


def conditions() -> set[Set]:
    """Every condition's reason that the package can set."""
    return {found for name, tree in _modules() for found in _conditions_of(name, tree)}


def events() -> set[tuple[str, str]]:
    """Every (kind, reason) of an event that the package can record."""
    return {found for name, tree in _modules() for found in _events_of(name, tree)}


@cache
def _modules() -> list[tuple[str, ast.Module]]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        if not name.startswith(("devcluster", "cli", "api", "cluster")):
            found.append((name, ast.parse(path.read_text())))
    return found


def _kind(module: str) -> str:
    if module.startswith(("inference", "controllers.services")):
        return "InferenceService"
    return "AcceleratorPool" if module.startswith(("fleet", "controllers.pools")) else "TrainingJob"


def _conditions_of(module: str, tree: ast.Module) -> Iterator[Set]:
    kind = _kind(module)
    types = {entry.type for entry in CONDITIONS[kind]}
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="with_condition"), args=[ast.Name(id="kind"), status, ast.Name(id="reason"), *_]
            ) if module in PAIRS:
                spelled = str(_constant(module, status))
                yield from (Set(kind, type_, spelled, reason) for type_, reason in PAIRS[module].items())
            case ast.Call(func=ast.Attribute(attr="with_condition"), args=[of, status, reason, *_]):
                for type_ in _values(module, of, LOCALS):
                    yield from _sets(module, kind, type_, status, reason)
            case ast.Call(func=ast.Name(id="Verdict"), args=[status, reason, *_]) if kind != "TrainingJob":
                yield from _sets(module, kind, ANY, status, reason)
            case ast.Call(func=ast.Name(id="set_condition"), args=[_, of, status, reason, *_]) if (
                kind == "AcceleratorPool" and isinstance(status, ast.Constant)
            ):
                yield from _sets(module, kind, str(_constant(module, of)), status.value == "True", reason)
            case ast.Call(func=ast.Name(id="RequestProblem"), args=[reason, *_]):
                yield from _sets(module, kind, "Accepted", False, reason)
            case ast.Call(func=ast.Name(id="_known"), args=[_, _, _, reason]) if module == "training.request":
                yield from _sets(module, kind, "Accepted", False, reason)
            case ast.Call(func=ast.Attribute(attr="_reject"), args=[_, reason, _]):
                yield from _sets(module, kind, "Accepted", False, reason)
            case ast.Call(func=ast.Name(id="fail"), args=[_, _, reason, _]):
                yield from _sets(module, kind, "Failed", True, reason) if module != "training.lifecycle" else ()
            case ast.Call(func=ast.Name(id="Trouble"), args=[reason, _]):
                yield from _sets(module, kind, "Ready", False, reason)
            case ast.Assign(targets=[ast.Attribute(attr="problem")], value=ast.Tuple(elts=[reason, _])):
                yield from _sets(module, kind, "Accepted", False, reason)
            case ast.Tuple(elts=[ast.Constant(value=str() as type_), reason, *_], ctx=ast.Load()) if (
                type_ in types and kind == "TrainingJob"
            ):
                if not isinstance(reason, ast.Starred):
                    yield from _sets(module, kind, type_, False, reason)
    if module == "training.lifecycle":
        yield from (Set(kind, "Failed", "True", reason) for reason in _fatal(tree))


def _fatal(tree: ast.Module) -> Iterator[str]:
    """Reasons with which a job fails for good: what ``_fatal`` returns, and what is given to ``fail`` itself."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name="_fatal"):
                for inner in ast.walk(node):
                    if isinstance(inner, ast.Return) and isinstance(inner.value, ast.Tuple):
                        first = inner.value.elts[0]
                        assert isinstance(first, ast.Constant)
                        if first.value:
                            yield str(first.value)
            case ast.Call(func=ast.Name(id="fail"), args=[_, _, ast.Constant(value=str() as reason), _]):
                yield reason


def _sets(module: str, kind: str, type_: str, status: ast.expr | bool, reason: ast.expr) -> Iterator[Set]:
    stated = status if isinstance(status, bool) else _constant(module, status)
    spelled = {True: "True", False: "False", None: "Unknown"}.get(stated, ANY)
    for value in _values(module, reason, LOCALS):
        yield Set(kind, type_, spelled, value)


def _events_of(module: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="Event"), args=[reason, *_]):
                pass
            case ast.Call(
                func=ast.Attribute(attr="warning" | "normal", value=ast.Attribute(attr="_recorder")),
                args=[_, reason, *_],
            ):
                pass
            case _:
                continue
        for value in _values(module, reason, EVENT_LOCALS):
            yield _kind(module), value


def _values(module: str, expression: ast.expr, known: dict[tuple[str, str], frozenset[str]]) -> frozenset[str]:
    """What ``expression`` of ``module`` can be."""
    listed = known.get((module, ast.unparse(expression)))
    if listed is not None:
        return frozenset(map(str, listed))
    if isinstance(expression, ast.IfExp):
        return _values(module, expression.body, known) | _values(module, expression.orelse, known)
    value = _constant(module, expression)
    assert isinstance(value, str), (
        f"{module}:{expression.lineno}: it does not show which reasons {ast.unparse(expression)} can be; "
        f"say so in {__name__}"
    )
    return frozenset({str(value)})


def _constant(module: str, expression: ast.expr) -> Any:
    """The value of ``expression`` from the module's own names; ``...`` where that is not enough."""
    try:
        return eval(compile(ast.Expression(expression), module, "eval"), dict(vars(_import(module))))
    except NameError:
        return ...


@cache
def _import(module: str) -> ModuleType:
    return import_module(f"berth.{module}")
