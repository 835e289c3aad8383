"""The pod that the API server judges before a placement is the pod that is created after it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from berth.cluster import kinds
from berth.cluster.errors import ClusterError, Forbidden
from tests.unit.controllers.harness import JOB, Json, Operator, Server, make_server

POOL = {
    "accelerator": "H100",
    "nodeSelector": {"matchLabels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}},
    "fabric": {"kind": "InfiniBand", "gbps": 400, "rails": 8},
    "topology": [{"name": "host", "nodeLabel": "kubernetes.io/hostname"}],
}


def with_fabric(**spec: Any) -> Server:
    server = make_server(**spec)
    for number in range(4):
        node = copy.deepcopy(server.objects["nodes", "", f"n{number}"])
        node["status"]["allocatable"]["rdma/ib"] = "8"
        server.put(kinds.NODES, node)
    server.put(kinds.ACCELERATOR_POOLS, {"metadata": {"name": "ib"}, "spec": POOL})
    return server


async def placed(server: Server) -> tuple[Json, Json]:
    """The pod that was judged, and one that was created."""
    await Operator(server).look(2)
    return server.trials[0], server.pods()["llm-1-0"]


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"framework": "PyTorch"},
        {"checkpoint": {"uri": "s3://b/k", "onPreempt": {"signal": "SIGUSR1", "deadline": "2m"}}},
        {"parallelism": {"tensor": 8}},
    ],
    ids=["plain", "framework", "preemption hook", "environment"],
)
async def test_what_is_judged_is_what_is_created(spec: dict[str, Any]) -> None:
    judged, created = await placed(with_fabric(**spec))
    one, other = (body["spec"]["containers"][0] for body in (judged, created))
    assert {**one, "env": []} == {**other, "env": []}
    assert {entry["name"] for entry in one["env"]} == {entry["name"] for entry in other["env"]}
    for each in ("tolerations", "terminationGracePeriodSeconds", "priorityClassName", "volumes"):
        assert judged["spec"].get(each) == created["spec"].get(each)
    assert one["resources"]["requests"]["cpu"]
    assert one["resources"]["limits"]["rdma/ib"] == "8"


async def test_a_policy_against_locked_memory_speaks_before_anything_is_placed() -> None:
    def admit(body: Json) -> ClusterError | None:
        worker = (body["spec"].get("containers") or [{}])[0]
        added = worker.get("securityContext", {}).get("capabilities", {}).get("add", [])
        return Forbidden(403, "Forbidden", "violates PodSecurity: IPC_LOCK") if "IPC_LOCK" in added else None

    server = with_fabric()
    server.admit = admit
    operator = Operator(server)
    await operator.look()
    await server.clock.advance(10)
    await operator.look()
    assert "IPC_LOCK" in server.status()["message"]
    assert "placement" not in server.status()


async def test_jobs_that_differ_in_name_size_and_environment_alone_are_judged_once() -> None:
    server = with_fabric(checkpoint={"uri": "s3://b/one"}, framework="PyTorch")
    job = copy.deepcopy(server.objects["trainingjobs", *JOB])
    job["spec"]["checkpoint"]["uri"] = "s3://b/two"
    job["spec"]["workers"] = 4
    server.put(kinds.TRAINING_JOBS, {"metadata": {"name": "other", "namespace": JOB[0]}, "spec": job["spec"]})
    operator = Operator(server)
    for name in (JOB[1], "other"):
        await operator.jobs.reconcile((JOB[0], name))
    assert len(server.trials) == 1


async def test_a_job_that_no_pool_may_take_yet_is_judged_with_some_cpu() -> None:
    server = make_server(nodes=0)
    await Operator(server).look()
    requests = server.trials[0]["spec"]["containers"][0]["resources"]["requests"]
    assert requests["cpu"] == "8"


async def test_cpu_that_the_template_names_is_left_alone() -> None:
    container = {"name": "worker", "image": "i", "resources": {"requests": {"cpu": "3"}}}
    judged, created = await placed(with_fabric(template={"spec": {"containers": [container]}}))
    for body in (judged, created):
        assert body["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "3"
