"""The cache against a real API server, through a wire that is cut and frozen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import pytest

from berth.cluster.cache import Cache
from berth.cluster.client import ApiClient
from berth.cluster.errors import Expired
from berth.cluster.kinds import CRDS, NODES, Kind
from berth.cluster.session import from_kubeconfig
from berth.cluster.transport import Transport
from berth.cluster.wire import Document
from berth.devcluster.api import Api
from berth.devcluster.cluster import DevCluster
from tests.integration.wire_cutter import WireCutter, cutting

pytestmark = pytest.mark.cluster

CONFIG_MAPS = Kind("", "v1", "configmaps", "ConfigMap", True, Document)


@pytest.fixture
async def wire(cluster: DevCluster) -> AsyncIterator[tuple[WireCutter, ApiClient]]:
    connection = from_kubeconfig(cluster.kubeconfig)
    async with cutting(connection.server) as (cutter, url):
        connection.server = url
        yield cutter, ApiClient(Transport(connection))
        await connection.close()


@pytest.fixture
async def watch(wire: tuple[WireCutter, ApiClient], namespace: str) -> AsyncIterator[Cache[Document]]:
    """A synced cache of the config maps labelled ``a=b``."""
    cache = Cache(wire[1], CONFIG_MAPS, namespace, label_selector="a=b", page=3, silence=2.0)
    task = asyncio.create_task(cache.run())
    await asyncio.wait_for(cache.synced.wait(), 10)
    yield cache
    assert not task.done()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


class Maps:
    """Config maps, made and deleted past the wire."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api, self._path = api, f"/api/v1/namespaces/{namespace}/configmaps"

    def add(self, *names: str, label: str = "b") -> None:
        for name in names:
            self._api.post(self._path, {"metadata": {"name": name, "labels": {"a": label}}})

    def delete(self, *names: str) -> None:
        for name in names:
            self._api.delete(f"{self._path}/{name}")

    def relabel(self, name: str, label: str) -> None:
        self._api.patch(f"{self._path}/{name}", {"metadata": {"labels": {"a": label}}})


@pytest.fixture
def maps(api: Api, namespace: str) -> Maps:
    return Maps(api, namespace)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what changes lies behind a socket
            await asyncio.sleep(0.01)


async def expect_names(cache: Cache[Document], *names: str) -> None:
    await until(lambda: {each.metadata.name for each in cache} == set(names))


async def test_pages_changes_and_selectors(watch: Cache[Document], maps: Maps, wire):
    maps.add(*(f"c{number}" for number in range(5)))
    maps.add("other", label="c")
    await expect_names(watch, *(f"c{number}" for number in range(5)))
    maps.relabel("c0", "c")
    maps.relabel("other", "b")
    maps.delete("c1")
    await expect_names(watch, "c2", "c3", "c4", "other")
    second = Cache(wire[1], CONFIG_MAPS, watch.namespace, label_selector="a=b", page=3)
    task = asyncio.create_task(second.run())
    await second.synced.wait()
    assert {each.metadata.uid for each in second} == {each.metadata.uid for each in watch}
    task.cancel()


async def test_a_cut_stream_resumes_from_where_it_was(watch: Cache[Document], maps: Maps, wire):
    cutter, _ = wire
    maps.add("a", "b")
    await expect_names(watch, "a", "b")
    for name in ("c", "d"):
        cutter.refusing = True
        cutter.cut()
        maps.add(name)
        maps.delete({"c": "a", "d": "b"}[name])
        cutter.refusing = False
        await until(lambda name=name: watch.get(name, watch.namespace) is not None)
    await expect_names(watch, "c", "d")
    assert watch.relists == 1


async def test_a_stream_that_froze_is_replaced(watch: Cache[Document], maps: Maps, wire):
    cutter, _ = wire
    before = cutter.connections
    cutter.freeze()
    maps.add("a")
    await expect_names(watch, "a")
    assert cutter.connections > before
    assert watch.relists == 1


@pytest.fixture
async def widgets(wire: tuple[WireCutter, ApiClient]) -> AsyncIterator[Kind[Document]]:
    """A kind that the server began to serve only now, so that it remembers no version of before."""
    schema = {"type": "object"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget"}
    spec = {"group": "test.berth.dev", "scope": "Cluster", "names": names, "versions": [version]}
    _, client = wire
    made = await client.create(CRDS, {"metadata": {"name": "widgets.test.berth.dev"}, "spec": spec})
    kind = Kind("test.berth.dev", "v1", "widgets", "Widget", False, Document)
    async with asyncio.timeout(20):
        while not await client.serves(kind):  # noqa: ASYNC110 - the server takes its time to serve a new kind
            await asyncio.sleep(0.05)
    yield kind
    await client.delete(CRDS, "widgets.test.berth.dev", uid=made.metadata.uid)


async def test_deletions_behind_an_expired_version_are_found(widgets: Kind[Document], api: Api, wire):
    """dotnet-operator-sdk#675, NVSentinel#1542: the server answers 410, and the objects that are gone stay not."""
    cutter, client = wire
    body = {"apiVersion": widgets.api_version, "kind": widgets.kind}
    for name in "abc":
        await client.create(widgets, body | {"metadata": {"name": name}})
    with pytest.raises(Expired):
        async for _ in client.watch(widgets, "1", seconds=5):
            pass
    cache = Cache(client, widgets)
    task = asyncio.create_task(cache.run())
    await expect_names(cache, "a", "b", "c")
    gone: list[str] = []
    cache.subscribe(lambda old, new: gone.append(old.metadata.name) if new is None else None)
    cache._resume = "1"  # away for longer than the server remembers
    cutter.refusing = True
    cutter.cut()
    for name in "ab":
        api.delete(widgets.path(name=name))
    cutter.refusing = False
    await expect_names(cache, "c")
    assert (sorted(gone), cache.relists) == (["a", "b"], 2)
    task.cancel()


async def test_what_we_write_is_known_before_the_watch_tells(watch: Cache[Document], maps: Maps, wire):
    _, client = wire
    body = {"metadata": {"name": "ours", "labels": {"a": "b"}}}
    made = await client.create(CONFIG_MAPS, body, watch.namespace)
    watch.put(made)
    assert watch.get("ours", watch.namespace) is not None
    await until(lambda: watch.version >= made.metadata.version)
    maps.delete("ours")
    await expect_names(watch)
    assert not watch.put(made)


async def test_nodes_are_read_as_the_scheduler_sees_them(wire):
    nodes = Cache(wire[1], NODES)
    task = asyncio.create_task(nodes.run())
    await nodes.synced.wait()
    by_gpu = nodes.index(lambda node: node.metadata.labels.get("nvidia.com/gpu.product"))
    hopper = by_gpu.get("NVIDIA-H100-80GB-HBM3")
    assert len(hopper) == 4
    assert {node.status.allocatable["nvidia.com/gpu"] for node in hopper.values()} == {"8"}
    assert all(node.ready for node in nodes)
    task.cancel()
