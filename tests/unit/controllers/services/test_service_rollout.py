"""A new template reaches one variant after the other, and stops where it does not get ready."""

from __future__ import annotations

from typing import Any

import pytest

from berth.api.inferenceservice_parts import Rollout
from berth.controllers.services.rollout import Turn, held, turns
from tests.unit.controllers.services.views import make_deployment

NEW = {"a": "new", "b": "new"}
DONE = make_deployment("new")
OLD = make_deployment("old")
WAITS = make_deployment("old", paused=True)


@pytest.mark.parametrize(
    ("live", "expected"),
    [
        ({"a": DONE, "b": DONE}, None),
        ({"a": DONE, "b": make_deployment("new", updatedReplicas=1)}, None),
        ({"a": DONE, "b": make_deployment("new", updatedReplicas=1, stuck="late")}, Turn("b", frozenset(), "late")),
        ({"a": OLD, "b": OLD}, Turn("a", frozenset({"b"}))),
        ({"a": DONE, "b": WAITS}, Turn("b", frozenset())),
        ({"a": make_deployment("new", readyReplicas=1), "b": WAITS}, Turn("a", frozenset({"b"}))),
        ({"a": make_deployment("new", updatedReplicas=1), "b": WAITS}, Turn("a", frozenset({"b"}))),
        ({"a": make_deployment("new", observedGeneration=0), "b": WAITS}, Turn("a", frozenset({"b"}))),
        ({"a": make_deployment("new", readyReplicas=1, stuck="late"), "b": WAITS},
         Turn("a", frozenset({"b"}), "late")),
        ({"a": make_deployment("new", paused=True), "b": DONE}, Turn("a", frozenset())),
        ({"a": make_deployment("new", wanted=0), "b": WAITS}, Turn("b", frozenset())),
    ],
    ids=["all done", "the last is on its way", "the last is stuck", "the first begins", "the next follows",
         "until ready", "until all are new", "until it was seen",
         "stuck", "a pause is taken back", "one without replicas holds nobody up"],
)  # fmt: skip
def test_whose_turn_it_is(live: dict[str, Any], expected: Turn | None) -> None:
    assert turns(live, NEW) == expected


@pytest.mark.parametrize(
    ("turn", "bounds", "expected"),
    [
        (Turn("a", frozenset({"c", "b"}), "late"), None, "a is not ready: late; b, c wait"),
        (Turn("a", frozenset(), "late"), {"maxUnavailable": 1}, "a is not ready: late"),
        (Turn("a", frozenset(), "late"), {"maxUnavailable": 0, "maxSurge": 1},
         "a is not ready: late; rollout.maxUnavailable 0 keeps each replica until its successor is ready, and one"
         " that finds no place in 10m has its predecessor go first where another replica serves"),
    ],
)  # fmt: skip
def test_a_stuck_rollout_says_what_holds_it(turn: Turn, bounds: dict[str, Any] | None, expected: str) -> None:
    assert held(turn, Rollout.model_validate(bounds) if bounds is not None else None) == expected
