"""Whatever a node shows, and however it is paid for, plans say of it what is so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.inference.leaving import leaving_events, leaving_reason
from berth.inference.reclaim import ACTS, Sign, leaving_at
from tests.builders.services import CATALOGUE, make_replica, make_replicas, make_sight
from tests.unit.inference.cases import NOW, plan

SIGNALS = CATALOGUE.serving.reclaims


@given(st.sampled_from(SIGNALS), st.booleans(), st.one_of(st.none(), st.floats(0, NOW)), st.integers(1, 3))
def test_every_sign_is_met_with_replacements_and_said_in_its_own_words(
    signal: object, spot: bool, began: float | None, count: int
) -> None:
    found = next(entry for entry in SIGNALS if entry is signal)
    ends = leaving_at([Sign(found, began)], {found.name: NOW}, spot=spot)
    assert (ends is None) is (found.means not in ACTS)
    gone = tuple(make_replica(f"gone-{i}", leaving_at=ends, spot=spot) for i in range(count))
    made = plan(make_sight(3.0, 1 + count, replicas=(*make_replicas(1), *gone)))
    told = {event.reason for event in made.events} & {"SpotReclaimed", "NodeLeaving"}
    expected = "SpotReclaimed" if spot else "NodeLeaving"
    if made.decision is not None and ends is not None:
        assert made.decision.reason == expected
        assert told == {expected}
    else:
        assert not told


@pytest.mark.parametrize(
    ("spot", "ends", "words"),
    [
        ([True], NOW + 120, "1 spot replica ends in 2m; replacements start first"),
        (
            [False, False],
            float("inf"),
            "2 replicas are to leave, and the node waits for them; replacements start first",
        ),
        ([False], NOW - 5, "1 replica ends in 0s; replacements start first"),
    ],
)
def test_what_is_said(spot: list[bool], ends: float, words: str) -> None:
    pods = [make_replica(f"p{i}", leaving_at=ends, spot=kind) for i, kind in enumerate(spot)]
    assert [event.message for event in leaving_events(pods, NOW)] == [words]


def test_reclaims_and_other_leaves_are_told_apart() -> None:
    pods = [make_replica("a", leaving_at=NOW + 60, spot=True), make_replica("b", leaving_at=float("inf"))]
    assert [event.reason for event in leaving_events(pods, NOW)] == ["SpotReclaimed", "NodeLeaving"]
    assert leaving_reason(pods) == "SpotReclaimed"
    assert leaving_reason([make_replica("c")]) == ""
