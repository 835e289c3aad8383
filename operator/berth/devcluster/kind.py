"""The engine for machines with Docker or Podman and kind: a real node in a container, and our nodes beside it.

kwok runs as a process here too, against kind's API server and under the same roles, so that simulated nodes and pods
are the same as with the local engine. kind's own node is kept for kind's own pods by the taint that it has in any
cluster of more than one node.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from berth.devcluster import kubeconfig, simulation
from berth.devcluster.api import STRATEGIC, Api
from berth.devcluster.binaries import Binaries
from berth.devcluster.components import KWOK, Features, kwok_arguments
from berth.devcluster.health import answers, healthy
from berth.devcluster.problems import BuildFailed, ToolMissing
from berth.devcluster.process import Progress

if TYPE_CHECKING:
    from berth.devcluster.cluster import DevCluster

_CREATE_SECONDS = 600
_OWN_TAINT = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}


def provider() -> str:
    """The container engine that kind can use here: docker or podman. Raises: ToolMissing with what is missing."""
    if shutil.which("kind") is None:
        raise ToolMissing("--engine kind: kind is not on PATH; see https://kind.sigs.k8s.io, or use --engine local")
    for name in ("docker", "podman"):
        if shutil.which(name) and _run([name, "info"]).returncode == 0:
            return name
    raise ToolMissing("--engine kind: neither docker nor podman answers `info`; start one, or use --engine local")


def cluster_config(name: str, features: Features) -> dict[str, Any]:
    """kind's own configuration of one cluster."""
    config: dict[str, Any] = {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "name": kind_name(name),
        "nodes": [{"role": "control-plane"}],
    }
    if features.native_gangs:
        config["featureGates"] = {"GenericWorkload": True}
        config["runtimeConfig"] = {"scheduling.k8s.io/v1beta1": "true"}
    return config


def kind_name(name: str) -> str:
    """What kind calls our cluster ``name``."""
    return name if name.startswith("berth") else f"berth-{name}"


def start(cluster: DevCluster, binaries: Binaries, stages: Path | None, progress: Progress) -> None:
    """Create the kind cluster and start kwok against it. Raises: ToolMissing, or BuildFailed with kind's words."""
    engine = provider()
    config = cluster.dir / "kind.yaml"
    config.write_text(yaml.safe_dump(cluster_config(cluster.name, cluster.features), sort_keys=False))
    progress(f"kind create cluster --name {kind_name(cluster.name)} (on {engine})")
    _kind(engine, "create", "cluster", "--config", str(config), "--kubeconfig", str(cluster.kubeconfig), "--wait=120s")
    api = cluster.api()
    cluster.wait_for("a ready API server", lambda: answers(lambda: api.text("/readyz")))
    for node in api.list("/api/v1/nodes"):
        _keep_for_itself(api, node)
    for manifest in simulation.access_manifests():
        api.apply(manifest)
    _write_kwok_files(cluster, stages)
    arguments = kwok_arguments(cluster.layout.kubeconfig("kwok"), cluster.dir / "kwok.yaml")
    address = f"--server-address=127.0.0.1:{cluster.layout.ports['kwok']}"
    cluster.spawn(KWOK, [str(binaries.components[KWOK]), *arguments, address])


def ready(cluster: DevCluster) -> bool:
    """Whether kwok answers; kind has waited for its own components."""
    return healthy(cluster.layout.url("kwok", "/healthz"))


def stop(cluster: DevCluster) -> None:
    """Delete the kind cluster, if there is one."""
    _kind(provider(), "delete", "cluster", "--name", kind_name(cluster.name))


def running(cluster: DevCluster) -> bool:
    """Whether kind lists the cluster."""
    try:
        return kind_name(cluster.name) in _kind(provider(), "get", "clusters").split()
    except (ToolMissing, BuildFailed):
        return False


def _keep_for_itself(api: Api, node: dict[str, Any]) -> None:
    body = {"spec": {"taints": [_OWN_TAINT]}}
    api.patch(f"/api/v1/nodes/{node['metadata']['name']}", body, STRATEGIC)


def _write_kwok_files(cluster: DevCluster, stages: Path | None) -> None:
    """kwok acts as the user that the local engine gives a certificate to, by impersonation: the roles are the same."""
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    user = {**config["users"][0]["user"], "as": simulation.KWOK_USER}
    kubeconfig.write(cluster.layout.kubeconfig("kwok"), cluster.server, cluster.ca, user, name="kwok")
    text = simulation.kwok_config(node_leases=True, stages=stages, only_marked=True)
    (cluster.dir / "kwok.yaml").write_text(text)


def _kind(engine: str, *arguments: str) -> str:
    result = _run(["kind", *arguments], {"KIND_EXPERIMENTAL_PROVIDER": engine})
    if result.returncode:
        raise BuildFailed(f"kind {' '.join(arguments)} failed:\n{result.stderr.strip()[-3000:]}")
    return result.stdout


def _run(command: list[str], environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, check=False, timeout=_CREATE_SECONDS,
        env={**os.environ, **(environment or {})},
    )  # fmt: skip
