"""Gangs on 640 hosts: how long they take, what they cost, and how that compares with a peer.

    m1  one gang of 512 pods, preferred rack: submit to all Running; once more with the API server's own PodGroups
    m2  100 gangs of 5 at once, required rack: submit to all Running
    m3  1,000 gangs of 1-8 (seed 42), preferred rack, each ends 5 s after it runs: submit to last Complete
    m4  racks with 19, 10 and 10 free hosts, a gang of 20: which hosts it gets, for three choices of names
    m5  a gang of 20 loses the node object under one pod: deletion to all 20 Running; m5b a second loss after that

Every pod asks 8 devices and 32 CPUs, so one per host. ``PEER=<folder>`` runs the peer's harness first, on the same
binaries and stages, and prints ratios ours/peer. ``REPS`` repeats (default 3; m3 by ``REPS_M3``, default 1); arguments
choose measurements, as in ``m1 m4``. ``ROUNDS`` does all of it so many times (default 1), the peer and Berth in turn:
a shared machine may be nearly twice as fast at one hour as at another, and a round's two halves are minutes apart. The
machine's cores are shared with the API server, so writes are counted too.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness, manifests, peer, peer_binaries, usage, writes
from benchmarks.harness import SMALL, Bench, BenchmarkProblem, emit, progress
from benchmarks.manifests import bound_pod, fleet, training_job
from benchmarks.recorder import PodLine, last
from berth.devcluster.components import Features

Row = dict[str, Any]

HOSTS = 640
LARGE, MANY, MIXED = (64, 10, 40) if SMALL else (512, 100, 1000)
RUN_SECONDS = 5.0
FREE_RACKS = ((0, 1, 2), (5, 2, 8), (9, 7, 3))
LEASE_SECONDS = 120
FEATURES = Features(qps=500, burst=1000)
NATIVE = Features(qps=500, burst=1000, native_gangs=True)


def m1(bench: Bench, rep: int) -> Row:
    """One large gang."""
    name = f"m1-{rep}"
    with bench.meter() as meter:
        began = bench.submit([training_job(name, LARGE, preferred="rack")])
        bench.until(f"{LARGE} pods Running", lambda: _running(bench, {name}) >= LARGE, 180)
    pods = bench.recorder.pods({name})
    return {
        "s": _since(began, [pod.running for pod in pods]),
        "created_s": _since(began, [pod.created for pod in pods]),
        "bound_s": _since(began, [pod.bound for pod in pods]),
        "racks": len({_rack(pod.node) for pod in pods}),
        **_cost(bench, meter, len(pods), 1),
    }


def m2(bench: Bench, rep: int) -> Row:
    """Many small gangs at once, each inside one rack."""
    names = [f"m2-{rep}-{i}" for i in range(MANY)]
    with bench.meter() as meter:
        began = bench.submit([training_job(name, 5, required="rack") for name in names])
        bench.until(f"{MANY * 5} pods Running", lambda: _running(bench, set(names)) >= MANY * 5, 180)
    by_gang = [bench.recorder.pods({name}) for name in names]
    whole = [_since(began, [pod.running for pod in pods]) for pods in by_gang]
    return {
        "s": max(whole),
        "median_gang_s": round(statistics.median(whole), 3),
        "gangs_over_racks": sum(len({_rack(pod.node) for pod in pods}) > 1 for pods in by_gang),
        **_cost(bench, meter, MANY * 5, MANY),
    }


def m3(bench: Bench, rep: int) -> Row:
    """More gangs than fit, each short: throughput."""
    rng = random.Random(42)
    sizes = [rng.randint(1, 8) for _ in range(MIXED)]
    jobs = [
        training_job(f"m3-{rep}-{i}", size, preferred="rack", run_seconds=RUN_SECONDS) for i, size in enumerate(sizes)
    ]
    with bench.meter() as meter:
        began = bench.submit(jobs)
        submitted = time.monotonic() - began
        bench.until(f"{MIXED} jobs Complete", lambda: bench.recorder.finished() >= MIXED, 420, step=0.2)
    makespan = _since(began, [line.complete for line in bench.recorder.jobs().values()])
    ran = sum((pod.ended or 0) - (pod.running or 0) for pod in bench.recorder.pods() if pod.succeeded)
    return {
        "s": makespan,
        "pods": sum(sizes),
        "submit_s": round(submitted, 2),
        "gangs_per_s": round(MIXED / makespan, 2),
        "utilisation": round(ran / HOSTS / makespan, 3),
        "operator_cpu_s": meter.cpu["operator"],
        **_cost(bench, meter, sum(sizes), MIXED),
    }


def m4(bench: Bench, rep: int) -> Row:
    """Three racks with room, of which the best choice breaks none."""
    large, *small = FREE_RACKS[rep % len(FREE_RACKS)]
    free = {large: 19} | dict.fromkeys(small, 10)
    _fill(bench, free)
    name = f"m4-{rep}"
    began = bench.submit([training_job(name, 20, preferred="rack")])
    bench.until("20 pods Running", lambda: _running(bench, {name}) >= 20, 60)
    pods = bench.recorder.pods({name})
    used = Counter(_rack(pod.node) for pod in pods)
    return {
        "free": {f"r{rack}": hosts for rack, hosts in free.items()},
        "used": {f"r{rack}": hosts for rack, hosts in sorted(used.items())},
        "s": _since(began, [pod.running for pod in pods]),
    }


def m5(bench: Bench, rep: int) -> Row:
    """Two node losses under one gang, the second 5 s after it is whole again."""
    name = f"m5-{rep}"
    bench.submit([training_job(name, 20, preferred="rack")])
    bench.until("20 pods Running", lambda: _running(bench, {name}) >= 20, 60)
    time.sleep(5)
    dead: list[str] = []
    first = _lose(bench, name, dead, 4 + 2 * rep)
    time.sleep(5)
    second = _lose(bench, name, dead, 5 + 2 * rep)
    for node in [node for node in fleet(HOSTS).nodes if node["metadata"]["name"] in dead]:
        bench.api.post("/api/v1/nodes", node)
    return {"s": first["s"], "b_s": second["s"], "first": first, "second": second}


def _lose(bench: Bench, name: str, dead: list[str], pick: int) -> Row:
    before = {pod.name: pod for pod in bench.recorder.pods({name}) if pod.alive}
    victim = before[sorted(before)[pick % len(before)]]
    began = time.monotonic()
    bench.api.delete(f"/api/v1/nodes/{victim.node}")
    dead.append(victim.node)

    def whole() -> list[PodLine]:
        pods = [pod for pod in bench.recorder.pods({name}) if pod.alive and pod.node not in dead]
        return pods if len(pods) >= 20 and len({pod.attempt for pod in pods}) == 1 else []

    bench.until("20 pods Running on live nodes", lambda: bool(whole()), 120)
    pods = whole()
    fresh = [pod for pod in pods if pod.name not in before]
    old = [pod for pod in before.values() if pod.name != victim.name]
    return {
        "s": _since(began, [pod.running for pod in pods]),
        "victim_gone_s": _since(began, [victim.deleted]) if victim.deleted else None,
        "pods_replaced": len(fresh),
        "survivors_restarted": sum(not pod.alive for pod in old),
        "same_rack": {_rack(pod.node) for pod in pods} == {_rack(victim.node)},
    }


def _fill(bench: Bench, free: Mapping[int, int]) -> None:
    """Occupy every host but ``free[rack]`` of each rack there."""
    per_rack = manifests.NODES_PER_RACK
    names = [node["metadata"]["name"] for node in fleet(HOSTS).nodes]
    busy = [name for i, name in enumerate(names) if i % per_rack >= free.get(i // per_rack, 0)]
    requests = {"cpu": "32", manifests.GPU: "8"}
    harness.each(
        lambda name: bench.api.post(harness.PODS_IN_NAMESPACE, bound_pod(f"fill-{name}", name, requests)), busy
    )
    bench.until("the filling pods Running", lambda: _running(bench, {"fill"}) >= len(busy), 120)
    time.sleep(2)


def _running(bench: Bench, gangs: set[str]) -> int:
    return sum(pod.running is not None for pod in bench.recorder.pods(gangs))


def _since(began: float, times: Sequence[float | None]) -> float:
    latest = last(times)
    if latest is None:
        raise BenchmarkProblem("an event that must have happened was not seen")
    return round(latest - began, 3)


def _rack(node: str) -> int:
    return int(node[1:]) // manifests.NODES_PER_RACK


def _cost(bench: Bench, meter: usage.Meter, pods: int, gangs: int) -> Row:
    counts = bench.settled_writes()
    return {
        **writes.expected_of_gangs(counts, pods, gangs),
        "writes": {str(write): n for write, n in sorted(counts.items(), key=str)},
        "cpu_s": meter.cpu,
        "foreign_cores": meter.foreign_cores,
    }


MEASUREMENTS: Mapping[str, Callable[[Bench, int], Row]] = {"m1": m1, "m2": m2, "m4": m4, "m5": m5, "m3": m3}
"""In the order they are taken; the one that leaves most behind comes last."""


def measure(bench: Bench, todo: Sequence[str], reps: Mapping[str, int]) -> dict[str, list[Row]]:
    """Every measurement in ``todo`` the number of times that ``reps`` says, the cluster emptied after each."""
    rows: dict[str, list[Row]] = {}
    for name in todo:
        for rep in range(reps[name]):
            row = MEASUREMENTS[name](bench, rep)
            progress(
                f"{name} {rep}: { ({key: value for key, value in row.items() if key not in ('writes', 'cpu_s')}) }"
            )
            rows.setdefault(name, []).append(row)
            if (name, rep) != (todo[-1], reps[name] - 1):
                bench.clean()
    return rows


def summary(rows: Mapping[str, Sequence[Row]], native: Sequence[Row], peak_mib: float) -> dict[str, Any]:
    """The figures by the names under which they are compared over time; ``None`` where nothing was measured."""

    def median(of: Sequence[Row], key: str = "s") -> float | None:
        return round(statistics.median(row[key] for row in of), 3) if of else None

    def worst(key: str) -> float | None:
        return max((row[key] for name in ("m1", "m2", "m3") for row in rows.get(name, ())), default=None)

    return {
        "m1_s": median(rows.get("m1", ())),
        "m2_s": median(rows.get("m2", ())),
        "m3_s": median(rows.get("m3", ())),
        "m4_splits": [row["used"] for row in rows.get("m4", ())],
        "m5_s": median(rows.get("m5", ())),
        "m5b_s": median(rows.get("m5", ()), "b_s"),
        "m1_native_s": median(native),
        "creates_per_pod": worst("creates_per_pod"),
        "patches_per_pod": worst("patches_per_pod"),
        "other_writes_per_gang": worst("other_writes_per_gang"),
        "operator_cpu_s_m3": median(rows.get("m3", ()), "operator_cpu_s"),
        "peak_mib": round(peak_mib, 1),
    }


def measure_peer(folder: Path, todo: Sequence[str], reps: Mapping[str, int]) -> dict[str, list[peer.Row]]:
    """The same measurements by the peer's own harness; m3 in a call of its own, since it repeats less often."""
    harness.end_cleanly()
    binaries, source = peer_binaries.ensure(progress)
    rows: dict[str, list[peer.Row]] = {}
    for names, count in (([n for n in todo if n != "m3"], reps["m1"]), ([n for n in todo if n == "m3"], reps["m3"])):
        if names:
            progress(f"peer: {' '.join(names)}, {count} times")
            rows |= peer.run(folder, binaries=binaries, source=source, todo=names, reps=count, progress=progress)
    return rows


def merge(into: dict[str, list[Any]], rows: Mapping[str, Sequence[Any]]) -> None:
    """Append the rows of each measurement."""
    for name, found in rows.items():
        into.setdefault(name, []).extend(found)


def combined(promises: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the invariants found on all clusters."""
    return {
        "violations": [violation for found in promises for violation in found["violations"]],
        "longest_partial_s": max(found["longest_partial_s"] for found in promises),
        "unjudged": sum(found["unjudged"] for found in promises),
    }


def main() -> None:
    """Measure, and print the result."""
    todo = [name for name in MEASUREMENTS if name in sys.argv[1:] or len(sys.argv) == 1]
    count = int(os.environ.get("REPS", "1" if SMALL else "3"))
    reps = dict.fromkeys(MEASUREMENTS, count) | {
        "m3": int(os.environ.get("REPS_M3", "1")),
        "m4": 1 if SMALL else len(FREE_RACKS),
    }
    folder = os.environ.get("PEER")
    rows: dict[str, list[Row]] = {}
    theirs: dict[str, list[peer.Row]] = {}
    promises: list[dict[str, Any]] = []
    peak = 0.0
    for _ in range(int(os.environ.get("ROUNDS", "1"))):
        if folder:
            merge(theirs, measure_peer(Path(folder), todo, reps))
        with Bench("bench-gang", fleet(HOSTS), features=FEATURES, lease_seconds=LEASE_SECONDS) as bench:
            merge(rows, measure(bench, todo, reps))
            peak = max(peak, usage.of(bench.operator.pid).peak_mib)
            promises.append(bench.promises())
    native: list[Row] = []
    if "m1" in todo:
        with Bench("bench-gang-native", fleet(HOSTS), features=NATIVE, lease_seconds=LEASE_SECONDS) as bench:
            native = measure(bench, ["m1"], {"m1": 1})["m1"]
            promises.append(bench.promises())
    ours = summary(rows, native, peak)
    compared = {name: ours[f"{name}_s"] for name in peer.FIGURES if ours[f"{name}_s"] is not None}
    emit(
        {
            **ours,
            "ratios": peer.ratios(compared, peer.figures(theirs)),
            "peer": peer.figures(theirs),
            "promises": combined(promises),
            "detail": rows | {"m1_native": native},
            "peer_detail": peer.details(theirs),
        }
    )
    sys.exit(any(found["violations"] for found in promises))


if __name__ == "__main__":
    main()
