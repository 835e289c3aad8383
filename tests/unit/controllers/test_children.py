"""Names that a gang's children must have, and who may have them."""

from __future__ import annotations

import copy

import pytest

from berth.cluster import kinds
from tests.unit.controllers.harness import JOB, Json, Operator, Server, make_server

OTHER = {"apiVersion": "berth.dev/v1alpha1", "kind": "TrainingJob", "name": "llm", "uid": "old", "controller": True}


async def made_again() -> tuple[Server, Operator]:
    """A job made anew under the name of one whose pods still terminate."""
    server = make_server(nodes=8)
    operator = Operator(server)
    await operator.look()
    server.bind()
    await operator.look()
    job = server.objects.pop(("trainingjobs", *JOB))
    server.owners.clear()
    for pod in server.pods().values():
        dying = copy.deepcopy(pod)
        dying["metadata"] |= {"deletionTimestamp": "2026-12-02T00:00:00Z", "deletionGracePeriodSeconds": 30}
        server.put(kinds.PODS, dying)
    server.put(kinds.TRAINING_JOBS, {"metadata": {"name": JOB[1], "namespace": JOB[0]}, "spec": job["spec"]})
    return server, operator


async def expect_clean_start(server: Server, operator: Operator) -> None:
    await operator.look(3)
    server.bind()
    await operator.look()
    status = server.status()
    assert (status["phase"], status["attempt"]) == ("Running", 1)
    assert "startAttempts" not in status
    uid = server.objects["trainingjobs", *JOB]["metadata"]["uid"]
    assert {pod["metadata"]["labels"]["berth.dev/job-uid"] for pod in server.pods().values()} == {uid}


@pytest.mark.parametrize("terminating", [True, False], ids=["terminating", "not collected yet"])
async def test_a_job_made_again_waits_for_the_pods_of_the_one_before_and_pays_nothing(terminating: bool) -> None:
    server, operator = await made_again()
    if not terminating:
        for pod in server.pods().values():
            del pod["metadata"]["deletionTimestamp"]
    for _ in range(200):
        await server.clock.advance(10)
        await operator.look()
    status = server.status()
    assert (status["phase"], status.get("attempt")) == ("Queued", None)
    assert "pod llm-1-0 of an earlier job of this name" in status["message"]
    assert not operator.observer.promises
    for name in list(server.pods()):
        del server.objects["pods", JOB[0], name]
    await expect_clean_start(server, operator)


async def test_pods_of_the_job_before_that_only_the_create_meets_are_waited_for_too() -> None:
    server, operator = await made_again()
    for known in list(operator.caches.pods):
        operator.caches.pods.remove(known)
    seen = {key: body for key, body in server.objects.items() if key[0] == "pods"}

    def see_no_pods() -> None:
        for key in seen:
            server.objects.pop(key, None)
        Operator.see(operator)
        server.objects.update(seen)

    see_no_pods()
    for _ in range(3):
        await operator.jobs.reconcile(JOB)
        operator.scheduler.decide()
    status = server.status()
    assert (status["phase"], status["attempt"]) == ("Starting", 1)
    assert operator.queue.planned + operator.queue.depth == 1
    for key in seen:
        del server.objects[key]
    await expect_clean_start(server, operator)


async def test_a_service_of_the_job_before_is_waited_for() -> None:
    server = make_server(framework="PyTorch")
    old = {"name": "llm-workers", "namespace": JOB[0], "ownerReferences": [OTHER]}
    server.put(kinds.SERVICES, {"metadata": old, "spec": {}})
    operator = Operator(server)
    await operator.look(3)
    assert server.status()["phase"] == "Starting"
    assert not server.pods()
    del server.objects["services", JOB[0], "llm-workers"]
    await expect_clean_start(server, operator)


@pytest.mark.parametrize(
    "owners",
    [[], [{**OTHER, "apiVersion": "example.com/v1"}], [{**OTHER, "kind": "Job", "apiVersion": "batch/v1"}]],
    ids=["nobody's", "another group's", "another kind's"],
)
async def test_a_name_that_nobody_will_give_up_is_said(owners: list[Json]) -> None:
    server = make_server(framework="PyTorch")
    meta = {"name": "llm-workers", "namespace": JOB[0], "ownerReferences": owners}
    server.put(kinds.SERVICES, {"metadata": meta, "spec": {}})
    operator = Operator(server)
    await operator.look(2)
    assert "Service llm-workers exists and belongs to something else" in server.status()["message"]
    assert server.status()["startAttempts"] == 1


async def test_nothing_is_remembered_of_a_job_whose_name_another_has() -> None:
    server = make_server(nodes=1)
    operator = Operator(server)
    await operator.look()
    assert operator.scheduler.waiting == 1
    old = server.objects.pop(("trainingjobs", *JOB))
    server.put(kinds.TRAINING_JOBS, {"metadata": {"name": JOB[1], "namespace": JOB[0]}, "spec": old["spec"]})
    await operator.look()
    assert operator.scheduler.waiting == 1
