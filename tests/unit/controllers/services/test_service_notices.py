"""When a replica is about to be taken: what nodes and pods show, and how long that leaves."""

from __future__ import annotations

import math
from typing import Any

import pytest

from berth.controllers.services.notices import Notices
from berth.inference.reclaim import SHORTEST_SECONDS
from tests.builders.fleet import make_fleet
from tests.unit.controllers.services.views import make_pod, make_wire_node

NOW = 1_700_000_000.0
AT, STAMP = 1_699_999_000.0, "2023-11-14T21:56:40Z"
SPOT = {"karpenter.sh/capacity-type": "spot"}


def tainted(key: str, **more: Any) -> dict[str, Any]:
    return {"taints": [{"key": key, "effect": "NoSchedule", **more}]}


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ({}, None),
        (tainted("aws-node-termination-handler/spot-itn"), NOW + 120),
        (tainted("aws-node-termination-handler/spot-itn", timeAdded=STAMP), AT + 120),
        (tainted("aws-node-termination-handler/rebalance-recommendation"), None),
        (tainted("karpenter.sh/disrupted"), math.inf),
        ({**tainted("karpenter.sh/disrupted"), "labels": SPOT}, NOW + 120),
        (tainted("some/other"), None),
        ({"conditions": [{"type": "PreemptScheduled", "status": "True", "lastTransitionTime": STAMP}]}, AT + 30),
        ({"conditions": [{"type": "PreemptScheduled", "status": "False"}]}, None),
    ],
    ids=["none", "reclaim", "since it was written", "advice is none", "waits for its pods", "spot does not", "unknown",
         "condition", "condition is not so"],
)  # fmt: skip
def test_notices_of_nodes(node: dict[str, Any], expected: float | None) -> None:
    notices = Notices(make_fleet(), wall=lambda: NOW)
    assert notices(make_pod(), make_wire_node(**node)) == expected


def test_the_clock_starts_when_a_notice_is_first_seen_and_again_after_it_was_taken_back() -> None:
    now = [NOW]
    notices = Notices(make_fleet(), wall=lambda: now[0])
    node = make_wire_node(**tainted("aws-node-termination-handler/spot-itn"))
    for at, shown, expected in ((0, node, 120), (50, node, 120), (100, make_wire_node(), None), (200, node, 320)):
        now[0] = NOW + at
        assert notices(make_pod(), shown) == (None if expected is None else NOW + expected)


def test_a_pod_that_is_told_of_its_disruption_has_the_shortest_time() -> None:
    stated = [{"type": "DisruptionTarget", "status": "True", "lastTransitionTime": STAMP}]
    notices = Notices(make_fleet(), wall=lambda: NOW)
    node = make_wire_node(**tainted("aws-node-termination-handler/spot-itn"))
    assert notices(make_pod(conditions=stated), node) == AT + SHORTEST_SECONDS
    assert notices(make_pod(conditions=stated), None) == AT + SHORTEST_SECONDS


def test_nodes_that_are_gone_are_forgotten_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth.controllers.services.notices.MOST_NODES", 2)
    now = [NOW]
    notices = Notices(make_fleet(), wall=lambda: now[0])
    nodes = [make_wire_node(f"n{i}", **tainted("aws-node-termination-handler/spot-itn")) for i in range(3)]
    for node in (nodes[0], nodes[1], nodes[0], nodes[2]):
        notices(make_pod(), node)
    now[0] = NOW + 50
    assert [notices(make_pod(), nodes[i]) for i in (0, 2, 1)] == [NOW + 120, NOW + 120, NOW + 170]
