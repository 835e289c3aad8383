"""While the pods of a gang that restarts still end, its nodes do not go to those behind it in the queue."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from berth.cluster import kinds
from berth.controllers import scheduler as scheduler_module
from tests.unit.cluster.fakes import eventually
from tests.unit.controllers.harness import JOB, Operator, Server, make_server

LATE = (JOB[0], "late")


async def settle(operator: Operator, *keys: tuple[str, str]) -> None:
    """Looks at each of the jobs and passes over the queue, until nothing more follows from what there is."""
    for _ in range(3):
        operator.see()
        for key in keys:
            if operator.caches.jobs.get(key[1], key[0]) is not None:
                await operator.jobs.reconcile(key)
        if operator.scheduler.waiting and operator.scheduler.due():
            operator.scheduler.decide()


async def contested(**late: Any) -> tuple[Server, Operator]:
    """A gang of two runs on both nodes there are, and a younger job waits for one of them."""
    server = make_server(nodes=2)
    operator = Operator(server)
    await operator.look()
    server.bind()
    await operator.look()
    await server.clock.advance(3600)
    spec = {**server.objects["trainingjobs", *JOB]["spec"], "workers": 1, **late}
    server.put(kinds.TRAINING_JOBS, {"metadata": {"name": LATE[1], "namespace": LATE[0]}, "spec": spec})
    await settle(operator, LATE)
    return server, operator


async def fail_rank(server: Server, operator: Operator) -> None:
    """Rank 0 fails; its node is free at once, the pod of rank 1 still ends."""
    server.change_pod("llm-1-0", phase="Failed", conditions=[])
    await settle(operator, JOB, LATE)
    assert server.status()["phase"] == "Restarting"


def late_pods(server: Server) -> list[str]:
    return sorted(name for name in server.pods() if name.startswith("late"))


@pytest.mark.parametrize("successor", [False, True])
async def test_a_younger_job_does_not_get_the_nodes_of_a_gang_that_restarts(successor: bool) -> None:
    server, operator = await contested()
    await fail_rank(server, operator)
    assert late_pods(server) == []
    if successor:
        operator = Operator(server)
    await settle(operator, LATE)
    assert late_pods(server) == []
    server.kubelets()
    operator.see()
    operator.scheduler.decide()  # before anybody has looked at the gang itself
    await settle(operator, LATE, JOB)
    assert late_pods(server) == []
    assert {"llm-2-0", "llm-2-1"} <= set(server.pods())


@pytest.mark.parametrize("silent", [False, True])
async def test_what_does_not_end_in_time_holds_healthy_nodes_no_longer(silent: bool) -> None:
    server, operator = await contested()
    await fail_rank(server, operator)
    if silent:
        node = dict(server.objects["nodes", "", server.pods()["llm-1-1"]["spec"]["nodeName"]])
        node["spec"] = {"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]}
        server.put(kinds.NODES, node)
    await server.clock.advance(80)
    await settle(operator, JOB, LATE)
    assert late_pods(server) == []
    await server.clock.advance(15)
    await settle(operator, LATE)
    assert late_pods(server) == ["late-1-0"]


async def test_a_job_ahead_in_the_queue_may_take_them() -> None:
    server, operator = await contested(priorityClassName="urgent")
    server.put(kinds.PRIORITY_CLASSES, {"metadata": {"name": "urgent"}, "value": 1000})
    await settle(operator, LATE)
    await fail_rank(server, operator)
    await settle(operator, LATE)
    assert late_pods(server) == ["late-1-0"]


async def test_a_gang_that_waits_out_a_pause_keeps_nothing() -> None:
    server, operator = await contested()
    server.objects["trainingjobs", *JOB]["spec"]["recovery"] = {"maxRestarts": 100}
    for attempt in range(1, 4):
        server.change_pod(f"llm-{attempt}-0", phase="Failed", conditions=[])
        await settle(operator, JOB, LATE)
        server.kubelets()
        await settle(operator, JOB, LATE)
        if attempt < 3:
            assert late_pods(server) == []
            server.bind()
            await settle(operator, JOB, LATE)
    assert late_pods(server) == ["late-1-0"]


async def test_a_job_that_is_suspended_or_deleted_while_it_restarts_keeps_nothing() -> None:
    server, operator = await contested()
    await fail_rank(server, operator)
    server.edit(suspend=True)
    await settle(operator, LATE)
    assert late_pods(server) == ["late-1-0"]


async def test_the_loop_itself_sees_that_nodes_are_kept_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_module, "RETURNING_SECONDS", 0.01)
    server, operator = await contested()
    await fail_rank(server, operator)
    uid = server.objects["trainingjobs", *LATE]["metadata"]["uid"]
    loop = asyncio.create_task(operator.scheduler.run())
    try:
        server.clock.at += 91
        await eventually(lambda: uid in operator.observer.promises)
    finally:
        loop.cancel()
        with suppress(asyncio.CancelledError):
            await loop


async def test_who_waits_for_such_nodes_is_told_so() -> None:
    server, operator = await contested()
    await fail_rank(server, operator)
    uid = server.objects["trainingjobs", *LATE]["metadata"]["uid"]
    await server.clock.advance(2)
    operator.scheduler._explain(operator.scheduler._waiting[uid])
    refusal = operator.scheduler.why(uid).refusal
    assert refusal is not None
    assert refusal.message == "Behind research/llm, which restarts and keeps its nodes"
