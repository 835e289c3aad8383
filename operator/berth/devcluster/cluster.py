"""A real control plane on this machine, with simulated nodes: started, found again, and taken down.

What exists is written to ``state.json`` before it is started, so that a second command, or a second try after a
crash, can stop every process of the first.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from berth.devcluster import fleets, kind, local, paths, ports
from berth.devcluster.api import Api
from berth.devcluster.binaries import Binaries
from berth.devcluster.components import KWOK, PORT_NAMES, START_ORDER, Features, Layout
from berth.devcluster.health import ready_nodes
from berth.devcluster.invocation import berth
from berth.devcluster.problems import ComponentDied, DevClusterProblem
from berth.devcluster.process import Process, Progress, pid_alive, quiet, wait_until

Engine = Literal["local", "kind"]

DEFAULT_NAME = "berth"
PLAIN = Features()

_READY_SECONDS = 120.0
_NODES_SECONDS = 900.0
_STOP_SECONDS = 5.0
_STATE = "state.json"
_DEFAULT_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"


@dataclass
class DevCluster:
    """A cluster that is, or was, up. ``owner`` is the id and start time of the process it ends with, or zeros."""

    name: str
    layout: Layout
    features: Features
    engine: Engine = "local"
    fleet: str = ""
    owner: tuple[int, int] = (0, 0)
    processes: dict[str, Process] = field(default_factory=dict)

    # -- life ----------------------------------------------------------------------------------------------------

    @classmethod
    def up(
        cls,
        name: str = DEFAULT_NAME,
        *,
        fleet: str | Path | fleets.SimulatedFleet | None = "mixed",
        engine: Engine = "local",
        features: Features = PLAIN,
        binaries: Binaries | None = None,
        stages: Path | None = None,
        owned: bool = False,
        progress: Progress = quiet,
    ) -> DevCluster:
        """Bring up cluster ``name`` and return when its nodes are ready for pods.

        ``stages`` is a kwok file that replaces our own stages. ``owned`` ties the cluster to this process: should
        it die without `down`, the next :func:`reap` takes the cluster away.

        Raises:
            DevClusterProblem: a cluster of that name runs, a tool is missing, or a component ended (with its last
                log lines); nothing is left running then.
            ConfigProblem: the fleet's file cannot be used.
        """
        if engine == "kind":
            kind.provider()
        loaded = fleets.load(fleet) if isinstance(fleet, str | Path) else fleet
        binaries = binaries or Binaries.ensure(progress, only=(KWOK,) if engine == "kind" else START_ORDER)
        cluster = cls._claim(name, engine, features, loaded.name if loaded else "", owned)
        try:
            (kind if engine == "kind" else local).start(cluster, binaries, stages, progress)
            cluster._populate(loaded, progress)
        except BaseException:
            cluster.down(keep_files=bool(cluster.processes))  # their logs say why
            raise
        return cluster

    @classmethod
    def load(cls, name: str = DEFAULT_NAME) -> DevCluster:
        """The cluster called so, running or not. Raises: DevClusterProblem when there is none."""
        directory = paths.cluster_dir(name)
        try:
            state = json.loads((directory / _STATE).read_text())
            return cls(
                name=name,
                layout=Layout(directory, state["ports"]),
                features=Features(**state["features"]),
                engine=state["engine"],
                fleet=state["fleet"],
                owner=(state["owner"][0], state["owner"][1]),
                processes={
                    key: Process(key, value["pid"], value["started"], Path(value["log"]))
                    for key, value in state["processes"].items()
                },
            )
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise DevClusterProblem(
                f"no cluster {name!r}; bring one up with: {berth('dev', 'up', '--name', name)}"
            ) from problem

    def down(self, *, keep_files: bool = False) -> None:
        """Stop every component, last started first, and remove the cluster's folder unless ``keep_files``."""
        guests = [name for name in self.processes if name not in START_ORDER]
        for name in (*guests, *reversed(START_ORDER)):
            if name in self.processes:
                self.processes[name].stop(_STOP_SECONDS)
        if self.engine == "kind" and self.kubeconfig.exists():
            kind.stop(self)
        if not keep_files:
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
        return str(self._entry("clusters", "cluster")["server"])

    @property
    def server_or_none(self) -> str:
        """The API server's URL, or words to say that it has none yet."""
        return self.server if self.kubeconfig.exists() else "no API server"

    @property
    def ca(self) -> bytes:
        """The certificate, PEM, of the authority that signed the API server's."""
        return base64.b64decode(self._entry("clusters", "cluster")["certificate-authority-data"])

    def api(self) -> Api:
        """A new client with the administrator's rights."""
        return Api.from_kubeconfig(self.kubeconfig)

    def status(self) -> dict[str, bool]:
        """Component to whether it runs, in the order they start; then what :meth:`adopt` has added."""
        own = (KWOK,) if self.engine == "kind" else START_ORDER
        guests = [name for name in self.processes if name not in START_ORDER]
        alive = {name: name in self.processes and self.processes[name].alive() for name in (*own, *guests)}
        return {"kind": kind.running(self), **alive} if self.engine == "kind" else alive

    def running(self) -> bool:
        """Whether every component runs."""
        return all(self.status().values())

    def expect_running(self) -> None:
        """Raises: ComponentDied with the last log lines of the first component that has ended."""
        for process in self.processes.values():
            process.expect_alive()

    # -- for the engines -----------------------------------------------------------------------------------------

    def spawn(self, name: str, command: list[str]) -> None:
        """Start one component and write it down."""
        self.processes[name] = Process.spawn(name, command, self.logs / f"{name}.log")
        self._save()

    def adopt(self, process: Process) -> None:
        """Write down a process that is to end with the cluster, such as an operator left running."""
        self.processes[process.name] = process
        self._save()

    def wait_for(self, what: str, condition: Callable[[], bool], seconds: float = _READY_SECONDS) -> None:
        """Wait until ``condition`` holds. Raises: ComponentDied with log lines when a component ends, or too late."""

        def met() -> bool:
            self.expect_running()
            return condition()

        if not wait_until(met, seconds):
            logs = "\n".join(f"{name}:\n{process.tail(8)}" for name, process in self.processes.items())
            raise ComponentDied(f"cluster {self.name!r}: waited {seconds:.0f} s in vain for {what}\n{logs}")

    # -- inside --------------------------------------------------------------------------------------------------

    @classmethod
    def _claim(cls, name: str, engine: Engine, features: Features, fleet: str, owned: bool) -> DevCluster:
        """Take the name and free ports while no other process can take the same."""
        directory = paths.cluster_dir(name)
        with paths.locked(paths.clusters_dir() / ".lock"):
            if (directory / _STATE).exists() and any(cls.load(name).status().values()):
                raise DevClusterProblem(
                    f"cluster {name!r} is up; take it down with: {berth('dev', 'down', '--name', name)}"
                )
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True)
            taken = {port for cluster in every_cluster() for port in cluster.layout.ports.values()}
            chosen = dict(zip(PORT_NAMES, ports.pick(len(PORT_NAMES), taken), strict=True))
            owner = Process.this() if owned else (0, 0)
            cluster = cls(name, Layout(directory, chosen), features, engine, fleet, owner)
            cluster._save()
        return cluster

    def _populate(self, fleet: fleets.SimulatedFleet | None, progress: Progress) -> None:
        """Create the fleet while the controllers start, then wait for both."""
        api = self.api()
        before = ready_nodes(api)
        nodes = fleet.nodes if fleet else ()
        engine = kind if self.engine == "kind" else local
        with ThreadPoolExecutor(1) as pool:
            progress(f"creating {len(nodes)} nodes")
            creating = pool.submit(fleets.create, api, nodes)
            self.wait_for("healthy controllers", lambda: engine.ready(self))
            self.wait_for("the creation of nodes", creating.done, _NODES_SECONDS)
            creating.result()
        self.wait_for("ready nodes", lambda: ready_nodes(api) >= before + len(nodes), _NODES_SECONDS)
        self.wait_for("the default service account", lambda: api.exists(_DEFAULT_ACCOUNT))

    def _entry(self, section: str, key: str) -> Mapping[str, Any]:
        config = yaml.safe_load(self.kubeconfig.read_text())
        entry: Mapping[str, Any] = config[section][0][key]
        return entry

    def _save(self) -> None:
        state: Mapping[str, Any] = {
            "engine": self.engine,
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


def every_cluster() -> list[DevCluster]:
    """Every cluster that has a folder here, running or not."""
    found = []
    for entry in sorted(paths.clusters_dir().glob(f"*/{_STATE}")):
        try:
            found.append(DevCluster.load(entry.parent.name))
        except DevClusterProblem:
            continue
    return found


def reap() -> list[str]:
    """Take down every owned cluster whose owner has died; their names."""
    gone = [cluster for cluster in every_cluster() if cluster.owner[0] and not pid_alive(*cluster.owner)]
    for cluster in gone:
        cluster.down()
    return [cluster.name for cluster in gone]
