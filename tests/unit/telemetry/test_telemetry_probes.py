"""Probes and metrics as a kubelet and Prometheus ask for them: over HTTP, from a thread that no loop can hold up."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from berth.telemetry.metrics import Metrics
from berth.telemetry.probes import Heartbeat, ProbeServer


def well() -> list[str]:
    return []


@contextmanager
def serving(
    healthz: Callable[[], list[str]] = well,
    readyz: Callable[[], list[str]] = well,
    metrics: Metrics | None = None,
) -> Iterator[ProbeServer]:
    server = ProbeServer("127.0.0.1", 0, healthz=healthz, readyz=readyz, registry=metrics and metrics.registry)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def ask(server: ProbeServer, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/healthz?verbose"])
def test_all_well_is_200_ok(path: str) -> None:
    with serving() as server:
        assert ask(server, path) == (200, "ok\n")


def test_each_probe_fails_for_its_own_reasons_and_names_them_all() -> None:
    with serving(healthz=lambda: ["pods: silent", "nodes: silent"], readyz=well) as server:
        assert ask(server, "/healthz") == (503, "pods: silent\nnodes: silent\n")
        assert ask(server, "/readyz")[0] == 200


def test_unknown_paths_are_404_and_metrics_only_where_there_are_any() -> None:
    with serving() as server:
        assert ask(server, "/")[0] == 404
        assert ask(server, "/metrics")[0] == 404


def test_a_check_that_breaks_fails_the_probe_and_says_so() -> None:
    def broken() -> list[str]:
        raise KeyError("pool p")

    with serving(healthz=broken) as server:
        status, body = ask(server, "/healthz")
        assert status == 500
        assert "KeyError" in body
        assert ask(server, "/readyz")[0] == 200


def test_a_loop_that_is_stuck_fails_healthz_until_it_runs_again() -> None:
    now = 1000.0
    heartbeat = Heartbeat(limit_seconds=30.0, clock=lambda: now)
    with serving(healthz=heartbeat.problems) as server:
        assert ask(server, "/healthz")[0] == 200
        now = 1030.0
        assert ask(server, "/healthz")[0] == 200
        now = 1031.0
        assert ask(server, "/healthz") == (503, "the event loop has not run for 31 s\n")
        heartbeat.beat()
        assert ask(server, "/healthz")[0] == 200


def test_the_probe_is_answered_while_the_caller_s_own_thread_is_busy() -> None:
    """The main thread stands in for an event loop: it waits for the answer without ever yielding to a loop."""
    answers: list[int] = []
    with serving() as server:
        asking = threading.Thread(target=lambda: answers.append(ask(server, "/healthz")[0]))
        asking.start()
        asking.join(5)
    assert answers == [200]


def test_metrics_are_served_in_prometheus_text() -> None:
    metrics = Metrics()
    metrics.called("create", "pods", "201", 0.02)
    with serving(metrics=metrics) as server:
        status, body = ask(server, "/metrics")
    assert status == 200
    assert 'berth_api_requests_total{outcome="201",resource="pods",verb="create"} 1.0' in body


def test_a_stopped_server_gives_its_port_back() -> None:
    with serving() as server:
        port = server.port
    again = ProbeServer("127.0.0.1", port, healthz=well, readyz=well, registry=None)
    again.start()
    assert ask(again, "/readyz")[0] == 200
    again.stop()


def test_a_port_that_is_taken_is_an_error_at_once() -> None:
    with serving() as server, pytest.raises(OSError, match="in use"):
        ProbeServer("127.0.0.1", server.port, healthz=well, readyz=well, registry=None)
