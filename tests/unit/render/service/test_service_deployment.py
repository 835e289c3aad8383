"""A variant becomes a Deployment whose template follows from spec, catalogue and variant alone."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.api.names import LABEL_APPLIED_HASH, LABEL_TEMPLATE_HASH
from berth.inference.coldstart import STEPS
from berth.render.service.deployment import deployment, deployment_scale, deployment_template, template_hash
from berth.render.service.exposure import service
from berth.render.service.plan import DeploymentPlan
from berth.render.service.pod import pod_template, probe_pod
from tests.builders.services import CATALOGUE, OWN, make_plan, make_service, make_variant

LABELS = {
    "berth.dev/service-name": "chat",
    "berth.dev/variant": "chat-l4-od-x",
    "berth.dev/pool": "l4",
    "berth.dev/capacity-type": "OnDemand",
    "app.kubernetes.io/managed-by": "berth",
}


def server(plan: DeploymentPlan) -> dict[str, Any]:
    found = [entry for entry in pod_template(plan)["spec"]["containers"] if entry["name"] == "server"]
    assert len(found) == 1
    container: dict[str, Any] = found[0]
    return container


def test_a_deployment_is_named_by_its_variant_and_belongs_to_the_service():
    body = deployment_template(make_plan())
    assert (body["apiVersion"], body["kind"]) == ("apps/v1", "Deployment")
    metadata = body["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("chat-l4-od-x", "serving")
    assert metadata["labels"].items() >= LABELS.items()
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "berth.dev/v1alpha1",
            "kind": "InferenceService",
            "name": "chat",
            "uid": "uid-of-chat",
            "controller": True,
            "blockOwnerDeletion": False,
        }
    ]


def test_the_count_is_set_first_and_then_only_by_its_own_writer():
    plan = make_plan(replicas=7)
    first, later = deployment(plan), deployment_template(plan)
    count = deployment_scale("serving", plan.name, 7, uid="u")
    assert first["spec"].pop("replicas") == 7
    assert first == later
    assert count["spec"] == {"replicas": 7}


def test_what_selects_the_pods_never_changes():
    plan = make_plan()
    changed = replace(plan, variant=replace(plan.variant, pool="other", devices=2))
    selectors = [deployment_template(one)["spec"]["selector"] for one in (plan, changed)]
    assert selectors[0] == selectors[1]
    assert selectors[0]["matchLabels"].items() <= LABELS.items()


def test_a_rollout_is_paused_and_bounded_as_planned_and_outlasts_a_cold_start():
    spec = deployment_template(make_plan(paused=True, max_surge=0, max_unavailable="25%", startup_seconds=3600))["spec"]
    assert spec["paused"] is True
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": "25%"}
    assert spec["progressDeadlineSeconds"] > 3600
    assert "paused" in deployment_template(make_plan())["spec"], "an apply that leaves it out would not resume"


prices = st.builds(
    lambda usd, capacity: {"usd_per_hour": usd, "capacity": capacity}, st.floats(0.01, 99), st.floats(0.01, 9)
)


@settings(max_examples=40, deadline=None)
@given(prices, st.integers(0, 500), st.booleans(), st.sampled_from([0, 1, "50%"]), st.decimals("0.1", "50", places=2))
def test_prices_counts_capacities_and_room_change_no_template(
    learned: dict[str, float], replicas: int, paused: bool, surge: int | str, list_price: Decimal
):
    plan = make_plan()
    dearer = {name: replace(entry, usd_per_hour=list_price) for name, entry in CATALOGUE.accelerators.items()}
    later = replace(
        plan,
        service=replace(plan.service, catalogue=replace(CATALOGUE, accelerators=MappingProxyType(dearer))),
        variant=replace(plan.variant, **learned),
        replicas=replicas,
        paused=paused,
        max_surge=surge,
    )
    assert json.dumps(pod_template(later)) == json.dumps(pod_template(plan))
    assert template_hash(later) == template_hash(plan)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(["vLLM", "TensorRT-LLM", "Triton", "Custom"]), st.permutations(["a", "b", "c"]))
def test_equal_plans_are_equal_bytes_and_the_order_of_labels_does_not_matter(engine: str, keys: list[str]):
    def plan(order: list[str]) -> DeploymentPlan:
        own = {"metadata": {"labels": dict.fromkeys(order, "x")}, **copy.deepcopy(OWN)}
        return make_plan(make_service(engine, template=own))

    assert json.dumps(deployment(plan(keys))) == json.dumps(deployment(plan(keys)))
    assert template_hash(plan(keys)) == template_hash(plan(sorted(keys)))


@pytest.mark.parametrize(
    "changed",
    [
        make_plan(startup_seconds=900),
        make_plan(grace_seconds=120),
        make_plan(cpu_millicores=4000),
        make_plan(make_service(args=("--seed=1",))),
        make_plan(variant=make_variant(devices=2)),
    ],
    ids=["start-up budget", "grace", "CPU", "arguments", "devices"],
)
def test_what_changes_the_template_shows_in_its_digest(changed: DeploymentPlan):
    labels = deployment_template(changed)["metadata"]["labels"]
    before = deployment_template(make_plan())["metadata"]["labels"]
    assert labels[LABEL_TEMPLATE_HASH] == template_hash(changed) != before[LABEL_TEMPLATE_HASH]
    assert labels[LABEL_APPLIED_HASH] != before[LABEL_APPLIED_HASH]


def test_what_only_changes_the_rollout_shows_in_the_digest_of_what_is_applied():
    labels, before = (deployment_template(make_plan(paused=paused))["metadata"]["labels"] for paused in (True, False))
    assert labels[LABEL_TEMPLATE_HASH] == before[LABEL_TEMPLATE_HASH]
    assert labels[LABEL_APPLIED_HASH] != before[LABEL_APPLIED_HASH]


@pytest.mark.parametrize("budget", STEPS)
def test_nothing_is_killed_within_the_budget_of_a_start(budget: int):
    """kserve#5062, kubeai#172: liveness ended slow loads."""
    probe = server(make_plan(startup_seconds=budget))["startupProbe"]
    assert budget <= probe["periodSeconds"] * probe["failureThreshold"] < budget + probe["periodSeconds"]


def test_ready_means_loaded_and_a_busy_engine_has_time_to_answer():
    """llm-d-benchmark#1734: a probe of one second emptied the pool under load."""
    container = server(make_plan(make_service("Triton")))
    assert container["readinessProbe"]["httpGet"] == {"path": "/v2/health/ready", "port": "http"}
    assert container["livenessProbe"]["httpGet"] == {"path": "/v2/health/live", "port": "http"}
    assert container["readinessProbe"]["timeoutSeconds"] >= 10
    liveness = container["livenessProbe"]
    assert liveness["periodSeconds"] * liveness["failureThreshold"] >= 120


@pytest.mark.parametrize("engine", [name for name, entry in CATALOGUE.serving.engines.items() if entry.ready])
def test_no_request_reaches_a_replica_before_its_model_is_loaded(engine: str):
    """kserve#2882: the first request after zero was answered with an error."""
    plan = make_plan(make_service(engine))
    container, ready = server(plan), CATALOGUE.serving.engines[engine].ready
    assert {container[kind]["httpGet"]["path"] for kind in ("startupProbe", "readinessProbe")} == {ready}
    assert "initialDelaySeconds" not in container["readinessProbe"]
    assert not service(plan.service)["spec"].get("publishNotReadyAddresses")


@pytest.mark.parametrize(
    ("slo", "drain"),
    [(None, 60), ({"latency": "20s"}, 60), ({"ttft": "500ms", "itl": "100ms"}, 120), ({"latency": "1h"}, 600)],
    ids=["nothing promised", "latency", "tokens", "at most"],
)
def test_a_replica_that_goes_drains_as_long_as_a_long_answer_and_then_has_time_to_stop(slo: Any, drain: int):
    plan = make_plan(make_service(**({"slo": slo} if slo else {})))
    assert server(plan)["lifecycle"]["preStop"] == {"sleep": {"seconds": drain}}
    assert pod_template(plan)["spec"]["terminationGracePeriodSeconds"] == drain + 15


@pytest.mark.parametrize(
    ("own", "asked"),
    [
        ({}, {"limits": {"cpu": "32"}, "requests": {"cpu": "16"}}),
        ({"requests": {"cpu": "3"}}, {"limits": {}, "requests": {"cpu": "3"}}),
        ({"limits": {"cpu": "3"}}, {"limits": {"cpu": "3"}, "requests": {}}),
    ],
    ids=["none named", "requested", "limited"],
)
def test_cpu_is_the_plan_s_only_where_the_template_names_none(own: Any, asked: Any):
    template = {"spec": {"containers": [{"name": "server", "resources": own}]}}
    plan = make_plan(make_service(template=template), make_variant(devices=2), cpu_millicores=16_000)
    devices = {"nvidia.com/gpu": "2"}
    assert server(plan)["resources"] == {kind: {**amounts, **devices} for kind, amounts in asked.items()}


def test_where_cpu_is_the_accelerator_cores_are_what_a_replica_asks_for():
    plan = make_plan(variant=make_variant("CPU", devices=6))
    assert server(plan)["resources"]["requests"] == {"cpu": "6"}
    assert "--gpu-memory-utilization" not in " ".join(server(plan)["args"])
    assert "tolerations" not in pod_template(plan)["spec"]


def test_the_trial_pod_is_the_template_s_without_what_the_service_finds_pods_by():
    plan = make_plan()
    body = probe_pod(plan)
    assert body["spec"] == pod_template(plan)["spec"]
    assert body["metadata"] == {"name": "berth-check", "namespace": "serving", "labels": {}}
