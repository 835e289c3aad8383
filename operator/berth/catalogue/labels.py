"""Reads the section ``labels`` of the data files into the label table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from types import MappingProxyType
from typing import Final, get_args

from berth.catalogue.located import Located
from berth.catalogue.matching import (
    CapacityLabel,
    FabricEvidence,
    FabricFacts,
    LabelMatch,
    LabelTable,
    LevelRole,
    LevelSet,
    SharingLabel,
    TopologyLabel,
)
from berth.values import CapacityType

_KEY: Final = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_SECTIONS: Final = (
    "sites", "nvlinks", "host", "region", "levelSets", "capacityTypes", "capacityWords", "sharing", "fabrics",
    "products",
)  # fmt: skip
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
        sites=tuple(_framing(value, "Site") for value in fields["sites"].entries().values()),
        nvlinks=tuple(_framing(value, "NVLinkDomain") for value in fields["nvlinks"].entries().values()),
        host=_framing(fields["host"], ""),
        level_sets=tuple(_level_set(name, value) for name, value in fields["levelSets"].entries().items()),
        capacity_type_labels=tuple(_capacity(name, value) for name, value in fields["capacityTypes"].entries().items()),
        capacity_words=_meanings(fields["capacityWords"].fields(("values", *PROVENANCE))),
        sharing_labels=tuple(_sharing(value) for value in fields["sharing"].entries().values()),
        fabric_evidence=tuple(_fabric(value) for value in fields["fabrics"].entries().values()),
        product_labels=products["order"].texts(),
        product_suffixes=products["sharedSuffixes"].texts(),
        region_label=_key(region["label"]),
    )


def _framing(value: Located, role: LevelRole) -> TopologyLabel:
    fields = value.fields(("name", "label", *PROVENANCE), ("ignore",))
    read_source(fields)
    ignore = fields["ignore"].texts() if "ignore" in fields else ()
    return TopologyLabel(fields["name"].text(), _key(fields["label"]), role, ignore)


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
    return CapacityLabel(label, _meanings(fields), *read_source(fields))


def _meanings(fields: Mapping[str, Located]) -> Mapping[str, CapacityType]:
    kinds: tuple[CapacityType, ...] = get_args(CapacityType)
    read_source(fields)
    return MappingProxyType({text: meaning.one_of(kinds) for text, meaning in fields["values"].entries().items()})


def _sharing(value: Located) -> SharingLabel:
    fields = value.fields(("means", "match", *PROVENANCE))
    return SharingLabel(fields["means"].text(), read_match(fields["match"]), *read_source(fields))


def _fabric(value: Located) -> FabricEvidence:
    fields = value.fields(
        PROVENANCE, ("match", "resource", "kind", "gbps", "rails", "gbpsLabel", "railsLabel", "railsCounted")
    )
    if "match" not in fields and "resource" not in fields:
        raise value.problem("needs the field match or resource")
    if "kind" not in fields and "match" not in fields:
        raise value.problem("needs the field kind, which a resource does not tell")
    return FabricEvidence(
        match=read_match(fields["match"]) if "match" in fields else None,
        resource=_key(fields["resource"]) if "resource" in fields else "",
        facts=FabricFacts(
            fields["kind"].text() if "kind" in fields else "",
            fields["gbps"].whole() if "gbps" in fields else 0,
            fields["rails"].whole() if "rails" in fields else 0,
        ),
        gbps_label=_key(fields["gbpsLabel"]) if "gbpsLabel" in fields else "",
        rails_label=_key(fields["railsLabel"]) if "railsLabel" in fields else "",
        rails_counted=fields["railsCounted"].flag() if "railsCounted" in fields else False,
        source=fields["source"].text(),
        as_of=read_source(fields)[1],
    )


def _key(value: Located) -> str:
    _check_key(value.text(), value)
    return value.text()


def _check_key(label: str, value: Located) -> None:
    if _KEY.fullmatch(label) is None:
        raise value.problem(f"{label!r} is not a label key; write for example topology.kubernetes.io/zone")
