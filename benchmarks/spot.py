"""What our choice between spot and on demand costs and leaves unserved, on traces of spot capacity.

A constant demand of 10 replicas, and one that swings daily between 4 and 16; a replica on demand costs 1, on spot 0.3,
and starts in 180 s; reclaims with a notice of 2 min and with none. Every policy, and the clairvoyant that knows all
reclaims, keeps one replica on demand and has at most 34 % of all in one zone's spot; again without both rules, as
SkyServe is meant to be run. Policies know the demand one cold start ahead, so all that is measured is what reclaims do.

``TRACES=<folder>`` (else a seeded stand-in), ``SCALE=small`` for a smoke run. Progress on stderr; on stdout a table and
one JSON object as the last line.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import numpy as np

from benchmarks import spot_traces
from benchmarks.spot_policies import clairvoyant
from benchmarks.spot_policies.base import Outcome, Policy, Rules, World, simulate
from benchmarks.spot_policies.ours import Ours
from benchmarks.spot_policies.simple import OnDemandOnly, SpotOnly
from benchmarks.spot_policies.skyserve import SkyServe
from benchmarks.spot_traces import STEP_SECONDS, Group, Ints
from berth.values import ConfigProblem

PROMISE: Final = 0.001
"""Share of the work that reclaims may leave unserved, beyond what on demand alone leaves."""
MEAN, SWING = 10, 6
SKYSERVE: Final = tuple((base, over) for base in (0.0, 0.3, 0.6, 1.0) for over in (0, 1, 2, 4))
SMALL_STEPS: Final = round(86400 / STEP_SECONDS)
RULES: Final = {"rules": Rules(), "free": Rules(floor=0, max_zone_loss=1.0)}

_BEGAN = time.monotonic()


@dataclass(frozen=True, slots=True)
class Case:
    """One group of zones, one demand, one set of rules. Outcomes by policy, and ours by notice in minutes."""

    group: str
    zones: int
    demand: str
    rules: str
    bound: float
    on_demand: Outcome
    spot: Outcome
    skyserve: dict[str, Outcome]
    ours: dict[str, Outcome]

    def rival(self, ours: Outcome) -> Outcome:
        """SkyServe's cheapest setting that leaves no more unserved than allowed, or than ours where that is more."""
        allowed = max(self.on_demand.unserved + PROMISE, ours.unserved)
        kept = [outcome for outcome in self.skyserve.values() if outcome.unserved <= allowed]
        return min(kept or self.skyserve.values(), key=lambda outcome: outcome.cost)


def main() -> int:
    """Run the benchmark; 2 when there is nothing to run it on."""
    small, folder = os.environ.get("SCALE") == "small", os.environ.get("TRACES", "")
    try:
        found = spot_traces.read_folder(Path(folder)) if folder else None
    except ConfigProblem as problem:
        print(f"bench-spot: {problem}", file=sys.stderr)
        return 2
    groups = list(found.groups) if found is not None else spot_traces.generate()
    source = folder or "the seeded stand-in (no TRACES given)"
    problems = list(found.problems) if found is not None else []
    for left_out in problems:
        progress(f"left out: {left_out}")
    if small:
        groups = [Group(each.name, each.zones, each.nodes[:, :SMALL_STEPS]) for each in groups[:2]]
    progress(f"{len(groups)} groups of zones from {source}")
    cases = sorted(_measure(groups), key=lambda case: (case.rules != "rules", case.group, case.demand))
    for line in _table(cases):
        print(line)
    details = {"traces": source, "left_out": problems, "small": small, "seconds": round(time.monotonic() - _BEGAN, 1)}
    print(json.dumps({**summary(cases, "rules"), "without_rules": summary(cases, "free"), "details": details}))
    return 0


def progress(text: str) -> None:
    """Say what is happening."""
    print(f"[{time.monotonic() - _BEGAN:6.1f} s] {text}", file=sys.stderr, flush=True)


def demands(steps: int) -> dict[str, Ints]:
    """Replicas demanded by step: always the same, and once up and down in a day."""
    phase = 2 * math.pi * np.arange(steps) * STEP_SECONDS / 86400
    swing: Ints = np.ceil(MEAN - SWING * np.cos(phase) - 1e-9).astype(np.int64)
    return {"constant": np.full(steps, MEAN, dtype=np.int64), "swing": swing}


def measure(group: Group, demand: str, rules: str) -> Case:
    """Everything about one case."""
    load, kept, world = demands(group.nodes.shape[1])[demand], RULES[rules], World.of(group)

    def run(policy: Policy, *, notice: bool = False) -> Outcome:
        return simulate(policy, world, load, kept, notice=notice)

    rivals = [SkyServe(base, over) for base, over in SKYSERVE]
    return Case(
        group.name,
        len(group.zones),
        demand,
        rules,
        clairvoyant.cheapest(group, load, kept),
        run(OnDemandOnly()),
        run(SpotOnly()),
        {rival.name: run(rival) for rival in rivals},
        {"none": run(Ours(PROMISE)), "2 min": run(Ours(PROMISE), notice=True)},
    )


def _measure(groups: Sequence[Group]) -> Iterable[Case]:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    jobs = [(group, demand, rules) for group in groups for demand in ("constant", "swing") for rules in RULES]
    jobs.sort(key=lambda job: -job[0].nodes.size)
    workers = min(len(os.sched_getaffinity(0)), len(jobs))
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = [pool.submit(measure, *job) for job in jobs]
        for done, future in enumerate(as_completed(futures), start=1):
            case = future.result()
            progress(f"{done}/{len(jobs)} {case.group} {case.demand} {case.rules}")
            yield case


def summary(cases: Sequence[Case], rules: str) -> dict[str, Any]:
    """The figures of the cases with ``rules``: geometric means of costs over another's, unserved as means."""
    mine = [(case, ours) for case in cases if case.rules == rules for ours in case.ours.values()]
    extra = [ours.unserved - case.on_demand.unserved for case, ours in mine]
    return {
        "cost_over_clairvoyant": _geomean(ours.cost / case.bound for case, ours in mine),
        "cost_over_skyserve": _geomean(ours.cost / case.rival(ours).cost for case, ours in mine),
        "cost_over_on_demand": _geomean(ours.cost / case.on_demand.cost for case, ours in mine),
        "unserved_extra": round(fmean(extra), 6),
        "unserved_extra_worst": round(max(extra), 6),
        "baselines": _baselines([case for case in cases if case.rules == rules]),
    }


def _baselines(cases: Sequence[Case]) -> list[dict[str, Any]]:
    named = {"on-demand-only": [case.on_demand for case in cases], "spot-only": [case.spot for case in cases]}
    for name in cases[0].skyserve:
        named[name] = [case.skyserve[name] for case in cases]
    for notice in cases[0].ours:
        named[f"ours, notice {notice}"] = [case.ours[notice] for case in cases]
    return [
        {
            "policy": name,
            "cost_over_clairvoyant": _geomean(each.cost / case.bound for each, case in zip(outs, cases, strict=True)),
            "unserved": round(fmean(each.unserved for each in outs), 6),
            "kept": sum(
                each.unserved <= case.on_demand.unserved + PROMISE for each, case in zip(outs, cases, strict=True)
            ),
            "of": len(outs),
        }
        for name, outs in named.items()
    ]


def _table(cases: Sequence[Case]) -> Iterable[str]:
    for rules in RULES:
        kept = RULES[rules]
        yield f"floor {kept.floor}, maxZoneLoss {kept.max_zone_loss:.0%}: cost over the clairvoyant's, unserved in %"
        yield f"{'':38}{'on demand':>12}{'all spot':>18}{'SkyServe +0':>18}{'ours, no notice':>18}{'ours, 2 min':>18}"
        for case in cases:
            if case.rules != rules:
                continue
            first = next(iter(case.skyserve.values()))
            shown = "".join(_cell(each, case.bound) for each in (case.spot, first, *case.ours.values()))
            on_demand = case.on_demand.cost / case.bound
            yield f"{case.group[:28]:28} {case.demand:9}{on_demand:>12.3f}{shown}"


def _cell(outcome: Outcome, bound: float) -> str:
    return f"{outcome.cost / bound:>10.3f} {100 * outcome.unserved:6.3f}%"


def _geomean(ratios: Iterable[float]) -> float:
    return round(math.exp(fmean(math.log(max(ratio, 1e-9)) for ratio in ratios)), 4)


if __name__ == "__main__":
    sys.exit(main())
