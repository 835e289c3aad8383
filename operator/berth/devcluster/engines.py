"""What the engines of simulated replicas would report, under vLLM's names, for a real Prometheus to scrape.

Simulated pods answer nothing, so one exporter speaks for all of them: it reads from the API server which replicas are
ready and lets the traffic that a test describes flow through those. Requests beyond what they hold wait, so a service
that is too small is seen to be: its queue grows and its times to the first token with it.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from berth.devcluster.api import Api, Json
from berth.devcluster.health import is_ready

Demand = Callable[[float], float]
"""Requests in flight that clients would have, were nobody ever made to wait, at seconds since the traffic began."""

SERVICE_LABEL: Final = "berth.dev/service-name"
RUNNING: Final = "vllm:num_requests_running"
WAITING: Final = "vllm:num_requests_waiting"
TTFT: Final = "vllm:time_to_first_token_seconds"
TOKENS: Final = "vllm:generation_tokens_total"
QUEUE: Final = "inference_extension_flow_control_queue_size"
_BOUNDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_FIRST_TOKEN_SECONDS: Final = 0.08
_TOKENS_PER_REQUEST: Final = 200.0
_TICK_SECONDS: Final = 0.25
_NOTHING: Final = 0.05
"""Less of a request than this is none, once nobody asks any more."""


def replay(trace: Sequence[float], step_seconds: float) -> Demand:
    """The demand that a trace of one value per step describes: linear in between, its last value for ever after."""
    times = [step_seconds * place for place in range(len(trace))]

    def demand(seconds: float) -> float:
        place = min(max(bisect_right(times, seconds) - 1, 0), len(trace) - 1)
        following = min(place + 1, len(trace) - 1)
        part = min(max((seconds - times[place]) / step_seconds, 0.0), 1.0)
        return trace[place] + part * (trace[following] - trace[place])

    return demand


@dataclass(slots=True)
class _Pod:
    """The counters of one replica, which only grow."""

    running: float = 0.0
    waiting: float = 0.0
    tokens: float = 0.0
    first_token_sum: float = 0.0
    served: float = 0.0
    buckets: list[float] = field(default_factory=lambda: [0.0] * len(_BOUNDS))


@dataclass(slots=True)
class Traffic:
    """Requests to one service. ``slots`` is how many a replica works on at once; each takes ``seconds`` then.

    ``silent`` are names of metrics that its engine does not have. ``asked`` and ``waited`` are the request-seconds that
    clients wanted worked on so far, and those that requests have stood in the queue.
    """

    demand: Demand
    slots: int
    seconds: float = 1.0
    silent: Collection[str] = ()
    began: float = field(default_factory=time.monotonic)
    in_system: float = 0.0
    asked: float = 0.0
    waited: float = 0.0
    pods: dict[str, _Pod] = field(default_factory=dict)

    @property
    def waiting(self) -> float:
        """Requests that nobody works on."""
        return max(0.0, self.in_system - self.slots * len(self.pods))

    def flow(self, ready: Collection[str], now: float, seconds: float) -> None:
        """Let ``seconds`` pass with the replicas ``ready``: arrivals come in, what they work on gets done."""
        self.pods = {name: self.pods.get(name) or _Pod() for name in sorted(ready)}
        arrivals = max(0.0, self.demand(now - self.began)) / self.seconds
        self.asked += arrivals * self.seconds * seconds
        self.waited += self.waiting * seconds
        running = min(self.in_system, float(self.slots * len(self.pods)))
        rate = running / self.seconds
        # A tick that was longer than a request takes must not make the flow swing.
        self.in_system = max(0.0, self.in_system + (arrivals - rate) * min(seconds, self.seconds))
        if not arrivals and self.in_system < _NOTHING:
            self.in_system = 0.0
        if not self.pods:
            return
        running = min(self.in_system, float(self.slots * len(self.pods)))
        count = len(self.pods)
        first_token = _FIRST_TOKEN_SECONDS + (self.waiting / rate if rate else 0.0)
        for pod in self.pods.values():
            pod.running, pod.waiting = running / count, self.waiting / count
            done = rate / count * seconds
            pod.served += done
            pod.tokens += done * _TOKENS_PER_REQUEST
            pod.first_token_sum += done * first_token
            for place, bound in enumerate(_BOUNDS):
                pod.buckets[place] += done if first_token <= bound else 0.0


class SimulatedEngines:
    """An exporter on loopback. Use as a context manager; :attr:`target` is what Prometheus scrapes."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._traffic: dict[tuple[str, str], Traffic] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        engines = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = engines.exposition().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._threads = [
            threading.Thread(target=self._server.serve_forever, name="engines-http", daemon=True),
            threading.Thread(target=self._run, name="engines-flow", daemon=True),
        ]

    @property
    def target(self) -> str:
        """``host:port``."""
        return f"127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> SimulatedEngines:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._server.shutdown()
        self._server.server_close()

    def serve(
        self, namespace: str, service: str, demand: Demand | float, slots: int, silent: Collection[str] = ()
    ) -> None:
        """Begin traffic to a service, or another one in place of what it has; its queue stays."""
        steady = demand if callable(demand) else lambda _, amount=float(demand): amount
        with self._lock:
            known = self._traffic.get((namespace, service))
            fresh = Traffic(steady, slots, silent=frozenset(silent))
            if known is not None:
                fresh.in_system, fresh.pods = known.in_system, known.pods
                fresh.asked, fresh.waited = known.asked, known.waited
            self._traffic[namespace, service] = fresh

    def waiting(self, namespace: str, service: str) -> float:
        """Requests to a service that nobody works on now."""
        with self._lock:
            return self._traffic[namespace, service].waiting

    def waited_share(self, namespace: str, service: str) -> float:
        """Request-seconds in the queue over those asked for, since traffic to a service began."""
        with self._lock:
            traffic = self._traffic[namespace, service]
            return traffic.waited / traffic.asked if traffic.asked else 0.0

    def forget(self, namespace: str) -> None:
        """End all traffic to a namespace."""
        with self._lock:
            self._traffic = {key: traffic for key, traffic in self._traffic.items() if key[0] != namespace}

    def exposition(self) -> str:
        """Everything as Prometheus reads it."""
        lines: list[str] = []
        with self._lock:
            for (namespace, service), traffic in self._traffic.items():
                for name, labels, value in _samples(namespace, service, traffic):
                    if not any(name.startswith(missing) for missing in traffic.silent):
                        text = ",".join(f'{key}="{part}"' for key, part in labels.items())
                        lines.append(f"{name}{{{text}}} {value:.6g}")
        return "\n".join([*lines, ""])

    def _run(self) -> None:
        last = time.monotonic()
        while not self._stopped.wait(_TICK_SECONDS):
            try:
                pods = self._api.get("/api/v1/pods", labelSelector=SERVICE_LABEL, resourceVersion="0")["items"]
            except Exception:  # noqa: S112 - the API server of a cluster that goes down; asked again
                continue
            now = time.monotonic()
            with self._lock:
                for (namespace, service), traffic in self._traffic.items():
                    traffic.flow(_ready(pods, namespace, service), now, now - last)
            last = now


def _ready(pods: list[Json], namespace: str, service: str) -> list[str]:
    return [
        pod["metadata"]["name"]
        for pod in pods
        if pod["metadata"]["namespace"] == namespace
        and pod["metadata"]["labels"][SERVICE_LABEL] == service
        and "deletionTimestamp" not in pod["metadata"]
        and is_ready(pod)
    ]


def _samples(namespace: str, service: str, traffic: Traffic) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Name, labels, value. The gateway's queue is there without any replica."""
    yield QUEUE, {"namespace": namespace, "inference_pool": service}, traffic.waiting
    for name, pod in traffic.pods.items():
        labels = {"namespace": namespace, "pod": name, "model_name": service}
        yield RUNNING, labels, pod.running
        yield WAITING, labels, pod.waiting
        yield TOKENS, labels, pod.tokens
        for bound, count in zip(_BOUNDS, pod.buckets, strict=True):
            yield f"{TTFT}_bucket", {**labels, "le": str(bound)}, count
        yield f"{TTFT}_bucket", {**labels, "le": "+Inf"}, pod.served
        yield f"{TTFT}_sum", labels, pod.first_token_sum
        yield f"{TTFT}_count", labels, pod.served
