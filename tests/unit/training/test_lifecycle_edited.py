"""A status edited by hand: the job finds its way back to a running gang, and pays nothing for it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.training.acceptance import defect
from berth.training.state import Phase
from tests.builders.training import StoredJob, make_job, ranks_of, stored

EDITS: dict[str, dict[str, Any]] = {
    "no attempts": {"attempts": None},
    "another attempt": {"attempt": 9},
    "no attempt": {"attempt": None},
    "no attempts and another": {"attempts": None, "attempt": 9},
    "ended attempt": {
        "attempts": [{"number": 1, "startTime": "2027-01-15T08:00:00Z", "endTime": "2027-01-15T08:00:01Z"}]
    },
    "more workers": {"attempts": [{"number": 1, "startTime": "2027-01-15T08:00:00Z", "workers": 99}], "workers": 99},
    "no conditions": {"conditions": None},
    "no placement": {"placement": None},
    "no phase": {"phase": None},
    "queued": {"phase": "Queued"},
    "running": {"phase": "Running"},
    "starting": {"phase": "Starting"},
    "nothing": {},
}  # fmt: skip
STORIES = ("Starting", "Running", "Restarting")


def in_phase(phase: str) -> StoredJob:
    live = StoredJob(make_job(max_duration=10**9))
    live.place()
    if phase != "Starting":
        live.run()
    if phase == "Restarting":
        live.change(0, disrupted="Evicted", phase="Failed", ready=False)
        live.look()
    return live


def edit(live: StoredJob, patch: dict[str, Any]) -> None:
    live.status = {name: value for name, value in {**live.status, **stored(patch)}.items() if value is not None}


def go_on(live: StoredJob) -> None:
    """The cluster does its part until all ranks run."""
    for _ in range(12):
        live.wait(700)
        live.kubelets()
        step = live.look()
        if step.wants_placement:
            live.place()
        if live.recall().phase in (Phase.STARTING, Phase.RUNNING):
            live.run()
            live.look()
    assert live.recall().phase == Phase.RUNNING, live.status
    assert [rank for attempt, rank in ranks_of(live.living())] == [0, 1]


@pytest.mark.parametrize("phase", STORIES)
@pytest.mark.parametrize("name", EDITS)
def test_an_edit_costs_a_restart_at_most(name: str, phase: str) -> None:
    live = in_phase(phase)
    edit(live, EDITS[name])
    go_on(live)
    assert live.state.restarts.failure == 0


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(STORIES), st.lists(st.sampled_from(sorted(EDITS)), max_size=4))
def test_so_do_several(phase: str, names: list[str]) -> None:
    live = in_phase(phase)
    for name in names:
        edit(live, EDITS[name])
        live.look()
    go_on(live)
    assert live.state.restarts.failure == 0


def test_a_running_gang_of_which_the_ledger_was_lost_goes_on() -> None:
    live = in_phase("Running")
    edit(live, {"attempts": None, "attempt": 9})
    live.look()
    assert (live.state.phase, live.state.attempt) == (Phase.RUNNING, 1)
    assert [attempt.number for attempt in live.state.attempts] == [1]
    assert live.state.conditions["AllRunning"].status == "True"


@pytest.mark.parametrize("phase", ["Queued", "Running", "Suspended"])
def test_what_is_said_of_a_defect_is_said_once_and_taken_back_by_the_next_look(phase: str) -> None:
    live = StoredJob()
    if phase == "Running":
        live.start()
    live.job = make_job(suspended=phase == "Suspended")
    live.look()
    said = defect(live.recall(), "Berth failed: TypeError", live.now)
    assert said.conditions["Accepted"].reason == "InternalError"
    assert (said.message == "Berth failed: TypeError") == (phase != "Running")
    assert defect(said, "another text", live.now + 1) is said
    live.remember(live.recall(), said)
    live.look()
    assert live.state.conditions["Accepted"].status == "True"
    assert live.state.phase == phase
