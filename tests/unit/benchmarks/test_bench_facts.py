"""What a pod weighs, and where it may go."""

from __future__ import annotations

from typing import Any

import pytest
from bench_objects import pod

from benchmarks.facts import NodeView, domain_path, pod_requests, read_pod


def container(restart: str = "", **requests: str) -> dict[str, Any]:
    found: dict[str, Any] = {"resources": {"requests": requests}}
    return found | ({"restartPolicy": restart} if restart else {})


@pytest.mark.parametrize(
    ("spec", "millicores"),
    [
        ({"containers": [container(cpu="1"), container(cpu="500m")]}, 1500),
        ({"containers": [{"resources": {"limits": {"cpu": "2"}}}]}, 2000),
        ({"containers": [{"resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}}]}, 1000),
        ({"containers": [container(cpu="1")], "initContainers": [container(cpu="3")]}, 3000),
        ({"containers": [container(cpu="1")], "initContainers": [container("Always", cpu="3")]}, 4000),
        ({"containers": [container(cpu="1")],
          "initContainers": [container("Always", cpu="1"), container(cpu="5")]}, 6000),
        ({"containers": [container(cpu="1")], "overhead": {"cpu": "250m"}}, 1250),
        ({"containers": [container(cpu="1")], "resources": {"requests": {"cpu": "4"}}}, 4000),
    ],
    ids=["containers add up", "limits stand in", "requests win over limits", "init runs before", "a sidecar stays",
         "init beside a sidecar", "overhead", "pod level"],
)  # fmt: skip
def test_a_pod_is_charged_as_the_scheduler_charges_it(spec: dict[str, Any], millicores: int) -> None:
    assert pod_requests(spec)["cpu"] == millicores
    assert pod_requests(spec)["pods"] == 1


def terms(*values: tuple[str, ...]) -> dict[str, Any]:
    fields = [[{"key": "metadata.name", "operator": "In", "values": list(value)}] if value else [] for value in values]
    required = {"nodeSelectorTerms": [{"matchFields": field} if field else {} for field in fields]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


@pytest.mark.parametrize(
    ("spec", "pin"),
    [
        ({}, ""),
        (terms(("n1",)), "n1"),
        (terms(("n1",), ("n1",)), "n1"),
        (terms(("n1",), ()), ""),
        (terms(("n1",), ("n2",)), ""),
        (terms(("n1", "n2")), ""),
    ],
    ids=["no affinity", "one term", "every term", "a term without", "terms that differ", "two nodes"],
)
def test_a_pod_is_pinned_when_every_term_names_the_same_one_node(spec: dict[str, Any], pin: str) -> None:
    assert read_pod({**pod(), "spec": {"containers": [], **spec}}).pin == pin


@pytest.mark.parametrize(
    ("level", "path"), [("block", ("b0",)), ("rack", ("b0", "r1")), ("nvlink", ("b0", "r1", "only n1")), ("x", None)]
)
def test_a_domain_is_the_path_from_the_top(level: str, path: tuple[str, ...] | None) -> None:
    levels = [("block", "block", ""), ("rack", "rack", ""), ("nvlink", "clique", "NVLinkDomain")]
    assert domain_path(NodeView("n1", {"block": "b0", "rack": "r1"}, {}), levels, level) == path


def test_a_pod_of_nobody_is_no_gang() -> None:
    assert read_pod(pod(job=None)).gang is None
    assert read_pod(pod(attempt=3)).gang == ("uid-llama", 3)
