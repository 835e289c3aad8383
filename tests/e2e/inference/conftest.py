"""One control plane with L4s over three zones, a real Prometheus and simulated engines, for all tests of services.

Time is compressed: the operator decides every second, engines start within one, and Prometheus scrapes every second.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from benchmarks.invariants import InvariantWatcher
from benchmarks.writes import AuditLog
from berth.catalogue.load import load
from berth.devcluster import cluster as devcluster
from berth.devcluster import prometheus as prometheus_program
from berth.devcluster.api import Api
from berth.devcluster.binaries import Binaries
from berth.devcluster.cluster import DevCluster
from berth.devcluster.components import Features
from berth.devcluster.engines import SimulatedEngines
from berth.devcluster.health import is_ready, make_namespace
from berth.devcluster.operator import OPERATOR_NAMESPACE, Operator, install_chart, start_operator
from berth.devcluster.problems import BuildFailed, ToolMissing
from berth.devcluster.process import wait_until
from berth.devcluster.prometheus import PrometheusServer
from tests.conftest import Kubectl, run_kubectl, without
from tests.e2e.conftest import Objects

Json = dict[str, Any]
PATIENCE = 60.0
PERIOD_SECONDS = 1.0
SIGNAL: Json = {"name": "load", "source": "Prometheus", "preset": "vLLM", "perReplica": "5"}
"""A replica carries five requests in flight at the SLO; the simulated engines work on eight at once."""
SLOTS = 8
CHILDREN = (
    "/api/v1/namespaces/{}/services/chat",
    "/apis/policy/v1/namespaces/{}/poddisruptionbudgets/chat",
)
"""Of the service ``chat``, beside its Deployments."""


@dataclass
class Serving:
    """The cluster, what answers for its engines, and the operator."""

    cluster: DevCluster
    api: Api
    engines: SimulatedEngines
    prometheus: PrometheusServer
    audit: AuditLog
    operators: list[Operator] = field(default_factory=list)

    @property
    def operator(self) -> Operator:
        """The one replica."""
        return self.operators[-1]

    def start(self, identity: str = "operator-0") -> Operator:
        """Start the operator."""
        args = [f"--prometheus-url={self.prometheus.url}", f"--service-period={PERIOD_SECONDS}", "--prefetch=2"]
        operator = start_operator(self.cluster, identity, args)
        self.operators.append(operator)
        return operator

    def kill(self) -> None:
        """End the operator as a crash would."""
        self.operators.pop().kill()

    def expect_lead(self) -> None:
        """The operator holds the lease, which after a crash takes a while."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{OPERATOR_NAMESPACE}/leases/berth"
        mine = f"-{self.operator.health_port}"
        assert wait_until(lambda: self.api.get(path)["spec"]["holderIdentity"].endswith(mine), PATIENCE)

    def restart(self) -> None:
        """A fresh operator after a clean end, which has learned nothing of nodes."""
        self.operators.pop().stop()
        self.start()

    def expect_up(self) -> None:
        """A healthy operator and a Prometheus that answers, whatever the test before did."""
        if self.prometheus.stopped:
            self.prometheus.start()
        if not self.operators or not self.operator.process.alive():
            self.operators.clear()
            self.start()


class Services(Objects):
    """InferenceServices of one namespace."""

    PLURAL = "inferenceservices"

    def __init__(self, serving: Serving, namespace: str) -> None:
        self.serving, self.api, self.namespace = serving, serving.api, namespace

    def apply(self, name: str, *, low: int = 1, high: int = 12, scaling: Json | None = None, **spec: Any) -> Json:
        """Create a service of a small model on L4s, one device each; ``spec`` adds or replaces fields."""
        demand = {"signals": [SIGNAL], "onUnknown": {"holdFor": "30s"}}
        steps = {"maxDown": "100%", "downAfter": "3s"}
        body = {
            "apiVersion": "berth.dev/v1alpha1",
            "kind": "InferenceService",
            "metadata": {"name": name},
            "spec": {
                "model": {"name": "phi", "parameters": "3B", "contextTokens": 4096, "kvBytesPerToken": 65536,
                          "uri": "hf://example/phi"},
                "runtime": {"engine": "vLLM"},
                "accelerators": {"types": ["L4"], "perReplica": 1},
                "scaling": {"minReplicas": low, "maxReplicas": high, "demand": demand, "steps": steps,
                            **(scaling or {})},
                "coldStart": {"estimate": "1s"},
                "template": template(),
                **spec,
            },
        }  # fmt: skip
        return self.api.post(self.path(), body)

    def traffic(self, name: str, demand: Callable[[float], float] | float, silent: tuple[str, ...] = ()) -> None:
        """Let clients ask for so much, in requests in flight."""
        self.serving.engines.serve(self.namespace, name, demand, SLOTS, silent)

    def expect(self, name: str, condition: Callable[[Json], object], seconds: float = PATIENCE) -> Json:
        """The status once it meets ``condition``."""
        met = wait_until(lambda: bool(condition(self.status(name))), seconds)
        status = self.status(name)
        shown = {key: value for key, value in status.items() if key not in ("learned", "conditions")}
        assert met, f"{name} after {seconds:.0f} s: {shown}\n{self.serving.operator.process.tail(12)}"
        return status

    def expect_ready(self, name: str, replicas: int, seconds: float = PATIENCE) -> Json:
        """The status once so many replicas are asked for, exist and are ready."""
        return self.expect(
            name,
            lambda status: self.wanted(name) == status.get("replicas") == status.get("readyReplicas") == replicas,
            seconds,
        )

    def expect_condition(self, name: str, kind: str, status: str, reason: str = "", seconds: float = PATIENCE) -> Json:
        """One condition once it has this status, and this reason where one is given."""

        def met() -> bool:
            found = self.condition(name, kind)
            return found.get("status") == status and reason in ("", found.get("reason"))

        assert wait_until(met, seconds), f"{kind} of {name}: {self.condition(name, kind)}"
        return self.condition(name, kind)

    def expect_words(self, name: str, kind: str, words: str, seconds: float = PATIENCE) -> None:
        """A condition that is False and says ``words``."""

        def met() -> bool:
            found = self.condition(name, kind)
            return found.get("status") == "False" and words in found["message"]

        assert wait_until(met, seconds), f"{kind} of {name}: {self.condition(name, kind)}"

    def expect_event(self, name: str, reason: str, seconds: float = PATIENCE) -> str:
        """What the newest event of this reason says, once there is one."""
        assert wait_until(lambda: reason in self.events(name), seconds), f"{name}: {self.events(name)}"
        return self.events(name)[reason]

    def events(self, name: str) -> dict[str, str]:
        """Reason to text of its events, the newest of each."""
        return {event["reason"]: event["note"] for event in self.told(name)}

    def deployments(self, name: str) -> dict[str, Json]:
        """Its Deployments by name."""
        path = f"/apis/apps/v1/namespaces/{self.namespace}/deployments"
        items = self.api.get(path, labelSelector=f"berth.dev/service-name={name}")["items"]
        return {item["metadata"]["name"]: item for item in items}

    def orphan(self, name: str) -> None:
        """Delete it without its children."""
        self.api.delete(self.path(name), propagationPolicy="Orphan")
        assert wait_until(lambda: not self.api.exists(self.path(name)), PATIENCE)

    def owners(self, name: str) -> set[str]:
        """Identities of what owns its children."""
        found = [*self.deployments(name).values(), *(self.api.get(path.format(self.namespace)) for path in CHILDREN)]
        return {owner["uid"] for item in found for owner in item["metadata"].get("ownerReferences", ())}

    def wanted(self, name: str) -> int:
        """Replicas that its Deployments ask for."""
        return sum(item["spec"]["replicas"] for item in self.deployments(name).values())

    def pods(self, name: str) -> list[Json]:
        """Its pods that are not being deleted, by name."""
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        items = self.api.get(path, labelSelector=f"berth.dev/service-name={name}")["items"]
        live = [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]
        return sorted(live, key=lambda pod: str(pod["metadata"]["name"]))

    def nodes(self, name: str) -> list[str]:
        """Where its pods are bound."""
        return [pod["spec"]["nodeName"] for pod in self.pods(name) if pod["spec"].get("nodeName")]

    def ready(self, name: str) -> int:
        """Its pods that serve."""
        return sum(is_ready(pod) for pod in self.pods(name))


def template(image: str = "registry.example/engine:1", **annotations: str) -> Json:
    """A PodTemplateSpec whose simulated engine starts within a second; underscores become dashes."""
    named = {f"berth.dev/{key.replace('_', '-')}": value for key, value in {"sim_start": "1s", **annotations}.items()}
    return {"metadata": {"annotations": named}, "spec": {"containers": [{"name": "server", "image": image}]}}


@pytest.fixture(scope="session")
def prometheus_binary() -> Path:
    """Skips, with the reason, where no Prometheus can be had; with BERTH_REQUIRE_CLUSTER it fails instead."""
    try:
        return prometheus_program.program()
    except (ToolMissing, BuildFailed) as problem:
        without("Prometheus", problem)


@pytest.fixture(scope="session")
def serving_cluster(
    binaries: Binaries, prometheus_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Serving]:
    """The cluster with the chart, Prometheus and engines. Nothing that the operator asks for may be forbidden."""
    devcluster.reap()
    folder = tmp_path_factory.mktemp("serving")
    audit = AuditLog(folder, f"system:serviceaccounts:{OPERATOR_NAMESPACE}", reads=True)
    audited, features = audit.kept_by(binaries), Features(node_leases=False)
    running = DevCluster.up(f"serving-{os.getpid()}", fleet="serving", binaries=audited, owned=True, features=features)
    try:
        install_chart(running, {"prefetch.enabled": "true"})
        api = running.api()
        with SimulatedEngines(api) as engines:
            scraper = PrometheusServer(folder / "prometheus", [engines.target]).start()
            serving = Serving(running, api, engines, scraper, audit)
            try:
                yield serving
            finally:
                for operator in serving.operators:
                    operator.stop()
                scraper.stop()
        running.expect_running()
        forbidden = sorted({str(access) for access in audit.accesses() if not access.allowed})
        assert forbidden == [], "the operator asked for what its roles do not allow"
    finally:
        running.down()


@pytest.fixture
def serving(serving_cluster: Serving) -> Iterator[Serving]:
    """Everything up, and every promise about nodes and gangs watched during the test."""
    serving_cluster.expect_up()
    with InvariantWatcher(serving_cluster.api, load()) as watcher:
        yield serving_cluster
    watcher.expect_clean()


@pytest.fixture
def services(serving: Serving) -> Iterator[Services]:
    """Services in a namespace of their own; gone, with their pods, before the next test."""
    name = f"serving-{time.time_ns() % 10**10}"
    assert make_namespace(serving.api, name, PATIENCE)
    services = Services(serving, name)
    yield services
    serving.engines.forget(name)
    serving.api.delete(services.path(), propagationPolicy="Background")
    serving.api.delete(f"/api/v1/namespaces/{name}")  # waits for no garbage collector, which is slow to learn of a kind
    pods = f"/api/v1/namespaces/{name}/pods"
    assert wait_until(lambda: not serving.api.get(pods)["items"], 2 * PATIENCE), "pods outlive their namespace"


@pytest.fixture(scope="session")
def serving_kubectl(serving_cluster: Serving) -> Kubectl:
    """kubectl against this cluster."""
    from berth.devcluster import tools

    return run_kubectl(tools.kubectl(), serving_cluster.cluster.kubeconfig)
