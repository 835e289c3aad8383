"""The other kinds parse what the contract shows, and the template's own accelerators are compared with perWorker."""

from __future__ import annotations

from typing import Any

import pytest

from berth.api import acceleratorpool, inferenceservice, names
from berth.api.cel import formatted, required, unique
from berth.api.common import LabelSelector
from berth.api.template import accelerator_mismatch
from berth.values import Requirement
from tests.contract import tables

GPU = "nvidia.com/gpu"
DEVICES = {GPU, "amd.com/gpu"}


def test_inference_service_example_round_trips() -> None:
    example = tables.example("inferenceservice")
    assert inferenceservice.parse_status(example["status"]).dump() == example["status"]
    spec = inferenceservice.parse_spec(example["spec"])
    assert (spec.model.name, spec.replicas, spec.slo and spec.slo.ttft) == ("llama-3-8b", 2, "500ms")


def test_accelerator_pool_example_round_trips() -> None:
    example = tables.example("acceleratorpool")
    assert acceleratorpool.parse_status(example["status"]).dump() == example["status"]
    spec = acceleratorpool.parse_spec(example["spec"])
    assert [level.name for level in spec.topology] == ["zone", "block", "rack", "nvlink", "host"]
    assert (spec.keep_free_share, spec.recall_seconds) == (0.1, 120)


def test_pool_that_lends_nothing_keeps_nothing() -> None:
    spec = acceleratorpool.parse_spec(tables.minimal("acceleratorpool")["spec"])
    assert (spec.keep_free_share, spec.recall_seconds) == (0.0, None)


def test_selector_as_requirements() -> None:
    selector = LabelSelector.parse(
        {"matchLabels": {"b": "2", "a": "1"}, "matchExpressions": [{"key": "c", "operator": "Exists"}]}
    )
    assert selector.requirements == (
        Requirement("a", "In", ("1",)),
        Requirement("b", "In", ("2",)),
        Requirement("c", "Exists"),
    )


def container(name: str, **amounts: Any) -> dict[str, Any]:
    return {"name": name, "resources": amounts}


MISMATCHES: list[tuple[dict[str, Any], str | None]] = [
    ({"containers": [{"name": "worker"}]}, None),
    ({"containers": [container("worker", limits={GPU: 8}, requests={GPU: "8"})]}, None),
    ({"containers": [container("worker", limits={"rdma/hca": 4, "cpu": "8"})]}, None),
    (
        {"containers": [container("worker", limits={GPU: 4})]},
        "spec.template.spec.containers[0].resources: nvidia.com/gpu: 4 contradicts spec.accelerators.perWorker: 8;"
        " take it out, it is filled in",
    ),
    (
        {"containers": [container("worker"), container("logs", limits={"amd.com/gpu": 1})]},
        "spec.template.spec.containers[1].resources: only the first container, the worker, may ask for amd.com/gpu;"
        " take it out",
    ),
    (
        {"containers": [container("worker")], "initContainers": [container("warm", requests={GPU: 8})]},
        "spec.template.spec.initContainers[0].resources: only the first container, the worker, may ask for"
        " nvidia.com/gpu; take it out",
    ),
    (
        {"containers": [container("worker", limits={GPU: "eight"})]},
        "spec.template.spec.containers[0].resources: nvidia.com/gpu: eight contradicts"
        " spec.accelerators.perWorker: 8; take it out, it is filled in",
    ),
]


@pytest.mark.parametrize(("spec", "problem"), MISMATCHES)
def test_accelerators_in_the_template_must_agree(spec: dict[str, Any], problem: str | None) -> None:
    assert accelerator_mismatch({"spec": spec}, DEVICES, 8) == problem


def test_rules_are_spelled_as_the_server_reads_them() -> None:
    assert required(".a.b", "self.c", "why").as_schema() == {
        "rule": "!(self.c) || has(self.a) && has(self.a.b)",
        "message": "why",
        "fieldPath": ".a.b",
        "reason": "FieldValueRequired",
    }
    assert unique("why", "name").rule == "self.all(x, [x.name].all(key, self.exists_one(y, y.name == key)))"
    assert formatted("%d of %d", "self.a", "self.b") == "'%d of %d'.format([self.a, self.b])"


def test_pod_names_fit_into_a_label() -> None:
    longest = names.pod_name("j" * names.MAX_NAME_LENGTH, 10**9, 24_999)
    assert len(longest) <= 63
