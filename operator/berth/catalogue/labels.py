"""Reads the table of cloud labels.

Every cloud tells the same few things, where a node stands in the network, how it is paid for, which product it
carries, in its own words. The words are data; the rest of Berth asks :class:`LabelTable` and knows no cloud.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from types import MappingProxyType
from typing import Final, get_args

from berth.catalogue.located import Located
from berth.catalogue.records import (
    CapacityLabel,
    FabricFacts,
    FabricLabel,
    LabelMatch,
    LabelTable,
    LevelRole,
    LevelSet,
    SharingLabel,
    TopologyLabel,
)
from berth.values import CapacityType

_KEY: Final = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_SECTIONS: Final = ("site", "nvlink", "host", "region", "levelSets", "capacityTypes", "sharing", "fabrics", "products")
PROVENANCE: Final = ("source", "asOf")


def read_source(fields: Mapping[str, Located]) -> tuple[str, str]:
    """The source of an entry and the day on which it said so. Raises: ConfigProblem."""
    text = fields["asOf"].text()
    try:
        day = date.fromisoformat(text)
    except ValueError as problem:
        raise fields["asOf"].problem(f"{text!r} is not a date; write for example 2026-12-01") from problem
    return fields["source"].text(), day.isoformat()


def read_match(value: Located) -> LabelMatch:
    """``{label, values, above, also}``. Raises: ConfigProblem."""
    fields = value.fields(("label",), ("values", "above", "also"))
    return _match(_key(fields["label"]), fields)


def read_product(label: str, value: Located) -> LabelMatch:
    """The values of ``label`` that name a product: a list, or ``{values, also}``. Raises: ConfigProblem."""
    _check_key(label, value)
    if isinstance(value.content, Mapping):
        return _match(label, value.fields(("values",), ("also",)))
    return LabelMatch(label, value.texts())


def _match(label: str, fields: Mapping[str, Located]) -> LabelMatch:
    also = fields["also"].entries() if "also" in fields else {}
    return LabelMatch(
        label,
        fields["values"].texts() if "values" in fields else (),
        fields["above"].whole() if "above" in fields else None,
        tuple(read_product(key, value) for key, value in also.items()),
    )


def read_labels(section: Located) -> LabelTable:
    """The section ``labels`` of the catalogue. Raises: ConfigProblem."""
    fields = section.fields(_SECTIONS)
    products = fields["products"].fields(("order", "sharedSuffixes", *PROVENANCE))
    region = fields["region"].fields(("label", *PROVENANCE))
    read_source(products)
    read_source(region)
    return LabelTable(
        site=_framing(fields["site"], "Site"),
        nvlink=_framing(fields["nvlink"], "NVLinkDomain"),
        host=_framing(fields["host"], ""),
        level_sets=tuple(_level_set(name, value) for name, value in fields["levelSets"].entries().items()),
        capacity_type_labels=tuple(_capacity(name, value) for name, value in fields["capacityTypes"].entries().items()),
        sharing_labels=tuple(_sharing(value) for value in fields["sharing"].entries().values()),
        fabric_labels=tuple(_fabric(value) for value in fields["fabrics"].entries().values()),
        product_labels=products["order"].texts(),
        product_suffixes=products["sharedSuffixes"].texts(),
        region_label=_key(region["label"]),
    )


def _framing(value: Located, role: LevelRole) -> TopologyLabel:
    fields = value.fields(("name", "label", *PROVENANCE))
    read_source(fields)
    return TopologyLabel(fields["name"].text(), _key(fields["label"]), role)


def _level_set(provider: str, value: Located) -> LevelSet:
    fields = value.fields(("levels", *PROVENANCE))
    levels = tuple(_level(item) for item in fields["levels"].items())
    for kind in ("name", "label"):
        given = [getattr(level, kind) for level in levels]
        if len(set(given)) != len(given):
            raise fields["levels"].problem(f"two levels have the same {kind}")
    return LevelSet(provider, levels, *read_source(fields))


def _level(value: Located) -> TopologyLabel:
    fields = value.fields(("name", "label"), ("role",))
    roles: tuple[LevelRole, ...] = get_args(LevelRole)
    role = fields["role"].one_of(roles[1:]) if "role" in fields else ""
    return TopologyLabel(fields["name"].text(), _key(fields["label"]), role)


def _capacity(label: str, value: Located) -> CapacityLabel:
    _check_key(label, value)
    fields = value.fields(("values", *PROVENANCE))
    kinds: tuple[CapacityType, ...] = get_args(CapacityType)
    values = {text: meaning.one_of(kinds) for text, meaning in fields["values"].entries().items()}
    return CapacityLabel(label, MappingProxyType(values), *read_source(fields))


def _sharing(value: Located) -> SharingLabel:
    fields = value.fields(("means", "match", *PROVENANCE))
    return SharingLabel(fields["means"].text(), read_match(fields["match"]), *read_source(fields))


def _fabric(value: Located) -> FabricLabel:
    fields = value.fields(("match", *PROVENANCE), ("kind", "gbps", "rails", "gbpsLabel", "railsLabel"))
    facts = FabricFacts(
        fields["kind"].text() if "kind" in fields else "",
        fields["gbps"].whole() if "gbps" in fields else 0,
        fields["rails"].whole() if "rails" in fields else 0,
    )
    labels = {name: _key(fields[name]) if name in fields else "" for name in ("gbpsLabel", "railsLabel")}
    match = read_match(fields["match"])
    return FabricLabel(match, facts, labels["gbpsLabel"], labels["railsLabel"], *read_source(fields))


def _key(value: Located) -> str:
    _check_key(value.text(), value)
    return value.text()


def _check_key(label: str, value: Located) -> None:
    if _KEY.fullmatch(label) is None:
        raise value.problem(f"{label!r} is not a label key; write for example topology.kubernetes.io/zone")
