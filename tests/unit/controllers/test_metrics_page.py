"""The page of metrics cannot fall behind what the operator registers."""

from __future__ import annotations

import re
from pathlib import Path

from berth.controllers.metrics_page import render, rows

PAGE = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")


def test_the_page_shows_every_metric() -> None:
    assert render(PAGE) == PAGE, "run python -m berth.controllers.metrics_page docs/metrics.md"
    assert all(f"| `{name}` |" in PAGE for name, *_ in rows())


def test_its_queries_ask_for_what_there_is() -> None:
    prose = PAGE.partition("<!-- metrics -->")[0]
    assert set(re.findall(r"\bberth_\w+", prose)) <= {name for name, *_ in rows()}


def test_labels_are_told_of_what_is_counted_and_of_what_is_read() -> None:
    labels = {name: said for name, _, said, _ in rows()}
    assert labels["berth_gang_restarts_total"] == "`cause`"
    assert labels["berth_pool_nodes"] == "`pool`"
    assert not labels["berth_leading"]
