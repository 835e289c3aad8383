"""From data files to a catalogue.

The package's own files and a user's overlays go through the same reader and the same checks: whatever an overlay may
say, a file of ours could, and an entry of ours that lacks a source or a date does not load either.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, reduce
from importlib.resources import files
from types import MappingProxyType
from typing import Final, TypeVar, get_args

from berth.catalogue.labels import PROVENANCE, read_labels, read_product, read_source
from berth.catalogue.located import Located, merge, parse, suggestion
from berth.catalogue.records import (
    Accelerator,
    Catalogue,
    DeviceCount,
    FabricKind,
    Maturity,
    RdmaResource,
    Redundancy,
    SpeedClass,
    Storage,
    StorageKind,
    Work,
)
from berth.catalogue.serving import UNKNOWN_COMPUTE
from berth.catalogue.serving_load import SECTIONS as SERVING
from berth.catalogue.serving_load import read_compute, read_serving
from berth.values import ConfigProblem, Role

E = TypeVar("E")
FILES: Final = ("accelerators.yaml", "fabrics.yaml", "storage.yaml", "labels.yaml", "engines.yaml", "inference.yaml")
SECTIONS: Final = ("accelerators", "fabrics", "storage", "redundancy", "labels", *SERVING)
_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?")


def load(overlays: Sequence[tuple[str, str]] = ()) -> Catalogue:
    """The catalogue with ``overlays``, pairs of source and YAML text, laid on in their order.

    Raises:
        ConfigProblem: an overlay cannot be used; names source, line and field.
    """
    return build([*_own(), *(parse(source, text) for source, text in overlays)])


@cache
def _own() -> tuple[Located, ...]:
    data = files("berth.catalogue") / "data"
    return tuple(parse(name, (data / name).read_text(encoding="utf-8")) for name in FILES)


def build(documents: Sequence[Located]) -> Catalogue:
    """The catalogue that ``documents`` describe, later ones laid on earlier ones. Raises: ConfigProblem."""
    for document in documents:
        for key, value in document.entries().items():
            if key not in SECTIONS:
                raise value.problem(f"is not a section{suggestion(key, SECTIONS)}")
            if value.content is None:
                raise value.problem("cannot be removed, only its entries can")
    sections = reduce(_lay, documents, Located({}, "", 0, "")).entries()
    missing = [name for name in SECTIONS if name not in sections]
    if missing:
        raise ConfigProblem(f"the catalogue has no section {missing[0]}")
    catalogue = Catalogue(
        accelerators=_each(sections["accelerators"], _accelerator),
        fabrics=_each(sections["fabrics"], _fabric),
        storage=_each(sections["storage"], _storage),
        redundancy=_each(sections["redundancy"], _redundancy),
        labels=read_labels(sections["labels"]),
        serving=read_serving(sections),
    )
    _check_references(catalogue, sections)
    return catalogue


def _lay(base: Located, over: Located) -> Located:
    """``over`` merged on ``base``; a changed entry that names no source of its own says by what it was changed."""
    merged = dict(merge(base, over).entries())
    for section, entries in over.entries().items():
        if section == "labels" or section not in base.entries() or section not in merged:
            continue
        known, result = base.entries()[section].entries(), dict(merged[section].entries())
        for name in known.keys() & entries.entries().keys() & result.keys():
            given, entry = entries.entries()[name].entries(), dict(result[name].entries())
            if "source" not in given and "source" in entry:
                old = entry["source"]
                entry["source"] = Located(f"{old.text()}; changed by {over.source}", old.source, old.line, old.field)
                result[name] = Located(entry, result[name].source, result[name].line, result[name].field)
        merged[section] = Located(result, merged[section].source, merged[section].line, section)
    return Located(merged, "", 0, "")


def _each(section: Located, read: Callable[[str, Located], E]) -> Mapping[str, E]:
    entries = {}
    for name, value in section.entries().items():
        if _NAME.fullmatch(name) is None:
            raise value.problem("is not a name: letters, digits, - and ., at most 63")
        entries[name] = read(name, value)
    return MappingProxyType(entries)


_ACCELERATOR: Final = (
    "resource", "memory", "memoryType", "memoryBandwidth", "linkBandwidth", "devicesPerDomain", "runtime",
    "listPriceUsd", "usdPerHour", "usdPerMillionTokens", "pricePerformance", "maxModel", "parametersBelow",
    "hostMemory", "optIn", "compiled", "compute", "products", "notes",
)  # fmt: skip


def _accelerator(name: str, value: Located) -> Accelerator:
    fields = value.fields(("vendor", "roles", "poolRoles", "maturity", *PROVENANCE), _ACCELERATOR)
    work: tuple[Work, ...] = get_args(Work)
    pool: tuple[Role, ...] = get_args(Role)
    maturity: tuple[Maturity, ...] = get_args(Maturity)
    source, as_of = read_source(fields)
    relative = fields["pricePerformance"].fields(("factor", "of")) if "pricePerformance" in fields else {}
    products = fields["products"].entries() if "products" in fields else {}
    roles = frozenset(item.one_of(work) for item in fields["roles"].items())
    pool_roles = tuple(item.one_of(pool) for item in fields["poolRoles"].items())
    for item, role in zip(fields["poolRoles"].items(), pool_roles, strict=True):
        if role not in roles:
            raise item.problem(f"{role} is not one of the roles")
    return Accelerator(
        name=name,
        vendor=fields["vendor"].text(),
        resource=_text(fields, "resource"),
        memory_bytes=_optional(fields, "memory", Located.size) or 0,
        memory_bandwidth=_optional(fields, "memoryBandwidth", Located.size) or 0,
        link_gbytes_per_second=(_optional(fields, "linkBandwidth", Located.size) or 0) // 10**9,
        roles=roles,
        pool_roles=pool_roles,
        list_price_usd=_optional(fields, "listPriceUsd", Located.money),
        usd_per_hour=_optional(fields, "usdPerHour", Located.money),
        maturity=fields["maturity"].one_of(maturity),
        max_model_bytes=_optional(fields, "maxModel", Located.size),
        max_parameters=_optional(fields, "parametersBelow", Located.count),
        products=tuple(read_product(label, entry) for label, entry in products.items()),
        source=source,
        as_of=as_of,
        memory_type=_text(fields, "memoryType"),
        runtime=_text(fields, "runtime"),
        devices_per_domain=_optional(fields, "devicesPerDomain", Located.whole),
        host_memory=_optional(fields, "hostMemory", Located.flag) or False,
        opt_in=_optional(fields, "optIn", Located.flag) or False,
        compiled=_optional(fields, "compiled", Located.flag) or False,
        usd_per_million_tokens=_optional(fields, "usdPerMillionTokens", Located.money),
        price_performance=relative["factor"].money() if relative else None,
        price_performance_of=relative["of"].text() if relative else "",
        compute=read_compute(fields["compute"]) if "compute" in fields else UNKNOWN_COMPUTE,
        notes=_text(fields, "notes"),
    )


def _fabric(name: str, value: Located) -> FabricKind:
    fields = value.fields(
        ("rdma", "betweenNodes", "preference", *PROVENANCE),
        ("classes", "rdmaResources", "latencyNanoseconds", "deviceBandwidth", "notes"),
    )
    source, as_of = read_source(fields)
    classes = fields["classes"].entries() if "classes" in fields else {}
    resources = fields["rdmaResources"].items() if "rdmaResources" in fields else ()
    return FabricKind(
        name=name,
        rdma=fields["rdma"].flag(),
        between_nodes=fields["betweenNodes"].flag(),
        preference=fields["preference"].whole(),
        classes=tuple(_speed_class(label, entry) for label, entry in classes.items()),
        rdma_resources=tuple(_rdma_resource(item) for item in resources),
        source=source,
        as_of=as_of,
        latency_nanoseconds=_optional(fields, "latencyNanoseconds", Located.whole) or 0,
        gbytes_per_second=(_optional(fields, "deviceBandwidth", Located.size) or 0) // 10**9,
        notes=_text(fields, "notes"),
    )


def _speed_class(name: str, value: Located) -> SpeedClass:
    fields = value.fields(("gbps", *PROVENANCE))
    return SpeedClass(name, fields["gbps"].whole(1), *read_source(fields))


def _rdma_resource(value: Located) -> RdmaResource:
    fields = value.fields(("name", "count"))
    counts: tuple[DeviceCount, ...] = get_args(DeviceCount)
    return RdmaResource(fields["name"].text(), fields["count"].one_of(counts))


def _storage(name: str, value: Located) -> Storage:
    fields = value.fields(
        ("kind", *PROVENANCE),
        ("schemes", "drivers", "writeBandwidth", "readBandwidth", "nodeWriteBandwidth", "nodeReadBandwidth",
         "driveBandwidth", "tier", "restoreSeconds", "notes"),
    )  # fmt: skip
    kinds: tuple[StorageKind, ...] = get_args(StorageKind)
    source, as_of = read_source(fields)
    return Storage(
        name=name,
        kind=fields["kind"].one_of(kinds),
        schemes=fields["schemes"].texts() if "schemes" in fields else (),
        drivers=fields["drivers"].texts() if "drivers" in fields else (),
        source=source,
        as_of=as_of,
        write_bytes_per_second=_optional(fields, "writeBandwidth", Located.size),
        read_bytes_per_second=_optional(fields, "readBandwidth", Located.size),
        node_write_bytes_per_second=_optional(fields, "nodeWriteBandwidth", Located.size),
        node_read_bytes_per_second=_optional(fields, "nodeReadBandwidth", Located.size),
        drive_bytes_per_second=_optional(fields, "driveBandwidth", Located.size),
        tier=_optional(fields, "tier", Located.whole),
        restore_seconds=_optional(fields, "restoreSeconds", Located.whole),
        notes=_text(fields, "notes"),
    )


def _redundancy(name: str, value: Located) -> Redundancy:
    fields = value.fields(("data", "parity", *PROVENANCE))
    return Redundancy(name, fields["data"].whole(1), fields["parity"].whole(), *read_source(fields))


def _optional(fields: Mapping[str, Located], name: str, read: Callable[[Located], E]) -> E | None:
    return read(fields[name]) if name in fields else None


def _text(fields: Mapping[str, Located], name: str) -> str:
    return fields[name].text() if name in fields else ""


def _check_references(catalogue: Catalogue, sections: Mapping[str, Located]) -> None:
    """Names that one entry uses of another must exist. Raises: ConfigProblem."""
    for name, entry in sections["labels"].entries()["fabrics"].entries().items():
        kind = entry.entries().get("kind")
        if kind is not None and kind.text() not in catalogue.fabrics:
            raise kind.problem(f"{name} names no fabric{suggestion(kind.text(), catalogue.fabrics)}")
    for name, entry in sections["accelerators"].entries().items():
        for label, value in entry.entries().get("products", Located({}, "", 0, "")).entries().items():
            if label not in catalogue.labels.product_labels:
                raise value.problem(f"{name}: {label} is not in labels.products.order, so it would never be asked")
