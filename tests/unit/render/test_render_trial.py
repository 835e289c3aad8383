"""What is asked of the API server before a gang is placed: one pod, and all that its workers ask for together."""

from __future__ import annotations

from dataclasses import replace

from berth.render.gang import gang_probe, probe_pod
from tests.builders.training import make_plan


def test_the_trial_pod_names_no_job_so_that_equal_templates_ask_alike() -> None:
    one = make_plan("n0", "n1", framework="PyTorch", pod_group=True)
    assert probe_pod(one) == probe_pod(replace(one, name="other", uid="else", attempt=7, nodes=("n8", "n9")))
    assert "ownerReferences" not in probe_pod(one)["metadata"]


def test_a_trial_of_the_whole_gang_asks_for_what_all_its_workers_ask_for() -> None:
    template = {
        "containers": [
            {"name": "worker", "resources": {"requests": {"memory": "1500Mi"}, "limits": {"memory": "2Gi"}}},
            {"name": "logger", "resources": {"requests": {"cpu": "150m"}}},
            {"name": "idle"},
        ],
        "initContainers": [{"name": "fetch", "resources": {"limits": {"example.com/disk": "1"}}}],
    }
    plan = make_plan("a", "b", "c", "d", template=template, cpu_millicores=2500, rdma={"rdma/ib": 2})
    spec = gang_probe(plan)["spec"]
    worker_, logger, idle = spec["containers"]
    assert worker_["resources"] == {
        "requests": {"memory": "6000Mi", "cpu": "10", "nvidia.com/gpu": "32", "rdma/ib": "8"},
        "limits": {"memory": "8Gi", "nvidia.com/gpu": "32", "rdma/ib": "8"},
    }
    assert logger["resources"]["requests"] == {"cpu": "600m"}
    assert "resources" not in idle
    assert spec["initContainers"][0]["resources"]["limits"] == {"example.com/disk": "4"}
    assert probe_pod(plan)["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "2500m"
