"""The size of a service follows its demand, within the user's bounds, on nodes of the right kind."""

from __future__ import annotations

import pytest

from berth.devcluster.process import wait_until
from tests.conftest import Kubectl
from tests.e2e.inference.conftest import Services


def test_a_service_comes_up_at_its_floor_on_the_cheapest_pool_that_fits(services: Services) -> None:
    services.apply("chat", low=2, accelerators={"types": ["L4", "L40S"], "perReplica": 1})
    status = services.expect_ready("chat", 2)
    assert [variant["accelerator"] for variant in status["variants"]] == ["L4"]
    assert status["phase"] == "Ready"
    assert all("on-demand" in node for node in services.nodes("chat"))
    assert {entry["type"]: entry["status"] for entry in status["conditions"]}["Accepted"] == "True"
    services.expect_event("chat", "Accepted")


def test_replicas_on_demand_never_land_on_spot_nodes(services: Services) -> None:
    services.apply("chat", low=24, high=24)  # every on-demand device there is
    services.expect_ready("chat", 24)
    assert all("on-demand" in node for node in services.nodes("chat"))


def test_the_number_of_replicas_follows_a_swing_of_ten_times(services: Services) -> None:
    services.apply("chat", high=16, scaling={"forecast": {"method": "Persistence"}})
    services.traffic("chat", 4.0)
    services.expect_ready("chat", 1)
    services.traffic("chat", 40.0)
    status = services.expect("chat", lambda status: status.get("readyReplicas", 0) >= 8)
    assert wait_until(lambda: services.serving.engines.waiting(services.namespace, "chat") < 1.0, 30)
    assert status["decisions"][0]["toReplicas"] <= 16
    services.traffic("chat", 4.0)
    status = services.expect("chat", lambda status: status.get("replicas", 9) == 1)
    ups = [entry for entry in status["decisions"] if entry["toReplicas"] > entry["fromReplicas"]]
    downs = [entry for entry in status["decisions"] if entry["toReplicas"] < entry["fromReplicas"]]
    assert ups
    assert downs
    assert {"ScaledUp", "ScaledDown"} <= services.events("chat").keys()


def test_maxreplicas_holds_whatever_is_asked_for(services: Services) -> None:
    services.apply("chat", high=3)
    services.traffic("chat", 60.0)
    services.expect_ready("chat", 3)
    limited = services.expect_condition("chat", "CapacityAvailable", "False", "CapacityLimited")
    assert "maxReplicas" in limited["message"]


def test_kubectl_scale_counts_in_manual_only(services: Services, serving_kubectl: Kubectl) -> None:
    scale = ("scale", "bisvc", "chat", "-n", services.namespace)
    services.apply("chat", low=2)
    services.expect_ready("chat", 2)
    serving_kubectl(*scale, "--replicas=5")
    assert "Manual only" in services.expect_event("chat", "ScaleIgnored")
    services.patch("chat", scaling={"mode": "Manual"})
    services.expect_ready("chat", 5)
    serving_kubectl(*scale, "--replicas=1")
    services.expect_ready("chat", 1)
    serving_kubectl(*scale, "--replicas=0")
    status = services.expect_ready("chat", 0)
    assert status["phase"] == "Idle"


def test_manual_alone_ends_nothing_until_a_number_is_set(services: Services, serving_kubectl: Kubectl) -> None:
    services.apply("chat", low=3)
    services.expect_ready("chat", 3)
    services.patch("chat", scaling={"mode": "Manual"})
    services.expect_event("chat", "ReplicasHeld")
    status = services.expect("chat", lambda status: "holding 3 replicas" in status.get("message", ""))
    assert status["unset"] == {"specReplicas": 1, "keeps": 3}
    assert services.wanted("chat") == 3
    serving_kubectl("scale", "bisvc", "chat", "-n", services.namespace, "--replicas=2")
    assert "unset" not in services.expect_ready("chat", 2)


@pytest.mark.parametrize("silent", [("vllm:num_requests",), ("vllm:",)], ids=["no load", "nothing at all"])
def test_an_engine_without_the_metrics_keeps_its_floor(services: Services, silent: tuple[str, ...]) -> None:
    services.apply("chat", low=2)
    services.traffic("chat", 30.0, silent)
    services.expect_ready("chat", 2)
    services.expect_words("chat", "MetricsAvailable", "vllm:num_requests_running")
    services.expect_event("chat", "MetricsLost")


def test_advice_is_given_and_not_taken(services: Services) -> None:
    services.apply("chat", low=2)
    services.expect_ready("chat", 2)
    services.patch("chat", scaling={"mode": "Advisory"})
    services.traffic("chat", 40.0)
    services.expect("chat", lambda status: "Advisory" in status.get("message", ""))
    assert services.wanted("chat") == 2
