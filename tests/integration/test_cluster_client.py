"""What the client believes about the API, asked of a real API server."""

from __future__ import annotations

import ssl
import uuid

import pytest

from berth.cluster.client import ApiClient
from berth.cluster.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound, Unauthorized
from berth.cluster.kinds import NAMESPACES, NODES, POD_GROUPS, PODS, SERVICES, Kind
from berth.cluster.session import Connection, Token
from berth.cluster.transport import Transport
from berth.cluster.wire import Document
from berth.devcluster.api import Api
from berth.devcluster.cluster import DevCluster
from berth.devcluster.process import wait_until

pytestmark = pytest.mark.cluster

CONFIG_MAPS = Kind("", "v1", "configmaps", "ConfigMap", True, Document)
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "w", "image": "example.com/w:1", "resources": {"requests": {"cpu": "1"}}}]},
}


def config(**data: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data}


async def test_apply_creates_changes_and_gives_up_fields(client: ApiClient, api: Api, namespace: str):
    path = f"/api/v1/namespaces/{namespace}/configmaps/c"
    first = await client.apply(CONFIG_MAPS, "c", config(a="1", b="2"), namespace, manager="berth")
    same = await client.apply(CONFIG_MAPS, "c", config(a="1", b="2"), namespace, manager="berth")
    assert same.metadata.resource_version == first.metadata.resource_version, "nothing changed, nothing written"
    await client.apply(CONFIG_MAPS, "c", config(a="3"), namespace, manager="berth")
    assert api.get(path)["data"] == {"a": "3"}


async def test_an_apply_made_for_another_version_is_a_conflict_even_by_force(
    client: ApiClient, api: Api, namespace: str
):
    made = await client.create(PODS, POD, namespace)

    def body(version: str) -> dict[str, object]:
        meta = {"name": "p", "uid": made.metadata.uid, "resourceVersion": version}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "status": {"message": "seen"}}

    api.patch(f"/api/v1/namespaces/{namespace}/pods/p", {"metadata": {"annotations": {"a": "b"}}})
    old = body(made.metadata.resource_version)
    with pytest.raises(Conflict):
        await client.apply(PODS, "p", old, namespace, manager="berth", subresource="status")
    now = body((await client.get(PODS, "p", namespace)).metadata.resource_version)
    answer = await client.apply(PODS, "p", now, namespace, manager="berth", subresource="status")
    assert answer.status.message == "seen"


async def test_another_managers_field_is_a_conflict_that_force_ends(client: ApiClient, api: Api, namespace: str):
    await client.apply(CONFIG_MAPS, "c", config(a="1"), namespace, manager="somebody")
    with pytest.raises(Conflict) as caught:
        await client.apply(CONFIG_MAPS, "c", config(a="2"), namespace, manager="berth", force=False)
    assert [(cause.reason, cause.field) for cause in caught.value.causes] == [("FieldManagerConflict", ".data.a")]
    await client.apply(CONFIG_MAPS, "c", config(a="2"), namespace, manager="berth")
    assert api.get(f"/api/v1/namespaces/{namespace}/configmaps/c")["data"] == {"a": "2"}


async def test_a_status_has_its_own_managers(client: ApiClient, api: Api, namespace: str):
    await client.create(PODS, POD, namespace)
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "status": {"reason": "Because"}}
    changed = await client.apply(PODS, "p", body, namespace, manager="berth", subresource="status")
    assert changed.status.reason == "Because"


async def test_updating_an_old_version_is_a_conflict(client: ApiClient, namespace: str):
    made = await client.create(CONFIG_MAPS, {"metadata": {"name": "c"}}, namespace)
    await client.patch(CONFIG_MAPS, "c", config(a="1"), namespace)
    with pytest.raises(Conflict):
        await client.update(CONFIG_MAPS, "c", made, namespace)


async def test_json_patches_test_what_they_change(client: ApiClient, api: Api, namespace: str):
    await client.create(CONFIG_MAPS, config(a="1"), namespace)
    patch = [{"op": "test", "path": "/data/a", "value": "2"}, {"op": "remove", "path": "/data/a"}]
    with pytest.raises(Invalid):
        await client.patch(CONFIG_MAPS, "c", patch, namespace, how="json")
    patch[0]["value"] = "1"
    await client.patch(CONFIG_MAPS, "c", patch, namespace, how="json")
    assert "data" not in api.get(f"/api/v1/namespaces/{namespace}/configmaps/c")


async def test_a_delete_hits_only_what_it_means(client: ApiClient, namespace: str):
    """rabbitmq/cluster-operator#648, #653: a stale decision never deletes a namesake or a changed object."""
    made = await client.create(CONFIG_MAPS, {"metadata": {"name": "c"}}, namespace)
    uid, version = made.metadata.uid, made.metadata.resource_version
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAPS, "c", namespace, uid=str(uuid.uuid4()))
    await client.patch(CONFIG_MAPS, "c", config(a="1"), namespace)
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAPS, "c", namespace, uid=uid, resource_version=version)
    assert await client.delete(CONFIG_MAPS, "c", namespace, uid=uid)
    assert not await client.delete(CONFIG_MAPS, "c", namespace, uid=uid)


async def test_a_pod_goes_at_once_without_grace(client: ApiClient, namespace: str):
    pod = await client.create(PODS, POD, namespace)
    assert await client.delete(PODS, "p", namespace, uid=pod.metadata.uid, grace_seconds=0)
    assert await client.find(PODS, "p", namespace) is None


async def test_a_list_in_pages_is_the_whole_list(client: ApiClient, namespace: str):
    for number in range(7):
        await client.create(CONFIG_MAPS, {"metadata": {"name": f"c{number}", "labels": {"a": "b"}}}, namespace)
    selected = {"label_selector": "a=b", "field_selector": "metadata.name!=c3"}
    pages = [page async for page in client.pages(CONFIG_MAPS, namespace, limit=3, **selected)]
    assert len(pages) > 1
    assert sum(len(page.items or ()) for page in pages) == 6
    assert len({page.metadata.resource_version for page in pages}) == 1
    whole = await client.list(CONFIG_MAPS, namespace, **selected)
    assert len(whole.items) == 6
    assert len((await client.list(NODES, limit=2)).items) == 8


async def test_a_dry_run_judges_and_leaves_nothing(client: ApiClient, namespace: str):
    judged = await client.create(PODS, POD, namespace, dry_run=True)
    assert judged.metadata.uid
    assert await client.find(PODS, "p", namespace) is None
    with pytest.raises(Invalid) as caught:
        await client.create(PODS, POD | {"spec": {"containers": [{"name": "W"}]}}, namespace, dry_run=True)
    assert "spec.containers[0].name" in {cause.field for cause in caught.value.causes}


async def test_a_quota_refuses_in_its_own_words(client: ApiClient, api: Api, namespace: str):
    quotas = f"/api/v1/namespaces/{namespace}/resourcequotas"
    api.post(quotas, {"metadata": {"name": "small"}, "spec": {"hard": {"requests.cpu": "500m"}}})
    assert wait_until(lambda: api.get(f"{quotas}/small").get("status", {}).get("hard"), 30)
    with pytest.raises(Forbidden) as caught:
        await client.create(PODS, POD, namespace, dry_run=True)
    assert caught.value.quota_exceeded
    assert not caught.value.not_permitted
    assert "requested: requests.cpu=1" in caught.value.message
    silent = POD | {"spec": {"containers": [{"name": "w", "image": "example.com/w:1"}]}}
    with pytest.raises(Forbidden, match=r"must specify requests\.cpu") as caught:
        await client.create(PODS, silent, namespace, dry_run=True)
    assert not caught.value.quota_exceeded


async def test_a_namespace_that_is_being_deleted_takes_nothing_new(client: ApiClient, api: Api):
    """nolar/kopf#1225."""
    name = f"t-{uuid.uuid4().hex[:10]}"
    made = await client.create(NAMESPACES, {"metadata": {"name": name}})
    await client.create(CONFIG_MAPS, {"metadata": {"name": "holds", "finalizers": ["example.com/holds"]}}, name)
    try:
        await client.delete(NAMESPACES, name, uid=made.metadata.uid)
        assert (await client.get(NAMESPACES, name)).terminating
        with pytest.raises(Forbidden) as caught:
            await client.create(SERVICES, {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}]}}, name)
        assert caught.value.caused_by("NamespaceTerminating")
    finally:
        await client.patch(CONFIG_MAPS, "holds", {"metadata": {"finalizers": None}}, name)


async def test_a_taken_name_and_a_missing_one(client: ApiClient, namespace: str):
    await client.create(CONFIG_MAPS, {"metadata": {"name": "c"}}, namespace)
    with pytest.raises(AlreadyExists):
        await client.create(CONFIG_MAPS, {"metadata": {"name": "c"}}, namespace)
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAPS, "d", namespace)


async def test_what_is_served_is_discovered(client: ApiClient):
    assert await client.serves(PODS)
    assert "pods/status" in await client.resources("", "v1")
    assert not await client.serves(Kind("berth.dev", "v0", "nothings", "Nothing", True, Document))
    assert isinstance(await client.serves(POD_GROUPS), bool)
    assert (await client.server_version()).startswith("v1.")


async def test_a_token_that_ran_out_is_replaced_unseen(cluster: DevCluster, api: Api, namespace: str):
    """nolar/kopf#1031: the server refuses the old token, the new one is read, the caller notices nothing."""
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    good = api.post(f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token", request)["status"]["token"]
    tokens = ["ran out", good]
    tls = ssl.create_default_context(cadata=cluster.ca.decode())
    connection = Connection(cluster.server, tls, Token(lambda: tokens.pop(0) if len(tokens) > 1 else tokens[0]))
    assert (await ApiClient(Transport(connection)).server_version()).startswith("v1.")
    with pytest.raises(Forbidden, match="system:serviceaccount") as caught:
        await ApiClient(Transport(connection)).create(PODS, POD, namespace)
    assert caught.value.not_permitted
    connection.token = Token(lambda: "never was one")
    with pytest.raises(Unauthorized):
        await ApiClient(Transport(connection)).get(NODES, "any")
    await connection.close()
