"""A plan becomes pods: what Berth owns is set, what the user wrote is kept, and the same plan is the same bytes."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.api.names import LABEL_RANK
from berth.render.gang import GangPlan, each_pod, pinned, pod_group, pods, probe_pod, service
from tests.builders.training import make_plan

Json = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

RICH: Json = {
    "metadata": {"labels": {"team": "nlp", LABEL_RANK: "99"}, "annotations": {"note": "mine"}},
    "spec": {
        "serviceAccountName": "ckpt-writer",
        "nodeSelector": {"disk": "nvme"},
        "tolerations": [{"key": "example.com/team", "operator": "Exists"}],
        "imagePullSecrets": [{"name": "pull"}],
        "securityContext": {"runAsUser": 1000},
        "topologySpreadConstraints": [],
        "initContainers": [{"name": "fetch", "image": "fetch:1"}],
        "containers": [
            {
                "name": "worker",
                "image": "llm:1",
                "command": ["torchrun", "train.py"],
                "resources": {"requests": {"memory": "64Gi"}, "limits": {"memory": "64Gi"}, "claims": [{"name": "c"}]},
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                "securityContext": {"capabilities": {"add": ["SYS_NICE"], "drop": ["ALL"]}},
            },
            {"name": "logger", "image": "log:1"},
        ],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    },
}


def pod(plan: GangPlan, rank: int = 0) -> Json:
    return pods(plan, [rank])[0]


def worker(plan: GangPlan, rank: int = 0) -> Json:
    found: Json = pod(plan, rank)["spec"]["containers"][0]
    return found


def terms(body: Json) -> list[Json]:
    found: list[Json] = body["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    return found


def fields_of(node: str) -> list[Json]:
    return [{"key": "metadata.name", "operator": "In", "values": [node]}]


def with_container(**fields: Any) -> Json:
    return {"containers": [{"name": "worker", "image": "llm:1", **fields}]}


def test_every_rank_is_pinned_to_its_node_under_its_own_name() -> None:
    bodies = pods(make_plan("a", "b", "c", attempt=4), [0, 1, 2])
    assert [body["metadata"]["name"] for body in bodies] == ["llm-4-0", "llm-4-1", "llm-4-2"]
    assert [terms(body) for body in bodies] == [[{"matchFields": fields_of(node)}] for node in "abc"]


def test_only_the_ranks_asked_for_are_rendered_in_that_order() -> None:
    bodies = pods(make_plan("a", "b", "c"), [2, 0])
    assert [body["metadata"]["labels"][LABEL_RANK] for body in bodies] == ["2", "0"]


def test_a_pod_is_made_when_it_is_asked_for() -> None:
    ranks = iter([0, 1, 2])
    made = each_pod(make_plan("a", "b", "c"), ranks)
    assert next(made)["metadata"]["labels"][LABEL_RANK] == "0"
    assert list(ranks) == [1, 2]


def test_the_pin_is_in_every_required_term_and_the_rest_of_the_affinity_stays() -> None:
    zone, disk = ({"key": key, "operator": "Exists"} for key in ("zone", "disk"))
    preferred = [{"weight": 1, "preference": {"matchExpressions": [disk]}}]
    affinity = {
        "nodeAffinity": {
            REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [zone]}, {"matchExpressions": [disk]}]},
            "preferredDuringSchedulingIgnoredDuringExecution": preferred,
        },
        "podAntiAffinity": {"x": 1},
    }
    found = pinned(copy.deepcopy(affinity), "n7")
    required = found["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert [term["matchFields"] for term in required] == [fields_of("n7")] * 2
    assert [term["matchExpressions"] for term in required] == [[zone], [disk]]
    assert found["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] == preferred
    assert found["podAntiAffinity"] == {"x": 1}


@pytest.mark.parametrize("affinity", [None, {}, {"nodeAffinity": {}}, {"nodeAffinity": {REQUIRED: {}}}])
def test_without_required_terms_the_pin_is_the_only_one(affinity: Json | None) -> None:
    assert pinned(affinity, "n")["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] == [{"matchFields": fields_of("n")}]


def test_what_the_template_says_is_kept() -> None:
    body = pod(replace(make_plan(), template=RICH))
    spec, own = body["spec"], RICH["spec"]
    for name in ("serviceAccountName", "nodeSelector", "imagePullSecrets", "securityContext", "initContainers"):
        assert spec[name] == own[name], name
    assert "automountServiceAccountToken" not in spec
    assert own["tolerations"][0] in spec["tolerations"]
    first, second = spec["containers"]
    assert second == own["containers"][1]
    assert first["command"] == ["torchrun", "train.py"]
    assert first["resources"]["limits"]["memory"] == first["resources"]["requests"]["memory"] == "64Gi"
    assert first["resources"]["claims"] == [{"name": "c"}]
    assert own["containers"][0]["volumeMounts"][0] in first["volumeMounts"]
    assert own["volumes"][0] in spec["volumes"]
    assert body["metadata"]["annotations"] == {"note": "mine"}
    assert body["metadata"]["labels"]["team"] == "nlp"


def test_what_berth_owns_wins() -> None:
    plan = make_plan(attempt=2)
    plan = replace(plan, template={**RICH, "spec": {**RICH["spec"], "restartPolicy": "Always"}})
    body = pod(plan, 1)
    assert body["spec"]["restartPolicy"] == "Never"
    assert body["spec"]["priorityClassName"] == "berth-training"
    labels = body["metadata"]["labels"]
    assert {key: labels[key] for key in sorted(labels) if key != "team"} == {
        "app.kubernetes.io/managed-by": "berth",
        "berth.dev/attempt": "2",
        "berth.dev/job-name": "llm",
        "berth.dev/job-uid": "uid-of-llm",
        "berth.dev/pool": "h100-ib",
        "berth.dev/rank": "1",
    }
    assert body["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "berth.dev/v1alpha1",
            "kind": "TrainingJob",
            "name": "llm",
            "uid": "uid-of-llm",
            "controller": True,
        }
    ]


def test_rendering_leaves_the_template_as_it_was() -> None:
    before = copy.deepcopy(RICH)
    pods(replace(make_plan(), template=RICH, rdma={"rdma/ib": 8}, preempt_signal="SIGUSR1", preempt_seconds=60), [0, 1])
    assert before == RICH


def test_accelerators_are_filled_in_as_request_and_limit() -> None:
    resources = worker(make_plan(accelerators_per_worker=4))["resources"]
    assert resources == {"limits": {"nvidia.com/gpu": "4"}, "requests": {"nvidia.com/gpu": "4"}}


@pytest.mark.parametrize(
    ("own", "requests"),
    [
        ({}, "12500m"),
        ({"requests": {"cpu": "3"}}, "3"),
        ({"limits": {"cpu": "5"}}, None),
    ],
    ids=["chosen by Berth", "requested", "only limited"],
)
def test_cpu_is_requested_only_where_the_template_names_none(own: Json, requests: str | None) -> None:
    resources = worker(make_plan(template=with_container(resources=own), cpu_millicores=12_500))["resources"]
    assert resources["requests"].get("cpu") == requests


def test_rdma_devices_come_with_the_right_to_lock_memory() -> None:
    plan = replace(make_plan(rdma={"rdma/ib": 8}), template=RICH)
    found = worker(plan)
    assert found["resources"]["limits"]["rdma/ib"] == found["resources"]["requests"]["rdma/ib"] == "8"
    assert found["securityContext"] == {"capabilities": {"add": ["SYS_NICE", "IPC_LOCK"], "drop": ["ALL"]}}
    assert "securityContext" not in worker(make_plan())


def test_rails_with_a_resource_each_are_all_asked_for() -> None:
    rails = {f"example.com/rail-{rail}": 1 for rail in range(4)}
    assert dict.fromkeys(rails, "1").items() <= worker(make_plan(rdma=rails))["resources"]["limits"].items()


def test_shared_memory_is_mounted_from_memory_unless_the_template_does() -> None:
    spec = pod(make_plan())["spec"]
    assert spec["containers"][0]["volumeMounts"] == [{"name": "berth-shared-memory", "mountPath": "/dev/shm"}]
    assert spec["volumes"] == [{"name": "berth-shared-memory", "emptyDir": {"medium": "Memory"}}]
    own = {
        **with_container(volumeMounts=[{"name": "shm", "mountPath": "/dev/shm"}]),
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}],
    }
    assert pod(make_plan(template=own))["spec"]["volumes"] == own["volumes"]


def test_without_a_service_account_no_token_is_mounted_unless_asked_for() -> None:
    assert pod(make_plan())["spec"]["automountServiceAccountToken"] is False
    own = {**with_container(), "automountServiceAccountToken": True}
    assert pod(make_plan(template=own))["spec"]["automountServiceAccountToken"] is True


def test_the_accelerators_own_taint_is_tolerated_once() -> None:
    expected = {"key": "nvidia.com/gpu", "operator": "Exists"}
    assert pod(make_plan())["spec"]["tolerations"] == [expected]
    own = {**with_container(), "tolerations": [{**expected, "effect": "NoSchedule"}]}
    assert pod(make_plan(template=own))["spec"]["tolerations"] == [{**expected, "effect": "NoSchedule"}]


def test_a_preemption_sends_the_signal_and_leaves_time_to_save_before_the_grace_period() -> None:
    own = {**with_container(lifecycle={"postStart": {"exec": {"command": ["x"]}}}), "terminationGracePeriodSeconds": 45}
    spec = pod(make_plan(template=own, preempt_signal="SIGUSR1", preempt_seconds=120))["spec"]
    assert spec["terminationGracePeriodSeconds"] == 165
    lifecycle = spec["containers"][0]["lifecycle"]
    assert lifecycle["preStop"]["exec"]["command"] == ["/bin/sh", "-c", "kill -s USR1 1; exec sleep 120"]
    assert lifecycle["postStart"] == {"exec": {"command": ["x"]}}


def test_a_hook_of_the_user_s_is_left_alone() -> None:
    hook = {"exec": {"command": ["save"]}}
    own = with_container(lifecycle={"preStop": hook})
    spec = pod(make_plan(template=own, preempt_signal="SIGUSR1", preempt_seconds=60))["spec"]
    assert spec["containers"][0]["lifecycle"]["preStop"] == hook
    assert spec["terminationGracePeriodSeconds"] == 90


def test_without_a_deadline_grace_and_hooks_are_the_template_s() -> None:
    spec = pod(make_plan())["spec"]
    assert "terminationGracePeriodSeconds" not in spec
    assert "lifecycle" not in spec["containers"][0]


def test_a_native_gang_is_named_by_its_attempt_and_joined_by_every_pod() -> None:
    plan = make_plan("a", "b", "c", attempt=3, pod_group=True)
    group = pod_group(plan)
    assert group["metadata"]["name"] == "llm-3"
    assert group["spec"] == {
        "schedulingPolicy": {"gang": {"minCount": 3}},
        "priorityClassName": "berth-training",
    }
    assert all(body["spec"]["schedulingGroup"] == {"podGroupName": "llm-3"} for body in pods(plan, [0, 1, 2]))
    assert "schedulingGroup" not in pod(make_plan())["spec"]


@pytest.mark.parametrize(
    ("framework", "nodes", "networked"),
    [("PyTorch", ("a", "b"), True), ("PyTorch", ("a",), False), ("None", ("a", "b"), False)],
)
def test_only_a_framework_with_several_workers_needs_names(
    framework: str, nodes: tuple[str, ...], networked: bool
) -> None:
    plan = make_plan(*nodes, framework=framework)
    spec = pod(plan)["spec"]
    assert plan.networked == networked
    assert ("hostname" in spec, spec.get("subdomain")) == (networked, "llm-workers" if networked else None)


def test_the_service_gives_names_to_pods_that_are_not_ready() -> None:
    body = service(make_plan(framework="PyTorch"))
    assert body["metadata"]["name"] == "llm-workers"
    assert body["spec"] == {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"berth.dev/job-name": "llm", "berth.dev/job-uid": "uid-of-llm"},
    }
    labels = pod(make_plan(framework="PyTorch"))["metadata"]["labels"]
    assert body["spec"]["selector"].items() <= labels.items()


plans = st.builds(
    lambda nodes, framework, cpu, rdma, seconds, group, rich: replace(
        make_plan(*nodes, framework=framework, cpu_millicores=cpu, rdma=rdma, preempt_seconds=seconds),
        preempt_signal="SIGTERM",
        pod_group=group,
        **({"template": RICH} if rich else {}),
    ),
    st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4),
    st.sampled_from(["PyTorch", "JAX", "TensorFlow", "MPI", "None"]),
    st.sampled_from([0, 4000]),
    st.sampled_from([{}, {"rdma/ib": 8}]),
    st.sampled_from([0, 60]),
    st.booleans(),
    st.booleans(),
)


@settings(max_examples=40, deadline=None)
@given(plans)
def test_the_trial_pod_is_a_pod_of_the_gang_but_for_what_names_the_gang(plan: GangPlan) -> None:
    trial, made = probe_pod(plan), pod(plan)
    assert trial["spec"].keys() == made["spec"].keys() - {"schedulingGroup"}
    for each in trial["spec"].keys() - {"affinity", "containers", "hostname", "subdomain"}:
        assert trial["spec"][each] == made["spec"][each]
    asked, given_ = trial["spec"]["containers"][0], made["spec"]["containers"][0]
    assert {**asked, "env": []} == {**given_, "env": []}
    assert [entry["name"] for entry in asked["env"]] == [entry["name"] for entry in given_["env"]]
    assert trial["metadata"]["labels"].keys() == made["metadata"]["labels"].keys()


@settings(max_examples=40, deadline=None)
@given(plans)
def test_the_same_plan_is_the_same_bytes_alone_or_together_now_or_after_a_restart(plan: GangPlan) -> None:
    ranks = range(plan.workers)
    together = [msgspec.json.encode(body) for body in pods(plan, ranks)]
    again = replace(plan, template=json.loads(json.dumps(plan.template)))
    assert together == [msgspec.json.encode(pod(again, rank)) for rank in ranks]


def test_a_whole_pod() -> None:
    """One pod in full, so that any change of what is written to users' clusters shows."""
    plan = make_plan("n0", "n1", framework="JAX", environment={"BERTH_CHECKPOINT_INTERVAL_SECONDS": "1862"})
    assert pod(plan, 1) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "llm-1-1",
            "namespace": "research",
            "labels": {
                "berth.dev/job-name": "llm",
                "berth.dev/job-uid": "uid-of-llm",
                "berth.dev/attempt": "1",
                "berth.dev/pool": "h100-ib",
                "app.kubernetes.io/managed-by": "berth",
                "berth.dev/rank": "1",
            },
            "ownerReferences": [
                {
                    "apiVersion": "berth.dev/v1alpha1",
                    "kind": "TrainingJob",
                    "name": "llm",
                    "uid": "uid-of-llm",
                    "controller": True,
                }
            ],
        },
        "spec": {
            "containers": [
                {
                    "name": "worker",
                    "image": "registry.example/llm:1",
                    "resources": {"limits": {"nvidia.com/gpu": "8"}, "requests": {"nvidia.com/gpu": "8"}},
                    "volumeMounts": [{"name": "berth-shared-memory", "mountPath": "/dev/shm"}],
                    "env": [
                        {"name": "BERTH_CHECKPOINT_INTERVAL_SECONDS", "value": "1862"},
                        {"name": "BERTH_ATTEMPT", "value": "1"},
                        {"name": "BERTH_RANK", "value": "1"},
                        {"name": "BERTH_WORKERS", "value": "2"},
                        {"name": "JAX_COORDINATOR_ADDRESS", "value": "llm-1-0.llm-workers.research.svc:1234"},
                        {"name": "JAX_NUM_PROCESSES", "value": "2"},
                        {"name": "JAX_PROCESS_ID", "value": "1"},
                    ],
                }
            ],
            "restartPolicy": "Never",
            "priorityClassName": "berth-training",
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            "automountServiceAccountToken": False,
            "volumes": [{"name": "berth-shared-memory", "emptyDir": {"medium": "Memory"}}],
            "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": fields_of("n1")}]}}},
            "hostname": "llm-1-1",
            "subdomain": "llm-workers",
        },
    }
