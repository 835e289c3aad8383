"""The tables of docs/catalogue.md, written from the data so that the page cannot disagree with it.

``python -m berth.catalogue.page docs/catalogue.md`` rewrites what stands between the markers; with ``--check`` it only
says whether that would change anything.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Final

from berth.catalogue.load import load
from berth.catalogue.records import Accelerator, Catalogue, ChoiceRule, FabricKind, LabelTable, Storage

_BLOCK: Final = "<!-- {0} -->\n{1}\n<!-- end -->"


def accelerators(catalogue: Catalogue) -> str:
    """What each accelerator is, in the order of the data file."""
    head = (
        "Name",
        "Vendor",
        "Resource",
        "Memory",
        "Bandwidth",
        "Links",
        "Compute",
        "Discovered as",
        "To buy",
        "An hour",
        "Maturity",
        "As of",
    )
    return _table(head, (_accelerator(entry) for entry in catalogue.accelerators.values()))


def _accelerator(entry: Accelerator) -> Sequence[str]:
    limits = [
        *([f"models up to {_size(entry.max_model_bytes)}"] if entry.max_model_bytes else []),
        *([f"below {entry.max_parameters // 10**9}B parameters"] if entry.max_parameters else []),
        *(["only when named"] if entry.opt_in else []),
    ]
    return (
        f"`{entry.name}`" + (f" ({', '.join(limits)})" if limits else ""),
        entry.vendor,
        f"`{entry.resource}`" if entry.resource else "none known",
        "the node's" if entry.host_memory else f"{_size(entry.memory_bytes)} {entry.memory_type}".strip(),
        _rate(entry.memory_bandwidth),
        f"{entry.link_gbytes_per_second} GB/s" if entry.link_gbytes_per_second else "",
        " / ".join(f"{flops / 10**12:g}" for flops in (entry.compute.bf16, entry.compute.fp8) if flops),
        ", ".join(entry.pool_roles),
        _usd(entry.list_price_usd),
        _usd(entry.usd_per_hour),
        entry.maturity,
        entry.as_of,
    )


def fabrics(catalogue: Catalogue) -> str:
    """Each fabric with its generations and the resources by which pods get its devices."""
    return _table(("Kind", "RDMA", "Classes", "Device resources, the first that a node offers"), (
        _fabric(entry) for entry in catalogue.fabrics.values()
    ))  # fmt: skip


def _fabric(entry: FabricKind) -> Sequence[str]:
    classes = ", ".join(f"{speed.name} {speed.gbps}" for speed in entry.classes)
    return (
        f"`{entry.name}`",
        "yes" if entry.rdma else "no",
        f"{classes} Gb/s" if classes else f"{entry.gbytes_per_second} GB/s a device",
        ", ".join(f"`{resource.name}`" for resource in entry.rdma_resources),
    )


def storage(catalogue: Catalogue) -> str:
    """Each store with what leads to it and what it sustains."""
    head = ("Name", "Kind", "Schemes", "CSI drivers", "Whole system", "A node reads", "A node writes", "Tier")
    return _table(head, (_storage(entry) for entry in catalogue.storage.values()))


def _storage(entry: Storage) -> Sequence[str]:
    return (
        f"`{entry.name}`",
        entry.kind,
        ", ".join(entry.schemes),
        ", ".join(f"`{driver}`" for driver in entry.drivers),
        _rate(entry.write_bytes_per_second),
        _rate(entry.node_read_bytes_per_second),
        _rate(entry.node_write_bytes_per_second),
        "" if entry.tier is None else str(entry.tier),
    )


def levels(catalogue: Catalogue) -> str:
    """The topology labels of each provider."""
    table: LabelTable = catalogue.labels
    framed = [
        ("every provider: site", table.sites),
        *((entry.provider, entry.levels) for entry in table.level_sets),
        ("every provider: NVLink domain", table.nvlinks),
    ]
    return _table(("Provider", "Levels, outermost first"), (
        (provider, ", ".join(f"{level.name} `{level.label}`" for level in found)) for provider, found in framed
    ))  # fmt: skip


def engines(catalogue: Catalogue) -> str:
    """Each engine with the images it has and the paths it answers on."""
    head = ("Name", "Images for", "Port", "Metrics", "Loaded", "Demand read as")
    return _table(head, (
        (
            f"`{entry.name}`",
            ", ".join(entry.images),
            str(entry.port),
            f"`:{entry.metrics_port}{entry.metrics_path}`",
            f"`{entry.ready}`",
            entry.preset,
        )
        for entry in catalogue.serving.engines.values()
    ))  # fmt: skip


def reclaims(catalogue: Catalogue) -> str:
    """By what a node shows that it goes."""
    return _table(("Signal", "On the node", "Means", "Seconds for pods", "On spot"), (
        (
            entry.name,
            f"taint `{entry.taint}`" if entry.taint else f"condition `{entry.condition}`",
            entry.means,
            _seconds(entry.seconds(spot=False)),
            _seconds(entry.seconds(spot=True)),
        )
        for entry in catalogue.serving.reclaims
    ))  # fmt: skip


def _seconds(amount: int | None) -> str:
    return "" if amount is None else str(amount)


def rules(catalogue: Catalogue) -> str:
    """The rules of choice, in words."""
    return _table(("Rule", "When the service is", "and the accelerator is", "then it"), (
        (rule.name, _service_conditions(rule), _accelerator_conditions(rule), _verdict(rule))
        for rule in catalogue.serving.rules
    ))  # fmt: skip


def _service_conditions(rule: ChoiceRule) -> str:
    wanted = [rule.modes, rule.objectives, *rule.traits.values()]
    return ", ".join(" or ".join(words) for words in wanted if words) or "any"


def _accelerator_conditions(rule: ChoiceRule) -> str:
    compiled = () if rule.compiled is None else ("compiled for" if rule.compiled else "not compiled for",)
    roles = tuple(f"for {role}" for role in rule.pool_roles)
    return ", ".join(" or ".join(words) for words in (compiled, roles, rule.maturities) if words) or "any"


def _verdict(rule: ChoiceRule) -> str:
    return f"is out: {rule.reason}" if rule.rank is None else f"has rank {rule.rank:+d}: {rule.reason}"


TABLES: Final[dict[str, Callable[[Catalogue], str]]] = {
    "accelerators": accelerators,
    "fabrics": fabrics,
    "storage": storage,
    "levels": levels,
    "engines": engines,
    "reclaims": reclaims,
    "rules": rules,
}


def render(text: str, catalogue: Catalogue) -> str:
    """``text`` with every table between its markers replaced."""
    for name, table in TABLES.items():
        pattern = re.compile(rf"<!-- {name} -->.*?<!-- end -->", re.DOTALL)
        block = _BLOCK.format(name, table(catalogue))
        text = pattern.sub(lambda _, block=block: block, text)  # type: ignore[misc]
    return text


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _size(amount: int | None) -> str:
    return f"{amount / 10**9:g} GB" if amount else ""


def _rate(amount: int | None) -> str:
    if not amount:
        return ""
    power, unit = next(
        step for step in ((15, "PB/s"), (12, "TB/s"), (9, "GB/s"), (0, "B/s")) if amount >= 10 ** step[0]
    )
    return f"{amount / 10**power:g} {unit}"


def _usd(amount: Decimal | None) -> str:
    return "" if amount is None else f"${amount:,}"


def main(arguments: Sequence[str]) -> int:
    """Rewrite the page named in ``arguments``; 1 when ``--check`` is among them and it was stale."""
    page = Path(next(argument for argument in arguments if not argument.startswith("-")))
    before = page.read_text(encoding="utf-8")
    after = render(before, load())
    if "--check" in arguments:
        return int(before != after)
    page.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
