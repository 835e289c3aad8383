"""A day of a service in little more than a minute: ten times the demand at noon, and all that goes wrong meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from berth.devcluster.engines import replay
from berth.devcluster.process import wait_until
from tests.e2e.inference.conftest import CHILDREN, PATIENCE, Services, template
from tests.e2e.inference.test_inference_spot import give_notice, on_spot, restored, zone_of

Json = dict[str, Any]
HOUR_SECONDS = 2.8
TRACE = [4.0, 4, 4, 4, 4, 5, 6, 8, 12, 18, 26, 33, 38, 40, 40, 38, 36, 33, 28, 20, 12, 7, 5, 4]
"""Requests in flight by the hour."""
NEW = "registry.example/engine:2"


@dataclass
class Day:
    """The clock of the day, and what was seen of the service by the hour."""

    services: Services
    began: float = field(default_factory=time.monotonic)
    ready: dict[int, list[int]] = field(default_factory=dict)

    def until(self, hour: float) -> None:
        """Watch until it is ``hour``."""

        def passed() -> bool:
            now = (time.monotonic() - self.began) / HOUR_SECONDS
            self.ready.setdefault(int(now), []).append(self.services.ready("chat"))
            return now >= hour

        assert wait_until(passed, 30 * HOUR_SECONDS)


@pytest.fixture
def spot_nodes(services: Services) -> Iterator[dict[str, Json]]:
    yield from restored(services)


def images(services: Services) -> set[str]:
    return {pod["spec"]["containers"][0]["image"] for pod in services.pods("chat")}


def test_a_day_of_ten_times_the_demand_and_its_mishaps(services: Services, spot_nodes: dict[str, Json]) -> None:
    serving = services.serving
    spot, steady = {"mode": "Mixed", "onDemandFloor": 1}, {"forecast": {"method": "Persistence"}}
    services.apply("chat", high=18, scaling=steady, spot=spot, template=template(sim_start="1500ms"))
    services.traffic("chat", replay(TRACE, HOUR_SECONDS))
    day = Day(services)
    day.until(3)
    children = [path.format(services.namespace) for path in CHILDREN]
    deleted = {path: services.api.get(path)["metadata"]["uid"] for path in children}
    for path in children:
        services.api.delete(path)
    day.until(11)
    serving.prometheus.stop()
    day.until(12.5)
    serving.prometheus.start()
    day.until(13.5)
    zones = on_spot(services, spot_nodes)
    assert zones, "nothing runs on the cheaper spot nodes"
    lost = max(zones, key=lambda zone: zones[zone])
    doomed = {name for name, node in spot_nodes.items() if zone_of(node) == lost}
    for name in doomed:
        give_notice(services, spot_nodes[name])
    services.patch("chat", template=template(NEW))
    moved = wait_until(lambda: not doomed & set(services.nodes("chat")), 30)
    assert moved, f"replicas stay on nodes that are taken back: {services.status('chat')}"
    day.until(16)
    assert serving.engines.waiting(services.namespace, "chat") < 1.0, "the peak is not met after the mishaps"
    assert services.ready("chat") >= 6
    serving.kill()
    serving.start("operator-again")
    day.until(24)
    status = services.expect("chat", lambda status: status.get("readyReplicas", 99) <= 3)
    assert wait_until(lambda: images(services) == {NEW}, PATIENCE), images(services)
    assert max(max(seen) for hour, seen in day.ready.items() if hour < 13) <= 18
    assert {"ScaledUp", "ScaledDown"} <= services.events("chat").keys()
    assert float(status["cost"]["usdPerHour"]) <= float(status["cost"]["onDemandOnlyUsdPerHour"])
    assert all(services.api.get(path)["metadata"]["uid"] != uid for path, uid in deleted.items())
    assert serving.engines.waited_share(services.namespace, "chat") < 0.5, day.ready
