"""``berth demo``: a real control plane, a mixed fleet, and the life of a few gangs and a service, in about a minute.

Everything goes the way that a user's manifests go: the chart is installed by helm, the operator runs with the chart's
ServiceAccount, jobs are applied through the API server. Only the nodes and the containers are simulated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import click

from berth.cli import demo_serving
from berth.devcluster.api import Api
from berth.devcluster.cluster import DevCluster
from berth.devcluster.health import make_namespace
from berth.devcluster.invocation import berth
from berth.devcluster.operator import install_chart, run_operator
from berth.devcluster.problems import ApiRefused
from berth.devcluster.process import wait_until

Json = dict[str, Any]

NAMESPACE: Final = "research"
JOBS: Final = f"/apis/berth.dev/v1alpha1/namespaces/{NAMESPACE}/trainingjobs"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
POOLS: Final = "/apis/berth.dev/v1alpha1/acceleratorpools"
PATIENCE_SECONDS: Final = 60.0

POOL: Final[Json] = {
    "apiVersion": "berth.dev/v1alpha1",
    "kind": "AcceleratorPool",
    "metadata": {"name": "h200-ib"},
    "spec": {
        "nodeSelector": {"matchLabels": {"nvidia.com/gpu.product": "NVIDIA-H200"}},
        "accelerator": "H200",
        "roles": ["Training"],
        "capacityType": {"value": "Reserved"},
        "fabric": {"kind": "InfiniBand", "gbps": 400, "rails": 8},
        "topology": [
            {"name": "zone", "nodeLabel": "topology.kubernetes.io/zone", "role": "Site"},
            {"name": "block", "nodeLabel": "network.topology.nvidia.com/spine"},
            {"name": "rack", "nodeLabel": "network.topology.nvidia.com/leaf"},
        ],
    },
}


def job(name: str, workers: int, annotations: Mapping[str, str], **spec: Any) -> Json:
    """A TrainingJob on the H200 pool; ``annotations`` tell the simulated containers how to behave."""
    container = {"name": "worker", "image": "registry.example/train:1", "command": ["torchrun", "train.py"]}
    return {
        "apiVersion": "berth.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {
            "workers": workers,
            "accelerators": {"perWorker": 8, "types": ["H200"]},
            "fabric": {"kinds": ["InfiniBand"], "minGbps": 400},
            "template": {"metadata": {"annotations": dict(annotations)}, "spec": {"containers": [container]}},
            **spec,
        },
    }


LLAMA: Final = job(
    "llama-70b",
    8,
    {"berth.dev/sim-run": "12s"},
    framework="PyTorch",
    model={"parameters": "70B"},
    parallelism={"tensor": 8},
    topology={"required": "zone", "preferred": "rack"},
    checkpoint={"uri": "s3://checkpoints/llama-70b"},
)
WAITING: Final = job("mixtral", 28, {"berth.dev/sim-run": "3s"}, topology={"preferred": "block"})
FLAKY: Final = job("flaky", 1, {"berth.dev/sim-run": "1s", "berth.dev/sim-exit-code": "1"}, recovery={"maxRestarts": 0})
WRONG: Final = job("wrong", 8, {}, parallelism={"tensor": 3})


@dataclass
class Story:
    """Tells what happens while it happens, and again in short at the end."""

    began: float = field(default_factory=time.monotonic)
    lines: list[str] = field(default_factory=list)

    def tell(self, text: str, *, keep: bool = True) -> None:
        """One line with the seconds since the start; ``keep`` puts it into the summary."""
        stamped = f"[{time.monotonic() - self.began:5.1f} s] {text}"
        click.echo(stamped)
        if keep:
            self.lines.append(stamped)


@dataclass
class Scene:
    """The cluster as the demo sees it: jobs by name, with a limit to its patience."""

    api: Api
    story: Story

    def status(self, name: str) -> Json:
        """The status of a job; empty before its first."""
        found: Json = self.api.get(f"{JOBS}/{name}").get("status") or {}
        return found

    def wait(self, name: str, what: str, condition: Callable[[Json], object]) -> Json:
        """Until the status of ``name`` meets ``condition``. Raises: click.ClickException after a minute."""
        if not wait_until(lambda: bool(condition(self.status(name))), PATIENCE_SECONDS):
            raise click.ClickException(f"{name} did not come to {what}: {self.status(name)}")
        return self.status(name)


def run(cluster: DevCluster, story: Story) -> None:
    """The scenes, on a cluster with the mixed fleet, the chart and a running operator."""
    scene = Scene(cluster.api(), story)
    make_namespace(scene.api, NAMESPACE, PATIENCE_SECONDS)
    scene.api.post(POOLS, POOL)
    place(scene)
    refuse(scene)
    make_wait(scene)
    lose_node(scene)
    finish(scene)


def place(scene: Scene) -> None:
    """A gang of 64 accelerators lands on the fewest racks."""
    scene.api.post(JOBS, LLAMA)
    status = scene.wait("llama-70b", "Running", lambda found: found.get("phase") == "Running")
    placement = status["placement"]
    used = ", ".join(f"{count} {level}{'s'[: count != 1]}" for level, count in placement["domains"].items())
    scene.story.tell(f"llama-70b: 8 workers x 8 H200 run on {placement['pool']}: {used}, {placement['certificate']}")
    save = status.get("checkpoint") or {}
    if save:
        scene.story.tell(f"llama-70b: saves every {save['intervalSeconds']} s ({save.get('reason', '')})")


def refuse(scene: Scene) -> None:
    """A manifest that cannot be right never gets in."""
    try:
        scene.api.post(JOBS, WRONG)
    except ApiRefused as refusal:
        scene.story.tell(f"wrong: refused by the API server: {refusal.message}")
    else:
        raise click.ClickException("a manifest with impossible parallelism was accepted")


def make_wait(scene: Scene) -> None:
    """A gang that does not fit says why, and what would change it."""
    scene.api.post(JOBS, WAITING)
    status = scene.wait("mixtral", "an explanation", lambda found: "apacity" in (found.get("message") or ""))
    scene.story.tell(f"mixtral: {status['phase']}: {status['message']}")


def lose_node(scene: Scene) -> None:
    """A node object is deleted under the first gang: a restart that is nobody's fault."""
    before = scene.status("llama-70b")
    nodes = ranks(before)
    scene.story.tell(f"deleting node {nodes[3]} under rank 3 of llama-70b", keep=False)
    scene.api.delete(f"/api/v1/nodes/{nodes[3]}")
    at = time.monotonic()
    status = scene.wait(
        "llama-70b", "attempt 2", lambda found: found.get("attempt") == 2 and found.get("phase") == "Running"
    )
    took = time.monotonic() - at
    restarts = status["restarts"]
    scene.story.tell(
        f"llama-70b: node {nodes[3]} lost; all 8 ranks run again after {took:.1f} s, in fabric order on "
        f"{status['placement']['domains'].get('rack')} racks; charged: {restarts['failure']} failures, "
        f"{restarts['infrastructure']} infrastructure"
    )


def finish(scene: Scene) -> None:
    """One job fails by its own fault, the first finishes, the second gets its room."""
    scene.api.post(JOBS, FLAKY)
    status = scene.wait("flaky", "Failed", lambda found: found.get("phase") == "Failed")
    scene.story.tell(f"flaky: Failed: {status['message']}")
    scene.wait("llama-70b", "Succeeded", lambda found: found.get("phase") == "Succeeded")
    cost = scene.status("llama-70b").get("cost") or {}
    scene.story.tell(f"llama-70b: Succeeded; cost {cost.get('usd')} USD, of it {cost.get('lostUsd')} lost to the node")
    scene.wait("mixtral", "Succeeded", lambda found: found.get("phase") == "Succeeded")
    scene.story.tell("mixtral: placed when the room came free, and Succeeded")


def ranks(status: Json) -> list[str]:
    """The nodes in rank order."""
    return str(status["placement"]["ranks"]).split(",")


@click.command()
@click.option("--keep", is_flag=True, help="Leave the cluster and the operator running.")
@click.option("--name", default="demo", show_default=True, help="Name of the local cluster.")
def demo(keep: bool, name: str) -> None:
    """Bring up a control plane with a simulated fleet and show gangs and a service through their lives."""
    story = Story()
    story.tell("bringing up etcd, kube-apiserver, kube-scheduler, kube-controller-manager and kwok", keep=False)
    cluster = DevCluster.up(name, fleet="mixed", progress=lambda line: story.tell(line, keep=False))
    try:
        story.tell("installing the chart with helm, starting the operator with its ServiceAccount", keep=False)
        install_chart(cluster)
        with (
            demo_serving.stage(cluster, story, keep=keep) as stage,
            run_operator(cluster, args=stage.arguments, detached=keep),
        ):
            run(cluster, story)
            if stage.engines is not None:
                demo_serving.serve(cluster.api(), stage.engines, story)
                if keep:
                    story.tell(f"{demo_serving.NAME}: its traffic ends here, so demand is unknown and replicas stay")
    except BaseException:
        cluster.down()
        raise
    summary(cluster, story, keep=keep)
    if not keep:
        cluster.down()


def summary(cluster: DevCluster, story: Story, *, keep: bool) -> None:
    """What happened, in short, and how to look further."""
    click.echo("\nWhat happened")
    for line in story.lines:
        click.echo(f"  {line}")
    if not keep:
        click.echo("\nTo look further, leave it running: make demo DEMO_ARGS=--keep")
        return
    click.echo("\nTo look further")
    for command in (
        f"-n {NAMESPACE} get trainingjobs -o wide",
        f"-n {NAMESPACE} describe trainingjob llama-70b",
        f"-n {NAMESPACE} get events --field-selector involvedObject.kind=TrainingJob",
        f"-n {demo_serving.NAMESPACE} get bisvc,deployments -o wide",
        f"-n {demo_serving.NAMESPACE} describe bisvc {demo_serving.NAME}",
        "get acceleratorpools",
    ):
        click.echo(f"  {berth('dev', 'kubectl', '--name', cluster.name, command)}")
    click.echo(f"  {berth('dev', 'down', '--name', cluster.name)}")
