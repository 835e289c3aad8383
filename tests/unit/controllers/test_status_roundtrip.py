"""What is written to a status is what is read from it, and all of it is in the contract."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.api.trainingjob_status import RANKS_PLAIN_LIMIT, TrainingJobStatus
from berth.controllers.status import StatusUnreadable, placement_patch, restore, status_body
from berth.training.attempts import begin
from berth.training.records import Placement
from berth.training.state import (
    ACTIVE,
    Attempt,
    Cause,
    Checkpoint,
    Condition,
    JobState,
    Lineage,
    Phase,
    Reason,
    Restarts,
)
from tests.builders.training import START, StoredJob, make_job, make_placement, stored

times = st.integers(START - 10**7, START)
counts = st.integers(0, 10**6)
words = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=20)
names = st.text("abc019", min_size=1, max_size=8)
reasons = st.sampled_from(["Valid", "NoCapacity", "SpecSuspend"])
money = st.none() | st.integers(0, 10**15).map(lambda micros: Decimal(micros) / 10**6)

placements = st.builds(
    Placement,
    pool=names,
    nodes=st.lists(names, min_size=1, max_size=9).map(tuple),
    certificate=st.sampled_from(["Optimal", "Bounded"]),
    domains=st.dictionaries(names, st.integers(0, 500), min_size=1, max_size=4),
    lower_bound=st.dictionaries(names, st.integers(0, 500), min_size=1, max_size=4),
)
checkpoints = st.builds(
    Checkpoint,
    interval_seconds=st.integers(1, 10**6),
    size_bytes=st.integers(0, 10**15),
    stall_milliseconds=counts,
    mtbf_seconds=counts,
    reason=words,
)


@st.composite
def condition_maps(draw: st.DrawFn) -> dict[str, Condition]:
    kinds = draw(st.sets(st.sampled_from(["Accepted", "Placed", "AllRunning", "QuotaReserved", "Suspended", "Failed"])))
    return {
        kind: Condition(kind, draw(st.sampled_from(["True", "False"])), draw(reasons), draw(words), draw(times))
        for kind in kinds
    }


@st.composite
def states(draw: st.DrawFn) -> JobState:
    """A state of a job that has begun ``last`` attempts, the last of them alive where the phase says so."""
    last = draw(st.sampled_from([0, 1, 2, 30]))
    phase = draw(st.sampled_from([phase for phase in Phase if last or phase not in ACTIVE]))
    placement = draw(placements)
    attempts = []
    for number in range(max(1, last - 2), last + 1):
        alive = number == last and phase in ACTIVE
        attempts.append(
            Attempt(
                number,
                draw(times),
                len(placement.nodes) if alive else draw(st.integers(1, 4096)),
                draw(names),
                end=None if alive else draw(times),
                ran=0.0 if alive else float(draw(counts)),
                cause="" if alive else draw(st.sampled_from(list(Cause))).value,
                reason="" if alive else draw(st.just("") | st.sampled_from(list(Reason)).map(str)),
                message="" if alive else draw(words),
                exit_code=None if alive else draw(st.none() | st.integers(1, 255)),
                rule="" if alive else draw(st.just("") | names),
                lost_accelerator_seconds=0 if alive else draw(counts),
            )
        )
    state = JobState(
        phase=phase,
        message=draw(words),
        conditions=draw(condition_maps()),
        attempt=last,
        attempts=tuple(attempts),
        start_attempts=draw(counts),
        start_time=draw(st.none() | times.map(float)),
        completion_time=draw(st.none() | times.map(float)),
        ran_before=float(draw(counts)),
        avoid=tuple(draw(st.lists(names, max_size=3, unique=True))),
    )
    if not last:
        return state
    state = replace(
        state,
        workers=draw(st.integers(1, 4096)),
        ready_workers=draw(st.integers(0, 4096)),
        restarts=Restarts(draw(counts), draw(counts), draw(counts), draw(counts)),
        placement=placement,
        placement_attempt=last,
        placement_time=float(draw(times)),
        price=draw(st.none() | st.integers(1, 10**6).map(lambda cents: Decimal(cents) / 100)),
        lineage=Lineage(draw(words), draw(words)),
        checkpoint=draw(st.none() | checkpoints),
    )
    if any(attempt.end is not None for attempt in attempts):
        state = replace(
            state, held_before=float(draw(counts)), lost=draw(counts), usd=draw(money), lost_usd=draw(money)
        )
    return state


def written(state: JobState) -> dict[str, Any]:
    """The status after both managers have written ``state``."""
    status = status_body(state, 3)
    if state.placement is not None:
        status["placement"] = placement_patch("llm", state)["status"]["placement"]
    return stored(status)


@settings(max_examples=60, deadline=None)
@given(states())
def test_a_status_is_read_as_it_was_written(state: JobState) -> None:
    assert restore(written(state)) == state


@settings(max_examples=40, deadline=None)
@given(states())
def test_every_field_that_is_written_is_one_of_the_contract(state: JobState) -> None:
    status = written(state) | {"queue": {"position": 3, "asOf": "2026-12-01T08:00:00Z"}}
    assert TrainingJobStatus.parse(status).dump() == status


@settings(max_examples=20, deadline=None)
@given(states())
def test_what_is_written_again_unchanged_is_the_same(state: JobState) -> None:
    status = written(state)
    assert written(restore(status)) == status


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["fail", "succeed", "suspend"]), st.integers(-(10**6), 10**6))
def test_an_attempt_that_ends_by_any_clock_has_a_status_that_the_contract_allows(ends: str, skew: int) -> None:
    live = StoredJob().start()
    live.now += skew
    match ends:
        case "fail":
            live.fail()
        case "succeed":
            live.succeed(0, 1)
        case _:
            live.job = replace(live.job, suspended=True)
    live.look()
    status = live.status
    assert TrainingJobStatus.parse(status).dump() == status
    assert status["cost"]["acceleratorSeconds"] >= 0


def test_an_empty_status_is_a_job_never_looked_at() -> None:
    assert restore({}) == JobState()


UNREADABLE: dict[str, Any] = {
    "phase": "Preempted",
    "conditions": [{"type": "Placed"}],
    "startTime": "yesterday",
    "cost": {"usd": "a lot"},
    "checkpoint": {"intervalSeconds": 1, "size": "big"},
    "finishedRanks": "all",
    "attempts": [{"startTime": "2027-01-15T08:00:00Z"}],
    "attempt": 2**31 - 1,
    "placement": {"attempt": 1, "pool": "p", "certificate": "Optimal", "ranks": "z:rubbish"},
    "lineage": ["?"],
}


@pytest.mark.parametrize("field", UNREADABLE)
def test_a_field_that_cannot_be_read_is_named(field: str) -> None:
    with pytest.raises(StatusUnreadable, match=rf"^status\.{field}: \S"):
        restore({field: UNREADABLE[field]})


def test_words_too_long_for_the_schema_are_cut() -> None:
    state = JobState(phase=Phase.QUEUED, message="x" * 9000).with_condition("Placed", False, "R", "y" * 9000, now=START)
    TrainingJobStatus.parse(written(state))


def test_a_long_list_of_ranks_is_compressed_and_read_back() -> None:
    placement = make_placement(*(f"node-{rank:05d}" for rank in range(4096)))
    state, _ = begin(make_job(4096), JobState(), START, placement, None)
    patch = placement_patch("llm", state)["status"]
    assert len(patch["placement"]["ranks"]) < RANKS_PLAIN_LIMIT * 8
    assert patch["placement"]["ranks"].startswith("z:")
    assert restore(patch).placement == placement


def test_domains_are_told_outermost_level_first_whatever_order_the_server_stores() -> None:
    counts = {"zone": 1, "block": 1, "rack": 2, "host": 2}
    placement = replace(make_placement("n0", "n1"), domains=counts, lower_bound={"block": 1, "rack": 2, "host": 2})
    state, _ = begin(make_job(), JobState(), START, placement, None)
    status = placement_patch("llm", state)["status"]
    for name in ("domains", "lowerBound"):
        status["placement"][name] = dict(sorted(status["placement"][name].items()))
    found = restore(status, (), lambda pool: tuple(counts))
    assert found.placement is not None
    assert (list(found.placement.domains), list(found.placement.lower_bound)) == (
        ["zone", "block", "rack", "host"], ["block", "rack", "host"],
    )  # fmt: skip
    assert "1 zone, 1 block, 2 racks, 2 hosts" in found.conditions["Placed"].message


def expect_taken_up(first: StoredJob) -> None:
    """A job of which only the placement was written goes on as the one that was never interrupted."""
    begun = first.history[-1].state
    assert restore(first.status, first.job.asked) == begun


def test_the_placement_s_write_alone_says_all_that_an_attempt_begins_with() -> None:
    live = StoredJob()
    live.checkpoint = Checkpoint(1862, 840 * 10**9, 8400, 207_692, "Daly")
    live.look(make_placement("n0", "n1"))
    assert set(live.status) == {"phase", "message", "attempt", "workers", "checkpoint", "placement"}
    expect_taken_up(live)


def test_the_same_holds_for_a_second_attempt_and_for_all_that_the_spec_asks_for() -> None:
    live = StoredJob(make_job(asked=("FabricSatisfied", "MemoryFits")), price=Decimal("2.5")).start()
    live.wait(3600).fail()
    live.look()
    live.kubelets()
    live.checkpoint = Checkpoint(900, reason="Daly")
    live.place("n0", "n2")
    expect_taken_up(live)


def test_an_attempt_that_the_ledger_has_is_not_added_again() -> None:
    live = StoredJob().start()
    assert [attempt.number for attempt in restore(live.status).attempts] == [1]


def test_an_attempt_that_has_ended_is_not_brought_to_life_by_its_placement() -> None:
    live = StoredJob().start()
    live.fail()
    live.look()
    assert restore(live.status).current is None
