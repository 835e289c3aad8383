"""What a long queue costs: one pass of the scheduling loop over 2,000 waiting gangs on a mixed fleet of 10,000 hosts.

All pools but one are full; hosts of that one stay free because nobody who waits may use them, so no pass can end early.
Between passes one host comes free and is taken again. Beside the operator's pass, which remembers refusals and searches
only so often, runs one that judges every gang anew, on the same fleet and the same queue.

Reports progress on stderr and one JSON object as the last line on stdout. ``SCALE=small``: a smoke run.
"""

from __future__ import annotations

import gc
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from berth.catalogue.load import load
from berth.controllers.scheduler import PLACEMENTS_PER_PASS, searches_per_pass
from berth.fleet.arrays import Bools
from berth.fleet.fleet import Fleet
from berth.fleet.records import Claim, Level, NodeFacts, PoolSpec, gang_key
from berth.training.placement import place, usable_rows
from berth.training.queue import Waiting, order, schedule
from berth.training.records import GangRequest, Placement, Refusal
from berth.training.refusals import Refusals
from berth.values import CPU, MEMORY, PODS, Requirement

SMALL = os.environ.get("SCALE") == "small"
SEED = 20260801
HOSTS, JOBS, PASSES, PLAIN_PASSES = (640, 200, 20, 3) if SMALL else (10_000, 2_000, 200, 5)
BUSY, FREE = ("H100", "H200", "A100", "GB200"), "L40S"
POOL, RACK, BLOCK = "example.com/pool", "topology.berth.dev/rack", "topology.berth.dev/block"
LEVELS = (Level("block", BLOCK), Level("rack", RACK), Level("host", "kubernetes.io/hostname"))
GPU, GIB = "nvidia.com/gpu", 1 << 30


def plain_pass(
    fleet: Fleet, waiting: Sequence[Waiting], claims: Callable[[Waiting, Placement], Iterable[Claim]]
) -> list[tuple[str, Placement | Refusal]]:
    """One pass that remembers nothing and has no bound: by job in the queue's order what is decided of it."""
    held: dict[str, Bools] = {}
    decided: list[tuple[str, Placement | Refusal]] = []
    for job in waiting:
        outcome = place(fleet, job.request, held=held or None)
        decided.append((job.uid, outcome))
        if isinstance(outcome, Placement):
            fleet.claim(claims(job, outcome))
        elif outcome.reason == "NoCapacity":
            for pool, mask in usable_rows(fleet, job.request).items():
                held[pool] = held[pool] | mask if pool in held else mask
    return decided


def make_fleet() -> tuple[Fleet, list[str]]:
    """The fleet, and by key the claims that fill whole hosts of its busy pools."""
    fleet = Fleet(load())
    kinds = (*BUSY, FREE)
    fleet.set_pools(
        PoolSpec(kind.lower(), (Requirement(POOL, "In", (kind,)),), kind, ("Training",), LEVELS) for kind in kinds
    )
    room = {CPU: 192_000, MEMORY: 2048 * GIB, PODS: 110, GPU: 8}
    for number in range(HOSTS):
        labels = {POOL: kinds[number % len(kinds)], RACK: f"rack-{number // 160}", BLOCK: f"block-{number // 1600}"}
        labels["kubernetes.io/hostname"] = f"host-{number}"
        fleet.set_node(NodeFacts(f"host-{number}", f"uid-{number}", labels, room))
    full = {f"full-{number}": number for number in range(HOSTS) if kinds[number % len(kinds)] != FREE}
    fleet.claim(_full(key, f"host-{number}") for key, number in full.items())
    return fleet, list(full)


def _full(key: str, node: str) -> Claim:
    return Claim(key, node, {GPU: 8, CPU: 96_000, MEMORY: 1024 * GIB}, "ns/running", "Training")


def make_queue(distinct: int, rng: random.Random) -> list[Waiting]:
    """The queue; its gangs ask for about ``distinct`` different things, none of them for the free accelerators."""
    shapes = [
        GangRequest(
            workers=rng.choice((2, 4, 8, 16, 64)),
            accelerators_per_worker=rng.choice((4, 8)),
            per_worker={CPU: rng.randrange(8_000, 96_000), MEMORY: 64 * GIB},
            types=tuple(rng.sample(BUSY, rng.choice((1, 1, 2)))),
            preferred_level=rng.choice((None, "rack", "block")),
        )
        for _ in range(distinct)
    ]
    return order(
        Waiting(f"ns/job-{number}", f"job-{number}", 1, rng.choice(shapes), rng.choice((0, 0, 10)), float(number))
        for number in range(JOBS)
    )


def claims(job: Waiting, placement: Placement) -> list[Claim]:
    """What a placed gang holds."""
    amounts = {GPU: job.request.accelerators_per_worker, **job.request.per_worker}
    return [
        Claim(gang_key(job.uid, job.attempt, rank), node, amounts, job.key, "Training")
        for rank, node in enumerate(placement.nodes)
    ]


def measure(distinct: int) -> dict[str, object]:
    """Passes over one queue, in milliseconds of processor time, which a busy machine changes little."""
    rng = random.Random(SEED)
    fleet, full = make_fleet()
    queue, memory, tries = make_queue(distinct, rng), Refusals(), searches_per_pass(fleet)
    plain, ours, until_done = list[float](), list[float](), list[int]()
    gc.collect()
    gc.freeze()  # as the operator does when its caches are full
    for number in range(PASSES):
        key = rng.choice(full)
        back = fleet.release([key])
        if number < PLAIN_PASSES:
            with fleet.trial():
                began = time.process_time()
                decided = plain_pass(fleet, queue, claims)
                plain.append((time.process_time() - began) * 1e3)
            assert all(isinstance(outcome, Refusal) for _, outcome in decided)
        complete, passes = False, 0
        while not complete:
            began = time.process_time()
            result = schedule(fleet, queue, claims, refusals=memory, most=PLACEMENTS_PER_PASS, tries=tries)
            ours.append((time.process_time() - began) * 1e3)
            complete, passes = result.complete, passes + 1
        assert len(result.verdicts) == JOBS
        until_done.append(passes)
        back()
    gc.unfreeze()
    return {
        "plain_median_ms": round(float(np.median(plain)), 1),
        "pass_median_ms": round(float(np.median(ours)), 2),
        "pass_p99_ms": round(float(np.percentile(ours, 99)), 2),
        "pass_longest_ms": round(max(ours), 2),
        "passes_until_complete": round(float(np.mean(until_done)), 2),
        "ratio_p99": round(float(np.percentile(ours, 99) / np.median(plain)), 4),
    }


def main() -> None:
    """Measure queues of few and of many different requests and print the result."""
    result = {}
    for distinct in (40, JOBS):
        print(f"{JOBS} jobs waiting, {distinct} different requests", file=sys.stderr, flush=True)
        result[f"{distinct}_requests"] = measure(distinct)
    print(json.dumps({"hosts": HOSTS, "jobs": JOBS, **result}), flush=True)


if __name__ == "__main__":
    main()
