"""kopf and our client over one session: what kopf does to it, we survive (nolar/kopf#1308: the login is a contract)."""

from __future__ import annotations

import asyncio
from typing import Any

import kopf
import pytest

from berth.cluster.client import ApiClient
from berth.cluster.kinds import NAMESPACES
from berth.cluster.session import from_kubeconfig
from berth.cluster.transport import Transport
from berth.devcluster.api import Api
from berth.devcluster.cluster import DevCluster

pytestmark = pytest.mark.cluster


async def test_kopf_logs_in_with_our_session_and_closes_it(cluster: DevCluster, api: Api, namespace: str):
    connection = from_kubeconfig(cluster.kubeconfig)
    client = ApiClient(Transport(connection))
    await client.get(NAMESPACES, namespace)
    shared = connection.session()
    seen: asyncio.Queue[str] = asyncio.Queue()
    registry, settings, stop = kopf.OperatorRegistry(), kopf.OperatorSettings(), asyncio.Event()
    settings.scanning.disabled = True
    settings.peering.standalone = True
    settings.posting.enabled = False

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.AiohttpSession:
        return connection.for_kopf()

    @kopf.on.event("v1", "configmaps", registry=registry)
    async def event(name: str, **_: Any) -> None:
        seen.put_nowait(name)

    operator = asyncio.create_task(
        kopf.operator(registry=registry, settings=settings, namespaces=[namespace], stop_flag=stop)
    )
    api.post(f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": "ours"}})
    async with asyncio.timeout(20):
        while await seen.get() != "ours":
            pass
    stop.set()
    await asyncio.wait_for(operator, 20)
    assert shared.closed
    await client.get(NAMESPACES, namespace)
    await connection.close()
