"""How long starts take: learned where they were seen, believed where not, in steps that roll no template."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.inference.coldstart import (
    ENOUGH,
    KEPT,
    KEYS_KEPT,
    STEPS,
    ColdStarts,
    Key,
    Prior,
    budget,
    frozen_budget,
    prior_of,
    step_above,
)
from tests.builders.services import CATALOGUE

KEY = Key("llama", "L4", "pool-a")
PRIOR = Prior(60.0, 150.0)
seconds = st.floats(1, 5000)


def seen(key: Key, *taken: float) -> ColdStarts:
    starts = ColdStarts()
    for each in taken:
        starts.observe(key, each)
    return starts


def test_nothing_seen_is_the_prior() -> None:
    assert ColdStarts().quantile(KEY, 0.5, PRIOR) == pytest.approx(60, rel=0.1)
    assert ColdStarts().quantile(KEY, 0.9, PRIOR) == pytest.approx(150, rel=0.1)


def test_enough_of_its_own_is_all_that_counts() -> None:
    starts = seen(KEY, *[30.0] * ENOUGH)
    starts.observe(replace(KEY, node_class="pool-b"), 900.0)
    assert starts.quantile(KEY, 0.99, PRIOR) == 30.0


def test_a_new_pool_starts_like_the_others_of_its_accelerator() -> None:
    starts = seen(KEY, *[30.0] * ENOUGH)
    assert starts.quantile(replace(KEY, node_class="pool-b"), 0.9, PRIOR) == 30.0
    other = replace(KEY, accelerator="H100", node_class="pool-b")
    assert starts.quantile(other, 0.9, PRIOR) == ColdStarts().quantile(other, 0.9, PRIOR)


def test_cached_starts_are_another_matter() -> None:
    assert seen(KEY, *[30.0] * ENOUGH).count(replace(KEY, cached=True)) == 0


def test_models_that_were_served_long_ago_are_forgotten_also_by_the_next_process() -> None:
    starts = ColdStarts()
    for number in range(KEYS_KEPT):
        starts = ColdStarts.restore(starts.record())
        starts.observe(replace(KEY, model=f"llama-{number}"), 30.0)
        starts.observe(KEY, 60.0)
    assert len(starts.record()) == KEYS_KEPT
    assert starts.count(KEY) == KEPT
    assert starts.count(replace(KEY, model="llama-0")) == 0


def test_old_samples_are_forgotten() -> None:
    starts = seen(KEY, *[500.0] * KEPT, *[20.0] * KEPT)
    assert starts.quantile(KEY, 0.99, PRIOR) == 20.0


@pytest.mark.parametrize("taken", [0.0, -1.0, math.nan, math.inf])
def test_what_is_no_time_is_no_start(taken: float) -> None:
    assert not seen(KEY, taken).samples


@given(st.lists(seconds, max_size=20), st.floats(0.05, 0.95), st.floats(0.05, 0.95))
def test_quantiles_grow_with_the_share_and_stay_among_what_is_known(
    taken: list[float], one: float, other: float
) -> None:
    starts = seen(KEY, *taken)
    low, high = (starts.quantile(KEY, share, PRIOR) for share in sorted((one, other)))
    assert 0 < low <= high
    if len(taken) >= ENOUGH:
        assert min(taken) <= low
        assert high <= max(taken)


@given(st.dictionaries(st.sampled_from([KEY, replace(KEY, cached=True), Key("m", "H100")]), st.lists(seconds)))
def test_what_is_recorded_is_what_is_restored(samples: dict[Key, list[float]]) -> None:
    starts = ColdStarts()
    for key, taken in samples.items():
        for each in taken:
            starts.observe(key, each)
    restored = ColdStarts.restore(starts.record())
    assert restored.record() == starts.record()


def test_records_that_cannot_be_read_are_left_out() -> None:
    good = seen(KEY, 30.0).record()
    bad = [{}, {"model": "m"}, {**good[0], "model": "x", "seconds": ["many"]}]
    assert ColdStarts.restore([*bad, *good]).record() == good


@pytest.mark.parametrize(
    ("learned", "expected"), [(1, 60), (60, 60), (61, 120), (599, 600), (7200, 7200), (7201, 10800)]
)
def test_budgets_are_coarse(learned: float, expected: int) -> None:
    assert budget(learned) == expected


@pytest.mark.parametrize(
    ("frozen", "learned", "changes", "expected"),
    [
        (0, 100.0, False, 120),
        (300, 100.0, False, 300),
        (300, 100.0, True, 120),
        (300, 301.0, False, 600),
    ],
    ids=[
        "none yet",
        "a day of learning changes nothing",
        "with the user's change",
        "or where it would end slow starts",
    ],
)
def test_the_budget_in_force(frozen: int, learned: float, changes: bool, expected: int) -> None:
    assert frozen_budget(frozen, learned, template_changes=changes) == expected


@given(st.floats(1, 20_000), st.floats(1, 20_000))
def test_a_budget_covers_what_was_learned(frozen: float, learned: float) -> None:
    assert frozen_budget(budget(frozen), learned, template_changes=False) >= learned
    assert budget(learned) in STEPS or budget(learned) % 3600 == 0


def test_the_catalogues_prior_counts_a_new_node_and_the_weights() -> None:
    serving = CATALOGUE.serving
    small, large = (prior_of(serving, weights, cached=False) for weights in (10**9, 10**11))
    assert small.p50 < large.p50
    assert prior_of(serving, 10**11, cached=True).p90 < large.p90
    assert prior_of(serving, 10**9, cached=False, new_node=True).p90 == small.p90 + serving.cold_start["Node"].p90


def test_a_prior_of_nothing_is_zero() -> None:
    assert Prior(0.0, 0.0).quantile(0.9) == 0.0


def test_weights_at_hand_never_make_a_start_slower() -> None:
    starts = seen(KEY, *[30.0] * ENOUGH)
    assert starts.quantile(replace(KEY, cached=True), 0.9, PRIOR) > 30.0, "the prior alone would say so"
    assert starts.cached_quantile(KEY, 0.9, PRIOR, PRIOR) == 30.0


@given(st.lists(seconds), st.lists(seconds), st.floats(0.05, 0.95))
def test_a_cached_quantile_is_at_most_the_other(bare: list[float], held: list[float], share: float) -> None:
    starts = seen(KEY, *bare)
    for each in held:
        starts.observe(replace(KEY, cached=True), each)
    cached = starts.cached_quantile(KEY, share, Prior(40.0, 90.0), PRIOR)
    assert cached <= starts.quantile(KEY, share, PRIOR)


@pytest.mark.parametrize(("taken", "cold"), [(20.0, False), (90.0, False), (101.0, True), (300.0, True)])
def test_a_start_as_slow_as_without_weights_had_none(taken: float, cold: bool) -> None:
    starts = seen(KEY, *[100.0] * ENOUGH)
    for _ in range(ENOUGH):
        starts.observe(replace(KEY, cached=True), 20.0)
    assert starts.looks_cold(KEY, taken, PRIOR, PRIOR) is cold


@given(st.integers(1, STEPS[-1] - 1))
def test_a_start_that_was_ended_gets_the_next_step_and_no_start_gets_more_than_the_last(given_seconds: int) -> None:
    assert step_above(given_seconds) == next(step for step in STEPS if step > given_seconds)
    assert budget(step_above(given_seconds)) > given_seconds
    assert step_above(STEPS[-1] + given_seconds) == STEPS[-1]


@pytest.mark.parametrize(("used", "classes"), [({"new"}, {"", "new"}), ({"new", "old"}, {"", "new", "old"})])
def test_starts_are_known_by_the_new_name_of_their_nodes(used: set[str], classes: set[str]) -> None:
    starts = seen(Key("m", "L4", "old"), 10.0, 20.0)
    starts.observe(Key("m", "L4", "new"), 5.0)
    starts.observe(Key("m", "L40S", "old"), 99.0)
    starts.rename({("L4", "old", "new")}, used)
    assert starts.samples[Key("m", "L4", "new")] == [5.0, 10.0, 20.0]
    assert {key.node_class for key in starts.samples if key.accelerator == "L4"} == classes
    assert starts.samples[Key("m", "L40S", "old")] == [99.0]
