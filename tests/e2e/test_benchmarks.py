"""Every benchmark of gangs ends with one line that holds its figures: two smoke runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from berth.devcluster.binaries import Binaries

ROOT = Path(__file__).parents[2]
PLACEMENT = {"640", "10000", "100000", "optimal_share", "split_19_10_10"}
GANG = {
    "m1_s", "m2_s", "m3_s", "m4_splits", "m5_s", "m5b_s", "m1_native_s", "creates_per_pod", "patches_per_pod",
    "other_writes_per_gang", "operator_cpu_s_m3", "peak_mib", "ratios",
}  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "keys"),
    [(["benchmarks.placement"], PLACEMENT), (["benchmarks.gang", "m1", "m4"], GANG)],
    ids=["placement", "gang"],
)
def test_a_smoke_run_ends_with_its_figures(binaries: Binaries, arguments: list[str], keys: set[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("PEER", "REPS", "REPS_M3")}
    run = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env={**environment, "SCALE": "small"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert keys <= json.loads(run.stdout.splitlines()[-1]).keys()
