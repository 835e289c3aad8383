"""The table of docs/metrics.md, from what the operator registers: ``python -m berth.controllers.metrics_page FILE``.

With ``--check`` nothing is written, and a page that is stale ends it with 1. So a metric cannot be without its line.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector

from berth.controllers.gauges import Gauges
from berth.controllers.services.gauges import ServiceGauges
from berth.telemetry.metrics import Metrics

_BLOCK: Final = re.compile(r"(<!-- metrics -->\n).*?(\n<!-- /metrics -->)", re.DOTALL)


class Listing(CollectorRegistry):
    """A registry that remembers what it was given, in that order."""

    def __init__(self) -> None:
        super().__init__()
        self.collectors: list[Collector] = []

    def register(self, collector: Collector) -> None:
        """Remember it, and register it."""
        self.collectors.append(collector)
        super().register(collector)


def rows() -> Iterator[tuple[str, str, str, str]]:
    """Name, type, labels and meaning of every metric, as they are exposed."""
    registry = Listing()
    nothing: Any = None  # what is read at a scrape, which there is none of here
    metrics = Metrics(registry)
    Gauges(metrics, nothing, nothing, nothing, nothing, leading=lambda: False)
    ServiceGauges(metrics)
    for collector in registry.collectors:
        families: Iterable[Metric] = collector.describe()  # type: ignore[attr-defined]  # ours all have it
        for family in families:
            name = family.name + ("_total" if family.type == "counter" else "")
            labels: Sequence[str] = getattr(family, "_labelnames", ()) or getattr(collector, "_labelnames", ())
            yield name, family.type, ", ".join(f"`{label}`" for label in labels), family.documentation


def render(page: str) -> str:
    """``page`` with a current table between its marks."""
    lines = ["| Name | Type | Labels | What it says |", "|---|---|---|---|"]
    lines += [f"| `{name}` | {kind} | {labels} | {text} |" for name, kind, labels, text in rows()]
    return _BLOCK.sub(lambda found: found[1] + "\n".join(lines) + found[2], page)


def main(arguments: Sequence[str]) -> int:
    """Rewrite the page named in ``arguments``; 1 when ``--check`` is among them and it was stale."""
    path = Path(next(argument for argument in arguments if not argument.startswith("-")))
    before = path.read_text(encoding="utf-8")
    after = render(before)
    if "--check" in arguments:
        return int(before != after)
    path.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
