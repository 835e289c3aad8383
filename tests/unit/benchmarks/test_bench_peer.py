"""The peer's output is read, and ratios are taken where both sides have a figure."""

from __future__ import annotations

import json

from benchmarks import peer

OUTPUT = [
    "namespace/kueue-system created",
    "# 640 nodes ready in 6.0s",
    json.dumps({"m": "m1", "rep": 0, "all_running": 6.0, "racks": 8, "ok": True, "api_writes": 2602}),
    json.dumps({"m": "m1", "rep": 1, "all_running": 9.0, "racks": 8, "ok": True, "api_writes": 2600}),
    json.dumps({"m": "m1", "rep": 2, "all_running": 90.0, "racks": 8, "ok": False, "api_writes": 2600}),
    "m1 all_running                      min      6.000  median      7.500  max      9.000",
    json.dumps({"m": "m5", "rep": 0, "whole_again": 56.2, "2nd_whole_again": 3.556, "pods_replaced": 1, "ok": True}),
    '{"not": "a repetition"}',
    "{broken",
]


def test_repetitions_are_found_among_the_commentary() -> None:
    rows = peer.parse(OUTPUT)
    assert {name: len(found) for name, found in rows.items()} == {"m1": 3, "m5": 1}


def test_a_figure_is_the_median_of_the_repetitions_that_went_well() -> None:
    assert peer.figures(peer.parse(OUTPUT)) == {"m1": 7.5, "m5": 56.2, "m5b": 3.556}


def test_ratios_are_ours_over_theirs_where_both_are_known() -> None:
    assert peer.ratios({"m1": 3.0, "m2": 1.0}, peer.figures(peer.parse(OUTPUT))) == {"m1": 0.4}


def test_details_keep_what_was_replaced() -> None:
    assert peer.details(peer.parse(OUTPUT))["m5"] == [{"pods_replaced": 1}]
