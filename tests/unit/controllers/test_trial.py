"""The pod that the API server judges before a placement is the pod that is created after it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from berth.cluster import kinds
from berth.cluster.errors import ClusterError, Forbidden, Invalid
from tests.unit.controllers.harness import JOB, Json, Operator, Server, add_node, make_server

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


async def test_an_accepted_job_is_judged_again_when_its_spec_or_the_pools_have_changed() -> None:
    server = make_server(nodes=0)
    operator = Operator(server)
    await operator.look(3)
    assert len(server.trials) == 1
    server.edit(template={"spec": {"containers": [{"name": "worker", "image": "other"}]}})
    await operator.look(2)
    assert len(server.trials) == 2
    add_node(server, "n0")
    server.admit = lambda body: Forbidden(403, "Forbidden", "not with devices")
    await server.clock.advance(10)
    await operator.look()
    assert "not with devices" in server.status()["message"]


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


def with_defaults(**requests: str) -> Callable[[Json], None]:
    """A LimitRange that gives every container what it does not ask for itself."""

    def mutate(body: Json) -> None:
        for container in body["spec"].get("containers", []):
            asked = container.setdefault("resources", {}).setdefault("requests", {})
            asked.update({name: amount for name, amount in requests.items() if name not in asked})

    return mutate


def with_overhead(body: Json) -> None:
    """A RuntimeClass with overhead."""
    body["spec"]["overhead"] = {"cpu": "2", "memory": "1Gi"}


@pytest.mark.parametrize("containers", [1, 2])
async def test_what_admission_adds_is_held_like_what_the_template_asks_for(containers: int) -> None:
    names = [{"name": f"c{number}", "image": "i"} for number in range(containers)]
    server = make_server(template={"spec": {"containers": names}})
    server.mutate = with_defaults(memory="256Gi", cpu="4")
    operator = Operator(server)
    await operator.look(2)
    held = {key: claim.amounts for key, claim in operator.fleet.claims.items()}
    assert len(held) == 2
    for amounts in held.values():
        assert amounts["memory"] == containers * 256 << 30
        assert amounts["cpu"] == 192_000
    fresh = Operator(server)
    assert {key: claim.amounts for key, claim in fresh.fleet.claims.items()} == held
    server.bind()
    operator.see()
    bound = operator.fleet.claims
    assert {key: dict(claim.amounts) for key, claim in bound.items()} == {
        key: dict(amounts) for key, amounts in held.items()
    }


async def test_a_rank_that_is_made_later_gets_the_same_cpu_whoever_makes_it() -> None:
    server = make_server(
        template={"spec": {"containers": [{"name": "w", "image": "i"}, {"name": "side", "image": "i"}]}}
    )
    server.mutate = with_defaults(cpu="4")
    operator = Operator(server)
    await operator.look(2)
    before = server.pods()["llm-1-1"]["spec"]["containers"]
    del server.objects["pods", JOB[0], "llm-1-1"]
    await Operator(server).look(2)
    assert server.pods()["llm-1-1"]["spec"]["containers"] == before


@pytest.mark.parametrize(
    ("mutate", "message"),
    [(with_defaults(memory="3Ti"), "A worker asks for 3Ti of memory"), (with_overhead, "")],
    ids=["more than a node has", "room is left"],
)
async def test_a_job_is_placed_by_what_its_pods_will_be(mutate: Callable[[Json], None], message: str) -> None:
    server = make_server()
    server.mutate = mutate
    operator = Operator(server)
    await operator.look(2)
    assert bool(server.pods()) == (not message)
    (view,) = operator.observer.views.values()
    refusal = operator.scheduler.why(view.uid).refusal
    assert message in (refusal.message if refusal is not None else "")


async def test_a_default_that_is_gone_is_not_held_any_more() -> None:
    server = make_server()
    server.mutate = with_defaults(memory="3Ti")
    operator = Operator(server)
    await operator.look(2)
    assert not server.pods()
    server.mutate = lambda body: None
    await server.clock.advance(61)
    await operator.look(2)
    assert len(server.pods()) == 2


async def test_a_priority_class_that_is_not_there_is_told_with_those_that_are() -> None:
    server = make_server(priorityClassName="hihg")
    for name in ("high", "low", "system-node-critical"):
        server.put(kinds.PRIORITY_CLASSES, {"metadata": {"name": name}, "value": 1})
    await Operator(server).look()
    assert server.status()["message"] == ("spec.priorityClassName: there is no PriorityClass hihg; did you mean high?")
    server.edit(priorityClassName="urgent")
    await Operator(server).look()
    assert server.status()["message"].endswith("there is no PriorityClass urgent; there are: high, low")


async def test_a_service_account_that_is_not_there_is_told_with_its_field() -> None:
    account = {"serviceAccountName": "ckpt-writer"}
    server = make_server(template={"spec": {"containers": [{"name": "worker", "image": "i"}], **account}})
    said = 'pods "berth-check" is forbidden: error looking up service account research/ckpt-writer: not found'
    server.admit = lambda body: Forbidden(403, "Forbidden", said)
    await Operator(server).look()
    assert server.status()["message"] == (
        "spec.template.spec.serviceAccountName: there is no ServiceAccount ckpt-writer in namespace research; create "
        "it or name another"
    )


async def test_no_job_is_told_what_the_server_said_of_another() -> None:
    """The two images make bodies of one CRC-32."""
    server = make_server()
    spec = server.objects["trainingjobs", *JOB]["spec"]
    uids = {}
    for image in ("8755d764", "4170cb18"):
        template = {"spec": {"containers": [{"name": "worker", "image": image}]}}
        body = {"metadata": {"name": f"of-{image}", "namespace": JOB[0]}, "spec": {**spec, "template": template}}
        uids[image] = server.put(kinds.TRAINING_JOBS, body)["metadata"]["uid"]
    refusal = Forbidden(403, "Forbidden", "this image is not allowed here")
    server.admit = lambda body: refusal if body["spec"]["containers"][0]["image"] == "8755d764" else None
    operator = Operator(server)
    said = [await operator.judge.rejection(operator.observer.views[uid]) for uid in uids.values()]
    assert [rejection is None for rejection in said] == [False, True]


async def test_a_default_that_no_node_has_is_told_with_the_way_out() -> None:
    names = [{"name": "worker", "image": "i"}, {"name": "side", "image": "i"}]
    server = make_server(template={"spec": {"containers": names}})
    server.mutate = with_defaults(cpu="300")
    operator = Operator(server)
    await operator.look(2)
    (view,) = operator.observer.views.values()
    refusal = operator.scheduler.why(view.uid).refusal
    assert refusal is not None
    assert "has more than 192 cpu" in refusal.message
    assert "a LimitRange's default" in refusal.message
    assert "name cpu in resources.requests of every container" in refusal.message


async def test_a_default_limit_below_the_worker_s_share_is_told_with_the_way_out() -> None:
    server = make_server()
    said = 'spec.containers[0].resources.requests: Invalid value: "192": must be less than or equal to cpu limit of 2'
    server.admit = lambda body: Invalid(422, "Invalid", said)
    await Operator(server).look()
    message = server.status()["message"]
    assert said in message
    assert "name cpu in resources.requests and resources.limits of spec.template" in message
