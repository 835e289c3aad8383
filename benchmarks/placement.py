"""How fast and how well gangs are placed: decision and ledger update on fragmented fleets of three sizes.

Each decision is the operator's own: ``place`` on the fleet as it is, then the claims of all workers. Between decisions,
outside the measured time, gangs end and hosts change, so that no decision sees the fleet of the one before. Beside it a
best-fit greedy method decides the same questions on the same numbers.

Reports progress on stderr and one JSON object as the last line on stdout. ``SCALE=small``: a smoke run.
"""

from __future__ import annotations

import gc
import json
import os
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from benchmarks import placement_fleet, placement_greedy
from benchmarks.placement_fleet import BLOCK, GPU, LEVELS, RACK
from berth.fleet.fleet import Fleet
from berth.fleet.records import Claim, gang_key
from berth.training.candidates import candidates, tree_of, workers_now
from berth.training.placement import place
from berth.training.records import GangRequest, Placement, Refusal
from berth.values import CPU, MEMORY

SMALL = os.environ.get("SCALE") == "small"
SEED = 20260801
DECISIONS = {640: 60, 10_000: 60, 100_000: 36} if SMALL else {640: 600, 10_000: 600, 100_000: 240}
WORKERS, DEVICES = (8, 64, 512), (8, 4, 2, 1)
WISHES = {
    "preferred rack": {"preferred_level": "rack"},
    "required block, preferred rack": {"required_level": "block", "preferred_level": "rack"},
    "none": {},
}
CHANGED = 100
GIB = 1 << 30


@dataclass(slots=True)
class Tally:
    """What was measured at one size. Times in milliseconds."""

    decide: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)  # of the same, processor time: what a busy machine does not change
    greedy: list[float] = field(default_factory=list)
    update: list[float] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    domains: list[tuple[int, int]] = field(default_factory=list)  # ours and greedy's at the preferred level
    hosts: list[tuple[int, int]] = field(default_factory=list)


def progress(text: str) -> None:
    """Say what is happening."""
    print(f"[{time.monotonic() - _BEGAN:6.1f} s] {text}", file=sys.stderr, flush=True)


_BEGAN = time.monotonic()


def requests() -> list[GangRequest]:
    """Every combination of gang size, devices per worker and wish."""
    return [
        GangRequest(
            workers=workers,
            accelerators_per_worker=devices,
            per_worker={CPU: devices * 8000, MEMORY: devices * 64 * GIB},
            types=("H200",),
            required_level=wish.get("required_level"),
            preferred_level=wish.get("preferred_level"),
        )
        for workers, devices, wish in product(WORKERS, DEVICES, WISHES.values())
    ]


def measure(nodes: int, decisions: int, rng: random.Random) -> Tally:
    """Decide ``decisions`` gangs on a fleet of ``nodes`` hosts."""
    progress(f"{nodes} hosts: building")
    fleet, tally = placement_fleet.make(nodes, rng), Tally()
    mix, running = requests(), list[list[str]]()
    busy = sum(int(pool.free_devices.sum()) for pool in fleet.pools.values())
    for request in mix[:6]:  # modules that are imported at first use
        place(fleet, request)
    gc.collect()
    gc.freeze()
    for number in range(decisions):
        if number % len(mix) == 0:
            rng.shuffle(mix)
        request = mix[number % len(mix)]
        began, cpu = time.perf_counter(), time.process_time()
        outcome = place(fleet, request)
        if isinstance(outcome, Placement):
            keys = [gang_key(f"job-{number}", 1, rank) for rank in range(request.workers)]
            amounts = {GPU: request.accelerators_per_worker, **request.per_worker}
            undo = fleet.claim(
                Claim(key, node, amounts, "ns/gang", "Training") for key, node in zip(keys, outcome.nodes, strict=True)
            )
        tally.decide.append((time.perf_counter() - began) * 1e3)
        tally.cpu.append((time.process_time() - cpu) * 1e3)
        tally.outcomes[outcome.certificate if isinstance(outcome, Placement) else outcome.reason] += 1
        if isinstance(outcome, Placement):
            undo()
            _compare(fleet, request, outcome, tally)
            undo = fleet.claim(
                Claim(key, node, amounts, "ns/gang", "Training") for key, node in zip(keys, outcome.nodes, strict=True)
            )
            running.append(keys)
        _churn(fleet, running, busy, rng)
        if number % 10 == 0:
            tally.update.append(_update(fleet, min(CHANGED, nodes // 4), rng))
        if number % 100 == 99:
            progress(f"{nodes} hosts: {number + 1} decisions, median {np.median(tally.decide):.2f} ms")
    gc.unfreeze()
    return tally


def _compare(fleet: Fleet, request: GangRequest, ours: Placement, tally: Tally) -> None:
    """The same question to greedy, on the same numbers."""
    groups = candidates(fleet, request)
    assert not isinstance(groups, Refusal)
    began = time.perf_counter()
    candidate = groups[0][0]
    tree = tree_of(candidate, request, workers_now(candidate.pool, request, None))
    hosts = placement_greedy.place(tree, candidate.confine, candidate.prefer)
    tally.greedy.append((time.perf_counter() - began) * 1e3)
    if hosts is None:
        tally.outcomes["greedy found none"] += 1
        return
    levels = range(candidate.prefer, len(LEVELS))
    theirs = [len(np.unique(tree.up(tree.host, hosts, level))) for level in levels]
    our = [ours.domains[LEVELS[level].name] for level in levels]
    assert our <= theirs, f"greedy is better: {theirs} against {our}"
    tally.domains.append((our[0], theirs[0]))
    tally.hosts.append((our[-1], theirs[-1]))


def _churn(fleet: Fleet, running: list[list[str]], free_at_start: int, rng: random.Random) -> None:
    """End gangs until about as much is free as at the start."""
    while running and sum(int(pool.free_devices.sum()) for pool in fleet.pools.values()) < 0.9 * free_at_start:
        fleet.release(running.pop(rng.randrange(len(running))))


def _update(fleet: Fleet, count: int, rng: random.Random) -> float:
    """Milliseconds to take in ``count`` hosts that changed: cordoned, or open again."""
    names = rng.sample(sorted(fleet.nodes), count)
    changed = [replace(fleet.nodes[name], unschedulable=not fleet.nodes[name].unschedulable) for name in names]
    began = time.perf_counter()
    for facts in changed:
        fleet.set_node(facts)
    took = (time.perf_counter() - began) * 1e3
    for facts in changed:
        fleet.set_node(replace(facts, unschedulable=not facts.unschedulable))
    return took


def split_of_19_10_10() -> list[int]:
    """How 20 whole hosts are taken from racks with 19, 10 and 10 free ones."""
    fleet = placement_fleet.make(0, random.Random(SEED))
    number = 0
    for rack, hosts in enumerate((19, 10, 10)):
        for _ in range(hosts):
            fleet.set_node(placement_fleet.node(number, rack, 0, 0))
            number += 1
    outcome = place(fleet, GangRequest(20, 8, types=("H200",), preferred_level="rack"))
    assert isinstance(outcome, Placement)
    racks = Counter(fleet.nodes[name].labels[RACK] for name in outcome.nodes)
    assert len({fleet.nodes[name].labels[BLOCK] for name in outcome.nodes}) == 1
    return sorted(racks.values(), reverse=True)


def summary(tallies: dict[int, Tally]) -> dict[str, object]:
    """The figures, rounded."""
    result: dict[str, object] = {}
    for nodes, tally in tallies.items():
        p50, p99 = np.percentile(tally.decide, (50, 99))
        cpu = float(np.percentile(tally.cpu, 99))
        result[str(nodes)] = {
            "p50_ms": round(float(p50), 3),
            "p99_ms": round(float(p99), 3),
            "cpu_p99_ms": round(cpu, 3),
        }
    placed: Counter[str] = Counter()
    for nodes in (640, 10_000):
        placed += tallies[nodes].outcomes
    # a refusal is a proof too: capacities add up, so what does not fit is known not to
    optimal = placed["Optimal"] + placed["NoCapacity"] + placed["TooLarge"]
    decided = optimal + placed["Bounded"]
    result["optimal_share"] = round(optimal / decided, 5)
    result["split_19_10_10"] = split_of_19_10_10()
    result["update_100_nodes_ms"] = {str(n): round(float(np.median(t.update)), 3) for n, t in tallies.items()}
    result["outcomes"] = {str(nodes): dict(tally.outcomes) for nodes, tally in tallies.items()}
    result["against_greedy"] = {str(nodes): _against(tally) for nodes, tally in tallies.items()}
    return result


def _against(tally: Tally) -> dict[str, float]:
    """Ours divided by greedy's: domains at the preferred level, hosts, time; and how often greedy took more domains."""
    domains, hosts = np.array(tally.domains), np.array(tally.hosts)
    return {
        "domains": round(float(domains[:, 0].sum() / domains[:, 1].sum()), 4),
        "hosts": round(float(hosts[:, 0].sum() / hosts[:, 1].sum()), 4),
        "greedy_worse_share": round(float(np.mean((domains[:, 0] < domains[:, 1]) | (hosts[:, 0] < hosts[:, 1]))), 4),
        "median_ms_of_greedy": round(float(np.median(tally.greedy)), 3),
    }


def main() -> None:
    """Measure all sizes and print the result."""
    rng = random.Random(SEED)
    tallies = {nodes: measure(nodes, decisions, rng) for nodes, decisions in DECISIONS.items()}
    print(json.dumps(summary(tallies)), flush=True)


if __name__ == "__main__":
    main()
