"""The engine that needs no container engine: the components as plain processes on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from berth.devcluster import certs, kubeconfig, simulation
from berth.devcluster.binaries import Binaries
from berth.devcluster.components import (
    API_SERVER,
    CONTROLLER_MANAGER,
    ETCD,
    KWOK,
    SCHEDULER,
    command_lines,
)
from berth.devcluster.health import answers, healthy
from berth.devcluster.process import Progress

if TYPE_CHECKING:
    from berth.devcluster.cluster import DevCluster


def start(cluster: DevCluster, binaries: Binaries, stages: Path | None, progress: Progress) -> None:
    """Start every component of ``cluster``; returns when the API server is ready, the others still starting.

    etcd is not waited for: the API server asks it again until it answers.
    """
    layout, features = cluster.layout, cluster.features
    commands = command_lines(layout, features, binaries.components)
    _write_credentials(cluster)
    config = simulation.kwok_config(node_leases=features.node_leases, stages=stages)
    (layout.directory / "kwok.yaml").write_text(config)
    progress("starting etcd and the API server")
    cluster.spawn(ETCD, commands[ETCD])
    cluster.spawn(API_SERVER, commands[API_SERVER])
    api = cluster.api()
    cluster.wait_for("a ready API server", lambda: answers(lambda: api.text("/readyz")))
    for manifest in simulation.access_manifests():
        api.apply(manifest)
    progress("starting the scheduler, the controller manager and kwok")
    for name in (SCHEDULER, CONTROLLER_MANAGER, KWOK):
        cluster.spawn(name, commands[name])


def ready(cluster: DevCluster) -> bool:
    """Whether the components that follow the API server answer their health pages."""
    ports = cluster.layout.ports
    pages = [f"https://127.0.0.1:{ports[name]}/healthz" for name in ("scheduler", "controller-manager")]
    return all(healthy(page) for page in [*pages, cluster.layout.url("kwok", "/healthz")])


def _write_credentials(cluster: DevCluster) -> None:
    pki = cluster.layout.pki
    tokens = certs.write(pki)
    authority = (pki / "ca.crt").read_bytes()
    for user, token in tokens.items():
        path, name = cluster.layout.kubeconfig(user), f"berth-{cluster.name}"
        kubeconfig.write(path, cluster.layout.server, authority, {"token": token}, name=name)
