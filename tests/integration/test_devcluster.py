"""The development cluster: a real control plane whose nodes and pods are simulated."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from berth.devcluster import cluster as devcluster
from berth.devcluster import fleets, invocation
from berth.devcluster.api import Api, Json, trusting
from berth.devcluster.binaries import Binaries
from berth.devcluster.cluster import DevCluster
from berth.devcluster.components import START_ORDER, Features
from berth.devcluster.health import is_ready
from berth.devcluster.problems import ApiRefused, ComponentDied, DevClusterProblem
from berth.devcluster.process import wait_until

pytestmark = pytest.mark.cluster

PATIENCE = 60.0


class Pods:
    """Pods of one namespace, told by annotation how to behave."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api, self.path = api, f"/api/v1/namespaces/{namespace}/pods"

    def create(self, name: str, *, init: bool = False, **behaviour: str) -> None:
        container = {"name": "main", "image": "example.com/train:1"}
        spec: Json = {"restartPolicy": "Never", "containers": [container], "terminationGracePeriodSeconds": 30}
        if init:
            spec["initContainers"] = [{"name": "prepare", "image": "example.com/prepare:1"}]
        self.api.post(self.path, {"metadata": {"name": name, "annotations": annotations(behaviour)}, "spec": spec})

    def tell(self, name: str, **behaviour: str | None) -> None:
        self.api.patch(f"{self.path}/{name}", {"metadata": {"annotations": annotations(behaviour)}})

    def status(self, name: str) -> Json:
        found: Json = self.api.get(f"{self.path}/{name}")["status"]
        return found

    def expect(self, name: str, condition: Callable[[Json], object]) -> Json:
        """Its status once ``condition`` holds for it."""
        met = wait_until(lambda: bool(condition(self.status(name))), PATIENCE)
        assert met, self.status(name)
        return self.status(name)

    def expect_phase(self, name: str, phase: str) -> Json:
        return self.expect(name, lambda status: status["phase"] == phase)


def annotations(behaviour: dict[str, Any]) -> Json:
    return {f"berth.dev/sim-{key.replace('_', '-')}": value for key, value in behaviour.items()}


def ready(status: Json) -> bool:
    return is_ready({"status": status})


def waiting(status: Json, kind: str = "containerStatuses") -> str:
    containers = status.get(kind) or [{}]
    return str(containers[0].get("state", {}).get("waiting", {}).get("reason", ""))


def ended(status: Json, kind: str = "containerStatuses") -> Json:
    found: Json = status[kind][0]["state"]["terminated"]
    return found


@pytest.fixture
def pods(api: Api, namespace: str) -> Pods:
    return Pods(api, namespace)


@pytest.fixture(scope="module")
def second(binaries: Binaries) -> Iterator[DevCluster]:
    """Another cluster beside the shared one, with native gangs."""
    features = Features(native_gangs=True)
    cluster = DevCluster.up(f"second-{os.getpid()}", fleet=None, binaries=binaries, owned=True, features=features)
    try:
        yield cluster
    finally:
        cluster.down()


# -- pods --------------------------------------------------------------------------------------------------------------


def test_a_pod_is_bound_and_runs_and_is_ready(pods: Pods) -> None:
    pods.create("one")
    status = pods.expect_phase("one", "Running")
    assert ready(status)
    assert status["podIP"].startswith("100.")
    assert pods.api.get(f"{pods.path}/one")["spec"]["nodeName"]


@pytest.mark.parametrize(
    ("behaviour", "phase", "code", "reason"),
    [
        ({"run": "100ms"}, "Succeeded", 0, "Completed"),
        ({"run": "100ms", "exit_code": "3"}, "Failed", 3, "Error"),
        (
            {"run": "100ms", "exit_code": "137", "exit_reason": "OOMKilled", "message": "too big"},
            "Failed",
            137,
            "OOMKilled",
        ),
    ],
    ids=["well", "with an error", "out of memory"],
)
def test_a_pod_ends_as_it_was_told(pods: Pods, behaviour: dict[str, str], phase: str, code: int, reason: str) -> None:
    pods.create("one", **behaviour)
    found = ended(pods.expect_phase("one", phase))
    assert (found["exitCode"], found["reason"]) == (code, reason)
    assert found.get("message", "") == behaviour.get("message", "")


def test_a_running_pod_can_be_told_to_end(pods: Pods) -> None:
    pods.create("one", run="1h")
    pods.expect_phase("one", "Running")
    pods.tell("one", exit="9")
    assert ended(pods.expect_phase("one", "Failed"))["exitCode"] == 9


def test_a_pod_starts_when_it_is_told_to(pods: Pods) -> None:
    pods.create("late", start="1h")
    pods.create("prompt", start="0s")
    pods.expect_phase("prompt", "Running")
    assert pods.status("late")["phase"] == "Pending"
    pods.tell("late", start="0s")
    pods.expect_phase("late", "Running")


@pytest.mark.parametrize("reason", ["ErrImagePull", "CreateContainerConfigError"])
def test_a_pod_waits_for_a_reason_until_it_is_mended(pods: Pods, reason: str) -> None:
    pods.create("one", waiting=reason, message="no such thing")
    status = pods.expect("one", lambda status: waiting(status) == reason)
    assert status["phase"] == "Pending"
    assert status["containerStatuses"][0]["state"]["waiting"]["message"] == "no such thing"
    pods.tell("one", waiting="ImagePullBackOff")
    pods.expect("one", lambda status: waiting(status) == "ImagePullBackOff")
    pods.tell("one", waiting=None)
    pods.expect_phase("one", "Running")


def test_an_init_container_can_hang_and_can_fail(pods: Pods) -> None:
    pods.create("hangs", init=True, init_waiting="CrashLoopBackOff")
    status = pods.expect("hangs", lambda status: waiting(status, "initContainerStatuses") == "CrashLoopBackOff")
    assert waiting(status) == "PodInitializing"
    pods.create("fails", init=True, init_exit_code="4")
    assert ended(pods.expect_phase("fails", "Failed"), "initContainerStatuses")["exitCode"] == 4
    pods.create("works", init=True)
    assert ended(pods.expect_phase("works", "Running"), "initContainerStatuses")["exitCode"] == 0


def test_a_pod_can_run_and_not_be_ready(pods: Pods) -> None:
    pods.create("one", ready="false")
    assert not ready(pods.expect_phase("one", "Running"))
    pods.tell("one", ready=None)
    pods.expect("one", ready)
    pods.tell("one", ready="false")
    pods.expect("one", lambda status: not ready(status))


@pytest.mark.parametrize("reason", ["UnexpectedAdmissionError", "OutOfcpu", "NodeShutdown", "Evicted"])
def test_a_kubelet_can_reject_a_pod(pods: Pods, reason: str) -> None:
    pods.create("one", reject=reason)
    assert pods.expect_phase("one", "Failed")["reason"] == reason


def test_a_deleted_pod_takes_its_time(pods: Pods) -> None:
    pods.create("quick")
    pods.create("slow", stop="1h")
    for name in ("quick", "slow"):
        pods.expect_phase(name, "Running")
        pods.api.delete(f"{pods.path}/{name}")
    assert wait_until(lambda: not pods.api.exists(f"{pods.path}/quick"), PATIENCE)
    assert pods.api.get(f"{pods.path}/slow")["metadata"]["deletionTimestamp"]
    pods.api.delete(f"{pods.path}/slow", gracePeriodSeconds=0)
    assert not pods.api.exists(f"{pods.path}/slow")


# -- nodes -------------------------------------------------------------------------------------------------------------


def test_the_fleet_stands_with_its_labels(api: Api) -> None:
    found = {node["metadata"]["name"]: node for node in api.list("/api/v1/nodes")}
    for wanted in fleets.load("tiny").nodes:
        node = found[wanted["metadata"]["name"]]
        assert wanted["metadata"]["labels"].items() <= node["metadata"]["labels"].items()
        assert node["status"]["allocatable"].keys() >= wanted["status"]["allocatable"].keys()


def test_nobody_writes_to_a_node_that_nothing_happens_to(api: Api) -> None:
    for node in api.list("/api/v1/nodes"):
        managers = {entry["manager"] for entry in node["metadata"].get("managedFields", [])}
        assert managers <= {"python-http-client", "kwok", "unknown"}, node["metadata"]["name"]


@pytest.mark.parametrize(("says", "taint"), [("False", "not-ready"), ("Unknown", "unreachable")])
def test_a_node_can_fail_and_recover(api: Api, says: str, taint: str) -> None:
    (node,) = fleets.parse("groups: [{name: brittle, allocatable: {cpu: '1', pods: '9'}}]", "test").nodes
    path = "/api/v1/nodes/brittle"

    def tainted() -> bool:
        return any(entry["key"] == f"node.kubernetes.io/{taint}" for entry in api.get(path)["spec"].get("taints", []))

    fleets.create(api, [node])
    try:
        api.patch(path, {"metadata": {"annotations": annotations({"ready": says})}})
        assert wait_until(tainted, PATIENCE)
        api.patch(path, {"metadata": {"annotations": annotations({"ready": None})}})
        assert wait_until(lambda: not tainted() and ready(api.get(path)["status"]), PATIENCE)
    finally:
        api.delete(path)


# -- clusters ----------------------------------------------------------------------------------------------------------


def test_two_clusters_know_nothing_of_each_other(cluster: DevCluster, second: DevCluster) -> None:
    assert not second.api().list("/api/v1/nodes")
    assert cluster.api().list("/api/v1/nodes")
    assert not set(cluster.layout.ports.values()) & set(second.layout.ports.values())
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        Api(second.server, trusting(cluster.ca)).get("/api/v1/nodes")


def test_native_gangs_are_served_where_they_were_asked_for(cluster: DevCluster, second: DevCluster) -> None:
    path = "/apis/scheduling.k8s.io/v1beta1"
    assert "podgroups" in {entry["name"] for entry in second.api().get(path)["resources"]}
    assert not cluster.api().exists(path)


def test_a_cluster_is_found_again(second: DevCluster) -> None:
    found = DevCluster.load(second.name)
    assert found == second
    assert found.status() == dict.fromkeys(START_ORDER, True)
    assert second.name in {each.name for each in devcluster.every_cluster()}


def test_a_name_is_used_once(second: DevCluster, binaries: Binaries) -> None:
    with pytest.raises(DevClusterProblem, match=f"cluster '{second.name}' is up; take it down"):
        DevCluster.up(second.name, fleet=None, binaries=binaries)


def test_authorization_is_real(cluster: DevCluster, namespace: str, api: Api) -> None:
    answer = api.post(
        f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
    )
    nobody = Api(cluster.server, trusting(cluster.ca), token=answer["status"]["token"])
    with pytest.raises(ApiRefused, match=f"403 Forbidden: .*system:serviceaccount:{namespace}:default.*cannot list"):
        nobody.list("/api/v1/nodes")


def test_a_component_that_cannot_start_ends_the_cluster_with_its_words(binaries: Binaries, tmp_path: Path) -> None:
    broken = script(tmp_path / "kube-scheduler", "echo the disk is on fire >&2; exit 3")
    spoilt = Binaries({**binaries.components, "kube-scheduler": broken})
    name = f"broken-{os.getpid()}"
    with pytest.raises(ComponentDied, match=r"kube-scheduler \(pid \d+\) ended; .*\n  \| the disk is on fire"):
        DevCluster.up(name, fleet=None, binaries=spoilt, owned=True)
    left = DevCluster.load(name)
    assert not any(left.status().values())
    left.down()
    assert not left.dir.exists()


def test_an_owner_that_dies_leaves_nothing_behind(binaries: Binaries) -> None:
    name = f"orphan-{os.getpid()}"
    code = f"""
        from berth.devcluster.cluster import DevCluster
        DevCluster.up({name!r}, fleet=None, owned=True)
        import os; os._exit(9)
    """
    environment = {**os.environ, "KUBEBUILDER_ASSETS": str(binaries.components["etcd"].parent)}
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False, timeout=120, env=environment)
    orphan = DevCluster.load(name)
    assert orphan.running()
    assert name in devcluster.reap()
    assert not orphan.running()
    assert not orphan.dir.exists()


def test_a_killed_component_is_missed_with_its_last_lines(second: DevCluster) -> None:
    victim = second.processes["kube-controller-manager"]
    victim.send(signal.SIGKILL)
    assert wait_until(lambda: not victim.alive(), PATIENCE)
    assert second.status()["kube-controller-manager"] is False
    with pytest.raises(
        ComponentDied, match=r"kube-controller-manager \(pid \d+\) ended; the last lines of (?s:.*)\n  \| "
    ):
        second.expect_running()


def test_berth_dev_brings_up_shows_and_takes_down(binaries: Binaries, tmp_path: Path) -> None:
    fleet = tmp_path / "two.yaml"
    fleet.write_text(
        "parameters: {n: 1}\ngroups: [{name: 'n{i}', each: {i: '1..{n}'}, allocatable: {cpu: '1', pods: '9'}}]"
    )
    name = f"cli-{os.getpid()}"

    def berth(*arguments: str) -> subprocess.CompletedProcess[str]:
        verb, *rest = arguments
        command = [sys.executable, "-m", "berth.cli.main", "dev", verb, "--name", name, *rest]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    try:
        up = berth("up", "--fleet", str(fleet), "--set", "n=2")
        assert up.returncode == 0, up.stderr
        assert up.stdout == f"export KUBECONFIG={berth('kubeconfig').stdout}"
        assert len(DevCluster.load(name).api().list("/api/v1/nodes")) == 2
        assert berth("status").stdout.count("running  pid") == 5
        read = berth("kubectl", "get", "nodes", "-o", "name")
        assert (read.returncode, read.stdout) == (0, "node/n1\nnode/n2\n"), read.stderr
        DevCluster.load(name).processes["kwok"].stop()
        status = berth("status")
        assert status.returncode == 1
        assert "kwok                     not running; its last lines:" in status.stdout
    finally:
        down = berth("down")
    assert (down.returncode, down.stdout) == (0, f"cluster {name} is down\n")
    assert (
        berth("status").stderr
        == f"berth: no cluster '{name}'; bring one up with: {invocation.berth('dev')} up --name {name}\n"
    )


# -- the other engine --------------------------------------------------------------------------------------------------


@pytest.fixture
def kind_on_path(second: DevCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `kind` whose clusters are all the second control plane, and the log of what it was asked.

    It stands for a container engine, which there may be none of here. What our engine does with the API server that
    it is given is real.
    """
    asked = tmp_path / "asked"
    script(
        tmp_path / "bin" / "kind",
        f"""
        echo "$@" >> "{asked}"
        while [ "$1" ]; do [ "$1" = --kubeconfig ] && cp "{second.kubeconfig}" "$2"; shift; done
        """,
    )
    script(tmp_path / "bin" / "docker", "exit 0")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return asked


def test_kind_gets_the_same_nodes_and_pods(second: DevCluster, binaries: Binaries, kind_on_path: Path) -> None:
    second.processes["kwok"].stop()
    own = second.api()
    fleets.create(own, fleets.parse("groups: [{name: kind-control-plane}]", "test").nodes)
    name = f"kind-{os.getpid()}"
    cluster = DevCluster.up(name, fleet="tiny", engine="kind", binaries=binaries, owned=True)
    try:
        pods = Pods(cluster.api(), "default")
        pods.create("one", run="100ms")
        pods.expect_phase("one", "Succeeded")
        (taint,) = own.get("/api/v1/nodes/kind-control-plane")["spec"]["taints"]
        assert taint["key"] == "node-role.kubernetes.io/control-plane"
    finally:
        cluster.down()
    asked = kind_on_path.read_text().splitlines()
    assert asked[0].startswith("create cluster --config ")
    assert asked[-1] == f"delete cluster --name berth-{name}"


@pytest.mark.parametrize("engine", ["missing", "failing"])
def test_a_cluster_that_did_not_come_up_is_on_no_list(
    binaries: Binaries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    if engine == "failing":
        script(tmp_path / "kind", "echo no more disk >&2; exit 1")
        script(tmp_path / "docker", "exit 0")
    name = f"kind-{os.getpid()}"
    with pytest.raises(DevClusterProblem, match="no more disk" if engine == "failing" else "kind is not on PATH"):
        DevCluster.up(name, fleet="tiny", engine="kind", binaries=binaries, owned=True)
    with pytest.raises(DevClusterProblem, match="no cluster"):
        DevCluster.load(name)


def script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{textwrap.dedent(body)}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path
