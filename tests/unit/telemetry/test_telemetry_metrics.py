"""Metrics: counted where code runs, read from state at the time of the scrape."""

from __future__ import annotations

import pytest
from prometheus_client import generate_latest

from berth.telemetry.metrics import Metrics, Values


def text(metrics: Metrics) -> str:
    return generate_latest(metrics.registry).decode()


def expect_line(metrics: Metrics, line: str) -> None:
    assert line in text(metrics).splitlines()


def test_requests_are_counted_by_verb_resource_and_outcome_and_timed_by_verb() -> None:
    metrics = Metrics()
    for seconds in (0.004, 0.3):
        metrics.called("create", "pods", "201", seconds)
    metrics.called("create", "pods", "409", 0.01)
    expect_line(metrics, 'berth_api_requests_total{outcome="201",resource="pods",verb="create"} 2.0')
    expect_line(metrics, 'berth_api_requests_total{outcome="409",resource="pods",verb="create"} 1.0')
    expect_line(metrics, 'berth_api_request_seconds_bucket{le="0.005",verb="create"} 1.0')
    expect_line(metrics, 'berth_api_request_seconds_count{verb="create"} 3.0')


def test_a_watch_is_counted_but_its_length_is_no_latency() -> None:
    metrics = Metrics()
    metrics.called("watch", "pods", "200", 270.0)
    expect_line(metrics, 'berth_api_requests_total{outcome="200",resource="pods",verb="watch"} 1.0')
    assert 'berth_api_request_seconds_count{verb="watch"}' not in text(metrics)


def test_a_reading_shows_what_is_true_at_the_scrape() -> None:
    metrics, phases = Metrics(), {("Running",): 3.0}
    metrics.read("berth_gangs", "Training jobs by phase.", ("phase",), lambda: phases)
    expect_line(metrics, 'berth_gangs{phase="Running"} 3.0')
    phases.clear()
    phases[("Queued",)] = 1.0
    expect_line(metrics, 'berth_gangs{phase="Queued"} 1.0')
    assert "Running" not in text(metrics)


def test_a_reading_whose_name_ends_in_total_is_a_counter() -> None:
    metrics = Metrics()
    metrics.read("berth_events_total", "Events.", ("fate",), lambda: {("written",): 3.0})
    expect_line(metrics, "# TYPE berth_events_total counter")
    expect_line(metrics, 'berth_events_total{fate="written"} 3.0')


def test_a_reading_without_labels_is_one_value() -> None:
    metrics = Metrics()
    metrics.read("berth_queue_depth", "Depth.", (), lambda: {(): 7.0})
    expect_line(metrics, "berth_queue_depth 7.0")


def test_a_reader_is_not_asked_at_registration_when_nothing_is_there_yet() -> None:
    def read() -> Values:
        raise AssertionError("asked too early")

    Metrics().read("berth_x", "x", (), read)


def test_two_readings_of_one_name_are_refused() -> None:
    metrics = Metrics()
    metrics.read("berth_x", "x", (), lambda: {})
    with pytest.raises(ValueError, match="berth_x"):
        metrics.read("berth_x", "x", (), lambda: {})


def test_several_operators_in_one_process_do_not_share_their_figures() -> None:
    one, other = Metrics(), Metrics()
    one.placements.labels("Optimal").inc()
    assert "Optimal" not in text(other)
