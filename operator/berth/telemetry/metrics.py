"""What Berth says of itself in Prometheus' terms.

Live figures are here and not in status, so that watching them costs the API server nothing. One registry per
operator object, so that tests and benchmarks may run several in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

DECISION_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
CALL_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)

Values = Mapping[tuple[str, ...], float]


class Metrics:
    """The counters and histograms that code adds to; what can be read from state is a :class:`Reading`."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self.api_calls = Counter(
            "berth_api_requests_total",
            "Requests to the API server by verb, resource and outcome (a status code, or error).",
            ["verb", "resource", "outcome"],
            registry=self.registry,
        )
        self.api_seconds = Histogram(
            "berth_api_request_seconds",
            "Time of requests to the API server, watches left out.",
            ["verb"],
            buckets=CALL_BUCKETS,
            registry=self.registry,
        )
        self.decision_seconds = Histogram(
            "berth_decision_seconds",
            "Time of one pass of the scheduling loop over the queue.",
            buckets=DECISION_BUCKETS,
            registry=self.registry,
        )
        self.placements = Counter(
            "berth_gang_placements_total",
            "Gang placements by certificate.",
            ["certificate"],
            registry=self.registry,
        )
        self.placement_gap = Histogram(
            "berth_gang_placement_gap_domains",
            "Domains used beyond the proven lower bound, summed over the levels of the proof.",
            buckets=(0, 1, 2, 4, 8, 16),
            registry=self.registry,
        )
        self.refusals = Counter(
            "berth_gang_refusals_total",
            "Decisions that found no placement, by reason.",
            ["reason"],
            registry=self.registry,
        )
        self.restarts = Counter(
            "berth_gang_restarts_total",
            "Attempts that ended before the job did, by cause.",
            ["cause"],
            registry=self.registry,
        )
        self.reconciles = Counter(
            "berth_reconciles_total",
            "Reconciles by controller and outcome.",
            ["controller", "outcome"],
            registry=self.registry,
        )
        self.events = Counter(
            "berth_events_total",
            "Kubernetes Events by fate: posted, repeated, folded, dropped.",
            ["fate"],
            registry=self.registry,
        )
        self.idle_node_seconds = Counter(
            "berth_idle_node_seconds_total",
            "Usable training nodes without any claim, integrated over time, by whether a gang was waiting.",
            ["pool", "queue"],
            registry=self.registry,
        )

    def called(self, verb: str, resource: str, outcome: str, seconds: float) -> None:
        """Count one request; the hook of the API client."""
        self.api_calls.labels(verb, resource, outcome).inc()
        if verb != "watch":
            self.api_seconds.labels(verb).observe(seconds)

    def read(self, name: str, text: str, labels: Iterable[str], values: Callable[[], Values]) -> None:
        """Register a gauge whose values are read when it is scraped."""
        self.registry.register(Reading(name, text, tuple(labels), values))

    def gauge(self, name: str, text: str, labels: Iterable[str] = ()) -> Gauge:
        """A gauge that code sets."""
        return Gauge(name, text, list(labels), registry=self.registry)


class Reading(Collector):
    """A gauge computed at the time of the scrape, so that it is never stale and costs nothing between scrapes."""

    def __init__(self, name: str, text: str, labels: tuple[str, ...], values: Callable[[], Values]) -> None:
        self._name, self._text, self._labels, self._values = name, text, labels, values

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """The family without samples; asked at registration, when there is nothing to read yet."""
        return [GaugeMetricFamily(self._name, self._text, labels=self._labels)]

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """One sample per label set that the reader returns."""
        family = GaugeMetricFamily(self._name, self._text, labels=self._labels)
        for labels, value in sorted(self._values().items()):
            family.add_metric(labels, value)
        return [family]
