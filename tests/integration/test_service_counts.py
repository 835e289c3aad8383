"""Counts and marks as a real API server takes them: never to another object, and with the name of whoever set them."""

from __future__ import annotations

from typing import Any

import pytest

from berth.api.names import FIELD_MANAGER, SCALE_MANAGER
from berth.cluster import wire
from berth.cluster.client import ApiClient
from berth.cluster.errors import Conflict, Invalid
from berth.cluster.kinds import DEPLOYMENT_WRITERS, DEPLOYMENTS, DISRUPTION_BUDGETS, SERVICES, Kind
from berth.controllers.services.contest import writers
from berth.controllers.services.upkeep import lost, others
from berth.devcluster.api import Api
from berth.render.service.deployment import deployment, deployment_scale
from berth.render.service.exposure import disruption_budget, service
from berth.render.service.plan import ServicePlan
from tests.builders.services import make_plan, make_service

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
    assert writers(found.metadata.managed_fields, (FIELD_MANAGER, SCALE_MANAGER)) == ("autoscaler (through scale)",)


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
        found = await client.get(kind.written(), own.name, namespace)
        fields = found.metadata.managed_fields
        return lost(body, fields, FIELD_MANAGER), others(fields, FIELD_MANAGER)

    await client.apply(kind, own.name, body, namespace, manager=FIELD_MANAGER)
    assert (await missing())[0] == ""
    api.patch(kind.path(namespace, own.name), {"spec": change}, fieldManager="hand")
    assert (await missing())[0] == field
    assert (await missing())[1] == "hand"
    await client.apply(kind, own.name, body, namespace, manager=FIELD_MANAGER)
    assert (await missing())[0] == ""
