"""Whatever JSON a template holds, it is either refused with a sentence or everything can be made of it."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from berth.api.template_shape import misshapen
from berth.api.trainingjob import parse_spec
from berth.catalogue.load import load
from berth.controllers.services.plans import pod_needs
from berth.inference.request import service_request
from berth.render.gang import GangPlan, gang_probe, pods
from berth.render.service.pod import pod_template, probe_pod
from berth.render.service.weights import unreadable
from berth.training.request import RequestProblem, gang_request, lifecycle_job
from tests.builders.services import make_plan, make_service, make_variant

CATALOGUE = load()
TERMS = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
CONTAINER = (
    "resources", "resources.requests", "resources.limits", "resources.limits.cpu", "env", "volumeMounts", "ports",
    "lifecycle", "lifecycle.preStop", "securityContext", "securityContext.capabilities", "readinessProbe",
    "securityContext.capabilities.add", "readinessProbe.httpGet", "restartPolicy", "command", "args", "envFrom",
)  # fmt: skip
POD = (
    "tolerations", "nodeSelector", "affinity", "affinity.nodeAffinity", TERMS, "resources", "resources.requests",
    "overhead", "terminationGracePeriodSeconds", "serviceAccountName", "securityContext", "imagePullSecrets",
)  # fmt: skip
PATHS = [
    "metadata", "metadata.labels", "metadata.annotations",
    *(f"spec.{field}" for field in POD),
    *(f"spec.{kind}.0.{field}" for kind in ("containers", "initContainers") for field in CONTAINER),
]  # fmt: skip
leaves = st.sampled_from([None, True, 0, 5, -3, 1.5, "", "abc", "8", "1Ei"])
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(st.sampled_from(["name", "key", "operator", "cpu", "matchExpressions", "value"]), inner),
    ),
    max_leaves=6,
)


def put(template: dict[str, Any], path: str, value: Any) -> None:
    """Set the field at ``path``, making what is above it."""
    *above, last = path.split(".")
    there: Any = template
    for part in above:
        if part == "0" and isinstance(there, list) and there:
            there = there[0]
        elif part != "0" and isinstance(there, dict):
            there = there.setdefault(part, {})
        else:
            return
    if isinstance(there, dict):
        there[last] = value


def templates(container: str) -> st.SearchStrategy[dict[str, Any]]:
    """Templates as the schema lets them pass, with odd values in up to three places."""

    def made(places: list[tuple[str, Any]]) -> dict[str, Any]:
        of = {"name": container, "image": "i"}
        template: dict[str, Any] = {"spec": {"containers": [dict(of)], "initContainers": [{"name": "first"}]}}
        for path, value in sorted(places, key=lambda place: place[0]):
            put(template, path, copy.deepcopy(value))
        return template

    return st.lists(st.tuples(st.sampled_from(PATHS), values), min_size=1, max_size=3).map(made)


@settings(max_examples=400, deadline=None)
@given(templates("worker"))
def test_a_gang_of_any_template_is_refused_or_rendered(template: dict[str, Any]) -> None:
    if misshapen(template) is not None:
        return
    raw = {"workers": 2, "accelerators": {"perWorker": 8}, "template": template}
    spec = parse_spec(raw, name="j", namespace="n")
    lifecycle_job(spec, deleting=False, rejected=None)
    try:
        gang_request(spec, CATALOGUE)
    except RequestProblem:
        return
    plan = GangPlan(
        "j", "n", "u", 1, "p", "nvidia.com/gpu", 8, ("a", "b"), template, "c", framework="PyTorch", cpu_millicores=4000,
        rdma={"rdma/ib": 8}, preempt_signal="TERM", preempt_seconds=9,
    )  # fmt: skip
    assert len(pods(plan, (0, 1))) == 2
    gang_probe(plan)


@settings(max_examples=400, deadline=None)
@given(templates("server"))
def test_a_service_of_any_template_is_refused_or_rendered(template: dict[str, Any]) -> None:
    if misshapen(template) is not None:
        return
    service = make_service(template=template)
    unreadable(service)
    service_request("chat", service.spec, {}, CATALOGUE)
    plan = make_plan(service, make_variant())
    pod_needs(pod_template(plan)["spec"])
    probe_pod(plan)
