"""The chart and the operator on a development cluster, by the way that users go.

Simulated nodes cannot run the operator's container, so the chart is installed by the real helm without replicas and
the operator runs as a process here, with nothing but a token of the chart's ServiceAccount: a call that the chart's
roles do not allow is refused by the API server.
"""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from berth.devcluster import kubeconfig, ports, tools
from berth.devcluster.cluster import DevCluster
from berth.devcluster.problems import ComponentDied, DevClusterProblem
from berth.devcluster.process import Process, wait_until

OPERATOR_NAMESPACE: Final = "berth-system"
RELEASE: Final = "berth"
CHART: Final = Path(__file__).parents[3] / "charts" / "berth"
TOKEN_SECONDS: Final = 24 * 3600
READY_SECONDS: Final = 60.0


def install_chart(cluster: DevCluster, values: Mapping[str, Any] | None = None, *, chart: Path = CHART) -> None:
    """Install or upgrade the chart without replicas. Raises: DevClusterProblem with helm's words."""
    settings = {"replicaCount": 0, **(values or {})}
    flags = [flag for key, value in settings.items() for flag in ("--set", f"{key}={value}")]
    command = [
        str(tools.helm()), "--kubeconfig", str(cluster.kubeconfig), "upgrade", "--install", RELEASE, str(chart),
        "--namespace", OPERATOR_NAMESPACE, "--create-namespace", "--wait=false", *flags,
    ]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own command line
    if result.returncode:
        raise DevClusterProblem(f"helm could not install {chart}: {result.stderr.strip()}")


def write_kubeconfig(cluster: DevCluster, path: Path, account: str = RELEASE) -> Path:
    """A kubeconfig at ``path`` with a fresh token of the chart's ServiceAccount."""
    answer = cluster.api().post(
        f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/serviceaccounts/{account}/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
         "spec": {"expirationSeconds": TOKEN_SECONDS}},
    )  # fmt: skip
    kubeconfig.write(path, cluster.server, cluster.ca, {"token": answer["status"]["token"]})
    return path


@dataclass(frozen=True, slots=True)
class Operator:
    """A running operator; ``health_port`` also serves metrics."""

    process: Process
    health_port: int

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def log(self) -> Path:
        """Where it logs."""
        return self.process.log

    def expect_alive(self) -> None:
        """Raises: ComponentDied with the last log lines when it has ended."""
        self.process.expect_alive()

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.send(signal.SIGKILL)
        wait_until(lambda: not self.process.alive(), 10)

    def pause(self) -> None:
        """Stop it from running, as a frozen machine would."""
        self.process.send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused one run on."""
        self.process.send(signal.SIGCONT)

    def stop(self) -> None:
        """End it cleanly: it gives its lease back."""
        self.process.stop(20.0)


def start_operator(cluster: DevCluster, identity: str = "operator-0", args: Sequence[str] = ()) -> Operator:
    """Start the operator and return when it is ready. Raises: ComponentDied with its last log lines."""
    (port,) = ports.pick(1, set(cluster.layout.ports.values()))
    config = write_kubeconfig(cluster, cluster.dir / f"{identity}.kubeconfig")
    command = [
        sys.executable, "-m", "berth.main", "--kubeconfig", str(config), "--namespace", OPERATOR_NAMESPACE,
        "--identity", f"{identity}-{os.getpid()}-{port}", "--bind-address", "127.0.0.1",
        "--health-port", str(port), "--metrics-port", str(port), *args,
    ]  # fmt: skip
    process = Process.spawn(identity, command, cluster.logs / f"{identity}.log")
    operator = Operator(process, port)

    def ready() -> bool:
        process.expect_alive()
        return _answers(port, "/readyz")

    if not wait_until(ready, READY_SECONDS):
        process.stop()
        raise ComponentDied(f"the operator was not ready in {READY_SECONDS:.0f} s:\n{process.tail()}")
    return operator


@contextmanager
def run_operator(
    cluster: DevCluster, identity: str = "operator-0", args: Sequence[str] = (), *, detached: bool = False
) -> Iterator[Operator]:
    """An operator for the length of a block; ``detached`` leaves it running afterwards, to end with the cluster."""
    operator = start_operator(cluster, identity, args)
    if detached:
        cluster.adopt(operator.process)
    try:
        yield operator
    finally:
        if not detached:
            operator.stop()


def _answers(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.client.OK
    except OSError:
        return False
    finally:
        connection.close()
