"""From a spec to what decisions take, and what is refused before any node is looked at."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.api.trainingjob import TrainingJobSpec, parse_spec
from berth.cluster import wire
from berth.controllers import facts
from berth.training.recovery import Rule
from berth.training.request import (
    RequestProblem,
    gang_request,
    grace_seconds,
    lifecycle_job,
    names_cpu,
    node_terms,
    pod_needs,
    tolerations,
    without_nodes,
)
from berth.values import Requirement, Toleration
from tests.builders.fleet import GPU, catalogue

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
GIB = 1 << 30


def make_spec(pod: dict[str, Any] | None = None, **fields: Any) -> TrainingJobSpec:
    raw = {
        "workers": 8,
        "accelerators": {"perWorker": 8},
        "template": {"spec": {"containers": [{"name": "worker", "image": "i"}]} if pod is None else pod},
        **fields,
    }
    return parse_spec(raw, name="llm", namespace="research")


def with_resources(**resources: Any) -> dict[str, Any]:
    return {"containers": [{"name": "worker", "image": "i", "resources": resources}]}


def expect_problem(spec: TrainingJobSpec, reason: str, *words: str) -> None:
    with pytest.raises(RequestProblem) as caught:
        gang_request(spec, catalogue())
    assert caught.value.reason == reason
    for each in words:
        assert each in caught.value.message


def test_a_bare_spec_asks_for_devices_and_a_pod_s_room() -> None:
    request = gang_request(make_spec(), catalogue())
    assert (request.workers, request.accelerators_per_worker, request.per_worker) == (8, 8, {"pods": 1})
    assert request.types == request.node_terms == request.tolerations == request.fabric_kinds == ()
    assert (request.required_level, request.preferred_level, request.slice_workers) == (None, None, 1)


def test_every_field_reaches_the_request() -> None:
    spec = make_spec(
        accelerators={"perWorker": 4, "types": ["H200", "H100"]},
        topology={"required": "block", "preferred": "rack"},
        fabric={"kinds": ["RoCE", "InfiniBand"], "minGbps": 400, "minRails": 4},
        parallelism={"tensor": 8},
        model={"parameters": "70B"},
    )
    request = gang_request(spec, catalogue())
    assert request.types == ("H200", "H100")
    assert (request.required_level, request.preferred_level) == ("block", "rack")
    assert (request.fabric_kinds, request.min_gbps, request.min_rails) == (("InfiniBand", "RoCE"), 400, 4)
    assert request.slice_workers == 2
    assert request.memory_bytes == 840 * 10**9


def test_unknown_names_are_refused_with_those_that_there_are() -> None:
    expect_problem(make_spec(accelerators={"perWorker": 8, "types": ["H9000"]}), "UnknownAccelerator",
                   "spec.accelerators.types", "H9000", "H100")  # fmt: skip
    expect_problem(make_spec(fabric={"kinds": ["Carrier Pigeon"]}), "UnknownFabric", "spec.fabric.kinds", "InfiniBand")


def test_a_template_that_contradicts_the_accelerators_is_refused() -> None:
    expect_problem(make_spec(with_resources(limits={GPU: "4"})), "AcceleratorMismatch", "perWorker: 8")


def test_tensor_groups_must_divide_the_workers() -> None:
    spec = make_spec(workers=9, accelerators={"perWorker": 4}, parallelism={"tensor": 8})
    expect_problem(spec, "SpecInvalid", "multiple of 2")


def test_a_node_named_by_field_is_refused_because_the_pin_is_a_field_too() -> None:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    pod = {**with_resources(), "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}}
    expect_problem(make_spec(pod), "SpecInvalid", "matchFields", "kubernetes.io/hostname")


def test_node_selector_is_part_of_every_ored_term() -> None:
    pod = {
        "nodeSelector": {"disk": "nvme"},
        "affinity": {
            "nodeAffinity": {
                REQUIRED: {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]},
                        {"matchExpressions": [{"key": "gen", "operator": "Gt", "values": [3]}]},
                    ]
                }
            }
        },
    }
    disk = Requirement("disk", "In", ("nvme",))
    assert node_terms(pod) == (
        (disk, Requirement("zone", "In", ("a", "b"))),
        (disk, Requirement("gen", "Gt", ("3",))),
    )
    assert node_terms({"nodeSelector": {"disk": "nvme"}}) == ((disk,),)
    assert node_terms({}) == ()


def test_tolerations_are_read_with_the_api_s_defaults() -> None:
    pod = {"tolerations": [{"key": "a"}, {"operator": "Exists"}, {"key": "b", "value": "c", "effect": "NoExecute"}]}
    assert tolerations(pod) == (
        Toleration("a"),
        Toleration("", "Exists"),
        Toleration("b", "Equal", "c", "NoExecute"),
    )


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (with_resources(requests={"cpu": "500m", "memory": "1Gi"}), {"cpu": 500, "memory": GIB}),
        (with_resources(limits={"cpu": "2"}), {"cpu": 2000}),
        (with_resources(requests={"cpu": "1"}, limits={"cpu": "4"}), {"cpu": 1000}),
        (with_resources(limits={GPU: "8", "rdma/ib": "2"}), {"rdma/ib": 2}),
        ({**with_resources(requests={"cpu": "1"}), "overhead": {"cpu": "250m"}}, {"cpu": 1250}),
        ({**with_resources(requests={"cpu": "1"}), "resources": {"requests": {"cpu": "4"}}}, {"cpu": 4000}),
        ({**with_resources(), "resources": {"limits": {"cpu": "4"}}}, {"cpu": 4000}),
        ({**with_resources(requests={"cpu": "1"}), "resources": {"limits": {"cpu": "4"}}}, {"cpu": 1000}),
        ({**with_resources(), "resources": {"requests": {"cpu": "4"}}, "overhead": {"cpu": "1"}}, {"cpu": 5000}),
    ],
    ids=[
        "requests", "limits stand in", "requests win", "devices left out", "overhead", "of the pod as a whole",
        "the pod's limit stands in", "a container's request before the pod's limit", "of the pod and its overhead",
    ],
)  # fmt: skip
def test_what_one_worker_needs_besides_devices(pod: dict[str, Any], expected: dict[str, int]) -> None:
    assert pod_needs(pod, {GPU}) == {**expected, "pods": 1}


amounts = st.fixed_dictionaries({}, optional={"cpu": st.sampled_from(["100m", "2"]), "memory": st.just("1Gi")})
containers = st.builds(
    lambda requests, limits: {"name": "c", "resources": {"requests": requests, "limits": limits}}, amounts, amounts
)
inits = st.builds(lambda one, policy: {**one, **policy}, containers, st.sampled_from([{}, {"restartPolicy": "Always"}]))
templates = st.builds(
    lambda main, init, overhead, requests, limits: {
        "containers": main,
        "initContainers": init,
        "overhead": overhead,
        "resources": {"requests": requests, "limits": limits},
    },
    st.lists(containers, min_size=1, max_size=3),
    st.lists(inits, max_size=4),
    amounts,
    amounts,
    amounts,
)


@settings(max_examples=80, deadline=None)
@given(templates)
def test_a_template_needs_what_its_pods_are_later_seen_to_hold(pod: dict[str, Any]) -> None:
    """Else a gang would be placed where kube-scheduler refuses it, or hold more than it was promised."""
    seen = msgspec.convert({"spec": pod}, wire.Pod)
    held = {name: amount for name, amount in facts.pod_needs(seen).items() if amount}
    assert pod_needs(pod, frozenset()) == held


def test_cpu_counts_as_named_by_request_or_limit_of_the_worker() -> None:
    assert not names_cpu(make_spec().template["spec"])
    assert names_cpu(with_resources(limits={"cpu": "1"}))
    assert names_cpu(with_resources(requests={"cpu": "1"}))
    others = {"containers": [{"name": "worker"}, {"name": "log", "resources": {"requests": {"cpu": "1"}}}]}
    assert not names_cpu(others)
    assert names_cpu({**with_resources(), "resources": {"requests": {"cpu": "8"}}})


def test_the_lifecycle_s_view_has_the_defaults_of_the_contract() -> None:
    job = lifecycle_job(make_spec(), deleting=False, rejected=None)
    assert (job.start_timeout, job.max_start_attempts, job.max_restarts) == (600.0, 5, 10)
    assert (job.max_duration, job.ttl, job.force_delete_after, job.grace) == (None, None, None, 30)
    assert (job.suspended, job.deleting, job.has_store, job.rules) == (False, False, False, ())
    assert (job.asked, job.dataset) == ((), "")


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({"fabric": {"kinds": ["InfiniBand"]}}, ("FabricSatisfied",)),
        ({"fabric": {"minGbps": 400}}, ("FabricSatisfied",)),
        ({"fabric": {"minRails": 4}}, ("FabricSatisfied",)),
        ({"fabric": {}}, ()),
        ({"model": {"parameters": "70B"}}, ("MemoryFits",)),
        ({"fabric": {"minRails": 4}, "model": {"parameters": "70B"}}, ("FabricSatisfied", "MemoryFits")),
    ],
)
def test_a_placement_is_to_fulfil_what_the_spec_asks_for(fields: dict[str, Any], asked: tuple[str, ...]) -> None:
    assert lifecycle_job(make_spec(**fields), deleting=False, rejected=None).asked == asked


@pytest.mark.parametrize(
    ("dataset", "shown"),
    [({"uri": "s3://data/pile", "version": "v12"}, "s3://data/pile@v12"), ({"uri": "s3://x"}, "s3://x"), (None, "")],
)
def test_the_data_is_named_with_its_version(dataset: dict[str, str] | None, shown: str) -> None:
    lineage = {"parent": "llama"} | ({"dataset": dataset} if dataset else {})
    assert lifecycle_job(make_spec(lineage=lineage), deleting=False, rejected=None).dataset == shown


def test_the_lifecycle_s_view_has_what_the_user_wrote() -> None:
    spec = make_spec(
        {**with_resources(), "terminationGracePeriodSeconds": 0},
        suspend=True,
        startTimeout="90s",
        maxStartAttempts=2,
        maxDuration="1h",
        ttlSecondsAfterFinished=0,
        checkpoint={"uri": "s3://b/k"},
        recovery={
            "maxRestarts": 0,
            "forceDeleteAfter": "5m",
            "rules": [
                {"name": "bad", "action": "Fail", "onExitCodes": {"operator": "In", "values": [3],
                                                                  "containerName": "worker"}},
                {"name": "stall", "action": "RestartFree", "onPodConditions": [{"type": "x/Stalled"}]},
            ],
        },
    )  # fmt: skip
    job = lifecycle_job(spec, deleting=True, rejected=("Accepted", "R", "m"))
    assert (job.start_timeout, job.max_start_attempts, job.max_restarts) == (90.0, 2, 0)
    assert (job.max_duration, job.ttl, job.force_delete_after, job.grace) == (3600.0, 0.0, 300.0, 0)
    assert job.suspended
    assert job.deleting
    assert job.has_store
    assert job.rejected == ("Accepted", "R", "m")
    assert job.rules == (
        Rule("bad", "Fail", "In", (3,), "worker"),
        Rule("stall", "RestartFree", conditions=(("x/Stalled", "True"),)),
    )


def test_nodes_to_avoid_are_barred_at_first_and_then_only_the_last_choice() -> None:
    request = gang_request(make_spec(), catalogue())
    assert without_nodes(request, (), hard=True) is request
    assert without_nodes(request, ("n1",), hard=True).excluded_nodes == {"n1"}
    softened = without_nodes(request, ("n1",), hard=False)
    assert (softened.excluded_nodes, softened.penalised_nodes) == (frozenset(), {"n1"})


def test_a_grace_period_of_nought_is_one() -> None:
    assert grace_seconds({"terminationGracePeriodSeconds": 0}) == 0
    assert grace_seconds({}) == 30
