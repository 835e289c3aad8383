"""Probes and metrics on a thread of their own.

A handler awaited by the event loop cannot tell that the loop is stuck: it would simply not answer, and a kubelet with
a generous timeout learns late. Here a thread compares heartbeats of the loop with the clock and answers at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

Problems = Callable[[], list[str]]
"""Why the probe must fail; empty when all is well."""


class Heartbeat:
    """The event loop's sign of life, written by the loop and read by the probe thread."""

    def __init__(self, limit_seconds: float = 30.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit_seconds, self._clock = limit_seconds, clock
        self._last = clock()

    def beat(self) -> None:
        """Called by the loop every second or so."""
        self._last = self._clock()

    def problems(self) -> list[str]:
        """One sentence when the loop has not run for longer than the limit."""
        silent = self._clock() - self._last
        return [f"the event loop has not run for {silent:.0f} s"] if silent > self.limit_seconds else []


class ProbeServer:
    """Serves ``/healthz``, ``/readyz`` and ``/metrics``; port 0 takes a free one, see :attr:`port`.

    Raises:
        OSError: the port is taken.
    """

    def __init__(
        self, host: str, port: int, *, healthz: Problems, readyz: Problems, registry: CollectorRegistry | None
    ) -> None:
        probes = {"/healthz": healthz, "/readyz": readyz}

        class Handler(_Handler):
            checks: Mapping[str, Problems] = probes
            metrics = registry

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="probes", daemon=True)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Stop answering and free the port."""
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    checks: Mapping[str, Problems] = {}
    metrics: CollectorRegistry | None = None

    def do_GET(self) -> None:
        try:
            self._serve(self.path.partition("?")[0])
        except Exception as problem:  # an answer that names it helps more than a closed connection
            words = f"{type(problem).__name__}: {problem}\n"
            self._answer(500, words.encode(), "text/plain; charset=utf-8")

    def _serve(self, path: str) -> None:
        if path == "/metrics" and self.metrics is not None:
            self._answer(200, generate_latest(self.metrics), CONTENT_TYPE_LATEST)
        elif path in self.checks:
            problems = self.checks[path]()
            body = "\n".join(problems) if problems else "ok"
            self._answer(503 if problems else 200, (body + "\n").encode(), "text/plain; charset=utf-8")
        else:
            self._answer(404, b"not found\n", "text/plain; charset=utf-8")

    def _answer(self, status: int, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Probes come every few seconds: not logged."""
