"""One control plane with the chart and the operator, watched for broken promises, for all end-to-end tests."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from benchmarks.invariants import InvariantWatcher
from benchmarks.writes import Access, AuditLog
from berth.catalogue.load import load
from berth.controllers.permissions import PERMISSIONS
from berth.devcluster import cluster as devcluster
from berth.devcluster.api import Api
from berth.devcluster.binaries import Binaries
from berth.devcluster.cluster import DevCluster
from berth.devcluster.components import Features
from berth.devcluster.health import make_namespace
from berth.devcluster.operator import OPERATOR_NAMESPACE, Operator, install_chart, start_operator
from berth.devcluster.process import wait_until
from tests.builders.access import AFTER_TROUBLE, BY_SERVICES
from tests.conftest import Kubectl, run_kubectl

Json = dict[str, Any]
HERE = Path(__file__).parent
PATIENCE = 40.0
NOT_SEEN_HERE = AFTER_TROUBLE | BY_SERVICES


@dataclass
class Berth:
    """A cluster in which Berth runs; ``audit`` has all that its account asked for."""

    cluster: DevCluster
    api: Api
    audit: AuditLog
    operators: list[Operator] = field(default_factory=list)

    def start(self, identity: str = "operator-0") -> Operator:
        """One more replica."""
        operator = start_operator(self.cluster, identity)
        self.operators.append(operator)
        return operator

    def stop_all(self) -> None:
        """End every replica cleanly."""
        for operator in self.operators:
            operator.resume()
            operator.stop()
        self.operators.clear()

    def expect_one(self) -> None:
        """Exactly one healthy replica, whatever the test before did."""
        if len(self.operators) != 1 or not self.operators[0].process.alive():
            self.stop_all()
            self.start()


class Objects:
    """Objects of one of our kinds in one namespace, in a few verbs."""

    PLURAL: ClassVar[str]
    api: Api
    namespace: str

    def get(self, name: str) -> Json:
        """The object."""
        return self.api.get(self.path(name))

    def status(self, name: str) -> Json:
        """Its status, empty before the first."""
        return self.get(name).get("status") or {}

    def condition(self, name: str, kind: str) -> Json:
        """One condition, empty when it was never set."""
        return next((entry for entry in self.status(name).get("conditions", []) if entry["type"] == kind), {})

    def patch(self, name: str, **spec: Any) -> Json:
        """Merge into the spec."""
        return self.api.patch(self.path(name), {"spec": spec})

    def delete(self, name: str) -> None:
        """Delete as kubectl does."""
        self.api.delete(self.path(name), propagationPolicy="Background")

    def told(self, name: str) -> list[Json]:
        """Events on the object, oldest first."""
        items = self.api.get(f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")["items"]
        mine = [event for event in items if event["regarding"]["name"] == name]
        return sorted(mine, key=lambda event: str(event["eventTime"]))

    def path(self, name: str = "") -> str:
        """Of one object, or of all."""
        path = f"/apis/berth.dev/v1alpha1/namespaces/{self.namespace}/{self.PLURAL}"
        return f"{path}/{name}" if name else path


@dataclass
class Jobs(Objects):
    """TrainingJobs of one namespace."""

    PLURAL = "trainingjobs"
    api: Api
    namespace: str

    def submit(self, name: str, workers: int = 2, *, annotations: dict[str, str] | None = None, **spec: Any) -> Json:
        """Create a job of whole H100 nodes; ``spec`` adds or replaces fields."""
        container = {"name": "worker", "image": "registry.example/train:1"}
        template = {"metadata": {"annotations": annotations or {}}, "spec": {"containers": [container]}}
        body = {
            "apiVersion": "berth.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": name},
            "spec": {
                "workers": workers,
                "accelerators": {"perWorker": 8, "types": ["H100"]},
                "template": template,
                **spec,
            },
        }
        return self.api.post(self.path(), body)

    def expect(self, name: str, condition: Callable[[Json], object], seconds: float = PATIENCE) -> Json:
        """The status once it meets ``condition``."""
        met = wait_until(lambda: bool(condition(self.status(name))), seconds)
        status = self.status(name)
        assert met, f"{name} after {seconds:.0f} s: {status}"
        return status

    def expect_phase(self, name: str, phase: str, seconds: float = PATIENCE) -> Json:
        """The status once the job is in ``phase``."""
        return self.expect(name, lambda status: status.get("phase") == phase, seconds)

    def pods(self, name: str) -> list[Json]:
        """Its pods by name."""
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        items = self.api.get(path, labelSelector=f"berth.dev/job-name={name}")["items"]
        return sorted(items, key=lambda pod: str(pod["metadata"]["name"]))

    def events(self, name: str) -> list[str]:
        """Reasons of its events, oldest first."""
        return [event["reason"] for event in self.told(name)]

    def annotate_pod(self, pod: str, **annotations: str) -> None:
        """Tell the simulated containers of a pod what to do; underscores become dashes."""
        named = {f"berth.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
        self.api.patch(f"/api/v1/namespaces/{self.namespace}/pods/{pod}", {"metadata": {"annotations": named}})


def settled(versions: Callable[[], Json], still_seconds: float, patience: float) -> Json:
    """What ``versions`` says once it has said the same for so long: what was due has been written."""
    seen, since = versions(), time.monotonic()

    def still() -> bool:
        nonlocal seen, since
        if (now := versions()) != seen:
            seen, since = now, time.monotonic()
        return time.monotonic() - since > still_seconds

    assert wait_until(still, patience), "writes do not end"
    return seen


@pytest.fixture(scope="session")
def berth_cluster(
    request: pytest.FixtureRequest, binaries: Binaries, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Berth]:
    """The cluster: tiny fleet, chart installed, nobody running yet. Nothing that is asked of it may be forbidden."""
    devcluster.reap()
    audit = AuditLog(tmp_path_factory.mktemp("audit"), f"system:serviceaccounts:{OPERATOR_NAMESPACE}", reads=True)
    audited, features = audit.kept_by(binaries), Features(node_leases=False)
    running = DevCluster.up(f"e2e-{os.getpid()}", fleet="tiny", binaries=audited, owned=True, features=features)
    try:
        install_chart(running)
        berth = Berth(running, running.api(), audit)
        try:
            yield berth
        finally:
            berth.stop_all()
        running.expect_running()
        expect_roles_fit(audit.accesses(), everything=_all_are_run(request))
    finally:
        running.down()


def expect_roles_fit(asked: Collection[Access], *, everything: bool) -> None:
    """Nothing was forbidden, and after ``everything`` nothing is allowed that nobody asked for."""
    assert [str(access) for access in asked if not access.allowed] == [], "asked for what its roles do not allow"
    if everything:
        used = {str(access) for access in asked}
        allowed = {str(Access(verb, row.group, row.resource, True)) for row in PERMISSIONS for verb in row.verbs}
        unused = {name for name in allowed - used if not any(part in name for part in NOT_SEEN_HERE)}
        assert unused == set(), "take what is never asked for out of the table of permissions"


def _all_are_run(request: pytest.FixtureRequest) -> bool:
    """Whether every test of this folder was to be run, and none failed."""
    options, modules = request.config.option, {item.path for item in request.session.items}
    chosen = options.keyword or options.markexpr or options.lf or any("::" in name for name in request.config.args)
    return not chosen and not request.session.testsfailed and modules >= set(HERE.glob("test_*.py"))


@pytest.fixture
def berth(berth_cluster: Berth) -> Iterator[Berth]:
    """Berth with one replica, and every promise watched during the test."""
    berth_cluster.expect_one()
    with InvariantWatcher(berth_cluster.api, load()) as watcher:
        yield berth_cluster
    watcher.expect_clean()


@pytest.fixture
def jobs(berth: Berth) -> Iterator[Jobs]:
    """Jobs in a namespace of their own; gone, with their pods, before the next test."""
    name = f"e2e-{time.time_ns() % 10**10}"
    assert make_namespace(berth.api, name, PATIENCE)
    jobs = Jobs(berth.api, name)
    yield jobs
    berth.api.delete(jobs.path(), propagationPolicy="Background")
    pods = f"/api/v1/namespaces/{name}/pods"
    # The garbage collector learns of a new kind only at its next look at what the API server serves.
    assert wait_until(lambda: not berth.api.get(pods)["items"], 3 * PATIENCE), "pods outlive their job"
    berth.api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture(scope="session")
def e2e_kubectl(berth_cluster: Berth) -> Kubectl:
    """kubectl against the end-to-end cluster."""
    from berth.devcluster import tools

    return run_kubectl(tools.kubectl(), berth_cluster.cluster.kubeconfig)
