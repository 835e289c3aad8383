"""The operator may die after any of its actions: the job ends as it would have, and no pod is made twice.

One story is told to the end: a gang starts, a rank fails, a node is lost, the gang is suspended, resumed, and succeeds.
The cluster reacts to what it sees, never to which look it is. The story is told once without a crash; then once for
each of its actions, with a crash right before it; and for pairs of them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from berth.training.state import FINISHED, NodeState, Phase, Restarts
from tests.builders.training import Crash, StoredJob, make_job, make_placement


class Story:
    """The cluster and the user of the story, around a job whose operator may crash."""

    def __init__(self) -> None:
        self.live = StoredJob(make_job(3), lazy=True)
        self.told: set[str] = set()
        self.asked = False

    def once(self, what: str, attempt: int, phase: Phase) -> bool:
        state = self.live.recall()
        if what in self.told or (state.attempt, state.phase) != (attempt, phase):
            return False
        self.told.add(what)
        return True

    def world(self) -> None:
        """What happens between two looks."""
        live = self.live
        live.wait(1).kubelets()
        if live.recall().phase == Phase.STARTING:
            for pod in live.living():
                live.change(pod.rank, phase="Running", bound=True, ready=True)
        if self.once("rank fails", 1, Phase.RUNNING):
            live.wait(3600).fail(1, code=137)
        if self.once("node is lost", 2, Phase.RUNNING):
            live.wait(3600).nodes["n2"] = NodeState.GONE
        if self.once("suspended", 3, Phase.RUNNING):
            live.wait(3600).job = replace(live.job, suspended=True)
        if self.once("resumed", 3, Phase.SUSPENDED):
            live.job = replace(live.job, suspended=False)
        if self.once("succeeds", 4, Phase.RUNNING):
            live.wait(3600).succeed()

    def look(self) -> None:
        nodes = [name for name in ("n0", "n1", "n2", "n3") if name not in self.live.nodes][:3]
        asked, self.asked = self.asked, False
        try:
            self.asked = self.live.look(make_placement(*nodes) if asked else None).wants_placement
        except Crash:
            self.live.stuck_since.clear()

    def tell(self, *crashes: int) -> Story:
        """To the end, with a crash before each of these actions."""
        left = list(crashes)
        for _ in range(200):
            if self.live.crash_after is None and left:
                self.live.crash_after = left.pop(0)
            self.world()
            self.look()
            if self.live.recall().phase in FINISHED and not left and self.live.crash_after is None:
                self.live.look_until_quiet()
                return self
            if self.live.recall().phase in FINISHED and len(self.told) == 5:
                self.live.crash_after, left = None, []
        raise AssertionError(f"never ends: {self.live.state}")


REFERENCE = Story().tell()
ACTIONS = REFERENCE.live.actions


def expect_the_same_end(story: Story) -> None:
    end, expected = story.live.recall(), REFERENCE.live.recall()
    assert (end.phase, end.attempt, end.restarts) == (Phase.SUCCEEDED, 4, Restarts(1, 1, 0, 1))
    ledger = [(attempt.number, attempt.cause, attempt.pool) for attempt in end.attempts]
    assert ledger == [(attempt.number, attempt.cause, attempt.pool) for attempt in expected.attempts]
    assert {kind: condition.status for kind, condition in end.conditions.items()} == {
        kind: condition.status for kind, condition in expected.conditions.items()
    }
    assert end.placement == expected.placement
    assert Counter(story.live.created) == Counter(REFERENCE.live.created)
    assert sorted(story.live.pods) == sorted(REFERENCE.live.pods)


def test_the_story_without_a_crash() -> None:
    assert len(REFERENCE.told) == 5
    expect_the_same_end(REFERENCE)
    assert ACTIONS > 30
    assert max(Counter(REFERENCE.live.created).values()) == 1


@pytest.mark.parametrize("action", range(ACTIONS))
def test_a_crash_before_any_action_changes_nothing_of_the_end(action: int) -> None:
    expect_the_same_end(Story().tell(action))


def test_two_crashes_before_any_two_actions_change_nothing_of_the_end() -> None:
    for first in range(ACTIONS):
        for second in range(first, ACTIONS + 1, 5):
            expect_the_same_end(Story().tell(first, second))
