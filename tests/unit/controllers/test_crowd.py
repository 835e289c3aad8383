"""Gangs that start while many others do: Running is said late, with the times of the start, and in the end."""

from __future__ import annotations

from dataclasses import replace

from berth.api.common import rfc3339
from berth.cluster import kinds
from berth.controllers.writer import RUNNING_SECONDS
from berth.training.state import Phase
from tests.unit.controllers.harness import JOB, Operator, Server, expect_nothing_written, make_server


async def starting_in_a_crowd(server: Server) -> Operator:
    """An operator whose job has started, while so many others start that it cannot say so for a while."""
    body = server.objects["trainingjobs", *JOB]
    status = {"observedGeneration": 1, "phase": "Starting", "attempt": 1}
    for number in range(100):
        meta = {"name": f"other{number}", "namespace": "n"}
        server.put(kinds.TRAINING_JOBS, {"metadata": meta, "spec": body["spec"], "status": status})
    operator = Operator(server)
    await operator.look()
    server.bind()
    for view in operator.observer.views.values():
        if view.key != JOB:
            operator.writer.holds(view, view.state, replace(view.state, phase=Phase.RUNNING))
    return operator


async def test_a_gang_that_runs_while_many_start_says_so_later_and_with_the_true_times() -> None:
    server = make_server()
    operator = await starting_in_a_crowd(server)
    began, before = server.now(), list(server.log)
    for look in range(3):
        await operator.look()
        assert server.log == before
        assert operator.told.reasons == ["Placed"]
        assert operator.told.announced == ["Started"] * (look + 1)
        await server.clock.advance(0.05)
    for pod in list(server.pods()):
        server.change_pod(pod, phase="Succeeded")
    await operator.look()
    assert server.log[len(before) :] == [("apply", "trainingjobs/status", "berth")]
    status = server.status()
    assert (status["phase"], status["startTime"]) == ("Succeeded", rfc3339(began))
    assert operator.told.reasons == ["Placed", "Completed"]


async def test_a_gang_that_says_nothing_yet_says_that_it_runs_in_the_end() -> None:
    server = make_server()
    operator = await starting_in_a_crowd(server)
    began = server.now()
    await operator.look()
    assert server.status().get("phase") == "Starting"
    await server.clock.advance(RUNNING_SECONDS)
    await operator.look()
    assert (server.status()["phase"], server.status()["startTime"]) == ("Running", rfc3339(began))
    assert operator.told.reasons == ["Placed", "Started"]
    await expect_nothing_written(operator)


async def test_a_gang_that_fails_before_it_could_say_that_it_runs_tells_both() -> None:
    server = make_server()
    operator = await starting_in_a_crowd(server)
    await operator.look()
    server.change_pod(next(iter(server.pods())), phase="Failed")
    await operator.look()
    assert operator.told.reasons[:3] == ["Placed", "Started", "WorkerFailed"]
