"""What a thousand InferenceServices cost the operator: CPU, time per decision, and writes when nothing changes.

Every service has its own demand, read every 15 s; it is steady and has been for an hour, so that once all replicas are
there, and the figures of all have been written in turn, nothing has to be written. ``settled_seconds`` is how long that
took after all were Ready, ``cpu_share`` the operator's CPU over two such minutes, decisions, forecasts and
queries included.

Every third may use two accelerators, on demand and on spot of three zones, with one replica on demand and a bound on
what a zone may hold, so that the time of a decision is that of a choice. The hazard of spot falls while nothing is
taken, so that a few may find in the steady minutes that a move pays; what that writes counts in ``idle_writes``.
``decision_p99_ms`` is of the steady minutes, ``busy_p99_ms`` of the time until then, in which room and replicas change
from one decision to the next.
"""

from __future__ import annotations

import re
import sys
import time
import urllib.request
from collections.abc import Mapping
from functools import partial
from typing import Any

from benchmarks import harness, manifests, usage
from benchmarks.harness import SMALL, Bench, emit, progress
from benchmarks.idle import land
from benchmarks.metrics_server import MetricsServer
from benchmarks.streams import Stream
from berth.devcluster.fleets import SimulatedFleet

SERVICES, NODES, QUIET_SECONDS = (8, 20, 16.0) if SMALL else (1000, 400, 120.0)
COLLECTION = f"/apis/berth.dev/v1alpha1/namespaces/{manifests.NAMESPACE}/inferenceservices"
MIXED_EVERY = 3
"""Of so many services one may use spot."""
HOSTS = (
    *[("NVIDIA-L4", "on-demand", zone) for zone in "abcabcabca"],
    ("NVIDIA-L40S", "on-demand", "a"),
    *[("NVIDIA-L4", "spot", zone) for zone in "abcabc"],
    *[("NVIDIA-L40S", "spot", zone) for zone in "abc"],
)
"""Product, capacity type and zone of each twenty hosts."""
SETTLE_SECONDS = 20.0 if SMALL else 75.0
"""Moving figures of one service are written at most once a minute; a smoke run outlasts a control period, or what the
first demand that is heard of asks for would count as idle."""
LIMIT_SECONDS = 580.0
"""Of the whole, ten minutes with what comes after: what is left of it beside the steady minutes is what the last writes
may take to land."""


def fleet() -> SimulatedFleet:
    """Hosts of two accelerators, on demand and on spot of three zones."""
    nodes = []
    for number in range(NODES):
        product, capacity_type, zone = HOSTS[number % len(HOSTS)]
        node = manifests.node(f"n{number:05d}", block=0, rack=number // manifests.NODES_PER_RACK, product=product)
        node["metadata"]["labels"] |= {
            "karpenter.sh/capacity-type": capacity_type, "topology.kubernetes.io/zone": f"zone-{zone}",
        }  # fmt: skip
        nodes.append(node)
    return SimulatedFleet(f"{NODES} hosts of L4 and L40S, half of them spot", tuple(nodes))


def service(number: int) -> manifests.Json:
    """One of them: 7B parameters, one to four replicas on demand, or up to twelve of a mix."""
    mixed = number % MIXED_EVERY == 0
    spot = {"spot": {"mode": "Mixed", "onDemandFloor": 1, "maxZoneLoss": "50%"}} if mixed else {}
    return {
        "apiVersion": "berth.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": f"s{number}", "namespace": manifests.NAMESPACE},
        "spec": {
            "model": {
                "parameters": "7B",
                "bitsPerParameter": 8,
                "contextTokens": 4096,
                "kvBytesPerToken": 65536,
                "uri": f"hf://bench/model-{number}",
            },
            "runtime": {"engine": "vLLM"},
            "accelerators": {"types": ["L4", "L40S"] if mixed else ["L4"]},
            **spot,
            "slo": {"percentile": 95 if mixed else 99, "ttft": "1s", "itl": "100ms"},
            "scaling": {
                "minReplicas": 1,
                "maxReplicas": 12 if mixed else 4,
                "demand": {
                    "signals": [
                        {
                            "name": "load",
                            "source": "Prometheus",
                            "preset": "vLLM",
                            "perReplica": "2" if mixed else "8",
                        }
                    ]
                },
            },
        },
    }


def demand(bench: Bench, name: str) -> Mapping[tuple[str, str], float]:
    """A steady load for every pod: its service's share, so that the total does not depend on the replicas."""
    if name not in ("vllm:num_requests_running", "vllm:num_requests_waiting"):
        return {}
    by_service: dict[str, list[str]] = {}
    for pod in bench.recorder.pods():
        if pod.running is not None and pod.deleted is None:
            by_service.setdefault(pod.name.partition("-")[0], []).append(pod.name)
    loads: dict[tuple[str, str], float] = {}
    for key, pods in by_service.items():
        total = load(name, key)
        loads |= {(manifests.NAMESPACE, pod): total / len(pods) for pod in pods}
    return loads


def load(name: str, key: str) -> float:
    """Of the metric ``name`` over all pods of the service ``key``, then as now."""
    return 2.0 + int(key[1:]) % 10 if name.endswith("running") else 0.0


def decision_quantile(text: str, share: float, before: Mapping[float, float]) -> float | None:
    """Seconds within which ``share`` of the decisions since ``before`` were made, from the operator's histogram."""
    counts = {bound: count - before.get(bound, 0.0) for bound, count in buckets(text).items()}
    bounds = sorted(counts)
    if not bounds or counts[bounds[-1]] <= 0:
        return None
    rank, start, below = share * counts[bounds[-1]], 0.0, 0.0
    for bound in bounds:
        if counts[bound] >= rank:
            return start + (bound - start) * (rank - below) / max(counts[bound] - below, 1e-9)
        start, below = bound, counts[bound]
    return None


def buckets(text: str) -> dict[float, float]:
    """The cumulative histogram of decision times by upper bound."""
    found = re.findall(r'berth_service_decision_seconds_bucket\{le="([^"]+)"\} (\S+)', text)
    return {float(bound): float(count) for bound, count in found}


def main() -> None:
    """Measure, and print the result."""
    holder: list[Bench] = []
    began = time.monotonic()
    with (
        MetricsServer(lambda name: demand(holder[0], name) if holder else {}, load) as server,
        Bench("bench-services", fleet(), operator_args=[f"--prometheus-url={server.url}"]) as bench,
    ):
        holder.append(bench)
        phases: dict[str, str] = {}
        stream = Stream(bench.api, COLLECTION, partial(note_phase, phases))
        stream.start()
        harness.each(lambda number: bench.api.post(COLLECTION, service(number)), range(SERVICES))
        progress(f"{SERVICES} services submitted")
        bench.until(f"{SERVICES} services Ready", lambda: ready(phases) >= SERVICES, 360, step=1.0)
        stream.stop()
        progress("all Ready; letting the last writes land")
        landed = land(bench, SETTLE_SECONDS, began + LIMIT_SECONDS - QUIET_SECONDS - time.monotonic())
        found = quiet(bench)
        promises = bench.promises()
    emit({**found, "settled_seconds": round(landed), "services": SERVICES, "promises": promises})
    sys.exit(bool(promises["violations"]))


def quiet(bench: Bench) -> dict[str, Any]:
    """Minutes in which demand does not change."""
    before = buckets(metrics(bench))
    busy = decision_quantile(metrics(bench), 0.99, {})
    bench.audit.read()
    with bench.meter() as meter:
        deadline = time.monotonic() + QUIET_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            progress(f"steady for {left:.0f} s more")
            time.sleep(min(30.0, left))
    written = [write for write, _ in bench.audit.read() if write.resource != "leases" and not write.dry_run]
    after = metrics(bench)
    p50, p99 = (decision_quantile(after, share, before) for share in (0.5, 0.99))
    memory = usage.of(bench.operator.pid)
    return {
        "cpu_share": round(meter.cpu["operator"] / meter.seconds, 4),
        "decision_p50_ms": milliseconds(p50),
        "decision_p99_ms": milliseconds(p99),
        "busy_p99_ms": milliseconds(busy),
        "idle_writes": len(written),
        "written": sorted({str(write) for write in written})[:20],
        "rss_mib": round(memory.rss_mib, 1),
        "peak_mib": round(memory.peak_mib, 1),
        "pods": sum(pod.running is not None for pod in bench.recorder.pods()),
        "foreign_cores": meter.foreign_cores,
    }


def milliseconds(seconds: float | None) -> float | None:
    """To a thousandth, where there is something to tell."""
    return None if seconds is None else round(seconds * 1000, 3)


def note_phase(phases: dict[str, str], change: str, item: Mapping[str, Any], at: float) -> None:
    """Keep the phase of a service by name: lists of a thousand would take CPU from what is measured."""
    phases[item["metadata"]["name"]] = (item.get("status") or {}).get("phase", "")


def ready(phases: Mapping[str, str]) -> int:
    """Services that are Ready."""
    return list(phases.values()).count("Ready")


def metrics(bench: Bench) -> str:
    """The operator's own metrics page."""
    with urllib.request.urlopen(f"http://127.0.0.1:{bench.operator.health_port}/metrics", timeout=10) as page:
        return str(page.read().decode())


if __name__ == "__main__":
    main()
