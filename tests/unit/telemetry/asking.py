"""A Prometheus server whose answers tests write, and a source that asks it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from berth.telemetry.prometheus import (
    Prometheus,
    PrometheusSettings,
    PrometheusSource,
)
from berth.telemetry.readings import ServiceQuery, SignalQuery, Telling
from tests.unit.telemetry.servers import Heard, Server, serving

ENGINE = SignalQuery("engine", "Prometheus", "vLLM")
NOW = 5000.0
RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
ERROR = {"status": "error", "errorType": "bad_data", "error": "parse error"}


def series(value: float | str, **labels: str) -> Any:
    return {"metric": {"namespace": "serving", "pod": "chat-1", **labels}, "value": [NOW, str(value)]}


def success(*found: Any, kind: str = "vector") -> Any:
    return {"status": "success", "data": {"resultType": kind, "result": list(found)}}


def by_metric(answers: Mapping[str, list[Any]]) -> Callable[[Heard], Any]:
    """The answer to a query is that of the first entry whose name occurs in it, empty without one."""
    return lambda heard: success(*next((v for name, v in answers.items() if f'"{name}"' in heard.form["query"]), []))


class Wall:
    at = NOW

    def __call__(self) -> float:
        return self.at


@asynccontextmanager
async def asking(
    answer: Callable[[Heard], Any], *, round_seconds: float = 60.0, **fields: Any
) -> AsyncIterator[tuple[PrometheusSource, Server, Wall]]:
    async with serving(answer) as server:
        settings = PrometheusSettings(server.url, **{"timeout_seconds": 60.0, **fields})
        client, wall = Prometheus(settings), Wall()
        try:
            yield PrometheusSource(client, round_seconds=round_seconds, wall=wall), server, wall
        finally:
            await client.close()


def query(*signals: SignalQuery, name: str = "chat", pods: tuple[str, ...] = ("chat-1", "chat-2")) -> ServiceQuery:
    return ServiceQuery("serving", name, signals or (ENGINE,), pods, (f"{name}-l4",))


async def poll(answer: Callable[[Heard], Any], *signals: SignalQuery, **more: Any) -> Telling:
    async with asking(answer, **more) as (source, _, _):
        asked = query(*signals)
        return (await source.poll([asked], {}))[asked.key]


def refusing(status: int, body: Any) -> Callable[[Heard], Any]:
    def answer(_: Heard) -> web.Response:
        if isinstance(body, str):
            return web.Response(status=status, text=body)
        return web.json_response(body, status=status)

    return answer
