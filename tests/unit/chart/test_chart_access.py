"""The roles of the chart are the operator's table of permissions, neither more nor less."""

from __future__ import annotations

from pathlib import Path

import pytest

from berth.controllers import permissions
from berth.controllers.permissions import PERMISSIONS, Permission
from berth.values import ConfigProblem
from tests.unit.chart.rendered import CHART, Manifest, of_kind, render

Grant = tuple[str, str, str, str]  # group, resource, verb, name or ""


def granted(role: Manifest) -> set[Grant]:
    return {
        (group, resource, verb, name)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }


def declared(scope: str, *switches: str) -> set[Grant]:
    return {
        (each.group, each.resource, verb, "berth" if each.named else "")
        for each in PERMISSIONS
        for verb in each.verbs
        if each.scope == scope and each.value in ("", *switches)
    }


@pytest.mark.parametrize(("kind", "scope"), [("ClusterRole", "cluster"), ("Role", "own")])
@pytest.mark.parametrize("switches", [(), ("prefetch.enabled",)], ids=["default", "prefetch"])
def test_a_role_grants_what_the_table_declares(kind: str, scope: str, switches: tuple[str, ...]) -> None:
    settings = [f"{switch}=true" for switch in switches]
    assert granted(of_kind(render(*settings), kind)["berth"]) == declared(scope, *switches)


def test_nodes_are_written_only_where_that_is_switched_on() -> None:
    patch = ("", "nodes", "patch", "")
    assert patch not in granted(of_kind(render(), "ClusterRole")["berth"])
    assert patch in granted(of_kind(render("prefetch.enabled=true"), "ClusterRole")["berth"])


@pytest.mark.parametrize("kind", ["ClusterRole", "Role"])
def test_a_role_is_bound_to_the_operator_alone(kind: str) -> None:
    binding = of_kind(render("serviceAccount.name=me"), f"{kind}Binding")["berth"]
    assert binding["roleRef"]["name"] == "berth"
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "me", "namespace": "berth-system"}]


def test_the_lease_is_the_only_one_the_operator_may_touch() -> None:
    role = of_kind(render("operator.leaseName=mine"), "Role")["berth"]
    assert {(verb, name) for _, _, verb, name in granted(role)} == {
        ("create", ""), ("get", "mine"), ("update", "mine"),
    }  # fmt: skip


def test_the_template_is_as_generated() -> None:
    arguments = ["--check", "--out", str(CHART / "templates" / "rbac.generated.yaml")]
    assert permissions.main(arguments) == 0


def test_a_stale_template_is_noticed_and_written_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rbac.yaml"
    assert permissions.main(["--check", "--out", str(path)]) == 1
    assert "run: make crds" in capsys.readouterr().err
    assert permissions.main(["--out", str(path)]) == 0
    assert permissions.main(["--check", "--out", str(path)]) == 0


@pytest.mark.parametrize(
    ("group", "resource", "verbs", "why"),
    [("", "pods", ("*",), "x"), ("", "*", ("get",), "x"), ("*", "pods", ("get",), "x"), ("", "pods", (), "x"),
     ("", "pods", ("get",), ""), ("", "pods", ("impersonate",), "x")],
)  # fmt: skip
def test_a_permission_says_exactly_what_and_why(group: str, resource: str, verbs: tuple[str, ...], why: str) -> None:
    with pytest.raises(ConfigProblem, match="and a reason"):
        Permission(group, resource, verbs, why)


def test_creating_cannot_be_narrowed_to_one_object() -> None:
    with pytest.raises(ConfigProblem, match="cannot be narrowed to one object: create"):
        Permission("", "configmaps", ("create", "get"), "x", scope="own", named=True)


@pytest.mark.parametrize(
    ("verb", "group", "resource", "allowed"),
    [
        ("create", "", "pods", True),
        ("update", "", "pods", False),
        ("patch", "berth.dev", "trainingjobs/status", True),
        ("patch", "berth.dev", "trainingjobs", False),
        ("get", "", "secrets", False),
        ("update", "coordination.k8s.io", "leases", True),
    ],
)
def test_a_call_can_be_checked_against_the_table(verb: str, group: str, resource: str, allowed: bool) -> None:
    assert permissions.allows(verb, group, resource) is allowed


def test_policies_of_gateways_are_read_and_no_more() -> None:
    role = of_kind(render(), "ClusterRole")["berth-policies"]
    assert {verb for _, _, verb, _ in granted(role)} == {"get"}
    assert ("gateway.envoyproxy.io", "securitypolicies", "get", "") in granted(role)
    binding = of_kind(render(), "ClusterRoleBinding")["berth-policies"]
    assert [subject["name"] for subject in binding["subjects"]] == ["berth"]


@pytest.mark.parametrize("setting", ["expose.policies=null", "rbac.create=false"])
def test_no_policies_no_role(setting: str) -> None:
    assert "berth-policies" not in of_kind(render(setting), "ClusterRole")
