"""A server that answers the operator's PromQL on loopback, for measurements that need many services and no scraping.

It understands no PromQL: it knows the metric names that a query mentions and answers with one series for each pod that
the API server shows. What is measured is the operator; a real Prometheus is in the end-to-end tests.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

Values = Callable[[str], Mapping[tuple[str, str], float]]
"""Metric name to the value of each (namespace, pod)."""


class MetricsServer:
    """A context manager; ``url`` is what the operator is given."""

    def __init__(self, values: Values) -> None:
        handler = type("Handler", (_Handler,), {"values": staticmethod(values)})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)

    def __enter__(self) -> MetricsServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    values: Values
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """One query."""
        length = int(self.headers.get("Content-Length", 0))
        query = parse_qs(self.rfile.read(length).decode()).get("query", [""])[0]
        kind, result = "vector", []
        if self.path.endswith("/query_range"):
            kind = "matrix"
        else:
            name = query.partition('__name__="')[2].partition('"')[0]
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
