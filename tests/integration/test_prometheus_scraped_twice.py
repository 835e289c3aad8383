"""What a real Prometheus answers where two of its jobs find the same pods: each counts once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from berth.devcluster import prometheus as prometheus_program
from berth.devcluster.problems import BuildFailed, ToolMissing
from berth.devcluster.prometheus import PrometheusServer
from berth.telemetry.prometheus import Prometheus, PrometheusSettings, PrometheusSource
from berth.telemetry.readings import ServiceQuery, SignalQuery, Telling
from tests.conftest import without
from tests.unit.telemetry.servers import Heard, serving

ENGINE = SignalQuery("engine", "Prometheus", "vLLM")
GATEWAY = SignalQuery("gateway", "Prometheus", "InferenceExtension")
CHAT = ServiceQuery("serving", "chat", (ENGINE, GATEWAY), ("chat-l4-aaaaa-1", "chat-l4-aaaaa-2"), ("chat-l4",))
LOADS = """\
vllm:num_requests_running{namespace="serving",pod="chat-l4-aaaaa-1",engine="0"} 3
vllm:num_requests_running{namespace="serving",pod="chat-l4-aaaaa-1",engine="1"} 4
vllm:num_requests_running{namespace="serving",pod="chat-l4-aaaaa-2",engine="0"} 5
vllm:num_requests_waiting{namespace="serving",pod="chat-l4-aaaaa-1",engine="0"} 1
vllm:num_requests_waiting{namespace="serving",pod="chat-l4-aaaaa-2",engine="0"} 0
inference_extension_flow_control_queue_size{namespace="serving",inference_pool="chat",priority="0"} 2
inference_extension_flow_control_queue_size{namespace="serving",inference_pool="chat",priority="1"} 6
"""


@pytest.fixture(params=[("pods",), ("pods", "endpoints")], ids=["one job", "two jobs"])
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[PrometheusServer]:
    """A Prometheus whose jobs all scrape the same exporter, which speaks for two pods and a gateway."""
    try:
        prometheus_program.program()
    except (ToolMissing, BuildFailed) as problem:
        without("Prometheus", problem)

    def answer(_: Heard) -> str:
        return LOADS

    async with serving(answer) as exporter:
        started = PrometheusServer(tmp_path, [f"127.0.0.1:{exporter.port}"], 0.5, jobs=request.param)
        await asyncio.to_thread(started.start)
        try:
            yield started
        finally:
            await asyncio.to_thread(started.stop)


@asynccontextmanager
async def source(server: PrometheusServer) -> AsyncIterator[PrometheusSource]:
    client = Prometheus(PrometheusSettings(server.url))
    try:
        yield PrometheusSource(client)
    finally:
        await client.close()


async def told(server: PrometheusServer, found: PrometheusSource) -> Telling:
    """What is told once every job has scraped."""
    for _ in range(200):
        up = await asyncio.to_thread(server.query, "vllm:num_requests_waiting")
        if len(up) == 2 * len(server.jobs):
            return (await found.poll([CHAT], {}))[CHAT.key]
        await asyncio.sleep(0.1)
    raise AssertionError(f"no scrape within 20 s: {server.process.tail()}")


async def test_a_pod_that_two_jobs_scrape_counts_once(server: PrometheusServer) -> None:
    async with source(server) as found:
        telling = await told(server, found)
        assert {name: reading.load for name, reading in telling.readings.items()} == {"engine": 13.0, "gateway": 8.0}
        assert telling.in_flight == {"chat-l4-aaaaa-1": 8.0, "chat-l4-aaaaa-2": 5.0}
        now = float(server.query("time()")[0])  # type: ignore[arg-type]
        past = await found.history(replace(CHAT, signals=(ENGINE,)), ENGINE, now - 60, now, 1.0)
        assert {load for _, load in past if load is not None} <= {13.0}
        assert past
