"""Queries for many services, whose a series is, and quantiles of histograms."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.api.inferenceservice_rules import NOT_FROM_REPLICAS, SEEN_AT_ZERO
from berth.inference.demand import EXPIRES_SECONDS
from berth.telemetry.presets import counts_at_zero, counts_requests_in_flight, presets, reported_by_replicas
from berth.telemetry.promql import FRESH_WINDOW, buckets_query, load_query, owner_by_labels, owner_by_pod, service_query
from berth.telemetry.quantiles import from_buckets
from berth.telemetry.readings import Reading, ServiceQuery, SignalQuery, Telling
from berth.telemetry.sources import NO_SOURCE, Sources
from berth.values import parse_duration

CHAT = ServiceQuery("serving", "chat", (), ("chat-l4-x-1", "chat-l4-x-2"), ("chat-l4-od-abc234", "chat-l40s-od-xyz567"))


ONCE = "max by (namespace, pod) (sum by (namespace, pod, job, instance, prometheus_replica) ({}))"


def test_renamed_metrics_fall_back_to_their_older_names() -> None:
    new, old = (f'{{__name__="{name}"}} and present_over_time({{__name__="{name}"}}[90s])' for name in ("new", "old"))
    expected = f"{ONCE.format(new)} or {ONCE.format(old)}"
    assert load_query(("new", "old"), ("namespace", "pod"), counter=False) == expected
    hits = '{__name__="hits"}'
    expected = ONCE.format(f"rate({hits}[2m]) and present_over_time({hits}[90s])")
    assert load_query(("hits",), ("namespace", "pod"), counter=True) == expected
    assert buckets_query(("new", "old")).count(" or ") == 1


def test_a_sample_is_fresh_for_as_long_as_decisions_take_it_to_be() -> None:
    assert parse_duration(FRESH_WINDOW) == EXPIRES_SECONDS


def test_history_of_one_service_names_its_pods_or_its_labels() -> None:
    mine = '{__name__="m", namespace="serving", pod=~"(chat-l4-od-abc234-|chat-l40s-od-xyz567-)[a-z0-9]+(-[a-z0-9]+)?"}'
    by_pod = service_query(("m",), presets()["vLLM"], CHAT)
    assert by_pod == f"sum by (namespace) ({ONCE.format(mine)})"
    assert 'reporter=~"source"' in service_query(("m",), presets()["Istio"], CHAT)
    by_label = service_query(("m",), presets()["EnvoyGateway"], CHAT)
    assert 'rate({__name__="m", envoy_cluster_name=~"httproute/serving/chat/rule/.*", pod!=""}[2m])' in by_label


LONG = f"{'s' * 40}-mi300xoa-spot-abc234"


@pytest.mark.parametrize(
    ("pod", "mine"),
    [
        ("chat-l4-od-abc234-7d9f8b6c5d-x2k4p", True),
        ("chat-l40s-od-xyz567-5f6b-zzzzz", True),
        ("chat-8b-l4-od-abc234-7d9f8b6c5d-x2k4p", False),
        ("chat-8b-7d9f8b6c5d-x2k4p", False),
        ("chat-l4-od-abc234-l4-od-abc234-7d9f8b6c5d-x2k4p", False),
        (f"{LONG}-7d9f8b6c5d"[:58] + "x2k4p", True),
        (f"{LONG[:50]}-7d9f8b6c5d"[:58] + "x2k4p", True),
        (f"{'s' * 39}-mi300xoa-spot-abc234-7d9f8"[:58] + "x2k4p", False),
    ],
    ids=["of a variant", "of another", "of a service whose name goes on", "of its Deployment", "named like a variant",
         "cut in the variant", "cut in the hash", "of another long one"],
)  # fmt: skip
def test_history_is_that_of_the_pods_of_its_own_variants(pod: str, mine: bool) -> None:
    service = replace(CHAT, variants=(*CHAT.variants, LONG, LONG[:50]))
    pattern = service_query(("m",), presets()["vLLM"], service).split('pod=~"')[1].split('"')[0]
    assert (re.fullmatch(pattern, pod) is not None) == mine


@pytest.mark.parametrize(
    ("labels", "owner"),
    [
        ({"namespace": "serving", "service": "chat"}, ("serving", "chat")),
        ({"namespace": "serving", "service": "chat2"}, None),
        ({"namespace": "other", "service": "chat"}, None),
        ({"service": "chat"}, None),
        ({}, None),
    ],
)
def test_owner_by_labels(labels: Mapping[str, str], owner: tuple[str, str] | None) -> None:
    matcher = {"namespace": "{namespace}", "service": "{name}"}
    assert owner_by_labels(matcher, labels, {CHAT.key: CHAT}) == owner


def test_owner_by_pod() -> None:
    assert owner_by_pod([CHAT]) == {("serving", pod): CHAT.key for pod in CHAT.pods}


def test_presets_say_what_they_count() -> None:
    assert counts_requests_in_flight("vLLM")
    assert not counts_requests_in_flight("Istio")
    assert not counts_requests_in_flight("Custom")
    assert reported_by_replicas("SGLang")
    assert not reported_by_replicas("InferenceExtension")
    assert not reported_by_replicas("Custom")
    assert not counts_at_zero("EnvoyGateway")


def test_the_definition_knows_which_presets_wake_a_service() -> None:
    known = {*presets(), "Custom"}
    assert {name for name in known if counts_at_zero(name)} == set(SEEN_AT_ZERO)
    assert {name for name in known if not reported_by_replicas(name)} == set(NOT_FROM_REPLICAS)
    assert set(SEEN_AT_ZERO) <= set(NOT_FROM_REPLICAS)


INF = math.inf


@pytest.mark.parametrize(
    ("counts", "share", "expected"),
    [
        ({0.5: 40, 1.0: 50, INF: 50}, 0.9, 0.75),
        ({0.5: 40, 1.0: 50, INF: 50}, 0.4, 0.25),
        ({0.5: 40, 1.0: 50, INF: 100}, 0.9, 1.0),
        ({0.5: 0, 1.0: 0, INF: 0}, 0.9, None),
        ({0.5: 40, 1.0: 50}, 0.9, None),
        ({INF: 10}, 0.9, None),
        ({}, 0.9, None),
        ({0.5: 40, 1.0: 39, INF: 41}, 0.9, 0.5 * 36.9 / 40),
        ({1.0: math.nan, INF: math.nan}, 0.9, None),
    ],
    ids=["inside", "first", "unbounded", "nothing counted", "no end", "one bucket", "empty", "not monotone", "NaN"],
)
def test_quantiles(counts: dict[float, float], share: float, expected: float | None) -> None:
    assert from_buckets(counts, share) == (None if expected is None else pytest.approx(expected))


@given(st.lists(st.integers(0, 100), min_size=1, max_size=8), st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_quantiles_grow_with_the_share(increments: list[int], one: float, other: float) -> None:
    totals = [sum(increments[: i + 1]) for i in range(len(increments))]
    counts = {float(i + 1): float(total) for i, total in enumerate(totals)} | {INF: float(totals[-1] + 1)}
    low, high = (from_buckets(counts, share) for share in sorted((one, other)))
    assert low is not None
    assert high is not None
    assert 0 <= low <= high <= len(increments)


class Fixed:
    def __init__(self, telling: Telling) -> None:
        self.telling, self.asked = telling, 0

    async def poll(self, services: list[ServiceQuery], percentile: object) -> dict[tuple[str, str], Telling]:
        self.asked += 1
        return {service.key: self.telling for service in services}

    async def history(self, *_: object) -> list[tuple[float, float | None]]:
        return [(0.0, 1.0)]


async def test_each_signal_is_answered_by_the_source_that_it_names() -> None:
    prometheus = Fixed(Telling({"a": Reading("Value", 1.0)}, {"p": 1.0}, {"p": 0.5}, {"ttft": 0.2}, 5.0))
    pods = Fixed(Telling({"b": Reading("Value", 2.0)}, {"q": 2.0}))
    sources = Sources({"Prometheus": prometheus, "Pods": pods})  # type: ignore[dict-item]
    signals = (SignalQuery("a", "Prometheus", "vLLM"), SignalQuery("b", "Pods", "vLLM"))
    service = ServiceQuery("serving", "chat", signals)
    told = (await sources.poll([service], {}))[service.key]
    assert {name: reading.load for name, reading in told.readings.items()} == {"a": 1.0, "b": 2.0}
    assert (told.in_flight, told.waiting) == ({"p": 1.0, "q": 2.0}, {"p": 0.5})
    assert (told.seconds, told.tokens_per_second) == ({"ttft": 0.2}, 5.0)
    alone = ServiceQuery("serving", "alone", signals[:1])
    await sources.poll([alone], {})
    assert (prometheus.asked, pods.asked) == (2, 1)
    assert await sources.history(service, signals[0], 0, 1, 1) == [(0.0, 1.0)]


class Broken(Fixed):
    async def poll(self, services: list[ServiceQuery], percentile: object) -> dict[tuple[str, str], Telling]:
        raise KeyError("le")


async def test_a_source_that_fails_harms_no_other() -> None:
    pods = Fixed(Telling({"b": Reading("Value", 2.0)}))
    sources = Sources({"Prometheus": Broken(Telling({})), "Pods": pods})  # type: ignore[dict-item]
    signals = (SignalQuery("a", "Prometheus", "vLLM"), SignalQuery("b", "Pods", "vLLM"))
    service = ServiceQuery("serving", "chat", signals)
    told = (await sources.poll([service], {}))[service.key]
    assert told.readings["a"] == Reading("Unknown", reason="what Prometheus answers cannot be read (KeyError)")
    assert told.readings["b"].load == 2.0


async def test_a_signal_whose_source_is_not_configured_is_unknown() -> None:
    service = ServiceQuery("serving", "chat", (SignalQuery("a", "Prometheus", "vLLM"),))
    told = (await NO_SOURCE.poll([service], {}))[service.key]
    assert told.readings["a"].reason == "no Prometheus is configured for Berth"
    assert await NO_SOURCE.history(service, service.signals[0], 0, 1, 1) == []
