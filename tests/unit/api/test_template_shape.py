"""Templates whose JSON is of the wrong kind are refused with the path and what would be right, for both kinds alike."""

from __future__ import annotations

from typing import Any

import pytest

from berth.api import inferenceservice, trainingjob
from berth.api.common import ContractProblem
from berth.api.template_shape import misshapen

Json = dict[str, Any]
ODD: list[tuple[Json, str]] = [
    ({"metadata": "abc"}, "spec.template.metadata: 'abc' must be an object"),
    ({"metadata": {"labels": "abc"}}, "spec.template.metadata.labels: 'abc' must be an object"),
    ({"metadata": {"labels": ["a"]}}, "spec.template.metadata.labels: ['a'] must be an object"),
    ({"metadata": {"labels": {"a": 5}}}, "spec.template.metadata.labels.a: 5 must be a text; put it in quotation"),
    ({"spec": {"terminationGracePeriodSeconds": "abc"}}, "spec.template.spec.terminationGracePeriodSeconds: 'abc' must"
                                                         " be a whole number of seconds, for example 30"),
    ({"spec": {"terminationGracePeriodSeconds": {}}}, "spec.template.spec.terminationGracePeriodSeconds: {} must be a"),
    ({"spec": {"terminationGracePeriodSeconds": True}}, "spec.template.spec.terminationGracePeriodSeconds: True must"),
    ({"spec": {"tolerations": "abc"}}, "spec.template.spec.tolerations: 'abc' must be a list"),
    ({"spec": {"tolerations": [None]}}, "spec.template.spec.tolerations[0]: None must be an object"),
    ({"spec": {"tolerations": [{"key": {}}]}}, "spec.template.spec.tolerations[0].key: {} must be a text"),
    ({"spec": {"nodeSelector": {"a": 1}}}, "spec.template.spec.nodeSelector.a: 1 must be a text"),
    ({"spec": {"containers": [{"resources": "abc"}]}}, "spec.template.spec.containers[0].resources: 'abc' must be an"),
    ({"spec": {"containers": [{"resources": {"limits": ["a"]}}]}},
     "spec.template.spec.containers[0].resources.limits: ['a'] must be an object"),
    ({"spec": {"initContainers": [{}, {"resources": {"requests": {"cpu": "lots"}}}]}},
     "spec.template.spec.initContainers[1].resources.requests.cpu: 'lots' must be a quantity, for example 500m, 4 or"),
    ({"spec": {"containers": [{"volumeMounts": "abc"}]}}, "spec.template.spec.containers[0].volumeMounts: 'abc' must"),
    ({"spec": {"containers": [{"env": [{"name": "A", "value": 8}]}]}}, "spec.template.spec.containers[0].env[0].value"),
    ({"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"operator": "Exists"}]}]}}}}},
     "spec.template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]."
     "matchExpressions[0]: needs the field key"),
    ({"spec": {"overhead": "x" * 100}}, f"spec.template.spec.overhead: '{'x' * 38}… must be an object"),
]  # fmt: skip


@pytest.mark.parametrize(("template", "message"), ODD, ids=[message[:60] for _, message in ODD])
def test_the_path_and_what_it_must_be_are_said(template: Json, message: str) -> None:
    assert (misshapen(template) or "").startswith(message)


@pytest.mark.parametrize(
    "template",
    [
        {},
        {"metadata": None, "spec": {"containers": None, "tolerations": None, "affinity": {"nodeAffinity": None}}},
        {"spec": {"containers": [{"resources": {"limits": {"cpu": 1, "memory": "1Gi", "x/y": 1.5}}, "more": 1}]}},
        {"metadata": {"labels": {"a": "b"}}, "spec": {"hostIPC": True, "dnsConfig": {"options": []}}},
    ],
)
def test_what_is_well_formed_absent_or_none_of_berth_s_business_passes(template: Json) -> None:
    assert misshapen(template) is None


def test_both_kinds_refuse_it_when_they_are_read() -> None:
    odd = {"metadata": "abc", "spec": {"containers": [{"name": "worker"}]}}
    job = {"workers": 1, "accelerators": {"perWorker": 1}, "template": odd}
    with pytest.raises(ContractProblem, match=r"spec\.template\.metadata"):
        trainingjob.parse_spec(job, name="j", namespace="n")
    service = {"model": {"name": "m"}, "template": odd}
    with pytest.raises(ContractProblem, match=r"spec\.template\.metadata"):
        inferenceservice.parse_spec(service)
