"""Every policy is judged by one account: when replicas become ready, what is paid, what goes first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.policies.base import Ints, Limits, Outcome, simulate, simulate_panel, simulate_together


class Scripted:
    """Wants what it is told to, and keeps what it was shown."""

    def __init__(self, wanted: Sequence[int]) -> None:
        self.wanted, self.shown = wanted, list[tuple[float | None, int, int]]()

    def reset(self, cold_steps: int, limits: Limits) -> None:
        self.shown.clear()

    def decide(self, step: int, seen: float | None, ready: int, starting: int) -> int:
        self.shown.append((seen, ready, starting))
        return self.wanted[step]


class ScriptedPanel:
    """The same for two settings; the second one wants one more."""

    settings = ("as told", "one more")

    def __init__(self, wanted: Sequence[int]) -> None:
        self.wanted = wanted

    def reset(self, cold_steps: int, limits: Limits) -> None:
        pass

    def decide(self, step: int, seen: float | None, ready: Ints, starting: Ints) -> Ints:
        return np.array([self.wanted[step], self.wanted[step] + 1])


def run(load: Sequence[float], wanted: Sequence[int], cold_steps: int) -> tuple[Outcome, Scripted]:
    policy = Scripted(wanted)
    return simulate(policy, np.array(load, dtype=float), cold_steps), policy


@pytest.mark.parametrize(("cold_steps", "unserved"), [(1, 2.0), (2, 4.0), (3, 6.0)])
def test_a_replica_is_paid_from_its_decision_and_carries_load_after_its_cold_start(
    cold_steps: int, unserved: float
) -> None:
    outcome, policy = run([1, 3, 3, 3, 3], [1, 3, 3, 3, 3], cold_steps)
    assert outcome == Outcome(unserved / 13, 13.0)
    replicas = [(ready, starting) for _, ready, starting in policy.shown]
    assert replicas == [(1, 0), (1, 0), *[(1, 2)] * (cold_steps - 1), *[(3, 0)] * (4 - cold_steps)]


def test_a_policy_sees_the_load_of_the_step_before_even_when_it_was_not_served() -> None:
    _, policy = run([1, 9, 2], [1, 1, 1], 1)
    assert [seen for seen, _, _ in policy.shown] == [None, 1.0, 9.0]


def test_starting_replicas_go_before_ready_ones_and_the_youngest_of_them_first() -> None:
    _, policy = run([2, 2, 2, 2, 2, 2], [3, 5, 3, 3, 1, 1], 3)
    assert [(ready, starting) for _, ready, starting in policy.shown] == [
        (2, 0),
        (2, 1),
        (2, 3),
        (3, 0),
        (3, 0),
        (1, 0),
    ]


@pytest.mark.parametrize(("load", "first"), [([0.0, 0.0], 1), ([2.2, 0.0], 3), ([200.0, 0.0], 80)])
def test_everyone_starts_with_what_the_first_step_needs(load: list[float], first: int) -> None:
    _, policy = run(load, [1, 1], 1)
    assert policy.shown[0] == (None, first, 0)


def test_nobody_leaves_the_limits() -> None:
    outcome, _ = run([1, 1], [500, -3], 1)
    assert outcome.cost == 80 + 1


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.floats(0, 20), st.integers(-2, 25)), min_size=1, max_size=25),
    st.integers(1, 6),
)
def test_a_panel_is_judged_as_each_of_its_settings_alone(steps: list[tuple[float, int]], cold_steps: int) -> None:
    load, wanted = np.array([load for load, _ in steps]), [wanted for _, wanted in steps]
    limits = Limits(1, 20)
    alone = [simulate(Scripted([w + more for w in wanted]), load, cold_steps, limits) for more in (0, 1)]
    together = simulate_together([(Scripted([w + more for w in wanted]), cold_steps) for more in (0, 1)], load, limits)
    panel = simulate_panel(ScriptedPanel(wanted), load, cold_steps, limits)
    assert together == alone
    for one, other in zip(panel, alone, strict=True):
        assert (one.cost, one.unserved) == (other.cost, pytest.approx(other.unserved))
