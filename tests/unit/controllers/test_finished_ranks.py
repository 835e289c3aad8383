"""A rank that exited 0 stays done when its pod is removed, through the caches, the ledger and a change of leader."""

from __future__ import annotations

import copy

import pytest

from berth.cluster import kinds
from tests.unit.controllers.harness import JOB, Operator, Server, expect_nothing_written, make_server

EXITED = [{"name": "worker", "state": {"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T00:00:00Z"}}}]


async def one_finished(server: Server) -> Operator:
    """A gang of two that runs, whose first rank has exited 0."""
    operator = Operator(server)
    await operator.look()
    server.bind()
    await operator.look()
    finish(server, "llm-1-0")
    await operator.look()
    return operator


def finish(server: Server, name: str) -> None:
    server.change_pod(name, phase="Succeeded", conditions=[], containerStatuses=EXITED)


async def expect_success(server: Server, operator: Operator) -> None:
    await operator.look()
    assert server.status()["phase"] == "Running", server.status()
    finish(server, "llm-1-1")
    await operator.look()
    assert (server.status()["phase"], server.status()["attempt"]) == ("Succeeded", 1)
    assert "infrastructure" not in {kind for kind, count in server.status()["restarts"].items() if count}


@pytest.mark.parametrize("node", ["stays", "goes"])
async def test_a_finished_pod_that_is_removed_restarts_nothing(node: str) -> None:
    server = make_server()
    operator = await one_finished(server)
    if node == "goes":
        del server.objects["nodes", "", server.pods()["llm-1-0"]["spec"]["nodeName"]]
    del server.objects["pods", JOB[0], "llm-1-0"]
    await expect_success(server, operator)


async def test_a_finished_pod_that_a_user_deletes_restarts_nothing() -> None:
    server = make_server()
    operator = await one_finished(server)
    pod = copy.deepcopy(server.pods()["llm-1-0"])
    pod["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=0)
    server.put(kinds.PODS, pod)  # within the second in which it ended
    await operator.look()
    del server.objects["pods", JOB[0], "llm-1-0"]
    await expect_success(server, operator)


async def test_a_finished_pod_whose_end_a_finalizer_holds_up_is_not_deleted_again() -> None:
    server = make_server()
    operator = await one_finished(server)
    pod = copy.deepcopy(server.pods()["llm-1-0"])
    pod["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=0)
    server.put(kinds.PODS, pod)
    for attempt in (1, 2):  # of the last but one, pods that have ended are deleted
        server.change_pod(f"llm-{attempt}-1", phase="Failed", conditions=[])
        await operator.look()
        server.objects.pop(("pods", JOB[0], "llm-2-0"), None)
        await server.clock.advance(120)
        await operator.look()
        server.bind()
        await operator.look()
    assert server.status()["attempt"] == 3, server.status()
    assert ("delete", "pods", "llm-1-0") not in server.log


async def test_the_room_of_a_finished_rank_is_free_before_and_after_its_pod_is_removed() -> None:
    server = make_server(nodes=2)
    operator = await one_finished(server)
    pool = next(iter(operator.fleet.pools.values()))
    for remove in (False, True):
        if remove:
            del server.objects["pods", JOB[0], "llm-1-0"]
        await operator.look()
        assert sorted(pool.free_devices[pool.usable].tolist()) == [0, 8]
        assert not operator.fleet.check()


async def test_a_leader_that_comes_after_the_pod_has_gone_reads_of_it_in_the_status() -> None:
    server = make_server(nodes=2)
    operator = await one_finished(server)
    del server.objects["pods", JOB[0], "llm-1-0"]
    await operator.look()
    await server.clock.advance(30)
    await operator.look()
    assert server.status()["finishedRanks"] == "0"
    successor = Operator(server)
    await expect_nothing_written(successor)
    pool = next(iter(successor.fleet.pools.values()))
    assert sorted(pool.free_devices[pool.usable].tolist()) == [0, 8]
    await expect_success(server, successor)
    assert "finishedRanks" not in server.status()


@pytest.mark.parametrize("asked", ["00:00:30", "00:01:00"], ids=["in that second", "by a clock ahead of the node's"])
async def test_pods_that_are_deleted_and_exit_0_on_the_signal_are_no_success(asked: str) -> None:
    server = make_server()
    operator = await one_finished(server)
    pod = copy.deepcopy(server.pods()["llm-1-1"])
    pod["metadata"].update(deletionTimestamp=f"2026-01-01T{asked}Z", deletionGracePeriodSeconds=30)
    server.put(kinds.PODS, pod)
    operator.see()
    finish(server, "llm-1-1")
    await operator.look()
    assert (server.status()["phase"], server.status()["restarts"]["infrastructure"]) == ("Restarting", 1)


async def test_a_job_made_again_under_its_name_has_nothing_finished() -> None:
    server = make_server()
    operator = await one_finished(server)
    await operator.see_made_again()
    assert sorted(server.pods()) == ["llm-1-0", "llm-1-1"]
