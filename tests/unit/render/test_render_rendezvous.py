"""How ranks find each other: each framework's own variables, the same on every rank but for the rank itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from berth.render.gang import pods
from berth.render.rendezvous import environment
from tests.builders.training import make_plan


def variables(rank: int = 0, *nodes: str, **fields: Any) -> dict[str, str]:
    plan = make_plan(*(nodes or ("a", "b", "c")), **fields)
    entries = pods(plan, [rank])[0]["spec"]["containers"][0]["env"]
    found = {entry["name"]: entry["value"] for entry in entries}
    assert len(found) == len(entries), "a variable is named twice"
    return found


def test_every_job_is_told_who_it_is() -> None:
    assert variables(2, attempt=4) == {
        "BERTH_ATTEMPT": "4",
        "BERTH_RANK": "2",
        "BERTH_WORKERS": "3",
    }


def test_pytorch_gets_what_torchrun_and_torch_distributed_read() -> None:
    found = variables(1, framework="PyTorch", attempt=2)
    master = "llm-2-0.llm-workers.research.svc"
    assert {name: value for name, value in found.items() if not name.startswith("BERTH_")} == {
        "MASTER_ADDR": master,
        "MASTER_PORT": "29500",
        "WORLD_SIZE": "3",
        "RANK": "1",
        "PET_NNODES": "3",
        "PET_NODE_RANK": "1",
        "PET_NPROC_PER_NODE": "8",
        "PET_MASTER_ADDR": master,
        "PET_MASTER_PORT": "29500",
    }


def test_jax_gets_a_coordinator_and_its_process() -> None:
    found = variables(2, framework="JAX")
    assert found["JAX_COORDINATOR_ADDRESS"] == "llm-1-0.llm-workers.research.svc:1234"
    assert (found["JAX_NUM_PROCESSES"], found["JAX_PROCESS_ID"]) == ("3", "2")


def test_tensorflow_gets_the_whole_cluster_and_its_place_in_it() -> None:
    config = json.loads(variables(1, framework="TensorFlow")["TF_CONFIG"])
    assert config == {
        "cluster": {"worker": [f"llm-1-{rank}.llm-workers.research.svc:2222" for rank in range(3)]},
        "task": {"type": "worker", "index": 1},
    }


def test_mpi_gets_hosts_with_slots() -> None:
    found = variables(0, "a", "b", framework="MPI", accelerators_per_worker=4)
    assert found["BERTH_MPI_HOSTS"] == "llm-1-0.llm-workers.research.svc:4,llm-1-1.llm-workers.research.svc:4"
    assert found["BERTH_MPI_PROCESSES"] == "8"


@pytest.mark.parametrize(
    ("framework", "variable", "value"),
    [
        ("PyTorch", "MASTER_ADDR", "localhost"),
        ("JAX", "JAX_COORDINATOR_ADDRESS", "localhost:1234"),
        ("MPI", "BERTH_MPI_HOSTS", "localhost:8"),
    ],
)
def test_a_gang_of_one_talks_to_itself(framework: str, variable: str, value: str) -> None:
    assert variables(0, "a", framework=framework)[variable] == value


@pytest.mark.parametrize("framework", ["PyTorch", "JAX", "TensorFlow", "MPI"])
def test_ranks_agree_on_everything_but_their_rank(framework: str) -> None:
    plan = make_plan("a", "b", "c", framework=framework)
    own = {"BERTH_RANK", "RANK", "PET_NODE_RANK", "JAX_PROCESS_ID", "TF_CONFIG"}
    shared = [{k: v for k, v in environment(plan, rank).items() if k not in own} for rank in range(3)]
    assert shared[0] == shared[1] == shared[2]


def test_a_variable_of_the_template_s_wins_and_may_refer_to_ours() -> None:
    mine = [
        {"name": "MASTER_PORT", "value": "4000"},
        {"name": "ENDPOINT", "value": "$(MASTER_ADDR):4000"},
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]
    template = {"containers": [{"name": "worker", "image": "i", "env": mine}]}
    env = pods(make_plan(template=template, framework="PyTorch"), [0])[0]["spec"]["containers"][0]["env"]
    assert env[-3:] == mine  # after ours: Kubernetes expands only what stands before
    assert [entry["name"] for entry in env].count("MASTER_PORT") == 1


def test_what_the_job_is_told_of_checkpoints_yields_to_the_template_too() -> None:
    template = {"containers": [{"name": "worker", "image": "i", "env": [{"name": "BERTH_X", "value": "mine"}]}]}
    assert variables(template=template, environment={"BERTH_X": "ours", "BERTH_Y": "ours"})["BERTH_X"] == "mine"


def test_other_containers_are_told_nothing() -> None:
    template = {"containers": [{"name": "worker", "image": "i"}, {"name": "logger", "image": "l"}]}
    assert pods(make_plan(template=template), [0])[0]["spec"]["containers"][1] == {"name": "logger", "image": "l"}
