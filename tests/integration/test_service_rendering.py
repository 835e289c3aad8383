"""What is rendered of a service, judged by a real API server in a namespace that enforces Pod Security."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from berth.api.names import FIELD_MANAGER, PRIORITY_CLASS_PREFETCH, SCALE_MANAGER
from berth.cluster.client import ApiClient
from berth.cluster.errors import Forbidden
from berth.cluster.kinds import DEPLOYMENTS, DISRUPTION_BUDGETS, PODS, SERVICES, Kind
from berth.devcluster.api import Api
from berth.render.service.deployment import deployment, deployment_scale, deployment_template
from berth.render.service.exposure import disruption_budget, service
from berth.render.service.fetch import fetch_pod
from berth.render.service.plan import DeploymentPlan, ServicePlan
from berth.render.service.pod import probe_pod
from berth.values import Requirement, Toleration
from tests.builders.services import make_plan, make_service

pytestmark = pytest.mark.cluster

CACHED = {"coldStart": {"modelCache": "NVMe"}}
FOLDER = {"name": "berth-model-cache", "hostPath": {"path": "/mnt/nvme", "type": "DirectoryOrCreate"}}
SIDECAR = {"spec": {"containers": [{"name": "server", "image": "mine:1", "env": [{"name": "A", "value": "b"}]}]}}


@pytest.fixture
def priority_class(api: Api, namespace: str) -> Iterator[str]:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    api.post(path, {"metadata": {"name": namespace}, "value": 1, "preemptionPolicy": "Never"})
    yield namespace
    api.delete(f"{path}/{namespace}")


@pytest.fixture
def prefetch_class(api: Api) -> Iterator[str]:
    path, name = "/apis/scheduling.k8s.io/v1/priorityclasses", PRIORITY_CLASS_PREFETCH
    api.post(path, {"metadata": {"name": name}, "value": -10, "preemptionPolicy": "Never"})
    yield name
    api.delete(f"{path}/{name}")


def enforce(api: Api, namespace: str, level: str) -> None:
    labels = {"pod-security.kubernetes.io/enforce": level}
    api.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": labels}})


def expect_admitted(api: Api, kind: Kind[Any], body: dict[str, Any], namespace: str) -> None:
    """The server would create it, and knows every field of it."""
    api.post(kind.path(namespace), body, dryRun="All", fieldValidation="Strict")


def placed(namespace: str, plan: ServicePlan, **fields: Any) -> DeploymentPlan:
    own = ServicePlan(plan.name, namespace, plan.uid, plan.spec, plan.catalogue)
    nodes = ((Requirement("pool", "In", ("l4",)), Requirement("spot", "DoesNotExist")),)
    tolerations = (Toleration("spot", "Equal", "true", "NoSchedule"),)
    return make_plan(own, nodes=nodes, tolerations=tolerations, cpu_millicores=8000, **fields)


@pytest.mark.parametrize("level", ["baseline", "restricted"])
@pytest.mark.parametrize(
    "plan",
    [
        make_service(**CACHED),
        make_service(model={"uri": "pvc://weights/llama", "secretRef": {"name": "store"}}),
        make_service(model={"uri": "oci://registry.example/llama:1", "secretRef": {"name": "store"}}),
        make_service("TensorRT-LLM"),
        make_service("Triton", model={"uri": "s3://models/llama"}),
        make_service(template=SIDECAR),
    ],
    ids=["cache", "claim", "image", "TensorRT-LLM", "Triton", "template"],
)
def test_every_engine_is_admitted(api: Api, namespace: str, priority_class: str, plan: ServicePlan, level: str):
    enforce(api, namespace, level)
    whole = placed(namespace, plan, priority_class=priority_class, replicas=2)
    for kind, body in (
        (PODS, probe_pod(whole)),
        (DEPLOYMENTS, deployment(whole)),
        (SERVICES, service(whole.service)),
        (DISRUPTION_BUDGETS, disruption_budget(whole.service)),
    ):
        expect_admitted(api, kind, body, namespace)


@pytest.mark.parametrize(
    ("plan", "level"),
    [
        (make_service(model={"uri": "oci://registry.example/llama:1", "secretRef": {"name": "store"}}), "restricted"),
        (make_service(template={"spec": {"volumes": [FOLDER]}}, **CACHED), "privileged"),
    ],
    ids=["image", "folder"],
)
def test_a_pod_that_fetches_weights_is_admitted(
    api: Api, namespace: str, prefetch_class: str, plan: ServicePlan, level: str
):
    enforce(api, namespace, level)
    expect_admitted(api, PODS, fetch_pod(placed(namespace, plan), "node-1"), namespace)


def test_an_engine_of_the_user_s_own_is_admitted(api: Api, namespace: str, priority_class: str):
    enforce(api, namespace, "baseline")
    whole = placed(namespace, make_service("Custom", **CACHED), priority_class=priority_class)
    expect_admitted(api, PODS, probe_pod(whole), namespace)
    expect_admitted(api, DEPLOYMENTS, deployment(whole), namespace)


async def test_a_cache_on_the_host_is_refused_where_the_namespace_forbids_it(
    client: ApiClient, api: Api, namespace: str, priority_class: str
):
    enforce(api, namespace, "baseline")
    hosted = {"hostPath": {"path": "/mnt/nvme", "type": "DirectoryOrCreate"}}
    whole = placed(namespace, make_service(**CACHED), priority_class=priority_class, cache=hosted)
    with pytest.raises(Forbidden, match="hostPath volumes"):
        await client.create(PODS, probe_pod(whole), namespace, dry_run=True)


async def test_a_new_template_takes_out_what_is_gone_and_leaves_the_count(client: ApiClient, api: Api, namespace: str):
    """kserve#3768: a rollout dropped the count. What a plain create has set, no apply would take out."""
    before = placed(namespace, make_service(template=SIDECAR), replicas=3)
    after = placed(namespace, make_service(), replicas=3)

    async def apply(body: dict[str, Any], manager: str) -> None:
        await client.apply(DEPLOYMENTS, before.name, body, namespace, manager=manager)

    def live() -> Any:
        return api.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/{before.name}")

    await apply(deployment(before), FIELD_MANAGER)
    uid = live()["metadata"]["uid"]
    await apply(deployment_scale(namespace, before.name, 3, uid=uid), SCALE_MANAGER)
    await apply(deployment_template(after), FIELD_MANAGER)
    spec = live()["spec"]
    assert spec["replicas"] == 3
    assert "A" not in {entry["name"] for entry in spec["template"]["spec"]["containers"][0]["env"]}
    await apply(deployment_scale(namespace, before.name, 5, uid=uid), SCALE_MANAGER)
    assert live()["spec"]["replicas"] == 5


async def test_applying_the_same_again_writes_nothing(client: ApiClient, api: Api, namespace: str):
    whole = placed(namespace, make_service(**CACHED))
    for kind, body in (
        (DEPLOYMENTS, deployment_template(whole)),
        (SERVICES, service(whole.service)),
        (DISRUPTION_BUDGETS, disruption_budget(whole.service)),
    ):
        name = body["metadata"]["name"]
        applied = [await client.apply(kind, name, body, namespace, manager=FIELD_MANAGER) for _ in range(2)]
        if kind is SERVICES:
            assert applied[0].metadata.resource_version == applied[1].metadata.resource_version
        else:  # their controllers write their status meanwhile
            assert applied[0].metadata.generation == applied[1].metadata.generation
