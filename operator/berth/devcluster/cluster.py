"""A real control plane on this machine, with simulated nodes: started, found again, and taken down.

What exists is written to ``state.json`` before it is started, so that a second command, or a second try after a
crash, can stop every process of the first.
"""

from __future__ import annotations

import json
import os
import shutil
import ssl
import time
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from berth.devcluster import certs, fleets, kubeconfig, paths, ports, simulation
from berth.devcluster.api import Api
from berth.devcluster.binaries import Binaries
from berth.devcluster.components import (
    API_SERVER, CONTROLLER_MANAGER, ETCD, KWOK, PORT_NAMES, SCHEDULER, START_ORDER, Features, Layout, command_lines,
)  # fmt: skip
from berth.devcluster.problems import ApiRefused, ComponentDied, DevClusterProblem
from berth.devcluster.process import Process, pid_alive, wait_until

_READY_SECONDS = 120.0
_STOP_SECONDS = 5.0
_STATE = "state.json"

Progress = Callable[[str], None]


def _quiet(_: str) -> None:
    return


@dataclass
class DevCluster:
    """A cluster that is up. ``kubeconfig`` is the administrator's; ``ca`` the authority's certificate, PEM."""

    name: str
    layout: Layout
    features: Features
    fleet: str = ""
    owner: tuple[int, int] = (0, 0)
    processes: dict[str, Process] = field(default_factory=dict)

    # -- life ----------------------------------------------------------------------------------------------------

    @classmethod
    def up(
        cls,
        name: str,
        *,
        fleet: str | Path | fleets.SimulatedFleet | None = "mixed",
        features: Features = Features(),
        binaries: Binaries | None = None,
        stages: Path | None = None,
        owned: bool = False,
        progress: Progress = _quiet,
    ) -> DevCluster:
        """Bring up cluster ``name`` and return when its nodes are ready for pods.

        ``stages`` is a kwok file that replaces our own stages. ``owned`` ties the cluster to this process: should
        it die without `down`, the next :func:`reap` takes the cluster away.

        Raises:
            DevClusterProblem: a cluster of that name runs, a tool is missing, or a component ended (with its last
                log lines); nothing is left running then.
        """
        binaries = binaries or Binaries.ensure(progress)
        loaded = fleets.load(fleet) if isinstance(fleet, str | Path) else fleet
        cluster = cls._claim(name, features, loaded.name if loaded else "", owned)
        try:
            cluster._start(binaries, loaded, stages, progress)
        except BaseException:
            cluster._stop()
            cluster._save()
            raise
        return cluster

    @classmethod
    def load(cls, name: str) -> DevCluster:
        """The cluster called so, running or not. Raises: DevClusterProblem when there is none."""
        directory = paths.cluster_dir(name)
        try:
            state = json.loads((directory / _STATE).read_text())
        except (OSError, ValueError) as problem:
            raise DevClusterProblem(f"no cluster {name!r}; bring one up with: berth dev up --name {name}") from problem
        return cls(
            name=name,
            layout=Layout(directory, state["ports"]),
            features=Features(**state["features"]),
            fleet=state["fleet"],
            owner=(state["owner"][0], state["owner"][1]),
            processes={
                key: Process(key, value["pid"], value["started"], Path(value["log"]))
                for key, value in state["processes"].items()
            },
        )

    def down(self, *, keep_files: bool = False) -> None:
        """Stop every component, last started first, and remove the cluster's folder unless ``keep_files``."""
        self._stop()
        if keep_files:
            self._save()
        else:
            shutil.rmtree(self.dir, ignore_errors=True)

    # -- what it is ----------------------------------------------------------------------------------------------

    @property
    def dir(self) -> Path:
        """The folder with everything the cluster owns."""
        return self.layout.directory

    @property
    def logs(self) -> Path:
        """The folder of the components' logs."""
        return self.layout.logs

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.layout.kubeconfig("admin")

    @property
    def server(self) -> str:
        """The API server's URL."""
        return self.layout.server

    @property
    def ca(self) -> bytes:
        """The authority's certificate, PEM."""
        return (self.layout.pki / "ca.crt").read_bytes()

    def api(self) -> Api:
        """A new client with the administrator's rights."""
        return Api.from_kubeconfig(self.kubeconfig)

    def status(self) -> dict[str, bool]:
        """Component to whether it runs, in the order they start."""
        return {name: name in self.processes and self.processes[name].alive() for name in START_ORDER}

    def running(self) -> bool:
        """Whether every component runs."""
        return all(self.status().values())

    def expect_running(self) -> None:
        """Raises: ComponentDied with the last log lines of the first component that has ended."""
        for name in START_ORDER:
            if name in self.processes:
                self.processes[name].expect_alive()

    # -- starting ------------------------------------------------------------------------------------------------

    @classmethod
    def _claim(cls, name: str, features: Features, fleet: str, owned: bool) -> DevCluster:
        """Take the name and free ports while no other process can take the same."""
        directory = paths.cluster_dir(name)
        with paths.locked(paths.clusters_dir() / ".lock"):
            if (directory / _STATE).exists():
                previous = cls.load(name)
                if any(previous.status().values()):
                    raise DevClusterProblem(f"cluster {name!r} is up; take it down with: berth dev down --name {name}")
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True)
            chosen = ports.pick(len(PORT_NAMES), _ports_in_use())
            owner = Process.this() if owned else (0, 0)
            cluster = cls(name, Layout(directory, dict(zip(PORT_NAMES, chosen, strict=True))), features, fleet, owner)
            cluster._save()
        return cluster

    def _start(
        self, binaries: Binaries, fleet: fleets.SimulatedFleet | None, stages: Path | None, progress: Progress
    ) -> None:
        commands = command_lines(self.layout, self.features, binaries.components)
        certs.write(self.layout.pki)
        for user in certs.CLIENTS:
            pair = [(self.layout.pki / f"{user}.{ending}").read_bytes() for ending in ("crt", "key")]
            kubeconfig.write(
                self.layout.kubeconfig(user), self.server, self.ca, kubeconfig.certificate_user(*pair),
                name=f"berth-{self.name}",
            )  # fmt: skip
        text = simulation.kwok_config(node_leases=self.features.node_leases, stages=stages)
        (self.dir / "kwok.yaml").write_text(text)
        progress("starting etcd and the API server")
        self._spawn(ETCD, commands[ETCD])
        self._spawn(API_SERVER, commands[API_SERVER])
        api = self.api()
        self._await("the API server", lambda: answers_ok(lambda: api.text("/readyz")))
        for manifest in simulation.access_manifests():
            api.apply(manifest)
        progress("starting the scheduler, the controller manager and kwok")
        for name in (SCHEDULER, CONTROLLER_MANAGER, KWOK):
            self._spawn(name, commands[name])
        with ThreadPoolExecutor(1) as pool:
            if fleet is not None:
                progress(f"creating {len(fleet.nodes)} nodes")
            creating = pool.submit(fleets.create, api, fleet) if fleet is not None else None
            self._await("its controllers", self._controllers_ready)
            if creating is not None:
                self._await("the creation of nodes", creating.done, _READY_SECONDS * 5)
                creating.result()
        expected = len(fleet.nodes) if fleet is not None else 0
        self._await(f"{expected} ready nodes", lambda: ready_nodes(api) >= expected, _READY_SECONDS * 5)
        self._await("the default service account", lambda: api.exists(_DEFAULT_ACCOUNT))

    def _spawn(self, name: str, command: list[str]) -> None:
        self.processes[name] = Process.spawn(name, command, self.logs / f"{name}.log")
        self._save()

    def _await(self, what: str, condition: Callable[[], bool], seconds: float = _READY_SECONDS) -> None:
        def met() -> bool:
            self.expect_running()
            return condition()

        if not wait_until(met, seconds):
            logs = "\n".join(f"{name}:\n{process.tail(8)}" for name, process in self.processes.items())
            raise ComponentDied(f"cluster {self.name!r}: {what} not there after {seconds:.0f} s\n{logs}")

    def _controllers_ready(self) -> bool:
        pages = [f"https://127.0.0.1:{self.layout.ports[name]}/healthz" for name in ("scheduler", "controller-manager")]
        return all(healthy(page) for page in [*pages, self.layout.url("kwok", "/healthz")])

    def _stop(self) -> None:
        for name in reversed(START_ORDER):
            if name in self.processes:
                self.processes[name].stop(_STOP_SECONDS)

    def _save(self) -> None:
        state: Mapping[str, Any] = {
            "ports": dict(self.layout.ports),
            "features": asdict(self.features),
            "fleet": self.fleet,
            "owner": list(self.owner),
            "processes": {
                name: {"pid": process.pid, "started": process.started, "log": str(process.log)}
                for name, process in self.processes.items()
            },
        }
        scratch = self.dir / f"{_STATE}.{os.getpid()}"
        scratch.write_text(json.dumps(state, indent=1))
        scratch.replace(self.dir / _STATE)


_DEFAULT_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"


def every_cluster() -> list[DevCluster]:
    """Every cluster that has a folder here, running or not."""
    found = []
    for entry in sorted(paths.clusters_dir().glob(f"*/{_STATE}")):
        try:
            found.append(DevCluster.load(entry.parent.name))
        except (DevClusterProblem, KeyError, TypeError):
            continue
    return found


def reap() -> list[str]:
    """Take down every owned cluster whose owner has died; their names."""
    gone = [cluster for cluster in every_cluster() if cluster.owner[0] and not pid_alive(*cluster.owner)]
    for cluster in gone:
        cluster.down()
    return [cluster.name for cluster in gone]


def ready_nodes(api: Api) -> int:
    """How many nodes are Ready and carry no taint that only a fresh or lost node has."""
    return sum(
        any(
            condition["type"] == "Ready" and condition["status"] == "True" for condition in node["status"]["conditions"]
        )
        and not any(taint["key"].startswith("node.kubernetes.io/") for taint in node["spec"].get("taints", []))
        for node in api.list("/api/v1/nodes", resourceVersion="0")
        if "conditions" in node["status"]
    )


def answers_ok(request: Callable[[], Any]) -> bool:
    """Whether ``request`` succeeds; a server that is still starting refuses or resets."""
    try:
        request()
    except (OSError, ApiRefused, ValueError):
        return False
    return True


def healthy(url: str) -> bool:
    """Whether a component on the loopback address answers its health page; its self-signed certificate is accepted."""
    insecure = ssl._create_unverified_context()  # noqa: S323
    return answers_ok(lambda: urllib.request.urlopen(url, timeout=2, context=insecure).read())  # noqa: S310


def _ports_in_use() -> set[int]:
    return {port for cluster in every_cluster() for port in cluster.layout.ports.values()}


def default_name() -> str:
    """The cluster that commands mean when none is named."""
    return os.environ.get("BERTH_DEV_CLUSTER", "berth")


def since(start: float) -> str:
    """Seconds since ``start`` (monotonic) for progress lines."""
    return f"{time.monotonic() - start:.1f} s"
