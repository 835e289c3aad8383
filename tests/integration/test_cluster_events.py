"""Events as people find them on a real API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from berth.cluster.client import ApiClient
from berth.cluster.events import EventRecorder, about
from berth.cluster.kinds import EVENTS, NODES, PODS
from berth.cluster.wire import Pod
from tests.conftest import Kubectl

pytestmark = pytest.mark.cluster


@pytest.fixture
async def pod(client: ApiClient, namespace: str) -> Pod:
    """A pod that no scheduler looks at, so that all its events are ours."""
    spec = {"schedulerName": "nobody", "containers": [{"name": "w", "image": "example.com/w:1"}]}
    return await client.create(PODS, {"metadata": {"name": "p"}, "spec": spec}, namespace)


@pytest.fixture
async def recorder(client: ApiClient) -> AsyncIterator[EventRecorder]:
    recorder = EventRecorder(
        client, "berth.dev/operator", "test", supersedes={"Started": {"Placed"}}, hold=0.3, series_interval=0.3
    )
    task = asyncio.create_task(recorder.run())
    yield recorder
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def reasons(client: ApiClient, namespace: str) -> list[tuple[str, str, int]]:
    events = (await client.list(EVENTS, namespace)).items
    return sorted((each.type, each.reason, each.series.count if each.series else 1) for each in events)


async def test_events_are_folded_counted_and_found_by_kubectl(
    client: ApiClient, recorder: EventRecorder, pod: Pod, namespace: str, kubectl: Kubectl
):
    on_pod = about(PODS, pod.metadata)
    recorder.normal(on_pod, "Placed", "on gpu-1")
    recorder.normal(on_pod, "Started", "runs")
    for _ in range(3):
        recorder.warning(on_pod, "NodeLost", "gpu-1 is gone")
    async with asyncio.timeout(10):
        while await reasons(client, namespace) != [("Normal", "Started", 1), ("Warning", "NodeLost", 3)]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    shown = kubectl("-n", namespace, "events", "--for", "pod/p")
    assert "gpu-1 is gone" in shown
    assert "x3" in shown
    assert (recorder.counts.folded, recorder.counts.failed) == (1, 0)


async def test_a_clean_stop_leaves_nothing_untold(client: ApiClient, recorder: EventRecorder, pod: Pod, namespace: str):
    recorder.normal(about(PODS, pod.metadata), "Placed", "on gpu-1")
    await recorder.flush()
    assert await reasons(client, namespace) == [("Normal", "Placed", 1)]


async def test_what_the_api_would_refuse_is_counted_not_raised(client: ApiClient, recorder: EventRecorder, pod: Pod):
    recorder.warning(about(PODS, pod.metadata), "R" * 200, "the reason is too long")
    await recorder.flush()
    assert (recorder.counts.failed, recorder.counts.written) == (1, 0)


async def test_cluster_scoped_objects_have_events_too(client: ApiClient, recorder: EventRecorder):
    node = (await client.list(NODES)).items[0]
    recorder.warning(about(NODES, node.metadata), "Suspicious", "three jobs failed here")
    await recorder.flush()
    listed = (await client.list(EVENTS, "default")).items
    assert ("Suspicious", node.metadata.name) in {(each.reason, each.regarding.name) for each in listed}
