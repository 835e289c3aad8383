"""The operator itself: killed, replaced, paused, quiet."""

from __future__ import annotations

import http.client
import time

from berth.devcluster.operator import Operator
from berth.devcluster.process import wait_until
from tests.e2e.conftest import Berth, Jobs, settled

STILL_SECONDS = 5.0


def lease(berth: Berth) -> dict[str, object]:
    spec: dict[str, object] = berth.api.get("/apis/coordination.k8s.io/v1/namespaces/berth-system/leases/berth")["spec"]
    return spec


def get(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def leads(operator: Operator) -> bool:
    return "berth_leading 1.0" in get(operator.health_port, "/metrics")[1]


def versions(jobs: Jobs, *names: str) -> dict[str, str]:
    """Which version of each job and of its pods there is; a write makes another."""
    pods = [pod for name in names for pod in jobs.pods(name)]
    found = {str(pod["metadata"]["name"]): str(pod["metadata"]["resourceVersion"]) for pod in pods}
    return found | {name: str(jobs.get(name)["metadata"]["resourceVersion"]) for name in names}


def test_a_killed_operator_is_taken_up_where_it_was(jobs: Jobs, berth: Berth) -> None:
    for number in range(4):
        jobs.submit(f"job-{number}", 1, annotations={"berth.dev/sim-run": "4s"})
        time.sleep(0.15 * number)
        berth.operators[0].kill()
        berth.operators.clear()
        berth.start(f"after-{number}")
    for number in range(4):
        status = jobs.expect_phase(f"job-{number}", "Succeeded", 90)
        assert status["attempt"] == 1, "a restart of the operator restarted a job"


def test_a_restart_writes_nothing_that_is_not_due(jobs: Jobs, berth: Berth) -> None:
    jobs.submit("a", 2)
    jobs.submit("b", 8)
    jobs.expect_phase("a", "Running")
    jobs.expect("b", lambda status: status.get("message"))
    before = settled(lambda: versions(jobs, "a", "b"), STILL_SECONDS, 40)
    berth.stop_all()
    berth.start("again")
    assert wait_until(lambda: str(lease(berth).get("holderIdentity", "")).startswith("again"), 40)
    jobs.submit("c", 8)
    jobs.expect("c", lambda status: status.get("message"))  # by then the new one has looked at all jobs
    assert settled(lambda: versions(jobs, "a", "b"), STILL_SECONDS, 40) == before


def test_a_paused_leader_that_wakes_up_writes_nothing(jobs: Jobs, berth: Berth) -> None:
    (first,) = berth.operators
    second = berth.start("operator-1")
    assert leads(first)
    jobs.submit("a", 3)
    assert wait_until(lambda: bool(jobs.pods("a")), 20)
    first.pause()  # in the middle of a start, and for longer than its lease lasts
    jobs.submit("b", 1)
    assert wait_until(lambda: leads(second), 40)
    for name in ("a", "b"):
        status = jobs.expect_phase(name, "Running")
        assert status["attempt"] == 1, "the successor did not adopt the start"
        jobs.expect(name, lambda status: status.get("readyWorkers") == status["workers"])
    assert [pod["metadata"]["name"] for pod in jobs.pods("a")] == ["a-1-0", "a-1-1", "a-1-2"]
    before = settled(lambda: versions(jobs, "a", "b"), STILL_SECONDS, 40)
    first.resume()
    assert wait_until(lambda: not first.process.alive(), 20), "it did not notice that its time was over"
    assert settled(lambda: versions(jobs, "a", "b"), STILL_SECONDS, 40) == before
    assert leads(second)
    berth.operators.remove(first)


def test_two_replicas_are_warm_and_one_writes(jobs: Jobs, berth: Berth) -> None:
    second = berth.start("operator-1")
    assert get(second.health_port, "/readyz")[0] == 200
    assert not leads(second)
    berth.operators[0].stop()
    began = time.monotonic()
    assert wait_until(lambda: leads(second), 20)
    assert time.monotonic() - began < 10, "a released lease was not taken over at once"
    assert "not released" not in berth.operators[0].log.read_text(), "what it writes with was closed before it was done"
    jobs.submit("next", 1)
    jobs.expect_phase("next", "Running")
    berth.operators.pop(0)


def test_metrics_say_what_is_going_on(jobs: Jobs, berth: Berth) -> None:
    jobs.submit("seen", 1)
    jobs.expect_phase("seen", "Running")
    port = berth.operators[0].health_port
    assert wait_until(lambda: 'berth_gangs{phase="Running"}' in get(port, "/metrics")[1], 10)
    status, text = get(port, "/metrics")
    assert status == 200
    for name in (
        "berth_decision_seconds_count",
        'berth_api_requests_total{outcome="201",resource="pods",verb="create"}',
        'berth_watch_staleness_seconds{resource="pods"}',
        "berth_gang_placement_gap_domains_count",
        "berth_idle_node_seconds_total",
        "berth_queue_depth",
    ):
        assert name in text, name
    assert get(port, "/healthz") == (200, "ok\n")


def test_pools_report_what_they_hold(jobs: Jobs, berth: Berth) -> None:
    pools = "/apis/berth.dev/v1alpha1/acceleratorpools"
    selector = {"matchLabels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}}
    body = {"metadata": {"name": "mine"}, "spec": {"nodeSelector": selector, "accelerator": "H100"}}
    head = {"apiVersion": "berth.dev/v1alpha1", "kind": "AcceleratorPool"}
    jobs.submit("earlier", 1)
    jobs.expect_phase("earlier", "Running")
    berth.api.post(pools, head | body)
    try:
        assert wait_until(lambda: _pool(berth, "mine").get("usedBy", {}).get("Training") == 8, 30)
        status = _pool(berth, "mine")
        assert (status["nodes"], status["accelerators"], status["free"]) == (4, 32, 24)
        ready = next(entry for entry in status["conditions"] if entry["type"] == "Ready")
        assert (ready["status"], ready["reason"]) == ("True", "NodesMatched")
        jobs.submit("user", 1)
        jobs.expect_phase("user", "Running")
        assert jobs.status("user")["placement"]["pool"] == "mine"
        berth.api.post(pools, head | {"metadata": {"name": "younger"}, "spec": body["spec"]})
        assert wait_until(lambda: "NodesShared" in str(_pool(berth, "younger")), 30)
    finally:
        for name in ("younger", "mine"):
            if berth.api.exists(f"{pools}/{name}"):
                berth.api.delete(f"{pools}/{name}")


def _pool(berth: Berth, name: str) -> dict[str, dict[str, int]]:
    status: dict[str, dict[str, int]] = (
        berth.api.get(f"/apis/berth.dev/v1alpha1/acceleratorpools/{name}").get("status") or {}
    )
    return status
