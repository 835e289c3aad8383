"""Counts belong to the operator: who else sets them is named and not fought; a user's surge ends on a full pool too."""

from __future__ import annotations

import threading
from typing import Any

from berth.devcluster.process import wait_until
from tests.e2e.inference.conftest import Services
from tests.e2e.inference.test_inference_capacity import L40S, roll

SCALE = "/apis/apps/v1/namespaces/{}/deployments/{}/scale"


def insist(services: Services, deployment: str, count: int, over: threading.Event) -> None:
    """Set the count as often as it is another one, as an autoscaler does."""
    path = SCALE.format(services.namespace, deployment)
    while not over.wait(0.5):
        if services.api.get(path)["spec"]["replicas"] != count:
            services.api.patch(path, {"spec": {"replicas": count}}, fieldManager="autoscaler")


def test_another_writer_of_counts_is_named_and_not_fought(services: Services) -> None:
    services.apply("chat", low=2, high=2)
    services.traffic("chat", 1.0)
    services.expect_ready("chat", 2)
    services.expect_condition("chat", "MetricsAvailable", "True")
    (name,) = (name for name, item in services.deployments("chat").items() if item["spec"]["replicas"])
    over = threading.Event()
    other = threading.Thread(target=insist, args=(services, name, 3, over))
    other.start()
    try:
        found = services.expect_condition("chat", "ScaleContested", "True", "OtherWriter")
        assert "autoscaler (through scale)" in found["message"]
        services.expect_event("chat", "ScaleContested")
        assert services.wanted("chat") == 3
    finally:
        over.set()
        other.join()


def test_a_surge_of_the_users_does_not_wait_for_ever_on_a_full_pool(services: Services) -> None:
    services.apply("chat", low=8, high=8, accelerators=L40S, rollout={"maxSurge": 1})
    services.expect_ready("chat", 8)
    seen: list[Any] = roll(services, "chat")
    assert min(ready for _, ready, _ in seen) >= 6
    assert wait_until(lambda: services.ready("chat") == 8, 60)
