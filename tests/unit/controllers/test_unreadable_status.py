"""A status that another version or a hand has written so that it cannot be read: nothing is lost by it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from berth.cluster import kinds
from tests.unit.controllers.harness import JOB, Operator, Server, expect_nothing_written, make_server


def write_status(server: Server, **fields: Any) -> None:
    """Somebody sets fields of the status; None removes one."""
    job = copy.deepcopy(server.objects["trainingjobs", *JOB])
    job["status"].update(fields)
    job["status"] = {name: value for name, value in job["status"].items() if value is not None}
    server.put(kinds.TRAINING_JOBS, job)


async def running() -> tuple[Server, Operator]:
    server = make_server(nodes=3)
    operator = Operator(server)
    await operator.look()
    server.bind()
    await operator.look()
    return server, operator


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"phase": "Checkpointing"}, "status.phase: this version knows no Checkpointing"),
        ({"finishedRanks": "all"}, "status.finishedRanks: "),
        ({"cost": {"usd": "a lot"}}, "status.cost: 'a lot' is not an amount of money"),
        ({"attempt": 2**31 - 1, "attempts": None, "placement": None, "phase": "Queued"}, "status.attempt: 2147483647"),
    ],
    ids=["phase", "ranks", "cost", "attempt"],
)
@pytest.mark.parametrize("successor", [False, True])
async def test_a_gang_runs_on_and_the_field_is_named(fields: dict[str, Any], named: str, successor: bool) -> None:
    server, operator = await running()
    before = copy.deepcopy(server.status())
    write_status(server, **fields)
    operator = Operator(server) if successor else operator
    server.log.clear()
    await expect_nothing_written(operator)
    assert sorted(server.pods()) == ["llm-1-0", "llm-1-1"]
    assert not any("deletionTimestamp" in pod["metadata"] for pod in server.pods().values())
    assert operator.told.reasons[-1] == "StatusUnreadable"
    assert operator.told.notes[-1].startswith(named)
    pool = next(iter(operator.fleet.pools.values()))
    assert sorted(pool.free_devices[pool.usable].tolist()) == [0, 0, 8]
    write_status(server, **{name: before.get(name) for name in fields})
    await operator.look(2)
    assert (server.status()["phase"], server.status()["attempt"]) == ("Running", 1)
    server.change_pod("llm-1-0", phase="Failed", conditions=[])
    await operator.look()
    assert server.status()["phase"] == "Restarting"


async def test_what_cannot_be_read_is_told_once_as_long_as_the_event_lasts_and_when_it_is_something_else() -> None:
    server, operator = await running()
    for count, fields, later in ((1, {"phase": "Pondering"}, 0.0), (2, {"phase": "Resting"}, 0.0), (3, {}, 3600.0)):
        write_status(server, **fields)
        await server.clock.advance(later)
        await operator.look(3)
        assert operator.told.reasons.count("StatusUnreadable") == count


async def test_neither_an_unreadable_spec_nor_a_defect_writes_over_it() -> None:
    server, operator = await running()
    write_status(server, phase="Checkpointing")
    server.edit(accelerators={"perWorker": 8, "types": ["H9000"]}, template={"metadata": "abc"})
    server.log.clear()
    await operator.look(2)
    await operator.jobs.tell_defect(JOB, TypeError("a defect"))
    assert server.log == []
    assert server.status()["phase"] == "Checkpointing"


async def test_a_job_that_waits_with_an_unreadable_status_is_not_placed() -> None:
    server = make_server(nodes=1)
    operator = Operator(server)
    await server.clock.advance(30)
    await operator.look(2)
    assert operator.scheduler.waiting == 1
    write_status(server, phase="Pondering")
    await operator.look()
    assert operator.scheduler.waiting == 0
