"""The command line of every component, as values: nothing here starts anything.

Settings that are not the components' own defaults are the ones that let one laptop carry ten thousand simulated
nodes: no fsync, wide client limits, no leader election, nodes that need no lease to count as alive, and no writes to
every fresh node (a start-up taint to take away again, a hint for kubelets).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ETCD, API_SERVER, SCHEDULER = "etcd", "kube-apiserver", "kube-scheduler"
CONTROLLER_MANAGER, KWOK = "kube-controller-manager", "kwok"

START_ORDER = (ETCD, API_SERVER, SCHEDULER, CONTROLLER_MANAGER, KWOK)

PORT_NAMES = ("etcd", "etcd-peer", "apiserver", "scheduler", "controller-manager", "kwok")

SERVICE_RANGE = "10.96.0.0/16"
POD_RANGE = "100.64.0.0/10"


@dataclass(frozen=True, slots=True)
class Features:
    """What may differ between two clusters.

    ``native_gangs`` turns on PodGroup and gang scheduling in all three components. ``node_leases`` makes every node
    renew a lease as a kubelet does, so that nodes time out as real ones; with more than a few hundred of them that
    traffic swamps the API server, so by default nodes have none and are given an hour of grace.
    ``qps`` and ``burst`` limit the scheduler and the controller manager.
    """

    native_gangs: bool = False
    node_leases: bool = False
    qps: int = 1000
    burst: int = 2000


@dataclass(frozen=True, slots=True)
class Layout:
    """Where one cluster keeps its files, and its ports by the names in :data:`PORT_NAMES`."""

    directory: Path
    ports: Mapping[str, int]

    @property
    def pki(self) -> Path:
        """Keys and certificates."""
        return self.directory / "pki"

    @property
    def logs(self) -> Path:
        """One log file per component."""
        return self.directory / "logs"

    @property
    def server(self) -> str:
        """The API server's URL."""
        return f"https://127.0.0.1:{self.ports['apiserver']}"

    def kubeconfig(self, user: str) -> Path:
        """The kubeconfig of one of the users in ``certs.CLIENTS``; the administrator's is the cluster's own."""
        return self.directory / ("kubeconfig" if user == "admin" else f"{user}.kubeconfig")

    def url(self, port: str, path: str = "") -> str:
        """A plain loopback URL of the port named ``port``."""
        return f"http://127.0.0.1:{self.ports[port]}{path}"


def command_lines(layout: Layout, features: Features, binaries: Mapping[str, Path]) -> dict[str, list[str]]:
    """The full command line of each component in :data:`START_ORDER`."""
    arguments = {
        ETCD: _etcd(layout),
        API_SERVER: _api_server(layout, features),
        SCHEDULER: _client(layout, features, "scheduler"),
        CONTROLLER_MANAGER: _client(layout, features, "controller-manager") + _controller_manager(layout, features),
        KWOK: [
            *kwok_arguments(layout.kubeconfig("kwok"), layout.directory / "kwok.yaml"),
            f"--server-address=127.0.0.1:{layout.ports['kwok']}",
        ],
    }
    return {name: [str(binaries[name]), *arguments[name]] for name in START_ORDER}


def kwok_arguments(kubeconfig: Path, config: Path) -> list[str]:
    """kwok's arguments that do not depend on who started the API server."""
    return [f"--kubeconfig={kubeconfig}", f"--config={config}", f"--cidr={POD_RANGE}"]


def _etcd(layout: Layout) -> list[str]:
    clients, peers = layout.url("etcd"), layout.url("etcd-peer")
    return [
        f"--data-dir={layout.directory / 'etcd'}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        "--unsafe-no-fsync",
        "--quota-backend-bytes=8589934592",
        "--auto-compaction-retention=0",
        "--log-level=warn",
    ]


def _api_server(layout: Layout, features: Features) -> list[str]:
    arguments = [
        f"--etcd-servers={layout.url('etcd')}",
        "--bind-address=127.0.0.1",
        f"--secure-port={layout.ports['apiserver']}",
        f"--tls-cert-file={layout.pki / 'apiserver.crt'}",
        f"--tls-private-key-file={layout.pki / 'apiserver.key'}",
        f"--token-auth-file={layout.pki / 'tokens.csv'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={layout.pki / 'sa.pub'}",
        f"--service-account-signing-key-file={layout.pki / 'sa.key'}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--authorization-mode=RBAC",
        "--allow-privileged=true",
        "--endpoint-reconciler-type=none",
        "--disable-admission-plugins=TaintNodesByCondition",
        "--profiling=false",
    ]
    if features.native_gangs:
        arguments += ["--feature-gates=GenericWorkload=true", "--runtime-config=scheduling.k8s.io/v1beta1=true"]
    return arguments


def _client(layout: Layout, features: Features, user: str) -> list[str]:
    kubeconfig = layout.kubeconfig(user)
    arguments = [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--authentication-skip-lookup=true",
        "--bind-address=127.0.0.1",
        f"--secure-port={layout.ports[user]}",
        f"--cert-dir={layout.directory / 'self-signed'}",
        "--leader-elect=false",
        f"--kube-api-qps={features.qps}",
        f"--kube-api-burst={features.burst}",
    ]
    return arguments + (["--feature-gates=GenericWorkload=true"] if features.native_gangs else [])


def _controller_manager(layout: Layout, features: Features) -> list[str]:
    arguments = [
        f"--service-account-private-key-file={layout.pki / 'sa.key'}",
        f"--root-ca-file={layout.pki / 'ca.crt'}",
        "--use-service-account-credentials=true",
        "--controllers=*,-ttl-controller",
    ]
    return arguments + ([] if features.node_leases else ["--node-monitor-grace-period=1h"])
