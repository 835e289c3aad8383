"""``berth dev``: bring up, look at and take down local clusters."""

from __future__ import annotations

from typing import Literal

import click

from berth.devcluster.cluster import DEFAULT_NAME, DevCluster
from berth.devcluster.components import Features
from berth.devcluster.operator import install_chart, start_operator

name_option = click.option("--name", default=DEFAULT_NAME, show_default=True, help="Name of the cluster.")


@click.group()
def dev() -> None:
    """A real control plane on this machine, with simulated nodes."""


@dev.command()
@name_option
@click.option("--fleet", default="mixed", show_default=True, help="mixed, flat-640, tiny, or a YAML file.")
@click.option("--engine", type=click.Choice(["local", "kind"]), default="local", show_default=True)
@click.option("--native-gangs", is_flag=True, help="Serve PodGroup and schedule gangs natively.")
@click.option("--operator/--no-operator", default=False, help="Install the chart and start the operator too.")
def up(name: str, fleet: str, engine: Literal["local", "kind"], native_gangs: bool, operator: bool) -> None:
    """Bring a cluster up. The first time this builds the control plane, which takes up to 25 minutes."""
    features = Features(native_gangs=native_gangs)
    cluster = DevCluster.up(name, fleet=fleet, engine=engine, features=features, progress=_say)
    if operator:
        _say("installing the chart, starting the operator")
        install_chart(cluster)
        cluster.adopt(start_operator(cluster).process)
    click.echo(f"export KUBECONFIG={cluster.kubeconfig}")


@dev.command()
@name_option
def down(name: str) -> None:
    """Stop a cluster and remove its files."""
    DevCluster.load(name).down()
    click.echo(f"cluster {name} is down")


@dev.command()
@name_option
def status(name: str) -> None:
    """Which components run; exit code 1 when one does not."""
    cluster = DevCluster.load(name)
    states = cluster.status()
    for component, runs in states.items():
        click.echo(f"{component:20} {'running' if runs else 'not running'}")
    click.echo(f"{'fleet':20} {cluster.fleet or 'none'}")
    if not all(states.values()):
        cluster.expect_running()
        raise SystemExit(1)


@dev.command()
@name_option
def kubeconfig(name: str) -> None:
    """Print the path of the administrator's kubeconfig."""
    click.echo(str(DevCluster.load(name).kubeconfig))


def _say(line: str) -> None:
    click.echo(line, err=True)
