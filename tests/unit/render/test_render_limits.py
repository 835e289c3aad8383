"""A gang whose ranks could not be started is refused by name, before it holds anything."""

from __future__ import annotations

import pytest

from berth.render.limits import unstartable
from tests.unit.controllers.harness import Operator, make_server


@pytest.mark.parametrize(
    ("framework", "workers", "name", "variable"),
    [
        ("MPI", 2_000, "llm", ""),
        ("MPI", 4_000, "llm", "BERTH_MPI_HOSTS"),
        ("MPI", 1_000, "x" * 63, "BERTH_MPI_HOSTS"),
        ("TensorFlow", 4_000, "llm", "TF_CONFIG"),
        ("PyTorch", 25_000, "x" * 63, ""),
        ("JAX", 25_000, "x" * 63, ""),
        ("None", 25_000, "x" * 63, ""),
    ],
)
def test_a_variable_that_no_program_can_be_started_with_is_named(
    framework: str, workers: int, name: str, variable: str
) -> None:
    words = unstartable(name, "y" * 63 if len(name) == 63 else "research", workers, 8, framework)
    assert variable in words
    assert bool(words) == bool(variable)


async def test_such_a_job_is_refused_and_not_queued() -> None:
    server = make_server(workers=4_000, framework="MPI")
    operator = Operator(server)
    await operator.look(2)
    accepted = next(each for each in server.status()["conditions"] if each["type"] == "Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "SpecInvalid")
    assert "BERTH_MPI_HOSTS" in accepted["message"]
    assert not operator.scheduler.waiting
