"""What a service does when something that it relies on goes away: its metrics, its operator, its children."""

from __future__ import annotations

from typing import Any

from berth.devcluster.process import wait_until
from tests.e2e.conftest import settled
from tests.e2e.inference.conftest import CHILDREN, PATIENCE, SIGNAL, Services

Json = dict[str, Any]
STILL_SECONDS = 6.0  # longer than a service is ever left alone
STEADY: Json = {"forecast": {"method": "Persistence"}}


def versions(services: Services, *names: str) -> dict[str, str]:
    """Which version of each service, Deployment and pod there is; a write makes another."""
    found = {name: services.get(name)["metadata"]["resourceVersion"] for name in names}
    for name in names:
        for item in (*services.deployments(name).values(), *services.pods(name)):
            found[item["metadata"]["name"]] = item["metadata"]["resourceVersion"]
    return found


def test_lost_metrics_hold_what_is_there_and_floors_hold_after_that(services: Services) -> None:
    demand = {"signals": [SIGNAL], "onUnknown": {"holdFor": "8s", "replicas": 7}}
    services.apply("chat", scaling={"demand": demand, **STEADY})
    services.traffic("chat", 19.0)
    services.expect("chat", lambda status: status.get("readyReplicas", 0) >= 4)
    services.traffic("chat", 0.5)
    services.serving.prometheus.stop()
    services.expect_condition("chat", "MetricsAvailable", "False", "Holding")
    held = services.wanted("chat")
    assert held >= 4
    assert "unknown" in services.expect_event("chat", "MetricsLost")
    services.expect_condition("chat", "MetricsAvailable", "False", "HoldExpired")
    services.expect_ready("chat", max(held, 7))
    services.serving.prometheus.start()
    services.expect_condition("chat", "MetricsAvailable", "True")
    services.expect_event("chat", "MetricsBack")
    services.expect_ready("chat", 1, 90)


def test_a_killed_operator_comes_back_to_what_it_left_and_writes_nothing(services: Services) -> None:
    services.apply("a", scaling=STEADY)
    services.apply("b", low=3, scaling={"mode": "Manual"}, replicas=2)
    services.traffic("a", 18.0)
    services.expect_ready("a", 4)
    services.expect_ready("b", 2)
    before = settled(lambda: versions(services, "a", "b"), STILL_SECONDS, 90)
    services.serving.kill()
    services.serving.start("operator-again")
    services.serving.expect_lead()
    assert settled(lambda: versions(services, "a", "b"), STILL_SECONDS, 90) == before


def test_what_is_changed_or_deleted_by_hand_is_put_right(services: Services) -> None:
    services.apply("chat", low=2, scaling=STEADY)
    services.traffic("chat", 4.0)
    services.expect_ready("chat", 2)
    services.expect_condition("chat", "MetricsAvailable", "True")
    deployment = next(iter(services.deployments("chat")))
    path = f"/apis/apps/v1/namespaces/{services.namespace}/deployments/{deployment}"
    services.api.patch(path, {"spec": {"replicas": 5}})
    services.expect("chat", lambda _: services.wanted("chat") == 2)
    before = services.api.get(path)["metadata"]["uid"]
    services.api.delete(path, propagationPolicy="Background")
    assert wait_until(lambda: services.api.exists(path) and services.api.get(path)["metadata"]["uid"] != before, 30)
    services.expect_ready("chat", 2)
    children = [path.format(services.namespace) for path in CHILDREN]
    selector = services.api.get(children[0])["spec"]["selector"]
    services.api.patch(children[0], {"spec": {"selector": {"berth.dev/service-name": "other", "app": "x"}}})
    services.api.patch(children[1], {"spec": {"maxUnavailable": 0}})
    assert wait_until(lambda: services.api.get(children[0])["spec"]["selector"] == selector, 10)
    assert wait_until(lambda: services.api.get(children[1])["spec"]["maxUnavailable"] == "10%", 10)
    for child in children:
        services.api.delete(child)
    assert wait_until(lambda: all(services.api.exists(child) for child in children), 10)


def test_children_without_an_owner_are_taken_over_and_serve_on(services: Services) -> None:
    """As after ``kubectl delete --cascade=orphan`` and a restored backup."""
    services.apply("chat", low=3)
    services.expect_ready("chat", 3)
    pods = {pod["metadata"]["uid"] for pod in services.pods("chat")}
    services.orphan("chat")
    services.apply("chat", low=3)
    services.expect_ready("chat", 3)
    owner = services.get("chat")["metadata"]["uid"]
    assert wait_until(lambda: services.owners("chat") == {owner}, 10)
    assert {pod["metadata"]["uid"] for pod in services.pods("chat")} == pods
    services.delete("chat")
    assert wait_until(lambda: not services.deployments("chat"), 2 * PATIENCE)


def test_a_deleted_service_takes_its_children_along(services: Services) -> None:
    services.apply("chat", low=2)
    services.expect_ready("chat", 2)
    services.delete("chat")
    namespace = services.namespace
    assert wait_until(lambda: not services.deployments("chat"), 2 * PATIENCE)
    assert wait_until(lambda: not services.pods("chat"), PATIENCE)
    assert wait_until(lambda: not services.api.exists(f"/api/v1/namespaces/{namespace}/services/chat"), PATIENCE)
    services.apply("chat", low=3)  # the same name again is another service
    services.expect_ready("chat", 3)


def test_a_spec_that_cannot_be_carried_out_says_why_and_recovers(services: Services) -> None:
    odd = {"spec": {"containers": [{"name": "server", "image": "x", "resources": {"limits": {"cpu": "many"}}}]}}
    services.apply("chat", template=odd)
    said = services.expect_condition("chat", "Accepted", "False")
    assert "many" in said["message"], said
    assert "many" in services.expect_event("chat", "Rejected")
    assert services.deployments("chat") == {}
    services.patch("chat", template={"spec": {"containers": [{"name": "server", "image": "x"}]}})
    services.expect_ready("chat", 1)
    services.expect_condition("chat", "Accepted", "True")


def test_a_model_that_fits_nothing_here_says_what_was_looked_at(services: Services) -> None:
    model = {"name": "huge", "parameters": "400B", "contextTokens": 8192, "kvBytesPerToken": 500000, "uri": "hf://a/b"}
    services.apply("chat", model=model, accelerators={"types": ["L4"], "perReplica": "Auto"})
    said = services.expect_condition("chat", "Placed", "False", "NoCandidate")
    assert "L4" in said["message"]
    assert services.status("chat")["phase"] == "Pending"
