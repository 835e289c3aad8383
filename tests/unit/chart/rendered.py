"""The chart as the real helm renders it, and the words in which its tests speak of the result."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from berth.devcluster import tools

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "charts" / "berth"
CRDS = ROOT / "crds"

Manifest = dict[str, Any]

EVERYTHING = (
    "metrics.serviceMonitor.enabled=true",
    "metrics.prometheusRule.enabled=true",
    "networkPolicy.egress.restrict=true",
    "catalogue.existingConfigMap=ours",
    "priorityClassName=",
    "image.digest=sha256:" + "0" * 64,
)
"""Settings under which every template of the chart writes something else than by default."""


def render(*settings: str) -> list[Manifest]:
    """Every manifest, tests of the release included, under ``--set`` for each of ``settings``."""
    return [manifest for manifest in yaml.safe_load_all(text(*settings)) if manifest]


@cache
def text(*settings: str) -> str:
    """What ``helm template`` prints."""
    result = _helm(*settings)
    assert result.returncode == 0, result.stderr
    return result.stdout


def expect_refused(setting: str, message: str) -> None:
    """helm refuses ``setting`` before it asks a cluster, and says why in the words of ``message``."""
    result = _helm(setting)
    assert result.returncode != 0, f"{setting} was accepted"
    assert message in result.stderr


@cache
def notes(*settings: str) -> str:
    """What helm tells who has installed the chart; no cluster is asked."""
    result = _helm(*settings, command=("install", "--dry-run=client"))
    assert result.returncode == 0, result.stderr
    return result.stdout.partition("\nNOTES:\n")[2]


def _helm(*settings: str, command: tuple[str, ...] = ("template",)) -> subprocess.CompletedProcess[str]:
    options = [part for setting in settings for part in ("--set", setting)]
    verb, *flags = command
    words: list[str | Path] = [tools.helm(), verb, "berth", CHART, "--namespace", "berth-system", *flags, *options]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def of_kind(manifests: Iterable[Manifest], kind: str) -> dict[str, Manifest]:
    """Name to manifest of one kind."""
    return {manifest["metadata"]["name"]: manifest for manifest in manifests if manifest["kind"] == kind}


def only(manifests: Iterable[Manifest], kind: str) -> Manifest:
    """The one manifest of its kind that helm installs, which leaves out those of ``helm test``."""
    found = [m for m in of_kind(manifests, kind).values() if "helm.sh/hook" not in m["metadata"].get("annotations", {})]
    if len(found) != 1:
        pytest.fail(f"{len(found)} of kind {kind}")
    return found[0]


def pod_specs(manifests: Iterable[Manifest]) -> dict[str, Manifest]:
    """``kind/name`` to the spec of every pod that the chart starts."""
    specs = {}
    for manifest in manifests:
        if manifest["kind"] in ("Deployment", "Pod"):
            spec = manifest["spec"]
            specs[f"{manifest['kind']}/{manifest['metadata']['name']}"] = spec.get("template", {}).get("spec", spec)
    return specs
