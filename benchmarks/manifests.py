"""The objects that benchmarks create: TrainingJobs as a user writes them, plain pods, and plain fleets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from berth.devcluster.fleets import SimulatedFleet

Json = dict[str, Any]

NAMESPACE = "default"
GPU = "nvidia.com/gpu"
RUN = "bench/run"
STAY = "bench/stay"
BLOCK, RACK = "topology.berth.dev/block", "topology.berth.dev/rack"
NODES_PER_RACK = 64


def training_job(
    name: str,
    workers: int,
    *,
    gpus: int = 8,
    cpu: str = "32",
    required: str = "",
    preferred: str = "",
    run_seconds: float | None = None,
    start_timeout: str = "",
    types: tuple[str, ...] = (),
) -> Json:
    """A TrainingJob without a framework; its pods end by themselves after ``run_seconds``, or never."""
    topology = {key: level for key, level in (("required", required), ("preferred", preferred)) if level}
    container = {"name": "worker", "image": "bench.invalid/worker:1", "resources": {"requests": {"cpu": cpu}}}
    template: Json = {"spec": {"containers": [container]}}
    if run_seconds is not None:
        template["metadata"] = {"annotations": {RUN: f"{max(1, round(run_seconds * 1000))}ms"}}
    accelerators: Json = {"perWorker": gpus} | ({"types": list(types)} if types else {})
    return {
        "apiVersion": "berth.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"workers": workers, "accelerators": accelerators, "framework": "None", "template": template}
        | ({"topology": topology} if topology else {})
        | ({"startTimeout": start_timeout} if start_timeout else {}),
    }


def bound_pod(
    name: str, node: str, requests: Mapping[str, str], *, group: str = "fill", stay_pending: bool = False
) -> Json:
    """A pod of somebody else's that is on ``node`` from the start; its limits are its requests."""
    resources = {"requests": dict(requests), "limits": dict(requests)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {"gang": group},
            "annotations": {STAY: "Pending"} if stay_pending else {},
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "c", "image": "bench.invalid/other:1", "resources": resources}],
        },
    }


def node(name: str, *, block: int, rack: int, product: str, gpus: int = 8) -> Json:
    """A Ready host with 192 CPUs, 2 TiB and ``gpus`` devices of ``product`` (a GPU Feature Discovery label)."""
    amounts = {"cpu": "192", "memory": "2Ti", "pods": "110", GPU: str(gpus)}
    labels = {
        "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        "nvidia.com/gpu.product": product, BLOCK: f"b{block}", RACK: f"r{rack}",
    }  # fmt: skip
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "simulated"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": [ready]},
    }


def fleet(count: int, *, product: str = "NVIDIA-H100-80GB-HBM3", per_rack: int = NODES_PER_RACK) -> SimulatedFleet:
    """``count`` equal hosts n0000, n0001, … in racks of ``per_rack`` and blocks of ten racks."""
    nodes = (node(f"n{i:05d}", block=i // per_rack // 10, rack=i // per_rack, product=product) for i in range(count))
    return SimulatedFleet(f"{count} hosts", tuple(nodes))
