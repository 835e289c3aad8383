"""A server that answers the operator's PromQL on loopback, for measurements that need many services and no scraping.

It understands no PromQL: it knows the metric names that a query mentions and answers with one series for each pod that
the API server shows, and for the past with what the service had all along. What is measured is the operator; a real
Prometheus is in the end-to-end tests.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

Values = Callable[[str], Mapping[tuple[str, str], float]]
"""Metric name to the value of each (namespace, pod)."""
Past = Callable[[str, str], float | None]
"""Metric name and service to the value at any time before now; None: nothing is remembered."""
MOST_PAST_SECONDS = 3600.0
"""How far back it remembers."""


def nothing(metric: str, service: str) -> float | None:
    """A server that was not there."""
    return None


class MetricsServer:
    """A context manager; ``url`` is what the operator is given.

    Raises, on leaving: RuntimeError, a query was not answered, so that what was measured is something else.
    """

    def __init__(self, values: Values, past: Past = nothing) -> None:
        handler = type("Handler", (_Handler,), {"values": staticmethod(values), "past": staticmethod(past)})
        self._server = _Server(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)

    def __enter__(self) -> MetricsServer:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        if kind is None and self._server.failures:
            raise RuntimeError(f"{len(self._server.failures)} queries failed: {self._server.failures[0]!r}")


class _Server(ThreadingHTTPServer):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.failures: list[BaseException | None] = []

    def handle_error(self, request: object, client_address: object) -> None:
        problem = sys.exc_info()[1]
        if not isinstance(problem, ConnectionError):
            self.failures.append(problem)


class _Handler(BaseHTTPRequestHandler):
    values: Values
    past: Past
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """One query."""
        length = int(self.headers.get("Content-Length", 0))
        asked = self.rfile.read(length)
        if len(asked) < length:
            raise ConnectionResetError("whoever asked has gone")
        form = {key: values[0] for key, values in parse_qs(asked.decode()).items()}
        query, kind, result = form.get("query", ""), "vector", list[dict[str, object]]()
        name = query.partition('__name__="')[2].partition('"')[0]
        if self.path.endswith("/query_range"):
            kind, service = "matrix", query.partition('pod=~"')[2].lstrip("(").partition("-")[0]
            value = self.past(name, service)
            if value is not None:
                result.append({"metric": {}, "values": [[at, str(value)] for at in _grid(form)]})
        else:
            now = time.time()
            for (namespace, pod), value in self.values(name).items():
                result.append({"metric": {"namespace": namespace, "pod": pod}, "value": [now, str(value)]})
        body = json.dumps({"status": "success", "data": {"resultType": kind, "result": result}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


def _grid(form: Mapping[str, str]) -> list[float]:
    """The moments that a range query asks for, as far as they are remembered."""
    start, end, step = (float(form[key]) for key in ("start", "end", "step"))
    first = max(start, start + step * round((end - MOST_PAST_SECONDS - start) / step))
    return [first + step * number for number in range(int((end - first) / step) + 1)]
