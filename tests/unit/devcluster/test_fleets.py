"""Fleet files: what a page of YAML turns into, and what it is told when it is wrong."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.catalogue.load import load as load_catalogue
from berth.devcluster import fleets
from berth.devcluster.templates import TemplateProblem, evaluate, fill, span
from berth.values import ConfigProblem, parse_resources

ONE = """
parameters: {racks: 2}
machines:
  big:
    labels: {a: machine, b: machine, old: "yes"}
    allocatable: {cpu: "8", nvidia.com/gpu: "4"}
    capacity: {cpu: "9"}
    taints: [nvidia.com/gpu=present:NoSchedule]
groups:
- name: n-{rack}-{host:02d}
  machine: big
  each: {rack: "1..{racks}", host: 0..2}
  let: {number: rack * 10 + host}
  labels: {b: "rack-{rack}", n: "{number:03d}", old: null}
"""


def labels(fleet: fleets.SimulatedFleet, node: str) -> dict[str, str]:
    found: dict[str, str] = next(each["metadata"]["labels"] for each in fleet.nodes if each["metadata"]["name"] == node)
    return found


def test_a_group_makes_a_node_for_every_combination() -> None:
    names = [node["metadata"]["name"] for node in fleets.parse(ONE, "one.yaml").nodes]
    assert names == ["n-1-00", "n-1-01", "n-1-02", "n-2-00", "n-2-01", "n-2-02"]


def test_a_parameter_can_be_overridden() -> None:
    assert len(fleets.parse(ONE, "one.yaml", racks=5).nodes) == 15


def test_a_group_refines_its_machine() -> None:
    found = labels(fleets.parse(ONE, "one.yaml"), "n-2-01")
    assert found["a"] == "machine"
    assert found["b"] == "rack-2"
    assert found["n"] == "021"
    assert found["kubernetes.io/hostname"] == "n-2-01"
    assert "old" not in found


def test_capacity_is_the_allocatable_but_where_it_says_more() -> None:
    status = fleets.parse(ONE, "one.yaml").nodes[0]["status"]
    assert status["allocatable"] == {"cpu": "8", "nvidia.com/gpu": "4"}
    assert status["capacity"] == {"cpu": "9", "nvidia.com/gpu": "4"}


def test_a_node_is_born_ready_and_tainted_as_written() -> None:
    node = fleets.parse(ONE, "one.yaml").nodes[0]
    assert {"type": "Ready", "status": "True"}.items() <= node["status"]["conditions"][0].items()
    assert node["spec"]["taints"] == [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]


WRONG = [
    ("groups: [{each: {a: 1..2}}]", "f.yaml:1: groups.0: needs a name such as gpu-{rack}-{host}"),
    ("groups:\n- {name: a}\n- {name: a}", "f.yaml:3: groups.1.name: makes node 'a' a second time"),
    (
        "groups:\n- name: a\n  colour: red",
        "f.yaml:3: groups.0.colour: is unknown; allowed are allocatable, annotations, capacity, each, labels, let, "
        "machine, name, taints, unschedulable",
    ),
    ("groups:\n- name: a-{rack}", "f.yaml:2: groups.0: {rack} is not defined; there are none"),
    ("groups:\n- name: a\n  machine: big", "f.yaml:3: groups.0.machine: no machine 'big'"),
    (
        "groups:\n- name: a\n  each:\n    b: 1-3",
        "f.yaml:4: groups.0.each.b: '1-3' is neither a list nor a range such as 0..15",
    ),
    (
        "groups:\n- name: a\n  taints: [gpu]",
        "f.yaml:2: groups.0: taint 'gpu': write for example nvidia.com/gpu=present:NoSchedule",
    ),
    (
        "groups:\n- name: a\n  allocatable: {cpu: lots}",
        "f.yaml:2: groups.0: 'lots' is not a quantity; write for example 500m, 4, 16Gi or 840G",
    ),
    ("parameters: {racks: many}", "f.yaml:1: parameters.racks: must be an integer"),
    ("groups: [", "f.yaml:1: expected the node content, but found '<stream end>'"),
    ("- a", "f.yaml:1: must be a mapping"),
    ("groups: [a]", "f.yaml:1: groups.0: must be a mapping"),
    ("machines: [a]\ngroups: [{name: a, machine: b}]", "f.yaml:1: machines: must be a mapping"),
    ("groups: [{name: a, labels: [b]}]", "f.yaml:1: groups.0.labels: must be a mapping"),
    ("groups: [{name: a, taints: b}]", "f.yaml:1: groups.0.taints: must be a list"),
    ("groups: [{name: 7}]", "f.yaml:1: groups.0.name: must be a text"),
    ("groups: 7", "f.yaml:1: groups: must be a list of groups"),
]


@pytest.mark.parametrize(("text", "message"), WRONG, ids=[text for text, _ in WRONG])
def test_a_wrong_file_is_told_line_and_field(text: str, message: str) -> None:
    with pytest.raises(ConfigProblem) as problem:
        fleets.parse(text, "f.yaml")
    assert str(problem.value) == message


def test_an_unknown_parameter_is_told_which_there_are() -> None:
    with pytest.raises(ConfigProblem, match=r"flat-640.yaml: has no parameter 'rack'; it has hosts, racks$"):
        fleets.load("flat-640", rack=3)


def test_an_unknown_fleet_is_told_which_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigProblem, match="there are flat-640, mixed, serving, tiny, or give a file"):
        fleets.load("huge")
    with pytest.raises(ConfigProblem, match="cannot be read: No such file"):
        fleets.load(tmp_path / "none.yaml")


@pytest.mark.parametrize("name", fleets.names())
def test_every_node_with_devices_is_one_the_catalogue_knows(name: str) -> None:
    catalogue = load_catalogue()
    devices = {accelerator.resource for accelerator in catalogue.accelerators.values()}
    for node in fleets.load(name).nodes:
        offered = devices & parse_resources(node["status"]["allocatable"]).keys() - {"cpu"}
        known = catalogue.identify(node["metadata"]["labels"])
        assert not offered or (known is not None and known.resource in offered), node["metadata"]["name"]


def test_the_mixed_fleet_has_what_the_demo_shows() -> None:
    nodes = fleets.load("mixed").nodes
    product = Counter(node["metadata"]["labels"].get("nvidia.com/gpu.product") for node in nodes)
    assert product["NVIDIA-H200"] == 32
    assert product["NVIDIA-H100-80GB-HBM3"] == 40
    zones = {
        node["metadata"]["labels"]["topology.kubernetes.io/zone"]
        for node in nodes
        if node["metadata"]["labels"].get("nvidia.com/gpu.product") == "NVIDIA-L4"
    }
    assert len(zones) == 3


def test_the_flat_fleet_is_ten_racks_of_64() -> None:
    racks = Counter(node["metadata"]["labels"]["topology.berth.dev/rack"] for node in fleets.load("flat-640").nodes)
    assert racks == {f"r{rack}": 64 for rack in range(10)}


# -- the language of templates -----------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.integers(0, 9999), st.integers(0, 99), st.integers(1, 99))
def test_expressions_reckon_as_python_does(one: int, other: int, third: int) -> None:
    scope = {"a": one, "b": other, "c": third}
    assert evaluate("(a + b) * c - a // c % 7", scope) == (one + other) * third - one // third % 7
    assert fill("x{a * c + b:06d}y", scope) == f"x{one * third + other:06d}y"


@pytest.mark.parametrize(
    "text", ["{a.b}", "{a()}", "{a ** 9}", "{'x' * 9}", "{b + 1}", "{1 / 2}", "{1 // 0}", "{a:q}", "{__import__}"]
)
def test_nothing_else_is_let_through(text: str) -> None:
    with pytest.raises(TemplateProblem):
        fill(text, {"a": 1, "b": "text"})


def test_ranges_have_both_ends() -> None:
    assert span("2..{top + 1}", {"top": 3}) == [2, 3, 4]
    assert span(["a", 1, "{top}"], {"top": 3}) == ["a", 1, "3"]
    with pytest.raises(TemplateProblem, match="more than 100000 values"):
        span("0..1000000000", {})
