"""What a choice of hardware is worth: serving on all that the catalogue calls inference hardware, against H100 only.

A day of demand is served at one SLO by two fleets. Each may have as many replicas as it wants of what it may use, both
are planned by the operator's own functions with the same foresight, and a start is paid from the moment it is made.
Load is the day's peak, in replicas of the H100 fleet; capacities and devices per replica follow from the catalogue's
roofline, which a simulated replica (``mix_replica``) checks request by request. The H100 fleet may besides have
replicas of any power of two of devices, whichever serves cheapest; ours has the sizes that the operator chooses. Prices
are the catalogue's: by the hour, or the list price spread over :data:`LIST_YEARS` years; what has no price of a kind
stays out, but for what the catalogue prices by parity with H100. ``mix_shared`` measures one pool for both roles
against two.

``TRACES=<folder>`` or ``TRACE=<file>`` (else a seeded stand-in), ``SCALE=small`` for a smoke run. Progress on stderr;
on stdout a table and one JSON object as the last line.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks import requests, requests_made
from benchmarks.mix_replica import kept_share
from benchmarks.mix_shared import shared_over_separated
from benchmarks.policies.base import STEP_SECONDS, Floats
from benchmarks.requests import DAY, Trace
from berth.catalogue.load import load
from berth.catalogue.records import Catalogue
from berth.catalogue.sizing import ServedModel
from berth.inference.candidates import Candidate, candidates
from berth.inference.capacity import Promise
from berth.inference.mix import cheapest_mix
from berth.inference.records import MixBounds
from berth.inference.request import ServiceRequest
from berth.inference.supply import Place, Supply
from berth.values import ConfigProblem

SLO: Final = Promise(99, ttft=0.5, itl=0.05)
MODELS: Final = {
    "7B": ServedModel(7 * 10**9, 16, 524_288, 4_096),
    "13B": ServedModel(13 * 10**9, 16, 819_200, 4_096),
    "70B": ServedModel(70 * 10**9, 16, 327_680, 4_096),
}
SIZES: Final = (1, 2, 4, 8)
LOADS: Final = (0.1, 0.3, 1.0, 3.0, 10.0)
BASE: Final = "H100"
LIST_YEARS: Final = 3
PLAN_STEPS: Final = 10
COLD_SECONDS: Final = 180.0
MOST_TRACES: Final = 4
_HOURS_A_YEAR: Final = 8_760
_BEGAN = time.monotonic()


@dataclass(frozen=True, slots=True)
class Day:
    """What a day cost: ``usd_per_million_tokens`` out, the hours of replicas by accelerator, steps not carried."""

    usd_per_million_tokens: float
    hours: dict[str, float]
    uncarried: int


def main() -> int:
    """Run the benchmark; 2 when there is nothing to run it on."""
    small = os.environ.get("SCALE") == "small"
    try:
        traces, source = _traces(os.environ.get("TRACES") or os.environ.get("TRACE") or "")
    except ConfigProblem as problem:
        print(f"bench-mix: {problem}", file=sys.stderr)
        return 2
    traces = traces[:: -(-len(traces) // (1 if small else MOST_TRACES))]
    catalogue = load()
    progress(f"{len(traces)} days from {source}")
    rows = [
        _case(catalogue, basis, model, size, traces)
        for basis in ("hourly", "list")
        for model in MODELS
        for size in (LOADS[:2] if small else LOADS)
    ]
    checks = _checks(catalogue, 200 if small else 2_000)
    progress("one pool for both roles against two")
    shared = shared_over_separated(catalogue, days=2 if small else 7)
    _print(rows, checks, shared, {"traces": [trace.name for trace in traces], "source": source, "small": small})
    return 0


def progress(text: str) -> None:
    """Say what is happening."""
    print(f"[{time.monotonic() - _BEGAN:6.1f} s] {text}", file=sys.stderr, flush=True)


def _traces(path: str) -> tuple[list[Trace], str]:
    if not path:
        return requests_made.generate(), "the seeded stand-in (no TRACES given)"
    if Path(path).is_file():
        return [requests.read(Path(path))], path
    return list(requests.read_folder(Path(path)).traces), path


def busiest_day(trace: Trace) -> Floats:
    """The day with the highest peak, its peak at 1; a shorter trace as it is."""
    whole = len(trace.load) // DAY
    days = trace.load[: whole * DAY].reshape(whole, DAY) if whole else trace.load[None, :]
    day = days[int(days.max(axis=1).argmax())]
    scaled: Floats = day / float(day.max())
    return scaled


def supplies(catalogue: Catalogue, basis: str, *, base_only: bool) -> list[Supply]:
    """A pool of every accelerator that has a price by ``basis``: the base alone, or all of the role Inference."""
    found = []
    for entry in catalogue.accelerators.values():
        price = entry.usd_per_hour
        if basis == "list":
            price = entry.list_price_usd and entry.list_price_usd / (LIST_YEARS * _HOURS_A_YEAR)
        by_parity = basis == "hourly" and entry.price_performance_of == BASE
        wanted = entry.name == BASE if base_only else "Inference" in entry.pool_roles
        if wanted and entry.resource and not entry.opt_in and (price or by_parity):
            place = Place("OnDemand", "", 8, 1_000)
            found.append(Supply(entry.name, entry.name, ("Inference",), (place,), Decimal(price) if price else None))
    return found


def fleet(
    catalogue: Catalogue,
    basis: str,
    model: str,
    *,
    base_only: bool,
    without: Sequence[str] = (),
    sizes: bool = False,
) -> tuple[Candidate, ...]:
    """What may carry ``model`` by the prices of ``basis``; with ``sizes`` also replicas of :data:`SIZES` devices."""
    request = ServiceRequest("bench", MODELS[model], SLO, own_image=True)
    pools = [pool for pool in supplies(catalogue, basis, base_only=base_only) if pool.accelerator not in without]
    found = {}
    for devices in (None, *(SIZES if sizes else ())):
        for candidate in candidates(replace(request, devices=devices), pools, catalogue).found:
            found[candidate.variant.accelerator, candidate.variant.devices] = candidate
    return tuple(found.values())


def serve(found: Sequence[Candidate], load_rps: Floats, tokens_out: float) -> Day:
    """The day at ``load_rps`` requests/s a step, planned every :data:`PLAN_STEPS` for the highest of them."""
    offers = []
    for candidate in found:
        assert candidate.capacity is not None
        name = f"{candidate.variant.accelerator}-{candidate.variant.devices}"
        variant = replace(candidate.variant, name=name, capacity=candidate.capacity.requests_per_second)
        offers.append(replace(candidate, variant=variant).offer(1_000, cold_start_seconds=COLD_SECONDS))
    variants = {offer.variant.name: offer.variant for offer in offers}
    counts: dict[str, int] = {}
    usd, uncarried, hours = 0.0, 0, dict[str, float]()
    for at in range(0, len(load_rps), PLAN_STEPS):
        window = load_rps[at : at + PLAN_STEPS]
        mix = cheapest_mix(offers, MixBounds(float(window.max()), 1, 10_000), counts)
        span = len(window) * STEP_SECONDS / 3600
        for name, count in mix.counts.items():
            started = max(0, count - counts.get(name, 0)) if counts else 0
            usd += variants[name].usd_per_hour * (count * span + started * COLD_SECONDS / 3600)
            hours[name] = hours.get(name, 0.0) + count * span
        carried = sum(variants[name].capacity * count for name, count in mix.counts.items())
        uncarried += int((window > carried * (1 + 1e-6)).sum())
        counts = dict(mix.counts)
    tokens = float(load_rps.sum()) * STEP_SECONDS * tokens_out
    return Day(usd / tokens * 1e6, hours, uncarried)


def _case(catalogue: Catalogue, basis: str, model: str, size: float, traces: Sequence[Trace]) -> dict[str, Any]:
    base = fleet(catalogue, basis, model, base_only=True, sizes=True)
    full = fleet(catalogue, basis, model, base_only=False)
    no_parity = fleet(catalogue, basis, model, base_only=False, without=_by_parity(catalogue))
    unit = base[0].capacity
    assert unit is not None
    peak, tokens = size * unit.requests_per_second, unit.tokens_per_second / unit.requests_per_second
    days = [busiest_day(trace) * peak for trace in traces]
    of_base, of_full, of_rest = (
        [serve(found, day, tokens) for day in days] if found else [] for found in (base, full, no_parity)
    )
    ratio = _geomean(
        [b.usd_per_million_tokens / a.usd_per_million_tokens for a, b in zip(of_base, of_full, strict=True)]
    )
    rest = [b.usd_per_million_tokens / a.usd_per_million_tokens for a, b in zip(of_base, of_rest, strict=False)]
    hours: dict[str, float] = {}
    for day in of_full:
        for name, spent in day.hours.items():
            hours[name] = hours.get(name, 0.0) + spent
    return {
        "basis": basis,
        "model": model,
        "load": size,
        "ratio": ratio,
        "ratio_without_parity": _geomean(rest) if rest else None,
        "h100_usd_per_million": _geomean([day.usd_per_million_tokens for day in of_base]),
        "usd_per_million": _geomean([day.usd_per_million_tokens for day in of_full]),
        "replica_hours": {name: round(spent, 1) for name, spent in sorted(hours.items())},
        "uncarried_steps": sum(day.uncarried for day in (*of_base, *of_full)),
    }


def _by_parity(catalogue: Catalogue) -> list[str]:
    return [name for name, entry in catalogue.accelerators.items() if entry.price_performance_of == BASE]


def _checks(catalogue: Catalogue, answers: int) -> list[dict[str, Any]]:
    """A simulated replica of each candidate at the rate that it is said to carry: does it keep the SLO?"""
    found = []
    for model, served in MODELS.items():
        known = {}
        for basis in ("hourly", "list"):
            for base_only in (True, False):
                for candidate in fleet(catalogue, basis, model, base_only=base_only, sizes=base_only):
                    known[candidate.variant.accelerator, candidate.variant.devices] = candidate
        for (name, _), candidate in sorted(known.items()):
            assert candidate.capacity is not None
            kept = kept_share(catalogue, name, candidate.variant.devices, served, candidate.capacity, SLO, answers)
            found.append({
                "model": model, "accelerator": name, "devices": candidate.variant.devices,
                "requests_per_second": round(candidate.capacity.requests_per_second, 3),
                "batch": candidate.capacity.batch, "utilisation": round(candidate.capacity.utilisation, 3), **kept,
            })  # fmt: skip
    progress(f"{len(found)} replicas simulated at their capacity")
    return found


def _geomean(values: Sequence[float]) -> float:
    return math.exp(float(np.mean(np.log(values)))) if values else math.nan


def _print(
    rows: list[dict[str, Any]], checks: list[dict[str, Any]], shared: dict[str, Any], about: dict[str, Any]
) -> None:
    print("prices  model  load  H100 $/M  full $/M  ratio no parity  replica hours")
    for row in rows:
        rest = row["ratio_without_parity"]
        print(
            f"{row['basis']:7} {row['model']:5} {row['load']:5} {row['h100_usd_per_million']:9.3f} "
            f"{row['usd_per_million']:9.3f} {row['ratio']:6.3f} {rest if rest is None else round(rest, 3)!s:>9}  "
            + ", ".join(f"{name} {spent}" for name, spent in row["replica_hours"].items())
        )
    small = [row["ratio"] for row in rows if row["model"] == "7B" and row["load"] <= 0.3]
    large = [row["ratio"] for row in rows if row["model"] == "70B"]
    print(json.dumps({
        "l40s_cost_ratio": round(_geomean(small), 3),
        "70b_cost_ratio": round(_geomean(large), 3),
        "shared_over_separated": {name: round(shared[name], 3) for name in ("cost", "utilisation")},
        "detail": {
            **about,
            "slo": {"percentile": SLO.percentile, "ttft": SLO.ttft, "itl": SLO.itl},
            "list_years": LIST_YEARS,
            "l40s_cost_ratio_worst": round(max(small), 3),
            "cases": [_rounded(row) for row in rows],
            "simulated_replicas": checks,
            "shared": shared,
            "seconds": round(time.monotonic() - _BEGAN, 1),
        },
    }))  # fmt: skip


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in row.items()}


if __name__ == "__main__":
    sys.exit(main())
