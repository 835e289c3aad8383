"""The same decisions with no API server between them and the world: what a replay is measured against.

A discrete-event run over the queue and the placement that the operator itself calls, in which a decision takes effect
at once and the end of a job is known at once. Pods need the same time to start as the simulator gives them: that is
the containers' time, not the API's.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.trace import TraceJob, work
from berth.catalogue.records import Catalogue
from berth.fleet.fleet import Fleet
from berth.fleet.records import Claim, NodeFacts, gang_key
from berth.training.queue import Waiting, order, schedule
from berth.training.records import GangRequest, Placement
from berth.values import CPU, PODS, Resources

_MOST_PER_PASS = 64


@dataclass(frozen=True, slots=True)
class IdealRun:
    """Seconds from the first arrival to the last end, the wait of each job until its pods run, jobs that never ran."""

    makespan: float
    waits: tuple[float, ...]
    never: int

    def utilisation(self, jobs: Sequence[TraceJob], devices: int) -> float:
        """Useful work of ``jobs`` over what ``devices`` could have done in the makespan."""
        return work(jobs) / (devices * self.makespan)


def per_worker(cpu_millicores: int) -> Resources:
    """What one worker asks for besides its device."""
    return {CPU: cpu_millicores, PODS: 1}


def run(
    catalogue: Catalogue,
    nodes: Iterable[NodeFacts],
    jobs: Sequence[TraceJob],
    *,
    cpu_millicores: int,
    start_seconds: float,
    preferred: str | None = None,
) -> IdealRun:
    """Play ``jobs``, each of one-device workers, on empty ``nodes``."""
    fleet = Fleet(catalogue)
    for node in nodes:
        fleet.set_node(node)
    needs = per_worker(cpu_millicores)
    ahead: list[tuple[float, int, int]] = [(job.arrival, 1, index) for index, job in enumerate(jobs)]  # 0 ends, 1 comes
    heapq.heapify(ahead)
    waiting: dict[str, tuple[int, Waiting]] = {}
    waits: list[float] = []
    now = 0.0

    def claims(job: Waiting, placement: Placement) -> Iterator[Claim]:
        accelerator = fleet.pools[placement.pool].accelerator
        assert accelerator is not None
        amounts = {**needs, accelerator.resource: 1}
        for rank, name in enumerate(placement.nodes):
            yield Claim(gang_key(job.uid, job.attempt, rank), name, amounts, owner=job.key, role="Training")

    while ahead:
        now = ahead[0][0]
        while ahead and ahead[0][0] == now:
            _, kind, index = heapq.heappop(ahead)
            if kind == 0:
                fleet.release(gang_key(str(index), 1, rank) for rank in range(jobs[index].gpus))
            else:
                request = GangRequest(jobs[index].gpus, 1, per_worker=needs, preferred_level=preferred)
                job = Waiting(f"ideal/{index:06d}", str(index), 1, request, created=now)
                waiting[job.uid] = (index, job)
        while placed := [
            verdict.waiting.uid
            for verdict in schedule(
                fleet, order(job for _, job in waiting.values()), claims, most=_MOST_PER_PASS
            ).verdicts
            if isinstance(verdict.outcome, Placement)
        ]:
            for uid in placed:
                index, _ = waiting.pop(uid)
                waits.append(now + start_seconds - jobs[index].arrival)
                heapq.heappush(ahead, (now + start_seconds + jobs[index].duration, 0, index))
            if len(placed) < _MOST_PER_PASS:
                break
    return IdealRun(now, tuple(waits), len(waiting))
