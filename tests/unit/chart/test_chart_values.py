"""What the chart lets a user say, and how it refuses what would do nothing."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
import yaml

from charts import readme
from tests.unit.chart.rendered import CHART, CRDS, ROOT, expect_refused, render

VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
ABOUT: dict[str, Any] = yaml.safe_load((CHART / "Chart.yaml").read_text())


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = SCHEMA["definitions"][name] if name else schema
    return found


def declared(schema: dict[str, Any], prefix: str = "") -> set[str]:
    """Paths that the schema describes; where it leaves the names to the user, the path of the mapping."""
    paths: set[str] = set()
    for key, value in schema["properties"].items():
        node = resolved(value)
        paths |= declared(node, f"{prefix}{key}.") if "properties" in node else {f"{prefix}{key}"}
    return paths


def leaves(node: dict[str, Any], stop: set[str], prefix: str = "") -> list[str]:
    """Paths of everything in nested mappings, going no deeper than ``stop``."""
    found = []
    for key, value in node.items():
        path = f"{prefix}{key}"
        found += leaves(value, stop, f"{path}.") if isinstance(value, dict) and path not in stop else [path]
    return found


def test_the_schema_describes_every_value_and_no_other() -> None:
    described = declared(SCHEMA) - {"global", "resources.claims"}
    assert set(leaves(VALUES, stop=described)) == described


def test_every_object_of_the_schema_refuses_unknown_names() -> None:
    def check(path: str, node: dict[str, Any]) -> None:
        if "properties" in node:
            assert node.get("additionalProperties") is False, f"{path} takes any name"
            for key, value in node["properties"].items():
                check(f"{path}.{key}", resolved(value))

    check("values", SCHEMA)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("replicas=3", "additional properties 'replicas' not allowed"),
        ("replicaCount=-1", "minimum: got -1, want 0"),
        ("image.pullpolicy=Always", "additional properties 'pullpolicy' not allowed"),
        ("image.digest=latest", "'latest' does not match pattern"),
        ("image.repository=", "minLength: got 0, want 1"),
        ("crds.enabled=true", "additional properties 'enabled' not allowed"),
        ("operator.nativeGangs=off", "/operator/nativeGangs"),
        ("operator.qps=0", "minimum: got 0, want 1"),
        ("operator.extraArgs[0]=verbose", "does not match pattern '^--'"),
        ("catalogue.overlay.prices=x", "invalid propertyName 'prices'"),
        ("prometheus.caFile=ca.crt", "/prometheus/existingSecret"),
        ("prometheus.existingSecret=monitoring", "/prometheus/url"),
        ("prometheus.custom.enabled=true", "/prometheus/url"),
        ("serviceAccount.create=false", "/serviceAccount/name"),
        ("priorityClasses.training.value=2000000000", "maximum"),
        ("priorityClasses.training.preemptionPolicy=Always", "'preemptionPolicy' not allowed"),
        ("prefetch.concurrent=0", "minimum: got 0, want 1"),
        ("podDisruptionBudget.maxUnavailable=0", "/podDisruptionBudget/maxUnavailable"),
        ("networkPolicy.egress.apiServerPorts[0]=https", "got string, want integer"),
        ("metrics.port=70000", "maximum: got 70,000, want 65,535"),
        ("topologySpread.whenUnsatisfiable=Never", "/topologySpread/whenUnsatisfiable"),
    ],
)
def test_a_value_that_would_do_nothing_is_refused(setting: str, message: str) -> None:
    expect_refused(setting, message)


@pytest.mark.parametrize(
    "setting",
    ["podDisruptionBudget.maxUnavailable=50%", "replicaCount=0", "global.anything=1", "resources.limits.cpu=2"],
)
def test_a_value_that_means_something_is_taken(setting: str) -> None:
    assert render(setting)


def test_the_readme_tells_every_value_as_values_yaml_does() -> None:
    assert readme.main([str(CHART), "--check"]) == 0


def test_a_value_without_a_comment_is_an_error_that_names_it() -> None:
    with pytest.raises(ValueError, match=r"values.yaml:3: image.tag has no comment"):
        list(readme.values("image:\n  # The tag.\n  tag: ''\n"))


def test_chart_application_and_package_have_one_version() -> None:
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert (ABOUT["version"], ABOUT["appVersion"]) == (package, package)
    images = yaml.safe_load(ABOUT["annotations"]["artifacthub.io/images"])
    assert images == [{"name": "berth", "image": f"{VALUES['image']['repository']}:{package}"}]


def test_the_annotated_definitions_are_those_of_the_chart() -> None:
    annotated = yaml.safe_load(ABOUT["annotations"]["artifacthub.io/crds"])
    shipped = [yaml.safe_load(path.read_text()) for path in CRDS.glob("*.yaml")]
    assert {(crd["name"], crd["kind"], crd["version"]) for crd in annotated} == {
        (crd["metadata"]["name"], crd["spec"]["names"]["kind"], version["name"])
        for crd in shipped
        for version in crd["spec"]["versions"]
    }
