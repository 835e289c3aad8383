"""A service that nobody asks for sleeps, and wakes for what waits at the gateway."""

from __future__ import annotations

from typing import Any

import pytest

from berth.devcluster.problems import ApiRefused
from tests.e2e.inference.conftest import SIGNAL, Services

Json = dict[str, Any]
QUEUE: Json = {"name": "queue", "source": "Prometheus", "preset": "InferenceExtension", "perReplica": "5"}


def scaling(*signals: Json, **zero: str) -> Json:
    return {
        "demand": {"signals": list(signals)},
        "forecast": {"method": "Persistence"},
        "scaleToZero": {"enabled": True, "idleAfter": "4s", **zero},
    }


def test_an_idle_service_sleeps_and_wakes_to_what_waits(services: Services) -> None:
    services.apply("chat", scaling=scaling(SIGNAL, QUEUE))
    services.traffic("chat", 4.0)
    services.expect_ready("chat", 1)
    services.traffic("chat", 0.0)
    status = services.expect_ready("chat", 0)
    assert status["phase"] == "Idle"
    services.expect_event("chat", "Idled")
    services.traffic("chat", 12.0)
    services.expect("chat", lambda status: status.get("readyReplicas", 0) >= 2)
    assert "From 0 to" in services.expect_event("chat", "Woken")


def test_zero_is_refused_without_a_count_at_zero(services: Services) -> None:
    with pytest.raises(ApiRefused, match="a signal that is seen at zero replicas"):
        services.apply("chat", scaling=scaling(SIGNAL))


def test_a_start_that_takes_longer_than_maxwake_keeps_a_service_awake(services: Services) -> None:
    services.apply("chat", scaling=scaling(SIGNAL, QUEUE, maxWake="1s"), coldStart={"estimate": "Auto"})
    services.traffic("chat", 0.0)
    status = services.expect("chat", lambda status: "stays awake" in status.get("message", ""))
    assert "maxWake" in status["message"]
    assert services.wanted("chat") == 1
