"""The real control plane that integration and end-to-end tests share, one for each pytest session."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import settings

from berth.devcluster import cluster as devcluster
from berth.devcluster import tools
from berth.devcluster.api import Api
from berth.devcluster.binaries import Binaries
from berth.devcluster.cluster import DevCluster
from berth.devcluster.health import make_namespace
from berth.devcluster.problems import ToolMissing

settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("fuzz", derandomize=False, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

Kubectl = Callable[..., str]

REQUIRED = "BERTH_REQUIRE_CLUSTER"
"""Set where a run without a control plane proves too little, as in CI: its absence then fails."""
BINARIES = pytest.StashKey[Binaries | ToolMissing]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the control plane before the first test: the quarter of an hour must not count as that test's time."""
    if session.config.option.collectonly:
        return
    if any("binaries" in getattr(item, "fixturenames", ()) for item in session.items):
        session.config.stash[BINARIES] = _programs(session.config)


def _programs(config: pytest.Config) -> Binaries | ToolMissing:
    reporter = config.pluginmanager.getplugin("terminalreporter")

    def progress(line: str) -> None:
        if reporter:
            reporter.write_line(line)

    try:
        return Binaries.ensure(progress)
    except ToolMissing as missing:
        return missing


def without(what: str, problem: Exception) -> NoReturn:
    """Skip for want of ``what``, with the reason; with BERTH_REQUIRE_CLUSTER in the environment fail instead."""
    refuse = pytest.fail if os.environ.get(REQUIRED) else pytest.skip
    refuse(f"no {what} can be had here: {problem}")


@pytest.fixture(scope="session")
def binaries(pytestconfig: pytest.Config) -> Binaries:
    """The control plane's programs; skips, with the reason, where neither they nor a Go can be had.

    With BERTH_REQUIRE_CLUSTER in the environment it fails instead.
    """
    programs = pytestconfig.stash[BINARIES]
    if isinstance(programs, ToolMissing):
        without("control plane", programs)
    return programs


@pytest.fixture(scope="session")
def cluster(binaries: Binaries) -> Iterator[DevCluster]:
    """A running cluster with the `tiny` fleet. Tests share it: use `namespace`, and leave nodes as they were."""
    devcluster.reap()
    running = DevCluster.up(f"test-{os.getpid()}", fleet="tiny", binaries=binaries, owned=True)
    try:
        yield running
        running.expect_running()
    finally:
        running.down()


@pytest.fixture(scope="session")
def api(cluster: DevCluster) -> Api:
    """A JSON client with the administrator's rights."""
    return cluster.api()


@pytest.fixture
def namespace(api: Api) -> Iterator[str]:
    """A fresh namespace with its default ServiceAccount; deleted afterwards without waiting."""
    name = f"t-{uuid.uuid4().hex[:10]}"
    assert make_namespace(api, name, 30)
    yield name
    api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture(scope="session")
def kubectl(cluster: DevCluster) -> Kubectl:
    """``kubectl("get", "pods", "-n", namespace)``: its output; fails with what it said when it fails."""
    return run_kubectl(tools.kubectl(), cluster.kubeconfig)


def run_kubectl(program: Path, kubeconfig: Path) -> Kubectl:
    """A function that runs kubectl against one cluster; ``stdin=`` is handed to it."""

    def run(*arguments: str, stdin: str | None = None) -> str:
        result = subprocess.run(
            [program, "--kubeconfig", kubeconfig, *arguments], input=stdin, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, f"kubectl {' '.join(arguments)}\n{result.stdout}{result.stderr}"
        return result.stdout

    return run
