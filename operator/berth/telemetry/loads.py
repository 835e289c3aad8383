"""What a Prometheus server's answers say of the load of each service, and of whom they say it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from berth.telemetry.answers import Series
from berth.telemetry.presets import Preset
from berth.telemetry.readings import Reading, ServiceName, ServiceQuery, measured, plausible


def pod_of(series: Series) -> tuple[str, str]:
    """(namespace, name) of the pod that a series is of; empty where it has no such label."""
    return (series.labels.get("namespace", ""), series.labels.get("pod", ""))


class Answer:
    """The series of one answer; ``missing`` says what is not in it, empty: it is whole."""

    def __init__(self, series: Sequence[Series], missing: str = "") -> None:
        self.series, self.missing = series, missing
        self._pods = frozenset(map(pod_of, series)) if missing else frozenset()

    def covers(self, service: ServiceQuery) -> bool:
        """Whether it is whole, or shows all live pods of ``service``, so that what is missing is of others."""
        return not self.missing or all((service.namespace, pod) in self._pods for pod in service.pods)


class Loads:
    """The load of each service under one preset."""

    def __init__(self) -> None:
        self.totals: dict[ServiceName, float] = {}
        self.by_pod: dict[ServiceName, dict[str, float]] = {}
        self.waiting: dict[ServiceName, dict[str, float]] = {}
        self.pods: dict[ServiceName, set[str]] = {}
        self.answers: list[Answer] = []
        self.problem = ""

    def add(self, owner: ServiceName, pod: str, value: float, *, waits: bool = False) -> None:
        """One series of ``owner``, which ``waits`` in the engine; a value that can be no load makes the sum none."""
        total = self.totals.get(owner, 0.0)
        if plausible(total):
            self.totals[owner] = total + value if plausible(value) else value
        if pod:
            self.pods.setdefault(owner, set()).add(pod)
        if pod and plausible(value):
            mine = self.by_pod.setdefault(owner, {})
            mine[pod] = mine.get(pod, 0.0) + value
            if waits:
                self.waiting.setdefault(owner, {})[pod] = value

    def wake(self, begun: Mapping[ServiceName, float]) -> None:
        """Loads of services without a replica that other series do not show."""
        for owner, value in begun.items():
            if value > 0 and not self.totals.get(owner):
                self.totals[owner] = value

    def reading(self, service: ServiceQuery, preset: Preset, now: float, before: frozenset[str]) -> Reading:
        """What is known of one service; ``before``: its live pods that were heard of earlier.

        Most of those that should be reported must be, and stand for those that serve and are not: a scrape that fails
        takes no load away. A counter may be there from the first request on, so a pod that was never heard of lacks
        none.
        """
        problem = self._problem(service, preset, before)
        if problem:
            return Reading("Unknown", at=now, reason=problem)
        heard = self.pods.get(service.key, set())
        lost = _expected(service, preset, before) & service.steady - heard
        share = len(lost) / len(heard) if heard else 0.0
        return measured(self.totals[service.key] * (1 + share), now)

    def _problem(self, service: ServiceQuery, preset: Preset, before: frozenset[str]) -> str:
        if self.problem:
            return self.problem
        for answer in self.answers:
            if answer.missing and (preset.matchers or not answer.covers(service)):  # of a gateway nothing tells
                return answer.missing
        if service.key not in self.totals:
            return f"no series of {' or '.join(preset.names)}"
        expected = _expected(service, preset, before)
        lost = expected - self.pods.get(service.key, set())
        if not preset.matchers and 2 * len(lost) > len(expected):
            return f"{len(lost)} of {len(expected)} replicas are not reported"
        return ""


def _expected(service: ServiceQuery, preset: Preset, before: frozenset[str]) -> frozenset[str]:
    """The pods that are to be reported."""
    return before | service.steady if preset.kind == "gauge" else before
