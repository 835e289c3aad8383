"""Which changes of the cluster have a job looked at, and which do not."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from berth.cluster import kinds
from berth.training.state import NodeState
from tests.builders.fleet import GPU
from tests.unit.controllers.harness import JOB, Operator, Server, add_node, make_server

GPU_TAINT = {"key": GPU, "value": "present", "effect": "NoSchedule"}


async def watching(**spec: Any) -> tuple[Server, Operator, list[tuple[str, str]]]:
    """A gang placed on two of four nodes, all of which carry the taint of their accelerators."""
    server = make_server(nodes=0, **spec)
    for number in range(4):
        add_node(server, f"n{number}", taints=[GPU_TAINT])
    operator = Operator(server)
    await operator.look()
    woken: list[tuple[str, str]] = []
    operator.observer._wake = woken.append
    operator.see()
    woken.clear()
    return server, operator, woken


def change_node(server: Server, name: str, *, ready: str = "True", room: str = "8", **spec: Any) -> None:
    node = copy.deepcopy(server.objects["nodes", "", name])
    node["spec"] = {"taints": [GPU_TAINT], **spec}
    node["status"]["conditions"][0]["status"] = ready
    node["status"]["allocatable"][GPU] = room
    server.put(kinds.NODES, node)


@pytest.mark.parametrize(
    "change",
    [
        {"unschedulable": True},
        {"taints": [GPU_TAINT, {"key": "example.com/repair", "effect": "NoSchedule"}]},
        {"taints": [GPU_TAINT, {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]},
        {"ready": "Unknown"},
    ],
    ids=["cordon", "taint", "out of service", "not ready"],
)
async def test_what_happens_to_a_node_wakes_the_gang_that_holds_it(change: dict[str, Any]) -> None:
    server, operator, woken = await watching()
    held = server.status()["placement"]["ranks"].split(",")
    change_node(server, held[0], **change)
    operator.see()
    assert set(woken) == {JOB}
    woken.clear()
    free = next(name for name in ("n0", "n1", "n2", "n3") if name not in held)
    change_node(server, free, **change)
    operator.see()
    assert woken == []


async def test_a_node_that_only_offers_more_wakes_nobody_that_holds_it() -> None:
    server, operator, woken = await watching()
    change_node(server, server.status()["placement"]["ranks"].split(",")[0], room="16")
    operator.see()
    assert woken == []


async def test_an_edit_that_the_answer_to_a_write_shows_first_is_looked_at() -> None:
    server, operator, woken = await watching()
    for edit, looks in (({}, []), ({"suspend": True}, [JOB])):
        server.edit(**edit) if edit else server.put(kinds.TRAINING_JOBS, server.objects["trainingjobs", *JOB])
        operator.observer.absorb(await server.get(kinds.TRAINING_JOBS, JOB[1], JOB[0]))
        assert woken == looks


async def test_a_lost_node_and_a_changed_pod_wake_the_gang() -> None:
    server, operator, woken = await watching()
    del server.objects["nodes", "", server.status()["placement"]["ranks"].split(",")[0]]
    operator.see()
    assert set(woken) == {JOB}
    woken.clear()
    server.change_pod("llm-1-0", phase="Running")
    operator.see()
    assert woken == [JOB]


async def test_a_node_s_own_accelerator_taint_bars_nothing() -> None:
    _, operator, _ = await watching()
    view = next(iter(operator.observer.views.values()))
    states = operator.observer.node_states(view, operator.observer.workers(view.uid))
    assert set(states.values()) == {NodeState.OK}


async def test_a_restarting_gang_sees_the_nodes_that_it_had() -> None:
    server, operator, _ = await watching()
    server.bind()
    await operator.look()
    server.change_pod("llm-1-0", phase="Failed", conditions=[])
    await operator.look()
    view = next(iter(operator.observer.views.values()))
    lost = server.status()["placement"]["ranks"].split(",")[1]
    del server.objects["nodes", "", lost]
    operator.see()
    assert operator.observer.node_states(view, [])[lost] == NodeState.GONE
    await operator.look()
    assert server.status()["restarts"] == {"failure": 0, "infrastructure": 1, "preemption": 0, "suspend": 0}
    assert "NodeLost" in operator.told.reasons


async def test_a_priority_class_that_appears_wakes_the_jobs_that_name_it() -> None:
    server, operator, woken = await watching(priorityClassName="high")
    assert server.pods() == {}
    server.put(kinds.PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 10})
    operator.see()
    assert woken == [JOB]
    await operator.look(2)
    assert sorted(server.pods()) == ["llm-1-0", "llm-1-1"]
