"""When a status is written: transitions at once, moving figures seldom and within a budget, nothing else ever."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from berth.cluster import kinds
from berth.cluster.errors import Conflict
from berth.controllers.observe import JobView
from berth.controllers.scheduler import Waits
from berth.controllers.writer import (
    FIRST_BURST,
    FIRST_PER_SECOND,
    FIRST_SECONDS,
    MOVING_BURST,
    MOVING_PER_SECOND,
    MOVING_SECONDS,
    RUNNING_BURST,
    RUNNING_PER_SECOND,
    RUNNING_SECONDS,
    SILENT_SECONDS,
    START_SECONDS,
)
from berth.training.records import Refusal
from berth.training.state import JobState, Phase
from tests.unit.controllers.harness import JOB, Operator, Server, make_server


def refusal(words: str, position: int = 1) -> Waits:
    return Waits(Refusal("NoCapacity", words), position, explained=True)


class Desk:
    """A writer, a job's view, and a clock."""

    def __init__(self, server: Server | None = None) -> None:
        self.server = server or make_server()
        self.operator = Operator(self.server)

    @property
    def view(self) -> JobView:
        self.operator.see()
        return next(view for view in self.operator.observer.views.values() if view.key == JOB)

    async def consider(self, state: JobState, waits: Waits | None = None) -> bool:
        view = self.view
        return await self.operator.writer.consider(view, view.state, state, waits)

    async def wait(self, seconds: float) -> None:
        await self.server.clock.advance(seconds)

    def queued(self) -> JobState:
        state = replace(self.view.state, phase=Phase.QUEUED, message="Waiting for a placement")
        return state.with_condition("Accepted", True, "Valid", now=self.server.now())

    async def settled(self) -> JobState:
        """The job shows that it waits, and has been left alone for long."""
        await self.wait(FIRST_SECONDS + 1)
        assert await self.consider(self.queued(), refusal("needs 2 nodes"))
        await self.wait(10 * MOVING_SECONDS)
        return self.view.state


async def test_a_fresh_job_shows_queued_only_when_it_was_not_placed_at_once() -> None:
    desk = Desk()
    assert not await desk.consider(desk.queued())
    assert desk.operator.queue.planned == 1
    await desk.wait(SILENT_SECONDS + 0.5)
    assert await desk.consider(desk.queued())
    assert desk.server.status()["phase"] == "Queued"


async def test_a_rejection_of_a_fresh_job_is_said_at_once() -> None:
    desk = Desk()
    state = desk.queued().with_condition("Accepted", False, "TemplateRefused", "no", now=desk.server.now())
    assert await desk.consider(state)


async def test_what_is_written_already_is_not_written_again() -> None:
    desk = Desk()
    state = await desk.settled()
    for _ in range(5):
        await desk.wait(MOVING_SECONDS)
        assert not await desk.consider(state, refusal("needs 2 nodes"))
    assert len(desk.server.log) == 1


async def test_an_explanation_that_moves_is_written_at_most_once_a_minute() -> None:
    desk = Desk()
    state = await desk.settled()
    written = []
    for second in range(130):
        if await desk.consider(state, refusal(f"needs {second} nodes")):
            written.append(second)
        await desk.wait(1)
    assert written == [0, 60, 120]


@pytest.mark.parametrize(
    "change",
    [
        {"phase": Phase.RESTARTING},
        {"attempt": 2},
        {"start_attempts": 1},
        {"avoid": ("n1",)},
        {"restarts": replace(JobState().restarts, failure=1), "attempt": 1},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_a_transition_is_written_at_once_however_often(change: dict[str, object]) -> None:
    desk = Desk()
    state = await desk.settled()
    assert await desk.consider(state, refusal("just now"))
    assert await desk.consider(replace(state, **change), refusal("just now"))  # type: ignore[arg-type]


async def test_a_condition_that_turns_is_a_transition_and_its_words_are_not() -> None:
    desk = Desk()
    state = await desk.settled()
    now = desk.server.now()
    assert await desk.consider(state, refusal("just now"))
    assert await desk.consider(state.with_condition("QuotaReserved", False, "QuotaExceeded", "one", now=now))
    state = desk.view.state
    assert not await desk.consider(state.with_condition("QuotaReserved", False, "QuotaExceeded", "two", now=now))


async def test_an_edit_of_the_spec_is_acknowledged_at_once() -> None:
    desk = Desk()
    state = await desk.settled()
    assert await desk.consider(state, refusal("just now"))
    desk.server.edit(startTimeout="5m")
    assert await desk.consider(desk.view.state, refusal("just now"))
    assert desk.server.status()["observedGeneration"] == 2


async def test_ready_workers_of_a_running_gang_are_coalesced() -> None:
    server = make_server()
    operator = Operator(server)
    await operator.look()
    server.bind()
    await operator.look()
    desk = Desk(server)
    await desk.wait(100)
    written = []
    for second in range(25):
        if await desk.consider(replace(desk.view.state, ready_workers=second % 2)):
            written.append(second)
        await desk.wait(1)
    assert len(written) <= 25 / START_SECONDS + 1


async def test_a_position_that_moves_by_less_than_a_tenth_is_not_worth_a_write() -> None:
    desk = Desk()
    state = await desk.settled()
    assert await desk.consider(state, refusal("needs 2 nodes", position=50))
    for position, expected in ((48, 50), (45, 50), (44, 44), (200, None)):
        await desk.wait(2 * MOVING_SECONDS)
        await desk.consider(state, refusal("needs 2 nodes", position=position))
        assert desk.server.status().get("queue", {}).get("position") == expected


async def test_a_position_goes_with_the_queue() -> None:
    desk = Desk()
    state = await desk.settled()
    assert "queue" in desk.server.status()
    assert await desk.consider(replace(state, phase=Phase.SUSPENDED))
    assert "queue" not in desk.server.status()


def crowd(status: dict[str, Any], jobs: int = 40) -> Desk:
    """A desk with so many jobs of that status."""
    server = make_server()
    spec = server.objects["trainingjobs", *JOB]["spec"]
    for number in range(jobs):
        meta = {"name": f"j{number}", "namespace": "n"}
        server.put(kinds.TRAINING_JOBS, {"metadata": meta, "spec": spec, "status": status})
    return Desk(server)


async def written_by_second(desk: Desk, seconds: int) -> list[int]:
    """How many of all jobs, each with something that moves to say, are written in each second."""
    counts = []
    for _ in range(seconds):
        before = len(desk.server.log)
        for view in list(desk.operator.observer.views.values()):
            state = replace(view.state, phase=Phase.QUEUED, message="waits")
            await desk.operator.writer.consider(view, view.state, state, None)
        counts.append(len(desk.server.log) - before)
        await desk.wait(1)
    return counts


async def test_moving_figures_of_all_jobs_share_a_budget() -> None:
    desk = crowd({"observedGeneration": 1, "phase": "Queued", "message": "new"})
    assert await written_by_second(desk, 1) == [0]
    await desk.wait(MOVING_SECONDS)
    assert await written_by_second(desk, 3) == [MOVING_BURST, MOVING_PER_SECOND, MOVING_PER_SECOND]


async def test_of_a_crowd_of_new_jobs_few_show_that_they_wait() -> None:
    """Most are placed before their turn, and each write is one less for the pods of others."""
    desk = crowd({})
    await desk.wait(SILENT_SECONDS + 1)
    counts = await written_by_second(desk, 20)
    assert counts[:2] == [MOVING_BURST, MOVING_PER_SECOND]
    assert sum(counts) <= FIRST_BURST + 20 * FIRST_PER_SECOND
    assert desk.operator.queue.planned + desk.operator.queue.depth > 20


async def test_a_few_new_jobs_do_not_wait_for_each_other() -> None:
    desk = crowd({}, jobs=4)
    await desk.wait(SILENT_SECONDS)
    assert await written_by_second(desk, 1) == [MOVING_BURST]


async def test_a_new_job_of_which_nothing_is_known_is_silent_a_little_longer_than_one_that_is_refused() -> None:
    desk = Desk()
    await desk.wait(FIRST_SECONDS)
    bare = Waits(Refusal("NoCapacity", "no room"), 1, explained=False)
    for waits in (None, Waits(), bare):
        assert not await desk.consider(desk.queued(), waits)
    assert await desk.consider(desk.queued(), refusal("no room; 2 more nodes would do"))
    desk = Desk()
    await desk.wait(SILENT_SECONDS)
    assert await desk.consider(desk.queued(), bare), "a job is never without a status for long"


async def test_a_new_leader_takes_what_it_finds_as_just_written() -> None:
    desk = Desk()
    await desk.settled()
    other = Desk(desk.server)
    assert not await other.consider(other.view.state, refusal("in other words"))
    await other.wait(MOVING_SECONDS + 1)
    assert await other.consider(other.view.state, refusal("in other words"))


async def test_a_refusal_waits_a_moment_for_its_explanation() -> None:
    desk = Desk()
    bare = Waits(Refusal("NoCapacity", "no room"), 1, explained=False)
    await desk.wait(FIRST_SECONDS + 1)
    assert not await desk.consider(desk.queued(), bare)
    assert await desk.consider(desk.queued(), refusal("no room; 2 more nodes would do"))
    assert desk.server.status()["message"] == "no room; 2 more nodes would do"


async def test_an_explained_refusal_is_not_replaced_by_its_bare_form() -> None:
    desk = Desk()
    state = await desk.settled()
    bare = Waits(Refusal("NoCapacity", "no room"), 1, explained=False)
    assert not await desk.consider(state, bare)


@pytest.mark.parametrize(
    ("reason", "kind"), [("FabricUnsatisfied", "FabricSatisfied"), ("MemoryUnsatisfied", "MemoryFits")]
)
async def test_a_refusal_s_own_condition_goes_with_the_refusal(reason: Any, kind: str) -> None:
    desk = Desk()
    await desk.wait(FIRST_SECONDS + 1)
    assert await desk.consider(desk.queued(), Waits(Refusal(reason, "none"), 1, explained=True))
    assert desk.view.state.is_false(kind)
    await desk.wait(MOVING_SECONDS + 1)
    assert await desk.consider(desk.view.state, refusal("no room"))
    assert kind not in desk.view.state.conditions


async def test_a_job_of_the_same_name_made_anew_is_never_written_to() -> None:
    desk = Desk()
    view = desk.view
    old = desk.server.objects.pop(("trainingjobs", *JOB))
    desk.server.put(kinds.TRAINING_JOBS, {"metadata": {"name": JOB[1], "namespace": JOB[0]}, "spec": old["spec"]})
    await desk.wait(SILENT_SECONDS + 1)
    with pytest.raises(Conflict):
        await desk.operator.writer.consider(view, view.state, replace(JobState(), phase=Phase.QUEUED), None)
    assert "status" not in desk.server.objects["trainingjobs", *JOB]


async def test_of_a_crowd_that_starts_few_say_at_once_that_they_run_and_all_do_soon() -> None:
    desk = crowd({"observedGeneration": 1, "phase": "Starting", "attempt": 1}, jobs=200)
    views = [view for view in desk.operator.observer.views.values() if view.state.phase == Phase.STARTING]
    counts = []
    for _ in range(round(RUNNING_SECONDS) + 1):
        said = [
            view
            for view in views
            if not desk.operator.writer.holds(view, view.state, replace(view.state, phase=Phase.RUNNING))
        ]
        assert desk.operator.queue.planned + desk.operator.queue.depth >= len(views) - len(said)
        views = [view for view in views if view not in said]
        counts.append(len(said))
        await desk.wait(1)
    assert counts[:3] == [RUNNING_BURST, RUNNING_PER_SECOND, RUNNING_PER_SECOND]
    assert not views


async def test_any_other_word_than_that_a_gang_runs_is_never_held() -> None:
    desk = crowd({"observedGeneration": 1, "phase": "Starting", "attempt": 1})
    for view in desk.operator.observer.views.values():
        assert not desk.operator.writer.holds(view, view.state, replace(view.state, phase=Phase.RESTARTING))
