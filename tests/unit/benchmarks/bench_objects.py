"""Objects as a watch delivers them, with only what the benchmarks read."""

from __future__ import annotations

from typing import Any

GPU = "nvidia.com/gpu"


def pod(
    name: str = "llama-1-0",
    *,
    job: str | None = "llama",
    attempt: int = 1,
    rank: int = 0,
    node: str = "",
    pin: str = "",
    phase: str = "Pending",
    gpus: int = 8,
    pool: str = "h100",
    terminating: bool = False,
    preempted: bool = False,
) -> dict[str, Any]:
    """A pod; of gang ``job`` unless that is ``None``. Its uid is its name."""
    labels = {
        "berth.dev/job-name": job,
        "berth.dev/job-uid": f"uid-{job}",
        "berth.dev/attempt": str(attempt),
        "berth.dev/rank": str(rank),
        "berth.dev/pool": pool,
    }
    found: dict[str, Any] = {
        "metadata": {"name": name, "namespace": "research", "uid": name, "labels": labels if job else {}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "4", GPU: str(gpus)}}}]},
        "status": {"phase": phase},
    }
    if node:
        found["spec"]["nodeName"] = node
    if pin:
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [pin]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        found["spec"]["affinity"] = {"nodeAffinity": required}
    if terminating:
        found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if preempted:
        found["status"]["conditions"] = [
            {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        ]
    return found


def node(name: str = "n1", *, gpus: int = 8, labels: dict[str, str] | None = None) -> dict[str, Any]:
    """A node with 64 CPUs."""
    return {
        "metadata": {"name": name, "uid": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "status": {"allocatable": {"cpu": "64", "pods": "110", GPU: str(gpus)}},
    }


def job(name: str = "llama", workers: int = 2, *, status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A TrainingJob; its uid is what :func:`pod` says."""
    return {
        "metadata": {"name": name, "namespace": "research", "uid": f"uid-{name}"},
        "spec": {"workers": workers, "accelerators": {"perWorker": 8}, **spec},
        "status": status or {},
    }


def pool(name: str = "h100", **spec: Any) -> dict[str, Any]:
    """An AcceleratorPool of the nodes labelled ``pool: <name>`` with levels block, rack and host."""
    return {
        "metadata": {"name": name, "uid": f"pool-{name}"},
        "spec": {
            "nodeSelector": {"matchLabels": {"pool": name}},
            "accelerator": "H100",
            "roles": ["Training"],
            "topology": [{"name": "block", "nodeLabel": "block"}, {"name": "rack", "nodeLabel": "rack"}],
            **spec,
        },
    }
