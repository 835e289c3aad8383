"""One pool for training and serving that knows no roles, against separate pools: the same jobs, the same services.

Shared: H100 nodes of eight. Every service has the replicas of its peak, for ever; whatever comes takes the first nodes
with free devices; gangs wait in order. Separated: gangs have H100 nodes to themselves, services have the inference
hardware of the catalogue and the operator's plan, hour by hour. Both training sides have the fewest nodes with which
all gangs are done at the same time, so that what differs is what it takes and not what is done.

A gang of whole nodes needs whole nodes; small jobs, one device and up, need them on one node. Nothing else is assumed
of mixing: no slower steps, no noisy neighbours.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from berth.catalogue.records import Catalogue
from berth.catalogue.sizing import ServedModel
from berth.inference.candidates import Candidates, candidates
from berth.inference.capacity import Promise
from berth.inference.mix import cheapest_mix
from berth.inference.records import MixBounds
from berth.inference.request import ServiceRequest
from berth.inference.supply import Place, Supply

NODE: Final = 8
SWING: Final = 10.0
SERVICES: Final = 12
GANGS_A_DAY: Final = 14
SMALL_A_DAY: Final = 60
MOST_NODES: Final = 400
SLACK: Final = 1.1
COLD_HOURS: Final = 0.05
_BASE: Final = "H100"
_SLO: Final = Promise(99, ttft=0.5, itl=0.05)
_MODELS: Final = (
    ServedModel(7 * 10**9, 16, 524_288, 4_096),
    ServedModel(13 * 10**9, 16, 819_200, 4_096),
    ServedModel(70 * 10**9, 16, 327_680, 4_096),
)


@dataclass(frozen=True, slots=True)
class Job:
    """``devices`` for ``hours`` from ``arrival`` (hours); whole nodes from eight devices on. Services never end."""

    arrival: float
    devices: int
    hours: float


@dataclass(frozen=True, slots=True)
class Service:
    """Demand by hour, in requests/s, and what each fleet may use."""

    demand: np.ndarray
    base: Candidates
    full: Candidates


def shared_over_separated(catalogue: Catalogue, days: int, seed: int = 5) -> dict[str, Any]:
    """Ratios of cost and utilisation, shared over separated, and what they come from."""
    rng = np.random.default_rng(seed)
    jobs = _jobs(rng, days)
    services = [_service(catalogue, rng, days) for _ in range(SERVICES)]
    standing = [job for service in services for job in _peak_jobs(service, rng, days)]
    horizon = SLACK * max(_finish(jobs, MOST_NODES) or 0.0, days * 24.0)
    price = float(catalogue.accelerators[_BASE].usd_per_hour or 0)
    alone, together = _fewest(jobs, horizon), _fewest([*standing, *jobs], horizon)
    trained = sum(job.devices * job.hours for job in jobs)
    base_busy = sum(_busy(service.demand, service.base) for service in services)
    used, paid_usd, paid_hours = 0.0, 0.0, 0.0
    for service in services:
        busy, usd, hours = _planned(service)
        used, paid_usd, paid_hours = used + busy, paid_usd + usd, paid_hours + hours
    serving_share = horizon / (days * 24)
    shared = {"nodes": together, "device_hours": together * NODE * horizon, "busy": trained + base_busy * serving_share}
    apart = {
        "training_nodes": alone,
        "device_hours": alone * NODE * horizon + paid_hours * serving_share,
        "busy": trained + used * serving_share,
    }
    shared["usd"] = shared["device_hours"] * price
    apart["usd"] = alone * NODE * horizon * price + paid_usd * serving_share
    for side in (shared, apart):
        side["utilisation"] = side["busy"] / side["device_hours"]
    return {
        "cost": shared["usd"] / apart["usd"],
        "utilisation": shared["utilisation"] / apart["utilisation"],
        "horizon_hours": round(horizon, 1),
        "shared": {name: round(value, 3) for name, value in shared.items()},
        "separated": {name: round(value, 3) for name, value in apart.items()},
    }


def _jobs(rng: np.random.Generator, days: int) -> list[Job]:
    """Gangs of 1 to 16 nodes for hours to days, and small jobs of 1 to 4 devices for minutes to hours."""
    gangs, small = rng.poisson(GANGS_A_DAY * days), rng.poisson(SMALL_A_DAY * days)
    found = [
        Job(float(rng.uniform(0, 24 * days)), NODE * int(2 ** rng.integers(0, 5)), float(rng.lognormal(1.6, 0.8)))
        for _ in range(gangs)
    ]
    found += [
        Job(float(rng.uniform(0, 24 * days)), int(2 ** rng.integers(0, 3)), float(rng.lognormal(0.0, 0.8)))
        for _ in range(small)
    ]
    return found


def _service(catalogue: Catalogue, rng: np.random.Generator, days: int) -> Service:
    request = ServiceRequest("bench", _MODELS[int(rng.integers(len(_MODELS)))], _SLO, own_image=True)
    base, full = (candidates(request, _pools(catalogue, base_only=only), catalogue) for only in (True, False))
    assert base.reference_capacity is not None
    peak = float(2 ** rng.uniform(-1, 4)) * base.reference_capacity.requests_per_second
    hours = np.arange(24 * days) + rng.uniform(0, 24)
    wave = 0.5 - 0.5 * np.cos(2 * np.pi * hours / 24)
    return Service(peak * (1 + (SWING - 1) * wave) / SWING * rng.uniform(0.9, 1.0, len(hours)), base, full)


def _pools(catalogue: Catalogue, *, base_only: bool) -> list[Supply]:
    return [
        Supply(name, name, ("Inference",), (Place("OnDemand", "", NODE, 1_000),))
        for name, entry in catalogue.accelerators.items()
        if (name == _BASE if base_only else "Inference" in entry.pool_roles)
        and (entry.usd_per_hour is not None or entry.price_performance_of == _BASE)
        and not entry.opt_in
    ]


def _peak_jobs(service: Service, rng: np.random.Generator, days: int) -> list[Job]:
    """One endless job per replica of the peak; a service starts some time in the first half of the days."""
    capacity = service.base.reference_capacity
    assert capacity is not None
    replicas = int(np.ceil(service.demand.max() / capacity.requests_per_second - 1e-9))
    devices = service.base.found[0].variant.devices
    start = float(rng.uniform(0, 12 * days))
    return [Job(start, devices, np.inf)] * replicas


def _busy(demand: np.ndarray, found: Candidates) -> float:
    """Device hours that ``demand`` keeps busy, in full replicas of the reference."""
    assert found.reference_capacity is not None
    devices = next(c.variant.devices for c in found.found if c.variant.accelerator == found.reference)
    return float(demand.sum()) / found.reference_capacity.requests_per_second * devices


def _planned(service: Service) -> tuple[float, float, float]:
    """Busy device hours, dollars and paid device hours of a service under the operator's plan, hour by hour."""
    unit = service.full.reference_capacity
    assert unit is not None
    offers = [entry.offer(1_000, cold_start_seconds=3600 * COLD_HOURS) for entry in service.full.found]
    variants = {offer.variant.name: offer.variant for offer in offers}
    counts: dict[str, int] = {}
    busy, usd, hours = 0.0, 0.0, 0.0
    for work in service.demand / unit.requests_per_second:
        mix = cheapest_mix(offers, MixBounds(float(work), 1, 10_000), counts)
        carried = sum(variants[name].capacity * count for name, count in mix.counts.items())
        for name, count in mix.counts.items():
            started = max(0, count - counts.get(name, 0)) if counts else 0
            paid = count + started * COLD_HOURS
            usd += paid * variants[name].usd_per_hour
            hours += paid * variants[name].devices
            busy += count * variants[name].devices * float(work) / carried
        counts = dict(mix.counts)
    return busy, usd, hours


def _fewest(jobs: list[Job], horizon: float) -> int:
    """The fewest nodes with which all jobs that end have ended by ``horizon``."""
    low, high = 1, MOST_NODES
    while low < high:
        middle = (low + high) // 2
        end = _finish(jobs, middle)
        low, high = (low, middle) if end is not None and end <= horizon else (middle + 1, high)
    return low


def _finish(jobs: list[Job], nodes: int) -> float | None:
    """When the last job that ends has ended, first come first served, first fit; ``None`` where one never starts."""
    free = np.full(nodes, NODE)
    ends: list[tuple[float, int, list[tuple[int, int]]]] = []
    now, last = 0.0, 0.0
    for number, job in enumerate(sorted(jobs, key=lambda job: job.arrival)):
        now = max(now, job.arrival)
        while ends and ends[0][0] <= now:
            _release(free, heapq.heappop(ends)[2])
        while (taken := _first_fit(free, job.devices)) is None:
            if not ends:
                return None
            now, _, given = heapq.heappop(ends)
            _release(free, given)
        for node, devices in taken:
            free[node] -= devices
        if job.hours < np.inf:
            heapq.heappush(ends, (now + job.hours, number, taken))
            last = max(last, now + job.hours)
    return last


def _release(free: np.ndarray, given: list[tuple[int, int]]) -> None:
    for node, devices in given:
        free[node] += devices


def _first_fit(free: np.ndarray, devices: int) -> list[tuple[int, int]] | None:
    if devices < NODE:
        fits = np.flatnonzero(free >= devices)
        return [(int(fits[0]), devices)] if len(fits) else None
    whole = np.flatnonzero(free == NODE)[: devices // NODE]
    return [(int(node), NODE) for node in whole] if len(whole) == devices // NODE else None
