"""What the entry point serves on which port."""

from __future__ import annotations

import http.client
from typing import Any

import pytest

from berth.main import _serve
from berth.telemetry.metrics import Metrics


class Well:
    """An operator about which there is nothing to say."""

    def not_healthy(self) -> list[str]:
        return []

    not_ready = not_healthy


def answers(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.fixture
def free_port() -> int:
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def served(health: int, metrics: int) -> list[dict[str, int]]:
    """By server, the status of each path."""
    app: Any = Well()
    options = {"bind_address": "127.0.0.1", "health_port": health, "metrics_port": metrics}
    servers = _serve(app, Metrics(), options)
    try:
        return [{path: answers(each.port, path) for path in ("/healthz", "/readyz", "/metrics")} for each in servers]
    finally:
        for each in servers:
            each.stop()


def test_the_health_port_that_everybody_may_reach_tells_no_metrics() -> None:
    health, metrics = served(0, 0)
    assert health == {"/healthz": 200, "/readyz": 200, "/metrics": 404}
    assert metrics["/metrics"] == 200


def test_one_port_for_both_serves_both(free_port: int) -> None:
    (both,) = served(free_port, free_port)
    assert both == {"/healthz": 200, "/readyz": 200, "/metrics": 200}
