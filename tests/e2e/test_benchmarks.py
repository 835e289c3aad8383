"""Every benchmark ends with one line that holds its figures: smoke runs, whose figures only have to be possible."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from berth.devcluster.binaries import Binaries

ROOT = Path(__file__).parents[2]
SETTINGS = ("PEER", "REPS", "REPS_M3", "TRACE", "TRACES", "FULL")
PLACEMENT = {"640", "10000", "100000", "optimal_share", "split_19_10_10"}
GANG = {
    "m1_s", "m2_s", "m3_s", "m4_splits", "m5_s", "m5b_s", "m1_native_s", "creates_per_pod", "patches_per_pod",
    "other_writes_per_gang", "operator_cpu_s_m3", "peak_mib", "ratios",
}  # fmt: skip

Ranges = dict[str, tuple[float, float]]
"""The least and the most that a figure can be; ``a.b`` is ``b`` in ``a``."""
AUTOSCALE: Ranges = {
    "geomean_unserved_ratio_vs_best_hpa_at_equal_cost": (0.0, 5.0),
    "geomean_patterned": (0.0, 5.0),
    "worst_trace_ratio": (0.0, 20.0),
    "promise_kept": (0.0, 1.0),
    "outside_frontier": (0.0, 1.0),
    "unreachable": (0, 100),
}
SPOT: Ranges = {
    "cost_over_clairvoyant": (0.5, 3.0),
    "cost_over_skyserve": (0.3, 3.0),
    "cost_over_on_demand": (0.3, 1.5),
    "unserved_extra": (-0.5, 0.5),
}
MIX: Ranges = {
    "l40s_cost_ratio": (0.05, 2.0),
    "70b_cost_ratio": (0.05, 2.0),
    "shared_over_separated.cost": (0.2, 5.0),
    "shared_over_separated.utilisation": (0.2, 5.0),
}
SERVICES: Ranges = {
    "cpu_share": (0.0, 2.0),
    "decision_p50_ms": (0.01, 1000.0),
    "decision_p99_ms": (0.01, 1000.0),
    "busy_p99_ms": (0.01, 1000.0),
    "idle_writes": (0, 200),
    "rss_mib": (20.0, 2000.0),
    "services": (1, 100),
}


def smoke_run(*arguments: str, **settings: str) -> dict[str, Any]:
    """What the last line of ``python -m arguments`` says."""
    environment = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    run = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env={**environment, "SCALE": "small", **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


def assert_possible(found: dict[str, Any], ranges: Ranges) -> None:
    for path, (least, most) in ranges.items():
        value: Any = found
        for name in path.split("."):
            value = value[name]
        assert least <= value <= most, path


@pytest.mark.parametrize(
    ("arguments", "keys"),
    [(["benchmarks.placement"], PLACEMENT), (["benchmarks.gang", "m1", "m4"], GANG)],
    ids=["placement", "gang"],
)
def test_a_smoke_run_ends_with_its_figures(binaries: Binaries, arguments: list[str], keys: set[str]) -> None:
    assert keys <= smoke_run(*arguments).keys()


@pytest.mark.parametrize(
    ("name", "ranges", "more"),
    [("autoscale", AUTOSCALE, {"per_trace"}), ("spot", SPOT, {"baselines"}), ("mix", MIX, set[str]())],
    ids=["autoscale", "spot", "mix"],
)
def test_a_smoke_run_in_memory_ends_with_figures_that_can_be(
    tmp_path: Path, name: str, ranges: Ranges, more: set[str]
) -> None:
    found = smoke_run(f"benchmarks.{name}", OUT=str(tmp_path / "plot.svg"))
    assert_possible(found, ranges)
    assert all(found[key] for key in more)


def test_a_smoke_run_of_services_ends_with_figures_that_can_be(binaries: Binaries) -> None:
    found = smoke_run("benchmarks.services")
    assert_possible(found, SERVICES)
    assert not found["promises"]["violations"]
