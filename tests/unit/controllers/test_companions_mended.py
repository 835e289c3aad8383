"""What a gang needs beside its pods comes back when somebody takes it away or changes it."""

from __future__ import annotations

import copy

import pytest

from berth.cluster import kinds
from tests.unit.controllers.harness import JOB, Operator, Server, expect_nothing_written, make_server

SERVICE = ("services", JOB[0], "llm-workers")
GROUP = ("podgroups", JOB[0], "llm-1")


async def running(server: Server) -> Operator:
    operator = Operator(server)
    await operator.look()
    server.bind()
    await operator.look()
    assert server.status()["phase"] == "Running"
    server.log.clear()
    return operator


async def test_a_service_that_is_deleted_while_the_gang_runs_comes_back() -> None:
    server = make_server(framework="PyTorch")
    operator = await running(server)
    gone = server.objects.pop(SERVICE)
    await operator.look()
    assert server.objects[SERVICE]["spec"] == gone["spec"]
    assert sorted(server.pods()) == ["llm-1-0", "llm-1-1"]
    assert server.log == [("create", "services", "llm-workers")]
    await expect_nothing_written(operator)


@pytest.mark.parametrize("part", ["selector", "not ready", "label"])
async def test_a_service_that_is_changed_is_put_right(part: str) -> None:
    server = make_server(framework="PyTorch")
    operator = await running(server)
    before = copy.deepcopy(server.objects[SERVICE])
    body = copy.deepcopy(before)
    if part == "selector":
        body["spec"]["selector"] = {"app": "other"}
    elif part == "not ready":
        body["spec"]["publishNotReadyAddresses"] = False
    else:
        body["metadata"]["labels"] = {}
    server.put(kinds.SERVICES, body)
    if part == "label":  # the watch is of the label
        operator.see()
        operator.caches.rendezvous.remove(next(iter(operator.caches.rendezvous)))
        await operator.jobs.reconcile(JOB)
    await operator.look()
    after = server.objects[SERVICE]
    assert (after["spec"], after["metadata"]["labels"]) == (before["spec"], before["metadata"]["labels"])
    await expect_nothing_written(operator)


async def test_who_takes_it_away_again_and_again_is_answered_once_a_minute() -> None:
    server = make_server(framework="PyTorch")
    operator = await running(server)
    for _ in range(5):
        server.objects.pop(SERVICE, None)
        await operator.look(2)
    assert len(server.log) == 1
    await server.clock.advance(61)
    await operator.look()
    assert SERVICE in server.objects


async def test_a_service_of_somebody_else_under_that_name_is_left_alone() -> None:
    server = make_server(framework="PyTorch")
    operator = await running(server)
    server.objects.pop(SERVICE)
    server.put(
        kinds.SERVICES, {"metadata": {"name": SERVICE[2], "namespace": JOB[0]}, "spec": {"selector": {"a": "b"}}}
    )
    asked: list[str] = []
    server.refuse = lambda verb, plural, name: asked.append(verb)
    for _ in range(3):
        await operator.look(2)
        await server.clock.advance(61)
    assert server.objects[SERVICE]["spec"] == {"selector": {"a": "b"}}
    assert set(asked) == {"get"}, "it is read, and nothing is tried"


async def test_a_gang_that_needs_no_service_gets_none() -> None:
    server = make_server()
    operator = await running(server)
    await operator.look(2)
    assert SERVICE not in server.objects
    assert server.log == []


@pytest.mark.parametrize("bound", [False, True])
async def test_a_group_that_is_deleted_before_its_pods_are_bound_comes_back(bound: bool) -> None:
    server = make_server()
    operator = Operator(server, native_gangs=True)
    await operator.look()
    gone = server.objects.pop(GROUP)
    if bound:
        server.bind()
    await operator.look()
    assert GROUP not in server.objects
    await server.clock.advance(31)
    await operator.look()
    assert (GROUP in server.objects) is not bound
    if not bound:
        assert server.objects[GROUP]["spec"] == gone["spec"]
        assert server.status().get("startAttempts", 0) == 0


async def test_a_group_that_is_there_costs_a_late_start_no_write() -> None:
    server = make_server()
    operator = Operator(server, native_gangs=True)
    await operator.look()
    made = [entry for entry in server.log if entry[0] == "create"]
    await server.clock.advance(31)
    await operator.look(3)
    assert [entry for entry in server.log if entry[0] == "create"] == made
