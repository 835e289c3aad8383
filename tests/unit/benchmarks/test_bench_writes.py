"""Writes are read from the server's metrics and audit log, and set against their budget."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.writes import Access, AuditLog, Write, accesses, expected_of_gangs, from_audit, from_metrics, policy

METRICS = """\
# HELP apiserver_request_total Counter of apiserver requests.
apiserver_request_total{code="201",component="apiserver",dry_run="",group="",resource="pods",scope="resource",\
subresource="",verb="POST",version="v1"} 512
apiserver_request_total{code="201",component="apiserver",dry_run="All",group="",resource="pods",scope="resource",\
subresource="",verb="POST",version="v1"} 3
apiserver_request_total{code="201",component="apiserver",dry_run="",group="",resource="pods",scope="resource",\
subresource="binding",verb="POST",version="v1"} 511
apiserver_request_total{code="409",component="apiserver",dry_run="",group="",resource="pods",scope="resource",\
subresource="",verb="POST",version="v1"} 7
apiserver_request_total{code="200",component="apiserver",dry_run="",group="berth.dev",resource="trainingjobs",\
scope="resource",subresource="status",verb="APPLY",version="v1alpha1"} 2.0
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="cluster",\
subresource="",verb="LIST",version="v1"} 99
"""


def test_metrics_count_successful_writes_and_keep_dry_runs_apart() -> None:
    assert from_metrics(METRICS) == {
        Write("create", "pods"): 512,
        Write("create", "pods", dry_run=True): 3,
        Write("create", "pods", "binding"): 511,
        Write("patch", "trainingjobs", "status"): 2,
    }


def record(verb: str = "create", resource: str = "pods", code: int = 201, **more: Any) -> str:
    fields = {"stage": "ResponseComplete", "requestURI": "/x", "responseStatus": {"code": code}}
    return json.dumps({**fields, "verb": verb, "objectRef": {"resource": resource}, **more})


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (record(), [Write("create", "pods")]),
        (record(code=409), []),
        (record(stage="ResponseStarted"), []),
        (record(requestURI="/x?dryRun=All&fieldManager=berth"), [Write("create", "pods", dry_run=True)]),
        (record("patch", objectRef={"resource": "trainingjobs", "subresource": "status"}),
         [Write("patch", "trainingjobs", "status")]),
    ],
    ids=["a write", "a refused one", "not its end", "a dry run", "a subresource"],
)  # fmt: skip
def test_an_audit_record_is_a_write_when_it_succeeded(line: str, expected: list[Write]) -> None:
    assert [write for write, _ in from_audit([line])] == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (record("list", code=200), [Access("list", "", "pods", True)]),
        (record("patch", objectRef={"resource": "trainingjobs", "subresource": "status", "apiGroup": "berth.dev"}),
         [Access("patch", "berth.dev", "trainingjobs/status", True)]),
        (record("get", code=403, annotations={"authorization.k8s.io/decision": "forbid"}),
         [Access("get", "", "pods", False)]),
        (record(code=403, annotations={"authorization.k8s.io/decision": "allow"}),
         [Access("create", "", "pods", True)]),
        (record("get", objectRef=None), []),
    ],
    ids=["a read", "a subresource", "what no role allows", "what a quota refuses", "no resource"],
)  # fmt: skip
def test_an_access_is_what_a_role_would_call_it(line: str, expected: list[Access]) -> None:
    assert list(accesses([line])) == expected


def test_the_audit_log_is_read_on_and_only_in_whole_lines(tmp_path: Path) -> None:
    log = AuditLog(tmp_path, "group")
    assert log.counts() == Counter()
    log.path.write_text(record() + "\n" + record()[:20])
    assert log.counts() == {Write("create", "pods"): 1}
    with log.path.open("a") as more:
        more.write(record()[20:] + "\n" + record("delete", code=200) + "\n")
    assert log.counts() == {Write("create", "pods"): 1, Write("delete", "pods"): 1}


def test_the_policy_records_writes_of_one_group_and_nothing_else() -> None:
    rules = policy("system:serviceaccounts:berth-system")["rules"]
    assert rules[0]["userGroups"] == ["system:serviceaccounts:berth-system"]
    assert "get" not in rules[0]["verbs"]
    assert rules[1:] == [{"level": "None"}]


def test_the_wrapped_server_passes_its_arguments_on(tmp_path: Path) -> None:
    script = AuditLog(tmp_path / "audit", "group").wrapped(Path("/opt/kube-apiserver"))
    assert 'exec "/opt/kube-apiserver" "$@" --audit-policy-file=' in script.read_text()
    assert script.stat().st_mode & 0o111


def test_the_budget_leaves_out_dry_runs_and_leases() -> None:
    counts = Counter(
        {
            Write("create", "pods"): 10,
            Write("create", "pods", dry_run=True): 2,
            Write("patch", "pods"): 5,
            Write("update", "leases"): 50,
            Write("patch", "trainingjobs", "status"): 4,
            Write("create", "events"): 2,
            Write("delete", "pods"): 1,
        }
    )
    assert expected_of_gangs(counts, pods=10, gangs=2) == {
        "creates_per_pod": 1.0,
        "patches_per_pod": 0.5,
        "other_writes_per_gang": 3.5,
    }
