"""Overlays: what they change, and what is said about those that cannot be used."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.catalogue.load import SECTIONS, load
from berth.catalogue.overlay import LiveCatalogue, OverlayFiles
from berth.values import ConfigProblem

NEW = """\
accelerators:
  Example-X1:
    vendor: Example
    resource: example.com/accelerator
    memory: 180G
    roles: [Training]
    poolRoles: [Training]
    maturity: Early
    products: {nvidia.com/gpu.product: [EXAMPLE-X1]}
    source: datasheet
    asOf: 2026-12-01
"""


def price(amount: str) -> str:
    return f"accelerators:\n  H200:\n    usdPerHour: {amount}\n"


def expect_problem(text: str, message: str) -> None:
    with pytest.raises(ConfigProblem) as caught:
        load([("site.yaml", text)])
    assert str(caught.value) == message


def test_a_field_of_an_entry_changes_and_the_rest_stays():
    entry = load([("prices.yaml", price("3.20"))]).accelerators["H200"]
    assert (entry.usd_per_hour, entry.memory_bytes) == (Decimal("3.20"), 141 * 10**9)
    assert entry.source.endswith("; changed by prices.yaml")


def test_a_source_of_its_own_replaces_the_old_one():
    text = price("3.20") + "    source: our contract\n    asOf: 2026-11-01\n"
    entry = load([("prices.yaml", text)]).accelerators["H200"]
    assert (entry.source, entry.as_of) == ("our contract", "2026-11-01")


def test_a_later_overlay_wins():
    assert load([("a", price("3.20")), ("b", price("2.10"))]).accelerators["H200"].usd_per_hour == Decimal("2.10")


def test_an_entry_is_added():
    catalogue = load([("new.yaml", NEW)])
    found = catalogue.identify({"nvidia.com/gpu.product": "EXAMPLE-X1"})
    assert found is not None
    assert (found.name, found.memory_bytes, found.usd_per_hour) == ("Example-X1", 180 * 10**9, None)


def test_null_removes_an_entry_or_a_field():
    catalogue = load([("less.yaml", "accelerators:\n  GroqLPU: null\n  L4:\n    listPriceUsd: ~\n")])
    assert "GroqLPU" not in catalogue.accelerators
    assert catalogue.accelerators["L4"].list_price_usd is None


def test_what_an_overlay_adds_is_asked_first():
    text = """\
labels:
  levelSets:
    Ours: {levels: [{name: hall, label: example.com/hall}], source: our racks, asOf: 2026-12-01}
storage:
  Vault: {kind: ObjectStore, schemes: [s3], nodeWriteBandwidth: 2G, source: measured, asOf: 2026-12-01}
"""
    catalogue = load([("site.yaml", text)])
    assert [level.name for level in catalogue.labels.levels(["example.com/hall", "topology.berth.dev/rack"])] == [
        "hall",
        "host",
    ]
    store = catalogue.storage_of(scheme="s3")
    assert store is not None
    assert store.name == "Vault"


def test_an_empty_overlay_changes_nothing():
    assert load([("empty.yaml", ""), ("comment.yaml", "# nothing\n")]) == load()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("accelerators:\n  H200:\n    usdPerHours: 3\n",
         "site.yaml:3: accelerators.H200.usdPerHours: is not a field; did you mean usdPerHour?"),
        ("accelerator: {}\n", "site.yaml:1: accelerator: is not a section; did you mean accelerators?"),
        ("accelerators:\n  H200:\n    memory: 141 GB\n",
         "site.yaml:3: accelerators.H200.memory: '141 GB' is not a quantity; write for example 500m, 4, 16Gi or 840G"),
        ("accelerators:\n  H200:\n    memory: 0.5\n",
         "site.yaml:3: accelerators.H200.memory: '0.5' is not a whole number of bytes; write for example 80G"),
        (price("free"), "site.yaml:3: accelerators.H200.usdPerHour: 'free' is not an amount; write for example 7.91"),
        (price("-1"), "site.yaml:3: accelerators.H200.usdPerHour: '-1' is not an amount; write for example 7.91"),
        (price("NaN"), "site.yaml:3: accelerators.H200.usdPerHour: 'NaN' is not an amount; write for example 7.91"),
        ("accelerators:\n  H200:\n    roles:\n      - Training\n      - Serving\n",
         "site.yaml:5: accelerators.H200.roles[1]: 'Serving' is not one of Training, FineTuning, Inference"
         "; there are: FineTuning, Inference, Training"),
        ("accelerators:\n  L4:\n    poolRoles: [Training]\n",
         "site.yaml:3: accelerators.L4.poolRoles[0]: Training is not one of the roles"),
        ("accelerators:\n  H200:\n    maturity: early\n",
         "site.yaml:3: accelerators.H200.maturity: 'early' is not one of GenerallyAvailable, Early, Emerging, Legacy"
         "; did you mean Early?"),
        ("accelerators:\n  H200:\n    optIn: yes\n", "site.yaml:3: accelerators.H200.optIn: must be true or false"),
        ("accelerators:\n  H200:\n    asOf: yesterday\n",
         "site.yaml:3: accelerators.H200.asOf: 'yesterday' is not a date; write for example 2026-12-01"),
        ("accelerators:\n  H300: {vendor: NVIDIA, roles: [], poolRoles: [], maturity: Early, asOf: 2026-12-01}\n",
         "site.yaml:2: accelerators.H300: needs the field source"),
        ("accelerators:\n  H300:\n", "site.yaml:2: accelerators.H300: removes what is not there; did you mean H200?"),
        ("accelerators:\n  H200: null\n  L4: {listPriceUsd: 1, listPriceUsd: 2}\n",
         "site.yaml:3: accelerators.L4.listPriceUsd: is written twice"),
        ("accelerators:\n  H200:\n    products:\n      example.com/card: [h200]\n",
         "site.yaml:4: accelerators.H200.products.example.com/card: H200: example.com/card is not in "
         "labels.products.order, so it would never be asked"),
        ("accelerators: [H200]\n", "site.yaml:1: accelerators: must be a mapping"),
        ("accelerators:\n  'H 200': {}\n",
         "site.yaml:2: accelerators.H 200: is not a name: letters, digits, - and ., at most 63"),
        ("- H200\n", "site.yaml:1: must be a mapping"),
        ("a: 1\n---\nb: 2\n", "site.yaml:2: but found another document"),
        ("accelerators:\n  H200: {memory: 141G\n", "site.yaml:3: expected ',' or '}', but got '<stream end>'"),
        ("accelerators:\n  H200: &h {memory: 141G}\n  B200: *h\n",
         "site.yaml:3: aliases are not allowed; write the value out"),
        ("accelerators:\n  H200: {notes: 'a\0b'}\n", "site.yaml:2: holds a character that YAML does not allow"),
        ("accelerators:\n  ? [a]\n  : b\n", "site.yaml:2: accelerators: a key must be a text"),
        ("accelerators:\n  <<: {}\n",
         "site.yaml:2: accelerators.<<: is not a name: letters, digits, - and ., at most 63"),
        ("accelerators: {H200: 5}\n", "site.yaml:1: accelerators.H200: must be a mapping"),
        ("labels:\n  levelSets:\n    Ours:\n      levels: [{name: a, label: x/a}, {name: a, label: x/b}]\n"
         "      source: x\n      asOf: 2026-12-01\n",
         "site.yaml:4: labels.levelSets.Ours.levels: two levels have the same name"),
        ("labels:\n  levelSets:\n    Ours:\n      levels: [{name: a, label: 'no label'}]\n"
         "      source: x\n      asOf: 2026-12-01\n",
         "site.yaml:4: labels.levelSets.Ours.levels[0].label: 'no label' is not a label key; "
         "write for example topology.kubernetes.io/zone"),
        ("labels:\n  fabrics:\n    Ours: {resource: x/nic, kind: Infiniband, source: x, asOf: 2026-12-01}\n",
         "site.yaml:3: labels.fabrics.Ours.kind: Ours names no fabric; did you mean InfiniBand?"),
        ("labels:\n  fabrics:\n    Ours: {kind: RoCE, source: x, asOf: 2026-12-01}\n",
         "site.yaml:3: labels.fabrics.Ours: needs the field match or resource"),
        ("storage: null\n", "site.yaml:1: storage: cannot be removed, only its entries can"),
    ],
)  # fmt: skip
def test_an_error_names_file_line_and_field(text, message):
    expect_problem(text, message)


def test_a_deep_document_is_refused_and_does_not_crash():
    expect_problem(
        "accelerators: " + "[" * 40 + "]" * 40 + "\n", f"site.yaml:1: accelerators{'[0]' * 16}: is nested too deeply"
    )
    with pytest.raises(ConfigProblem):
        load([("site.yaml", "[" * 100_000)])


PIECES = st.recursive(
    st.sampled_from(
        ["null", "5", "-1", "1e400", "true", "H200", "Training", "141G", "'*'", "2026-12-01", "&a x", "*a", "!!x y"]
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        st.dictionaries(
            st.sampled_from(
                ["H200", "memory", "products", "levels", "source", "asOf", "match", "label", "values", "kind", "x"]
            ),
            inner,
            max_size=4,
        ).map(lambda items: "{" + ", ".join(f"{key}: {value}" for key, value in items.items()) + "}"),
    ),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(SECTIONS), PIECES)
def test_whatever_an_overlay_says_it_loads_or_is_refused_with_its_place(section: str, value: str):
    found = None
    try:
        load([("site.yaml", f"{section}: {value}\n")])
    except ConfigProblem as problem:
        found = problem
    assert found is None or (found.source and found.line)


def test_files_are_read_by_name_and_only_when_they_changed(tmp_path: Path):
    (tmp_path / "b.yaml").write_text(price("2"))
    (tmp_path / "a.yml").write_text(price("1"))
    (tmp_path / "README.md").write_text("not ours")
    (tmp_path / ".hidden.yaml").write_text("not ours")
    files = OverlayFiles(tmp_path)
    assert files.changed() == (("a.yml", price("1")), ("b.yaml", price("2")))
    assert files.changed() is None
    os.utime(tmp_path / "b.yaml")
    assert files.changed() is None
    (tmp_path / "b.yaml").write_text(price("3"))
    assert files.changed() == (("a.yml", price("1")), ("b.yaml", price("3")))


def test_a_mounted_config_map_is_read_behind_its_link(tmp_path: Path):
    def swap(version: str, text: str) -> None:
        (tmp_path / version).mkdir()
        (tmp_path / version / "prices.yaml").write_text(text)
        (tmp_path / "..data_tmp").symlink_to(version)
        (tmp_path / "..data_tmp").rename(tmp_path / "..data")

    swap("..2026_12_01", price("1"))
    (tmp_path / "prices.yaml").symlink_to(Path("..data") / "prices.yaml")
    files = OverlayFiles(tmp_path)
    assert files.changed() == (("prices.yaml", price("1")),)
    swap("..2026_12_02", price("2"))
    assert files.changed() == (("prices.yaml", price("2")),)


def test_a_change_takes_effect(tmp_path: Path):
    live = LiveCatalogue(tmp_path)
    assert not live.refresh()
    (tmp_path / "prices.yaml").write_text(price("3.20"))
    assert live.refresh()
    assert live.catalogue.accelerators["H200"].usd_per_hour == Decimal("3.20")
    assert not live.refresh()


def test_a_bad_overlay_leaves_the_last_good_catalogue_and_is_reported_until_mended(tmp_path: Path):
    overlay = tmp_path / "prices.yaml"
    overlay.write_text(price("3.20"))
    live = LiveCatalogue(tmp_path)
    overlay.write_text(price("cheap"))
    assert not live.refresh()
    assert live.catalogue.accelerators["H200"].usd_per_hour == Decimal("3.20")
    assert str(live.problem).startswith("prices.yaml:3: accelerators.H200.usdPerHour: 'cheap'")
    live.refresh()
    assert live.problem is not None
    overlay.write_text(price("3.20"))
    live.refresh()
    assert live.problem is None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"accelerators:\n  \xff\n", "prices.yaml:2: is not UTF-8"),
        (b"#" * (2**20 + 1), "prices.yaml: has 1048577 bytes; at most 1048576 are read"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, data: bytes, message: str):
    (tmp_path / "prices.yaml").write_bytes(data)
    live = LiveCatalogue(tmp_path)
    assert str(live.problem) == message
    assert live.catalogue == load()


def test_a_directory_that_is_not_there_is_said_once_it_matters(tmp_path: Path):
    live = LiveCatalogue(tmp_path / "absent")
    assert "is not a directory" in str(live.problem)
    (tmp_path / "absent").mkdir()
    live.refresh()
    assert live.problem is None
