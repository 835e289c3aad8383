"""The chart on a real API server, installed by the real helm, and the access that it gives.

A control plane of its own, without nodes: installing and uninstalling concern every other test of a shared one.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import yaml

from berth.controllers.permissions import PERMISSIONS
from berth.devcluster import tools
from berth.devcluster.api import Api, Json
from berth.devcluster.binaries import Binaries
from berth.devcluster.cluster import DevCluster
from berth.devcluster.operator import CHART, install_chart, start_operator, write_kubeconfig
from berth.devcluster.operator import OPERATOR_NAMESPACE as NAMESPACE
from berth.devcluster.process import wait_until
from charts.berth.files import selftest

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")

Grant = tuple[str, str, str]  # verb, group, resource


@dataclass
class Release:
    """The chart in a cluster, and what helm can do with it."""

    cluster: DevCluster

    @cached_property
    def api(self) -> Api:
        return self.cluster.api()

    def install(self, **values: str) -> None:
        install_chart(self.cluster, {"replicaCount": "0", **values})

    def helm(self, *arguments: str) -> None:
        command: list[str | Path] = [tools.helm(), "--kubeconfig", self.cluster.kubeconfig, "-n", NAMESPACE, *arguments]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, f"helm {' '.join(arguments)}\n{result.stdout}{result.stderr}"

    def as_account(self, account: str) -> Api:
        return Api.from_kubeconfig(write_kubeconfig(self.cluster, self.cluster.dir / f"{account}.kubeconfig", account))


@pytest.fixture(scope="module")
def release(binaries: Binaries) -> Iterator[Release]:
    cluster = DevCluster.up(f"chart-{os.getpid()}", fleet=None, binaries=binaries, owned=True)
    try:
        release = Release(cluster)
        release.install()
        yield release
    finally:
        cluster.down()


def manifests(*settings: str) -> list[Json]:
    options = [part for setting in settings for part in ("--set", setting)]
    command: list[str | Path] = [tools.helm(), "template", "berth", CHART, "--namespace", NAMESPACE, *options]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [manifest for manifest in yaml.safe_load_all(text) if manifest]


@pytest.fixture(scope="module")
def selftest_access(release: Release) -> None:
    """What helm creates before it starts the pod of ``helm test``."""
    for manifest in manifests():
        if manifest["metadata"]["name"] == "berth-selftest" and manifest["kind"] != "Pod":
            release.api.apply(manifest)


@pytest.fixture
def research(release: Release) -> None:
    """The namespace that the chart's examples name."""
    release.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "research"}})


# -- what is installed -------------------------------------------------------------------------------------------------


def test_the_three_kinds_are_served_and_structural(release: Release) -> None:
    for crd in release.api.list(CRDS):
        conditions = {each["type"]: each["status"] for each in crd["status"]["conditions"]}
        assert conditions["Established"] == "True"
        assert conditions.get("NonStructuralSchema", "False") == "False"
    served = release.api.get("/apis/berth.dev/v1alpha1")["resources"]
    assert {"trainingjobs", "inferenceservices", "acceleratorpools"} <= {entry["name"] for entry in served}


@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("networkPolicy.egress.restrict=true", r"catalogue.overlay.prices\.yaml=x", "serviceAccount.name=other"),
        ("replicaCount=0", "podDisruptionBudget.maxUnavailable=50%", "priorityClassName="),
    ],
    ids=["default", "options", "none"],
)
@pytest.mark.usefixtures("selftest_access")
def test_the_api_server_knows_every_field_of_every_object(release: Release, settings: tuple[str, ...]) -> None:
    for manifest in manifests(*settings):
        release.api.apply(manifest, dryRun="All", fieldValidation="Strict")


def test_an_upgrade_takes_new_values(release: Release) -> None:
    release.install(**{"operator.qps": "50"})
    deployment = release.api.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/berth")
    assert "--qps=50" in deployment["spec"]["template"]["spec"]["containers"][0]["args"]


def test_an_upgrade_with_the_same_values_changes_no_object(release: Release) -> None:
    def versions() -> dict[str, str]:
        return {
            path: release.api.get(path)["metadata"]["resourceVersion"]
            for path in (
                release.api.path_of(manifest) for manifest in manifests() if "helm.sh/hook" not in str(manifest)
            )
        }

    release.install()
    before = versions()
    release.install()
    assert versions() == before


@pytest.mark.usefixtures("research")
def test_every_example_is_valid(release: Release) -> None:
    files = sorted((ROOT / "deploy" / "examples").glob("*.yaml"))
    examples = [manifest for path in files for manifest in yaml.safe_load_all(path.read_text())]
    assert {"TrainingJob", "InferenceService", "AcceleratorPool"} <= {manifest["kind"] for manifest in examples}
    for manifest in examples:
        assert "namespace" not in manifest["metadata"], "an example goes where kubectl -n says"
        release.api.create(manifest, dryRun="All", fieldValidation="Strict")
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    for manifest in yaml.safe_load(about["annotations"]["artifacthub.io/crdsExamples"]):
        release.api.create(manifest, dryRun="All", fieldValidation="Strict")


# -- access ------------------------------------------------------------------------------------------------------------


def served(api: Api) -> list[tuple[str, str]]:
    """(group, resource) of everything the API server knows, and what it does not serve here but the table names."""
    groups = [("", "/api/v1")]
    groups += [
        (group["name"], f"/apis/{group['preferredVersion']['groupVersion']}") for group in api.get("/apis")["groups"]
    ]
    found = {(group, entry["name"]) for group, path in groups for entry in api.get(path)["resources"]}
    found |= {(each.group, each.resource) for each in PERMISSIONS}
    return sorted(found)


def allowed(api: Api, resources: list[tuple[str, str]], namespace: str, name: str = "") -> set[Grant]:
    """Every verb on every resource that the account of ``api`` has in ``namespace``, by its own question."""

    def ask(grant: Grant) -> bool:
        verb, group, resource = grant
        attributes = {"verb": verb, "group": group, "namespace": namespace, "name": name}
        attributes["resource"], _, attributes["subresource"] = resource.partition("/")
        question = {"spec": {"resourceAttributes": attributes}}
        answer: dict[str, Any] = api.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", question)["status"]
        return bool(answer["allowed"])

    grants = [(verb, group, resource) for group, resource in resources for verb in VERBS]
    with ThreadPoolExecutor(4) as pool:
        return {grant for grant, yes in zip(grants, pool.map(ask, grants), strict=True) if yes}


def declared(*, own: bool, named: bool) -> set[Grant]:
    """What the table grants by default: nothing that a switch of the chart has to be set for."""
    return {
        (verb, each.group, each.resource)
        for each in PERMISSIONS
        for verb in each.verbs
        if not each.value and (own or each.scope == "cluster") and (named or not each.named)
    }


@pytest.mark.parametrize("namespace", ["default", NAMESPACE])
def test_the_operator_may_do_what_the_table_declares_and_nothing_else(release: Release, namespace: str) -> None:
    resources = served(release.api)
    anybodys = allowed(release.as_account("default"), resources, namespace)
    operators = allowed(release.as_account("berth"), resources, namespace)
    assert operators - anybodys == declared(own=namespace == NAMESPACE, named=False)


@pytest.mark.parametrize(("name", "named"), [("berth", True), ("another", False)])
def test_only_the_operators_own_lease_is_open_to_it(release: Release, name: str, named: bool) -> None:
    leases = [("coordination.k8s.io", "leases")]
    expected = {grant for grant in declared(own=True, named=named) if grant[2] == "leases"}
    assert allowed(release.as_account("berth"), leases, NAMESPACE, name) == expected


# -- helm test and removal ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("selftest_access")
def test_the_self_test_passes_with_its_own_account_and_a_running_operator(
    release: Release, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = yaml.safe_load(write_kubeconfig(release.cluster, tmp_path / "kubeconfig", "berth-selftest").read_text())
    (tmp_path / "token").write_text(config["users"][0]["user"]["token"])
    (tmp_path / "ca.crt").write_bytes(release.cluster.ca)
    operator = start_operator(release.cluster)
    try:
        here = f"http://127.0.0.1:{operator.health_port}"
        failed = selftest.main([
            "--api-server", release.cluster.server, "--token-file", str(tmp_path / "token"),
            "--ca-file", str(tmp_path / "ca.crt"), "--namespace", NAMESPACE, "--health", here, "--metrics", here,
        ])  # fmt: skip
        assert not failed, capsys.readouterr().out
        exposed = set(re.findall(r"^# HELP (\w+)", selftest.call(f"{here}/metrics")[1], re.M))
    finally:
        operator.stop()
    (rules,) = (each for each in manifests("metrics.prometheusRule.enabled=true") if each["kind"] == "PrometheusRule")
    asked = set(re.findall(r"\bberth_\w+", " ".join(rule["expr"] for rule in rules["spec"]["groups"][0]["rules"])))
    assert asked
    assert asked <= exposed


def test_uninstalling_keeps_definitions_and_jobs_and_a_new_release_takes_them_over(release: Release) -> None:
    job = yaml.safe_load((ROOT / "deploy" / "examples" / "trainingjob-minimal.yaml").read_text())
    release.api.apply(job)
    release.helm("uninstall", "berth", "--wait")
    assert not release.api.exists(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/berth")
    assert not release.api.exists("/apis/rbac.authorization.k8s.io/v1/clusterroles/berth")
    assert release.api.exists(release.api.path_of(job))
    assert release.api.exists("/apis/scheduling.k8s.io/v1/priorityclasses/berth-training"), "its pods could not restart"
    release.install()
    assert release.api.exists(release.api.path_of(job))
    release.api.delete(release.api.path_of(job))
    assert wait_until(lambda: not release.api.exists(release.api.path_of(job)), 30)
