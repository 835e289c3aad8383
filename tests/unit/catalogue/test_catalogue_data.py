"""What the shipped data files say."""

from __future__ import annotations

import ast
import re
from decimal import Decimal
from pathlib import Path
from textwrap import dedent

import pytest

import berth
from berth.catalogue.load import load
from berth.catalogue.page import TABLES, render
from berth.catalogue.records import Accelerator

CATALOGUE = load()
ROOT = Path(__file__).parents[3]

# name, resource, GB, memory, TB/s, link GB/s, list price: figures that the articles state, the rest the makers'
ACCELERATORS = [
    ("H100", "nvidia.com/gpu", 80, "HBM3", 3.35, 900, 30000),
    ("H100-NVL", "nvidia.com/gpu", 94, "HBM3", 3.9, 600, None),
    ("H200", "nvidia.com/gpu", 141, "HBM3e", 4.8, 900, None),
    ("GB200", "nvidia.com/gpu", 186, "HBM3e", 8, 1800, None),
    ("A100", "nvidia.com/gpu", 80, "HBM2e", 2.039, 600, None),
    ("L40S", "nvidia.com/gpu", 48, "GDDR6", 0.864, 0, 15000),
    ("L4", "nvidia.com/gpu", 24, "GDDR6", 0.3, 0, 5000),
    ("MI300X", "amd.com/gpu", 192, "HBM3", 5.3, 896, None),
    ("MI210", "amd.com/gpu", 64, "HBM2e", 1.6, 300, None),
    ("Gaudi2", "habana.ai/gaudi", 96, "HBM2e", 2.45, 600, 10000),
    ("Gaudi3", "habana.ai/gaudi", 128, "HBM2e", 3.7, 1200, None),
    ("TPU-v4", "google.com/tpu", 32, "HBM2", 1.2, 0, None),
    ("Inferentia", "aws.amazon.com/neuron", 8, "DDR4", 0.05, 0, None),
    ("Inferentia2", "aws.amazon.com/neuron", 32, "HBM2e", 0.82, 192, None),
    ("CS-2", "", 40, "SRAM", 20000, 0, None),
    ("GroqLPU", "", 0.23, "SRAM", 80, 0, None),
    ("CPU", "cpu", 0, "", 0, 0, None),
]
STORES = [
    "Lustre", "GPFS", "NVMe", "NVMe-oF", "Alluxio", "JuiceFS", "MinIO", "Ceph", "SSD", "HDD", "Glacier", "Redis",
    "Ignite",
]  # fmt: skip


@pytest.mark.parametrize(("name", "resource", "memory", "kind", "bandwidth", "link", "price"), ACCELERATORS)
def test_every_accelerator_named_has_its_figures(name, resource, memory, kind, bandwidth, link, price):
    entry = CATALOGUE.accelerators[name]
    assert (entry.resource, entry.memory_bytes, entry.memory_type) == (resource, memory * 10**9, kind)
    assert entry.memory_bandwidth == pytest.approx(bandwidth * 10**12)
    assert entry.link_gbytes_per_second == link
    assert entry.list_price_usd == (None if price is None else Decimal(price))


@pytest.mark.parametrize("name", STORES)
def test_every_store_named_is_there(name):
    assert name in CATALOGUE.storage


@pytest.mark.parametrize(
    ("fabric", "rdma", "speeds"),
    [
        ("InfiniBand", True, {400, 800}),
        ("RoCE", True, {100, 400, 800}),
        ("Ethernet", False, {100, 800}),
        ("EFA", True, {100, 200}),
    ],
)
def test_every_fabric_named_has_its_generations(fabric, rdma, speeds):
    kind = CATALOGUE.fabrics[fabric]
    assert kind.rdma is rdma
    assert speeds <= {speed.gbps for speed in kind.classes}


def test_nvlink_joins_devices_but_carries_no_gang():
    nvlink = CATALOGUE.fabrics["NVLink"]
    assert (nvlink.gbytes_per_second, nvlink.between_nodes) == (900, False)


def test_infiniband_comes_before_roce_and_ethernet_last():
    order = sorted((kind.preference, kind.name) for kind in CATALOGUE.fabrics.values() if kind.between_nodes)
    assert [name for _, name in order] == ["InfiniBand", "RoCE", "EFA", "Ethernet"]


def test_parallel_file_systems_stream_100_gigabytes_a_second():
    assert [CATALOGUE.storage[name].write_bytes_per_second for name in ("Lustre", "GPFS")] == [100 * 10**9] * 2


@pytest.mark.parametrize(("mode", "stored"), [("ErasureCoding", 120), ("Replication", 300)])
def test_redundancy_costs_what_it_is_said_to(mode, stored):
    assert CATALOGUE.redundancy[mode].stored_bytes(100 * 10**12) == stored * 10**12


def test_tiers_run_from_nvme_to_glacier():
    tiers = {entry.tier: entry.name for entry in CATALOGUE.storage.values() if entry.tier is not None}
    assert [tiers[number] for number in sorted(tiers)] == ["NVMe", "SSD", "HDD", "Glacier"]
    assert CATALOGUE.storage["Glacier"].restore_seconds == 5 * 3600


@pytest.mark.parametrize(
    ("name", "price"), [("H200", "7.91"), ("H100", "6.88"), ("L40S", "1.861"), ("L4", "0.8048"), ("MI300X", None)]
)
def test_hourly_prices(name, price):
    assert CATALOGUE.accelerators[name].usd_per_hour == (None if price is None else Decimal(price))


def test_claims_about_price_are_kept_as_stated():
    inferentia, instinct = CATALOGUE.accelerators["Inferentia2"], CATALOGUE.accelerators["MI300X"]
    assert (inferentia.usd_per_million_tokens, inferentia.price_performance) == (Decimal("0.75"), Decimal("1.4"))
    assert (instinct.price_performance, instinct.price_performance_of) == (1, "H100")


@pytest.mark.parametrize(
    ("role", "names"),
    [
        ("Training", ["H100", "H200", "GB200", "A100", "A100-40GB", "TPU-v4", "TPU-v5p", "CS-2"]),
        ("Inference", ["H100-NVL", "A100-PCIe", "L40S", "L4", "MI300X", "Gaudi2", "TPU-v5e", "Inferentia2", "CPU"]),
    ],
)
def test_an_accelerator_is_discovered_for_what_it_is_bought_for(role, names):
    assert {name: CATALOGUE.accelerators[name].pool_roles for name in names} == dict.fromkeys(names, (role,))


def test_every_accelerator_that_is_discovered_has_a_role_that_it_can_fill():
    for entry in CATALOGUE.accelerators.values():
        assert set(entry.pool_roles) <= entry.roles, entry.name


@pytest.mark.parametrize("name", ["CS-2", "GroqLPU", "CPU"])
def test_what_is_unusual_is_used_only_when_named(name):
    assert CATALOGUE.accelerators[name].opt_in


def test_every_entry_has_a_source_and_a_date():
    sections = (CATALOGUE.accelerators, CATALOGUE.fabrics, CATALOGUE.storage, CATALOGUE.redundancy)
    tables = CATALOGUE.labels
    entries = [entry for section in sections for entry in section.values()]
    entries += [*tables.level_sets, *tables.capacity_type_labels, *tables.sharing_labels, *tables.fabric_evidence]
    assert all(entry.source and re.fullmatch(r"20\d\d-\d\d-\d\d", entry.as_of) for entry in entries)


def test_every_accelerator_with_a_device_plugin_can_be_identified():
    blind = [entry.name for entry in CATALOGUE.accelerators.values() if entry.resource and not entry.products]
    assert blind == ["CPU"]


def test_the_page_shows_the_data():
    page = (ROOT / "docs" / "catalogue.md").read_text(encoding="utf-8")
    assert all(f"<!-- {name} -->" in page for name in TABLES)
    assert render(page, CATALOGUE) == page, "run python -m berth.catalogue.page docs/catalogue.md"


def test_the_overlays_on_the_page_load():
    page = (ROOT / "docs" / "catalogue.md").read_text(encoding="utf-8")
    texts = [dedent(text) for text in re.findall(r"^ *```yaml\n(.*?)^ *```", page, re.DOTALL | re.MULTILINE)]
    assert len(texts) == 2
    catalogue = load([("page", text) for text in texts])
    assert catalogue.labels.capacity_type({"example.com/paid-as": "auction"}) == "Spot"
    assert "B200" in catalogue.accelerators


def _decisions(tree: ast.AST) -> list[ast.AST]:
    tests = [node.test for node in ast.walk(tree) if isinstance(node, ast.If | ast.IfExp | ast.While)]
    return [*tests, *(node for node in ast.walk(tree) if isinstance(node, ast.Compare | ast.MatchValue))]


def test_no_decision_in_the_code_names_a_product_or_a_vendor():
    def words(entry: Accelerator) -> set[str]:
        return {entry.name, entry.vendor, entry.resource} - {"", "any", "cpu", "CPU"}

    names = set().union(*map(words, CATALOGUE.accelerators.values())) | set(CATALOGUE.fabrics)
    found = [
        f"{path.name}: {leaf.value}"
        for path in Path(berth.__file__).parent.rglob("*.py")
        for node in _decisions(ast.parse(path.read_text(encoding="utf-8")))
        for leaf in ast.walk(node)
        if isinstance(leaf, ast.Constant) and leaf.value in names
    ]
    assert found == []
