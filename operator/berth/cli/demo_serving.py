"""The demo's scene of a service: a real Prometheus tells its demand, spot is taken back, the swing passes.

Engines are simulated, so traffic flows through the exporter that speaks for them. Where no Prometheus can be had, the
scene is left out and says why.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

import click

from berth.devcluster.api import Api
from berth.devcluster.cluster import DevCluster
from berth.devcluster.engines import SimulatedEngines
from berth.devcluster.health import is_ready, make_namespace
from berth.devcluster.problems import BuildFailed, ToolMissing
from berth.devcluster.process import wait_until
from berth.devcluster.prometheus import PrometheusServer

Json = dict[str, Any]

NAMESPACE: Final = "serving"
NAME: Final = "chat-8b"
SERVICES: Final = f"/apis/berth.dev/v1alpha1/namespaces/{NAMESPACE}/inferenceservices"
PATIENCE_SECONDS: Final = 60.0
LITTLE, MUCH = 8.0, 80.0  # requests in flight
SLOTS: Final = 32
"""Requests that an engine works on at once: more than any replica here is sized for, or a queue would stay."""
NOTICE: Final = {"key": "aws-node-termination-handler/spot-itn", "value": "true", "effect": "NoSchedule"}

SERVICE: Final[Json] = {
    "apiVersion": "berth.dev/v1alpha1",
    "kind": "InferenceService",
    "metadata": {"name": NAME},
    "spec": {
        "model": {"name": "llama-3-8b", "parameters": "8B", "contextTokens": 8192, "kvBytesPerToken": 131072,
                  "uri": "hf://meta-llama/llama-3-8b"},
        "runtime": {"engine": "vLLM"},
        "accelerators": {"types": ["L4", "L40S", "MI300X"]},
        "scaling": {
            "minReplicas": 2,
            "maxReplicas": 14,
            "demand": {"signals": [{"name": "load", "source": "Prometheus", "preset": "vLLM"}]},
            "forecast": {"method": "Persistence"},  # a minute is no history
            "steps": {"maxDown": "100%", "downAfter": "3s"},
        },
        "spot": {"mode": "Mixed", "onDemandFloor": 1},
        "coldStart": {"estimate": "2s"},
        "template": {
            "metadata": {"annotations": {"berth.dev/sim-start": "1s"}},
            "spec": {"containers": [{"name": "server"}]},
        },
    },
}  # fmt: skip


class Tells(Protocol):
    """Whoever tells the story."""

    def tell(self, text: str, *, keep: bool = True) -> None:
        """One line of it."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What the scene needs: ``arguments`` are the operator's; ``engines`` None: there is no scene."""

    arguments: tuple[str, ...] = ()
    engines: SimulatedEngines | None = None


@contextmanager
def stage(cluster: DevCluster, story: Tells, *, keep: bool) -> Iterator[Stage]:
    """Prometheus and the exporter for the length of a block; ``keep`` leaves Prometheus to end with the cluster."""
    with SimulatedEngines(cluster.api()) as engines:
        server = PrometheusServer(cluster.dir / "prometheus", [engines.target])
        try:
            server.start(lambda line: story.tell(line, keep=False))
        except (ToolMissing, BuildFailed) as problem:
            story.tell(f"the scene of an InferenceService is left out: {problem}")
            yield Stage()
            return
        try:
            if keep:
                cluster.adopt(server.process)
            yield Stage((f"--prometheus-url={server.url}", "--service-period=1"), engines)
        finally:
            if not keep:
                server.stop()


def serve(api: Api, engines: SimulatedEngines, story: Tells) -> None:
    """A service comes up, grows tenfold, loses a zone's spot nodes, and shrinks. Raises: click.ClickException."""
    make_namespace(api, NAMESPACE, PATIENCE_SECONDS)
    engines.serve(NAMESPACE, NAME, LITTLE, SLOTS)
    api.post(SERVICES, SERVICE)
    status = _wait(api, "two ready replicas", lambda found: found.get("readyReplicas", 0) >= 2)
    story.tell(f"{NAME}: up with {_mix(status)} at {status['cost']['usdPerHour']} USD/h")
    _grow(api, engines, story)
    _reclaim(api, story)
    engines.serve(NAMESPACE, NAME, LITTLE, SLOTS)
    status = _wait(api, "two replicas again", lambda found: found.get("replicas") == 2)
    story.tell(f"{NAME}: demand falls back; {_mix(status)} at {status['cost']['usdPerHour']} USD/h")


def _grow(api: Api, engines: SimulatedEngines, story: Tells) -> None:
    engines.serve(NAMESPACE, NAME, MUCH, SLOTS)
    story.tell(f"{NAME}: requests in flight go from {LITTLE:.0f} to {MUCH:.0f}", keep=False)
    began = time.monotonic()
    worst = 0.0

    def served() -> bool:
        nonlocal worst
        queue = engines.waiting(NAMESPACE, NAME)
        worst = max(worst, queue)
        return queue < 1.0 and _status(api).get("readyReplicas", 0) > 2

    if not wait_until(served, PATIENCE_SECONDS):
        raise click.ClickException(f"{NAME}: its queue does not go away: {_status(api)}")
    took = time.monotonic() - began
    status = _wait(api, "a settled count", lambda found: found.get("replicas") == found.get("readyReplicas"))
    cost = status["cost"]
    story.tell(
        f"{NAME}: ten times the demand: {_mix(status)}, the queue of {worst:.0f} is gone after {took:.1f} s; "
        f"{cost['usdPerHour']} USD/h, without spot {cost['onDemandOnlyUsdPerHour']}"
    )


def _reclaim(api: Api, story: Tells) -> None:
    """The zone with most of its spot replicas is taken back with two minutes' notice."""
    nodes = {node["metadata"]["name"]: node for node in api.list("/api/v1/nodes")}
    spot: dict[str, set[str]] = {}
    for pod in _pods(api):
        node = nodes.get(pod["spec"].get("nodeName", ""))
        labels = node["metadata"]["labels"] if node else {}
        if labels.get("karpenter.sh/capacity-type") == "spot":
            spot.setdefault(labels["topology.kubernetes.io/zone"], set()).add(pod["spec"]["nodeName"])
    if not spot:
        story.tell(f"{NAME}: nothing runs on spot")
        return
    zone = max(spot, key=lambda name: len(spot[name]))
    before = least = len(_ready(api))
    for name in spot[zone]:
        taints = [*nodes[name]["spec"].get("taints", []), NOTICE]
        api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": taints}})
    began = time.monotonic()

    def moved() -> bool:
        nonlocal least
        ready = _ready(api)
        least = min(least, len(ready))
        return not spot[zone] & set(ready)

    if not wait_until(moved, PATIENCE_SECONDS):
        raise click.ClickException(f"{NAME}: replicas stay on nodes that are taken back: {_status(api)}")
    story.tell(
        f"{NAME}: {zone} takes its spot nodes back: replaced in {time.monotonic() - began:.1f} s of a notice of 120 s, "
        f"never fewer than {least} of {before} replicas ready"
    )


def _status(api: Api) -> Json:
    found: Json = api.get(f"{SERVICES}/{NAME}").get("status") or {}
    return found


def _wait(api: Api, what: str, condition: Callable[[Json], object]) -> Json:
    if not wait_until(lambda: bool(condition(_status(api))), PATIENCE_SECONDS):
        raise click.ClickException(f"{NAME} did not come to {what}: {_status(api)}")
    return _status(api)


def _pods(api: Api) -> list[Json]:
    found = api.list(f"/api/v1/namespaces/{NAMESPACE}/pods", labelSelector=f"berth.dev/service-name={NAME}")
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def _ready(api: Api) -> list[str]:
    """The nodes of ready replicas."""
    return [pod["spec"]["nodeName"] for pod in _pods(api) if is_ready(pod)]


def _mix(status: Json) -> str:
    """``5 replicas (2 L4 on demand, 3 L4 spot)``."""
    counts: dict[str, int] = {}
    for variant in status["variants"]:
        kind = f"{variant['accelerator']} {'spot' if variant['capacityType'] == 'Spot' else 'on demand'}"
        counts[kind] = counts.get(kind, 0) + variant["replicas"]
    parts = ", ".join(f"{count} on {kind}" for kind, count in sorted(counts.items()) if count)
    return f"{sum(counts.values())} replicas ({parts})"
