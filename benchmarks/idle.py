"""What the operator costs when there is nothing to do, and what it holds in memory.

1,000 TrainingJobs of 1-8 workers on 10,000 nodes: 900 run, 100 wait for an island of a few full hosts. Nothing changes
for three minutes. Its writes come from the audit log, its CPU and memory from /proc. Then 20,000 pods of somebody else
appear, already bound, and memory is read again. Simulated nodes send no leases, and a heartbeat about every 15 minutes.
"""

from __future__ import annotations

import random
import sys
import time
from typing import Any

from benchmarks import harness, manifests, usage
from benchmarks.harness import SMALL, Bench, emit, progress
from benchmarks.manifests import bound_pod, fleet, training_job
from berth.devcluster.fleets import SimulatedFleet

NODES, RUNNING, QUEUED, PODS, QUIET_SECONDS = (200, 20, 5, 400, 20.0) if SMALL else (10000, 900, 100, 20000, 180.0)
ISLAND_NODES = 8
ISLAND = ("H200", "NVIDIA-H200")
MAINLAND = ("H100", "NVIDIA-H100-80GB-HBM3")
SETTLE_SECONDS = 15.0
LAND_SECONDS = 150.0
BATCH = 2000


def island_fleet() -> SimulatedFleet:
    """The mainland, and an island of another accelerator that one gang fills."""
    mainland = fleet(NODES - ISLAND_NODES, product=MAINLAND[1]).nodes
    island = [manifests.node(f"island-{i}", block=9999, rack=9999, product=ISLAND[1]) for i in range(ISLAND_NODES)]
    return SimulatedFleet(f"{NODES} hosts", (*mainland, *island))


def jobs() -> tuple[list[manifests.Json], list[manifests.Json]]:
    """The jobs that run, the first of them on the whole island, and those that must wait for it."""
    rng = random.Random(42)
    running = [training_job("fills-the-island", ISLAND_NODES, types=(ISLAND[0],))]
    running += [
        training_job(f"runs-{i}", rng.randint(1, 8), preferred="rack", types=(MAINLAND[0],)) for i in range(RUNNING - 1)
    ]
    return running, [training_job(f"waits-{i}", rng.randint(1, 8), types=(ISLAND[0],)) for i in range(QUEUED)]


def settle(bench: Bench) -> None:
    """Bring up every job and wait until the operator has said of each what there is to say."""
    running, queued = jobs()
    want = sum(job["spec"]["workers"] for job in running)
    bench.submit(running[:1])
    bench.until("the island is full", lambda: _phases(bench).get("Running", 0) >= 1, 120)
    bench.submit([*running[1:], *queued])
    progress(f"submitted {len(running)} jobs of {want} pods and {len(queued)} that must wait")
    bench.until(f"{RUNNING} jobs Running", lambda: _phases(bench).get("Running", 0) >= RUNNING, 400, step=0.5)
    bench.until(f"{QUEUED} jobs Queued", lambda: _phases(bench).get("Queued", 0) >= QUEUED, 120, step=0.5)
    progress("all there; letting the last writes land")
    land(bench)


def land(bench: Bench, settle_seconds: float = SETTLE_SECONDS, land_seconds: float = LAND_SECONDS) -> float:
    """Wait until the operator has written nothing but its lease for a while: events of the start are held and paced.

    Returns the seconds until the last write.
    """
    began = last = time.monotonic()
    while time.monotonic() - last < settle_seconds and time.monotonic() - began < land_seconds:
        time.sleep(1)
        if any(write.resource != "leases" for write in bench.audit.counts()):
            last = time.monotonic()
    progress(f"the last write came after {last - began:.0f} s")
    return last - began


def quiet(bench: Bench) -> dict[str, Any]:
    """Three minutes in which nothing happens."""
    bench.audit.read()
    with bench.meter() as meter:
        deadline = time.monotonic() + QUIET_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            progress(f"quiet for {left:.0f} s more")
            time.sleep(min(30.0, left))
    records = [record for write, record in bench.audit.read() if not write.dry_run]
    leases = [record for record in records if record["objectRef"]["resource"] == "leases"]
    others = [record for record in records if record["objectRef"]["resource"] != "leases"]
    return {
        "writes": len(others),
        "lease_writes": len(leases),
        "written": sorted({f"{r['verb']} {r['requestURI']}" for r in others})[:20],
        "cpu_share": round(meter.cpu["operator"] / meter.seconds, 4),
        "rss_mib": round(usage.of(bench.operator.pid).rss_mib, 1),
        "foreign_cores": meter.foreign_cores,
        "cpu_s": meter.cpu,
    }


def crowd(bench: Bench) -> None:
    """Bind ``PODS`` small pods of somebody else to the nodes, as one bulk."""
    names = [node["metadata"]["name"] for node in fleet(NODES - ISLAND_NODES).nodes]
    pods = [
        bound_pod(f"crowd-{i}", names[i % len(names)], {"cpu": "100m"}, group="crowd", stay_pending=True)
        for i in range(PODS)
    ]
    for start in range(0, len(pods), BATCH):
        harness.each(lambda pod: bench.api.post(harness.PODS_IN_NAMESPACE, pod), pods[start : start + BATCH])
        progress(f"{min(start + BATCH, len(pods))} of {len(pods)} bound pods created")
    time.sleep(SETTLE_SECONDS)


def _phases(bench: Bench) -> dict[str, int]:
    counts: dict[str, int] = {}
    for line in bench.recorder.jobs().values():
        counts[line.phase] = counts.get(line.phase, 0) + 1
    return counts


def main() -> None:
    """Measure, and print the result."""
    with Bench("bench-idle", island_fleet()) as bench:
        settle(bench)
        found = quiet(bench)
        progress(f"{found['writes']} writes, {found['cpu_share']} of a core, {found['rss_mib']} MiB")
        crowd(bench)
        after = usage.of(bench.operator.pid)
        promises = bench.promises()
    figures = {key: found.pop(key) for key in ("writes", "cpu_share", "rss_mib")}
    figures["rss_mib_20k_pods"] = round(after.rss_mib, 1)
    emit({**figures, **found, "peak_mib": round(after.peak_mib, 1), "pods": PODS, "promises": promises})
    sys.exit(bool(promises["violations"]))


if __name__ == "__main__":
    main()
