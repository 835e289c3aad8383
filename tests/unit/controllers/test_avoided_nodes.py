"""A node that fails a gang is barred to it, longer each time in a row, and is the last choice after that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from berth.training.recovery import barred_left
from berth.training.state import Attempt, JobState
from tests.unit.controllers.harness import Operator, Server, make_server


async def fail_on(server: Server, operator: Operator, node: str) -> None:
    """The kubelet of ``node`` admits no pod of the present attempt."""
    server.bind()
    for name, pod in server.pods().items():
        if pod["spec"].get("nodeName") == node:
            server.change_pod(name, phase="Failed", conditions=[], reason="UnexpectedAdmissionError")
    await operator.look()
    server.kubelets()
    await operator.look(2)


async def test_a_node_that_goes_on_failing_is_barred_longer_each_time() -> None:
    server = make_server(nodes=2)
    operator = Operator(server)
    await operator.look()
    for attempt, barred in enumerate((60, 120, 240), 1):
        assert server.status()["attempt"] == attempt
        await fail_on(server, operator, "n1")
        for until in (barred - 1, barred + 1):
            wait = server.now()
            await server.clock.advance(until if until < barred else 2)
            assert server.now() > wait
            await operator.look(2)
            assert server.status()["attempt"] == attempt + (until > barred)
    assert server.status()["restarts"]["infrastructure"] == 3


async def test_another_node_is_taken_at_once() -> None:
    server = make_server(nodes=3)
    operator = Operator(server)
    await operator.look()
    node = server.pods()["llm-1-0"]["spec"]["affinity"]["nodeAffinity"]
    pinned = node["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0]["matchFields"][0]["values"]
    await fail_on(server, operator, pinned[0])
    assert server.status()["attempt"] == 2
    assert pinned[0] not in server.status()["placement"]["ranks"].split(",")


@pytest.mark.parametrize(
    ("causes", "seconds"),
    [
        (["Infrastructure"], 60),
        (["Infrastructure", "StartFailure"], 120),
        (["Infrastructure", "Failure", "Infrastructure"], 60),
        (["Failure"], 60),
        (["Infrastructure"] * 9, 600),
    ],
)
def test_the_time_follows_the_row_of_ends_that_were_the_infrastructure_s(causes: list[str], seconds: float) -> None:
    attempts = tuple(Attempt(number, 0.0, 2, "p", 100.0, 5.0, cause) for number, cause in enumerate(causes, 1))
    state = JobState(attempts=attempts, avoid=("n1",))
    assert barred_left(state, 100.0) == seconds
    assert barred_left(replace(state, avoid=()), 100.0) == 0
    ran = replace(state, attempts=(*attempts[:-1], replace(attempts[-1], ran=3600.0)))
    assert barred_left(ran, 110.0) == 50
