"""Counts and marks as a real API server takes them: never to another object, and with the name of whoever set them."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import pytest

from berth.api.names import FIELD_MANAGER, SCALE_MANAGER
from berth.cluster import wire
from berth.cluster.client import ApiClient
from berth.cluster.errors import Conflict, Invalid
from berth.cluster.kinds import DEPLOYMENT_WRITERS, DEPLOYMENTS, DISRUPTION_BUDGETS, SERVICES, Kind
from berth.controllers.services.upkeep import REPLICAS, changed, lost, writers
from berth.devcluster.api import Api
from berth.render.service.deployment import deployment, deployment_scale, deployment_template
from berth.render.service.exposure import disruption_budget, service
from berth.render.service.plan import ServicePlan
from tests.builders.services import make_plan, make_service
from tests.unit.controllers.services.rolling import NAME, Rolling

pytestmark = pytest.mark.cluster


@pytest.fixture
async def known(client: ApiClient, namespace: str) -> wire.Deployment:
    """A Deployment of two replicas whose count is ours."""
    own = make_service()
    plan = make_plan(ServicePlan(own.name, namespace, own.uid, own.spec, own.catalogue), replicas=2)
    made = await client.apply(DEPLOYMENTS, plan.name, deployment(plan), namespace, manager=FIELD_MANAGER)
    return await scale(client, made, 2, uid=made.metadata.uid)


async def scale(client: ApiClient, known: wire.Deployment, count: int, **own: Any) -> wire.Deployment:
    meta = known.metadata
    body = deployment_scale(meta.namespace, meta.name, count, **own)
    return await client.apply(DEPLOYMENTS, meta.name, body, meta.namespace, manager=SCALE_MANAGER)


async def test_a_count_reaches_only_the_deployment_that_was_looked_at(client: ApiClient, known: wire.Deployment):
    meta = known.metadata
    other = "00000000-0000-0000-0000-000000000000"
    with pytest.raises(Invalid) as refused:
        await scale(client, known, 1, uid=other)
    assert [cause.field for cause in refused.value.causes] == ["metadata.uid"]
    with pytest.raises(Conflict):
        await scale(client, known, 1, uid=other, resource_version="1")
    await scale(client, known, 3, uid=meta.uid)
    with pytest.raises(Conflict):
        await scale(client, known, 1, uid=meta.uid, resource_version=meta.resource_version)
    await client.delete(DEPLOYMENTS, meta.name, meta.namespace, uid=meta.uid)
    with pytest.raises(Conflict):
        await scale(client, known, 1, uid=meta.uid)
    assert await client.find(DEPLOYMENTS, meta.name, meta.namespace) is None


async def test_who_else_sets_a_count_is_named(client: ApiClient, api: Api, known: wire.Deployment):
    meta = known.metadata
    path = f"{DEPLOYMENTS.path(meta.namespace, meta.name)}/scale"
    api.patch(path, {"spec": {"replicas": 7}}, fieldManager="autoscaler")
    found = await client.get(DEPLOYMENT_WRITERS, meta.name, meta.namespace)
    assert writers(found.metadata.managed_fields, (FIELD_MANAGER, SCALE_MANAGER), REPLICAS) == (
        "autoscaler (through scale)",
    )


@pytest.mark.parametrize(
    ("kind", "render", "change", "field"),
    [
        (SERVICES, service, {"selector": {"app": "other"}}, "spec.selector"),
        (SERVICES, service, {"sessionAffinity": "ClientIP"}, ""),
        (SERVICES, service, {"ports": [{"name": "http", "port": 8000, "targetPort": 9}]}, "spec.ports[0].targetPort"),
        (DISRUPTION_BUDGETS, disruption_budget, {"maxUnavailable": 0}, "spec.maxUnavailable"),
        (DISRUPTION_BUDGETS, disruption_budget, {"selector": {"matchLabels": {"app": "other"}}}, "spec.selector"),
    ],
)
async def test_the_server_tells_what_others_have_changed_of_a_child(
    client: ApiClient, api: Api, namespace: str, kind: Kind[Any], render: Any, change: dict[str, Any], field: str
):
    own = make_service("Triton")
    body = render(ServicePlan(own.name, namespace, own.uid, own.spec, own.catalogue))

    async def missing() -> tuple[str, str]:
        return await told(client, kind, own.name, namespace, body)

    await client.apply(kind, own.name, body, namespace, manager=FIELD_MANAGER)
    assert (await missing())[0] == ""
    api.patch(kind.path(namespace, own.name), {"spec": change}, fieldManager="hand")
    assert (await missing())[0] == field
    assert not field or " was changed by hand and is put right" in (await missing())[1]
    await client.apply(kind, own.name, body, namespace, manager=FIELD_MANAGER)
    assert (await missing())[0] == ""


async def told(client: ApiClient, kind: Kind[Any], name: str, namespace: str, body: dict[str, Any]) -> tuple[str, str]:
    """The field of ``body`` that is not ours any more, and what is told of that; both empty where all is."""
    found = await client.get(kind.written(), name, namespace)
    gone = lost(body, found.metadata.managed_fields, FIELD_MANAGER)
    return (gone.field, changed(kind.kind, found.metadata, gone, (FIELD_MANAGER,))) if gone is not None else ("", "")


CONTAINER = "spec.template.spec.containers[0]"
TEMPLATE = {"spec": {
    "containers": [{"name": "server", "env": [{"name": "EMPTY", "value": ""}, {"name": "OWN", "value": "1"}],
                    "ports": [{"name": "own", "containerPort": 9}], "securityContext": {"privileged": False}}],
    "hostNetwork": False, "nodeSelector": {"disk": "nvme"}, "tolerations": [{"key": "a", "operator": "Exists"}],
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "ScheduleAnyway"}],
}}  # fmt: skip


@pytest.mark.parametrize("engine", ["vLLM", "Triton", "TensorRT-LLM"])
@pytest.mark.parametrize(
    ("container", "pod", "field", "who"),
    [
        ({"image": "example.com/other:2"}, {}, f"{CONTAINER}.image", True),
        ({"env": [{"name": "OWN", "value": "2"}]}, {}, f"{CONTAINER}.env[*].value", True),
        ({"env": [{"name": "OWN", "$patch": "delete"}]}, {}, f"{CONTAINER}.env[*]", False),
        ({"env": [{"name": "MORE", "value": "2"}]}, {}, "", False),
        ({}, {"nodeSelector": {"disk": None}}, "spec.template.spec.nodeSelector", False),
        ({}, {"tolerations": []}, "spec.template.spec.tolerations", False),
        ({}, {"schedulerName": "other"}, "", False),
    ],
    ids=["image", "env", "env taken out", "env added", "selector", "tolerations", "what we do not state"],
)
async def test_the_server_tells_what_others_have_changed_of_a_template(
    client: ApiClient, api: Api, namespace: str, engine: str, container: Any, pod: Any, field: str, who: bool
):
    own = make_service(engine, template=TEMPLATE)
    plan = make_plan(ServicePlan(own.name, namespace, own.uid, own.spec, own.catalogue))
    body, path = deployment_template(plan), DEPLOYMENTS.path(namespace, plan.name)

    async def missing() -> tuple[str, str]:
        return await told(client, DEPLOYMENTS, plan.name, namespace, body)

    made = await client.apply(DEPLOYMENTS, plan.name, body, namespace, manager=FIELD_MANAGER)
    assert (await missing())[0] == ""
    restarted = {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "2026-12-01T10:00:00Z"}}}
    api.patch(path, {"spec": {"template": restarted}}, fieldManager="kubectl-rollout")
    assert (await missing())[0] == "", "a restart by kubectl is the user's own wish"
    containers = [{"name": "server", **container}]
    changes = {"spec": {"template": {"spec": {"containers": containers, **pod}}}}
    api.patch(path, changes, "application/strategic-merge-patch+json", fieldManager="kubectl-edit")
    gone, words = await missing()
    assert re.sub(r"env\[\d+\]", "env[*]", gone) == field
    assert ("changed by kubectl-edit" if who else "taken out" if field else "") in words
    body["metadata"]["uid"] = made.metadata.uid
    await client.apply(DEPLOYMENTS, plan.name, body, namespace, manager=FIELD_MANAGER)
    assert (await missing())[0] == ""


async def test_a_template_that_was_edited_by_hand_is_put_right_on_the_server(
    client: ApiClient, api: Api, namespace: str
):
    """By what carries out plans, on what the server records; the count, which was edited too, stays the count's."""
    world = Rolling(client, namespace)
    await world.found(2)
    path = DEPLOYMENTS.path(namespace, NAME)
    before = api.get(path)["spec"]["template"]
    containers = [{"name": "server", "image": "example.com/other:2"}]
    edit = {"spec": {"replicas": 5, "paused": True, "template": {"spec": {"containers": containers}}}}
    api.patch(path, edit, "application/strategic-merge-patch+json", fieldManager="kubectl-edit")
    while True:
        world.caches.deployments.put(await client.get(DEPLOYMENTS, NAME, namespace))
        with suppress(Conflict):  # its controller writes too
            await world.look(world.plan(2))
            break
    spec = api.get(path)["spec"]
    assert (spec["template"], spec["replicas"], spec.get("paused", False)) == (before, 2, False)
    told = world.mends.told(world.view.uid, world.now)
    assert "spec.template.spec.containers[0].image of Deployment" in told
    assert "changed by kubectl-edit" in told
    version = api.get(path)["metadata"]["generation"]
    world.caches.deployments.put(await client.get(DEPLOYMENTS, NAME, namespace))
    await world.look(world.plan(2))
    assert api.get(path)["metadata"]["generation"] == version
