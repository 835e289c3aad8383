"""What Berth says of itself in Prometheus' terms.

Live figures are here and not in status, so that watching them costs the API server nothing. One registry per
operator object, so that tests and benchmarks may run several in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

DECISION_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
CALL_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)

Values = Mapping[tuple[str, ...], float]
Family = CounterMetricFamily | GaugeMetricFamily


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
        self.service_decision_seconds = Histogram(
            "berth_service_decision_seconds",
            "Time of one decision about one InferenceService.",
            buckets=DECISION_BUCKETS,
            registry=self.registry,
        )
        self.prefetches = Counter(
            "berth_prefetches_total",
            "Fetches of weights ahead of replicas, by outcome.",
            ["outcome"],
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
        self.promises_expired = Counter(
            "berth_gang_promises_expired_total",
            "Placements that were decided, could not be recorded in time and were given back.",
            registry=self.registry,
        )
        self.drifts = Counter(
            "berth_fleet_drifts_total",
            "Audits that found the fleet different from what its nodes, pools and claims make.",
            registry=self.registry,
        )
        self.idle_node_seconds = Counter(
            "berth_idle_node_seconds_total",
            "Usable training nodes without any claim, integrated by the leader, by whether a gang was waiting.",
            ["pool", "queue"],
            registry=self.registry,
        )

    def called(self, verb: str, resource: str, outcome: str, seconds: float) -> None:
        """Count one request; the hook of the API client."""
        self.api_calls.labels(verb, resource, outcome).inc()
        if verb != "watch":
            self.api_seconds.labels(verb).observe(seconds)

    def read(self, name: str, text: str, labels: Iterable[str], values: Callable[[], Values]) -> None:
        """Register a metric read when it is scraped: a counter where the name ends in ``_total``, else a gauge.

        ``values`` is called on the thread that serves the scrape, and must not look into what the event loop changes.
        """
        self.registry.register(Reading(name, text, tuple(labels), values))


class Reading(Collector):
    """A metric read from elsewhere at the time of the scrape, so that nothing needs to be kept in step with it."""

    def __init__(self, name: str, text: str, labels: tuple[str, ...], values: Callable[[], Values]) -> None:
        self._name, self._text, self._labels, self._values = name, text, labels, values

    def describe(self) -> Iterable[Family]:
        """The family without samples; asked at registration, when there is nothing to read yet."""
        return [self._family()]

    def _family(self) -> Family:
        kind = CounterMetricFamily if self._name.endswith("_total") else GaugeMetricFamily
        return kind(self._name, self._text, labels=self._labels)

    def collect(self) -> Iterable[Family]:
        """One sample per label set that the reader returns."""
        family = self._family()
        for labels, value in sorted(self._values().items()):
            family.add_metric(labels, value)
        return [family]
