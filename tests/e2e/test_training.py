"""A gang's life on a real control plane: placed, running, failing, recovering, finishing."""

from __future__ import annotations

from typing import Any

import pytest

from berth.devcluster.api import Api
from berth.devcluster.process import wait_until
from tests.conftest import Kubectl
from tests.e2e.conftest import Berth, Jobs

Json = dict[str, Any]


def ranks(status: Json) -> list[str]:
    return str(status["placement"]["ranks"]).split(",")


def node_of(pod: Json) -> str:
    return str(pod["spec"]["nodeName"])


def rack_of(api: Api, node: str) -> str:
    return str(api.get(f"/api/v1/nodes/{node}")["metadata"]["labels"]["network.topology.nvidia.com/leaf"])


def test_a_gang_is_placed_whole_on_one_rack_and_runs(jobs: Jobs, berth: Berth) -> None:
    jobs.submit("one", 2)
    status = jobs.expect_phase("one", "Running")
    assert status["placement"]["certificate"] == "Optimal"
    assert [node_of(pod) for pod in jobs.pods("one")] == ranks(status)
    assert len({rack_of(berth.api, node) for node in ranks(status)}) == 1
    jobs.expect("one", lambda found: found.get("readyWorkers") == 2)
    assert jobs.condition("one", "AllRunning")["status"] == "True"
    assert wait_until(lambda: "Started" in jobs.events("one"), 15)


def test_success_is_every_rank_exiting_zero(jobs: Jobs) -> None:
    jobs.submit("done", 2, annotations={"berth.dev/sim-run": "1s"}, ttlSecondsAfterFinished=3)
    status = jobs.expect_phase("done", "Succeeded")
    assert status["completionTime"]
    assert status["restarts"] == {"failure": 0, "infrastructure": 0, "preemption": 0, "suspend": 0}
    assert wait_until(lambda: not jobs.api.exists(jobs.path("done")), 20), "ttlSecondsAfterFinished had no effect"


def test_a_gang_that_does_not_fit_says_why_and_starts_when_room_comes_free(jobs: Jobs) -> None:
    jobs.submit("first", 3)
    jobs.expect_phase("first", "Running")
    jobs.submit("second", 2)
    status = jobs.expect("second", lambda found: "capacity" in (found.get("message") or ""))
    assert status["phase"] == "Queued"
    assert jobs.pods("second") == []
    jobs.delete("first")
    jobs.expect_phase("second", "Running")


def test_an_unplaceable_head_leaves_nodes_that_it_cannot_use_to_others(jobs: Jobs) -> None:
    jobs.submit("head", 9)
    jobs.expect("head", lambda found: found.get("message"))
    jobs.submit("small", 1)
    jobs.expect_phase("small", "Running")


def test_a_lost_node_restarts_the_gang_elsewhere_uncharged_and_in_order(jobs: Jobs, berth: Berth) -> None:
    jobs.submit("lost", 2)
    before = jobs.expect_phase("lost", "Running")
    victim = ranks(before)[1]
    node = berth.api.get(f"/api/v1/nodes/{victim}")
    berth.api.delete(f"/api/v1/nodes/{victim}")
    try:
        status = jobs.expect("lost", lambda found: found.get("attempt") == 2 and found.get("phase") == "Running")
        assert status["restarts"]["infrastructure"] == 1
        assert status["restarts"]["failure"] == 0
        assert victim not in ranks(status)
        assert [node_of(pod) for pod in jobs.pods("lost") if pod["metadata"]["labels"]["berth.dev/attempt"] == "2"] == (
            ranks(status)
        )
        assert {"NodeLost", "Restarting"} <= set(jobs.events("lost"))
    finally:
        for field in ("resourceVersion", "uid", "creationTimestamp", "managedFields"):
            node["metadata"].pop(field, None)
        berth.api.post("/api/v1/nodes", node)


def test_a_failed_rank_is_charged_and_too_many_fail_the_job(jobs: Jobs) -> None:
    run = {"berth.dev/sim-run": "1s", "berth.dev/sim-exit-code": "7"}
    half = {"perWorker": 4, "types": ["H100"]}  # both on one node: no peer's node can have been the cause
    jobs.submit("bad", 2, annotations=run, recovery={"maxRestarts": 1}, accelerators=half)
    status = jobs.expect_phase("bad", "Failed")
    assert status["restarts"]["failure"] == 2
    assert [attempt["exitCode"] for attempt in status["attempts"]] == [7, 7]
    assert jobs.condition("bad", "Failed")["reason"] == "MaxRestartsExceeded"


def test_a_rule_of_the_user_ends_the_job_at_once(jobs: Jobs) -> None:
    rule = {"name": "config", "action": "Fail", "onExitCodes": {"operator": "In", "values": [3]}}
    run = {"berth.dev/sim-run": "1s", "berth.dev/sim-exit-code": "3"}
    jobs.submit("ruled", 1, annotations=run, recovery={"rules": [rule]})
    status = jobs.expect_phase("ruled", "Failed")
    assert status["attempts"][-1]["rule"] == "config"


def test_an_image_that_cannot_be_pulled_is_said_at_once(jobs: Jobs) -> None:
    jobs.submit("image", 1, annotations={"berth.dev/sim-waiting": "ErrImagePull"})
    status = jobs.expect("image", lambda found: "ErrImagePull" in (found.get("message") or ""), 20)
    assert status["phase"] == "Starting"


def test_a_start_that_takes_too_long_gives_everything_back(jobs: Jobs) -> None:
    jobs.submit("slow", 2, annotations={"berth.dev/sim-start": "300s"}, startTimeout="2s", maxStartAttempts=1)
    status = jobs.expect_phase("slow", "Failed")
    assert jobs.condition("slow", "Failed")["reason"] == "StartFailed"
    assert "did not run within 2s" in status["message"]
    assert wait_until(lambda: not jobs.pods("slow"), 20)


def test_suspend_releases_and_resume_queues_again(jobs: Jobs) -> None:
    jobs.submit("pause", 2)
    jobs.expect_phase("pause", "Running")
    jobs.patch("pause", suspend=True)
    status = jobs.expect_phase("pause", "Suspended")
    assert status["restarts"]["suspend"] == 1
    assert wait_until(lambda: not jobs.pods("pause"), 20)
    jobs.patch("pause", workers=1)
    jobs.patch("pause", suspend=False)
    status = jobs.expect("pause", lambda found: found.get("phase") == "Running" and found.get("attempt") == 2)
    assert status["workers"] == 1


def test_a_frozen_field_of_a_running_job_is_refused(jobs: Jobs, e2e_kubectl: Kubectl) -> None:
    jobs.submit("frozen", 1)
    jobs.expect_phase("frozen", "Running")
    with pytest.raises(Exception, match=r"set spec\.suspend to true and wait.*: workers"):
        jobs.patch("frozen", workers=2)
    table = e2e_kubectl("get", "tj", "-n", jobs.namespace)
    assert table.split()[:6] == ["NAME", "PHASE", "WORKERS", "READY", "POOL", "ATTEMPT"]


def test_a_quota_speaks_in_the_servers_words(jobs: Jobs, berth: Berth) -> None:
    hard = {"requests.nvidia.com/gpu": "4"}
    path = f"/api/v1/namespaces/{jobs.namespace}/resourcequotas"
    berth.api.post(path, {"metadata": {"name": "small"}, "spec": {"hard": hard}})
    assert wait_until(lambda: bool(berth.api.get(f"{path}/small").get("status", {}).get("hard")), 20)
    jobs.submit("over", 1)
    status = jobs.expect("over", lambda found: "exceeded quota" in (found.get("message") or ""))
    assert status["phase"] == "Queued"
    assert jobs.condition("over", "QuotaReserved")["status"] == "False"


def test_a_quota_smaller_than_the_gang_makes_it_wait_until_it_is_raised(jobs: Jobs, berth: Berth) -> None:
    path = f"/api/v1/namespaces/{jobs.namespace}/resourcequotas"
    hard = {"requests.nvidia.com/gpu": "8", "requests.cpu": "1k"}
    berth.api.post(path, {"metadata": {"name": "small"}, "spec": {"hard": hard}})
    assert wait_until(lambda: bool(berth.api.get(f"{path}/small").get("status", {}).get("hard")), 20)
    jobs.submit("half", 2, maxStartAttempts=1)
    status = jobs.expect("half", lambda found: "requests.nvidia.com/gpu=16" in (found.get("message") or ""), 60)
    assert status["phase"] == "Queued"
    assert jobs.condition("half", "QuotaReserved")["status"] == "False"
    assert "startAttempts" not in status
    assert wait_until(lambda: not jobs.pods("half"), 20)
    berth.api.patch(f"{path}/small", {"spec": {"hard": {"requests.nvidia.com/gpu": "16"}}})
    jobs.expect_phase("half", "Running", 120)
    assert jobs.condition("half", "QuotaReserved")["status"] == "True"


def test_a_job_made_again_under_its_name_starts_when_the_old_pods_are_gone(jobs: Jobs) -> None:
    jobs.submit("again", 2)
    jobs.expect_phase("again", "Running")
    for pod in jobs.pods("again"):
        jobs.annotate_pod(pod["metadata"]["name"], sim_stop="10s")
    jobs.delete("again")
    assert wait_until(lambda: not jobs.api.exists(jobs.path("again")), 20)
    jobs.submit("again", 2)
    status = jobs.expect_phase("again", "Running", 60)
    assert status["attempt"] == 1
    assert "startAttempts" not in status


def test_ranks_of_a_framework_find_each_other_by_name(jobs: Jobs, berth: Berth) -> None:
    jobs.submit("torch", 2, framework="PyTorch")
    jobs.expect_phase("torch", "Running")
    service = berth.api.get(f"/api/v1/namespaces/{jobs.namespace}/services/torch-workers")
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    worker = jobs.pods("torch")[1]
    environment = {entry["name"]: entry.get("value") for entry in worker["spec"]["containers"][0]["env"]}
    assert environment["MASTER_ADDR"] == f"torch-1-0.torch-workers.{jobs.namespace}.svc"
    assert environment["RANK"] == "1"
    assert worker["spec"]["containers"][0]["resources"]["limits"]["rdma/ib"] == "8"


def test_a_deleted_job_leaves_nothing(jobs: Jobs) -> None:
    jobs.submit("gone", 2)
    jobs.expect_phase("gone", "Running")
    jobs.delete("gone")
    assert wait_until(lambda: not jobs.pods("gone"), 20)
    jobs.submit("next", 4)
    jobs.expect_phase("next", "Running")


def test_an_unreachable_node_holds_the_restart_and_is_named(jobs: Jobs, berth: Berth) -> None:
    jobs.submit("held", 1)
    status = jobs.expect_phase("held", "Running")
    jobs.annotate_pod(jobs.pods("held")[0]["metadata"]["name"], sim_stop="600s")
    node = ranks(status)[0]
    path = f"/api/v1/nodes/{node}"
    berth.api.patch(path, {"metadata": {"annotations": {"berth.dev/sim-ready": "Unknown"}}})
    try:
        pod = jobs.pods("held")[0]["metadata"]["name"]
        assert wait_until(lambda: _ready(berth.api.get(path)) == "Unknown", 20)
        berth.api.delete(f"/api/v1/namespaces/{jobs.namespace}/pods/{pod}")
        status = jobs.expect("held", lambda found: f"node {node} is unreachable" in (found.get("message") or ""))
        assert status["phase"] == "Restarting"
        assert status["attempt"] == 1
        taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
        taints = berth.api.get(path)["spec"].get("taints", [])
        berth.api.patch(path, {"spec": {"taints": [*taints, taint]}})
        status = jobs.expect("held", lambda found: found.get("attempt") == 2 and found.get("phase") == "Running")
        assert ranks(status) != [node]
    finally:
        kept = [
            taint
            for taint in berth.api.get(path)["spec"].get("taints", [])
            if not taint["key"].startswith("node.kubernetes.io/")
        ]
        berth.api.patch(path, {"metadata": {"annotations": {"berth.dev/sim-ready": None}}, "spec": {"taints": kept}})
        assert wait_until(lambda: _ready(berth.api.get(path)) == "True", 30)


def _ready(node: Json) -> str:
    return next(str(entry["status"]) for entry in node["status"]["conditions"] if entry["type"] == "Ready")


def test_a_headless_service_that_is_deleted_or_changed_while_its_gang_runs_comes_back(jobs: Jobs) -> None:
    jobs.submit("named", 2, framework="PyTorch")
    jobs.expect_phase("named", "Running")
    path = f"/api/v1/namespaces/{jobs.namespace}/services/named-workers"
    first = jobs.api.get(path)
    jobs.api.delete(path)
    assert wait_until(lambda: jobs.api.exists(path), 15), "the Service did not come back"
    second = jobs.api.get(path)
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert second["spec"]["selector"] == first["spec"]["selector"]
    jobs.api.patch(path, {"spec": {"selector": {"app": "other", "berth.dev/job-uid": None}}})
    assert wait_until(lambda: jobs.api.get(path)["spec"]["selector"] == first["spec"]["selector"], 75)
    assert jobs.status("named")["attempt"] == 1


def test_a_status_that_cannot_be_read_costs_no_pod(jobs: Jobs) -> None:
    jobs.submit("newer", 2)
    jobs.expect_phase("newer", "Running")
    before = [pod["metadata"]["uid"] for pod in jobs.pods("newer")]
    jobs.api.patch(jobs.path("newer") + "/status", {"status": {"phase": "Checkpointing"}})
    assert wait_until(lambda: "StatusUnreadable" in jobs.events("newer"), 15)
    assert any("status.phase" in str(event.get("note")) for event in jobs.told("newer"))
    assert [pod["metadata"]["uid"] for pod in jobs.pods("newer")] == before
    assert not any("deletionTimestamp" in pod["metadata"] for pod in jobs.pods("newer"))
    jobs.api.patch(jobs.path("newer") + "/status", {"status": {"phase": "Running"}})
    jobs.api.delete(f"/api/v1/namespaces/{jobs.namespace}/pods/newer-1-0")
    jobs.expect("newer", lambda found: found.get("attempt") == 2 and found.get("phase") == "Running")
