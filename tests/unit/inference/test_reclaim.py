"""Notices: what each provider writes, what it means, and how long it leaves."""

from __future__ import annotations

import math

import pytest

from berth.catalogue.load import load
from berth.inference.reclaim import Census, Sign, SpotNode, leaving_at, signs

TABLE = load().serving.reclaims
BY_NAME = {signal.name: signal for signal in TABLE}
PLACE = ("pool", "a")


@pytest.mark.parametrize(
    ("taint", "condition", "spot", "leaves"),
    [
        ("aws-node-termination-handler/spot-itn", "", True, 120),
        ("aws-node-termination-handler/rebalance-recommendation", "", True, None),
        ("aws-node-termination-handler/scheduled-maintenance", "", False, math.inf),
        ("karpenter.sh/disrupted", "", True, 120),
        ("karpenter.sh/disrupted", "", False, math.inf),
        ("cloud.google.com/impending-node-termination", "", True, 15),
        ("", "PreemptScheduled", True, 30),
        ("remediator.kubernetes.azure.com/unschedulable", "", True, 30),
        ("ToBeDeletedByClusterAutoscaler", "", True, math.inf),
        ("node.kubernetes.io/not-ready", "Ready", True, None),
    ],
)
def test_what_a_node_shows_says_when_its_replicas_end(taint, condition, spot, leaves):
    found = signs({taint: 1000.0} if taint else {}, {condition: 1000.0} if condition else {}, TABLE)
    assert leaving_at(found, {}, spot=spot) == (None if leaves is None else 1000.0 + leaves)


def test_the_clock_starts_when_a_silent_signal_was_first_seen_and_the_first_end_counts():
    found = signs({"karpenter.sh/disrupted": None, "aws-node-termination-handler/spot-itn": 500.0}, {}, TABLE)
    assert leaving_at(found, {"karpenter": 400.0}, spot=True) == 520.0
    assert leaving_at(found, {"karpenter": 400.0}, spot=True, disrupted_since=450.0) == 480.0
    assert leaving_at([], {}, spot=True, disrupted_since=450.0) == 480.0


def node(uid, *names):
    return SpotNode(uid, PLACE, tuple(Sign(BY_NAME[name]) for name in names))


@pytest.mark.parametrize(
    ("before", "after", "held", "reclaimed"),
    [
        ([node("1"), node("2")], [node("1"), node("2", "aws-spot")], 1, 1),
        ([node("1"), node("2", "aws-spot")], [node("1"), node("2", "aws-spot")], 1, 0),
        ([node("1"), node("2", "aws-spot")], [node("1")], 1, 0),
        ([node("1"), node("2")], [node("1")], 1, 1),
        ([node("1"), node("2", "cluster-autoscaler")], [node("1")], 1, 0),
        ([node("1"), node("2")], [node("1"), node("2", "aws-rebalance")], 2, 0),
        ([node("1")], [], 0, 1),
        ([], [node("1")], 1, 0),
    ],
)
def test_only_what_nobody_here_meant_to_go_counts_as_reclaimed_and_only_once(before, after, held, reclaimed):
    census = Census()
    census.look(before)
    assert census.look(after) == {PLACE: (held, reclaimed)}


def at(place, *uids):
    return [SpotNode(uid, place) for uid in uids]


OTHER, THIRD = ("other", "a"), ("third", "a")


@pytest.mark.parametrize(
    ("before", "after", "renamed"),
    [
        (at(PLACE, "1", "2"), at(OTHER, "1", "2"), {PLACE: OTHER}),
        (at(PLACE, "1", "2"), at(OTHER, "2", "3"), {PLACE: OTHER}),
        (at(PLACE, "1", "2"), at(PLACE, "1") + at(OTHER, "2"), {}),
        (at(PLACE, "1", "2"), at(OTHER, "1") + at(THIRD, "2"), {}),
        (at(PLACE, "1") + at(OTHER, "2"), at(OTHER, "1", "2"), {}),
        (at(PLACE, "1") + at(OTHER, "2"), at(THIRD, "1", "2"), {}),
        (at(PLACE, "1"), at(OTHER, "2"), {}),
    ],
    ids=["all", "and one lost, one new", "some", "split", "into one with nodes", "merged", "others"],
)
def test_a_place_has_another_name_where_all_its_nodes_are_in_a_new_one(before, after, renamed):
    census = Census()
    census.look(before)
    assert census.renamed(after) == renamed
    assert census.renamed(after) == {}
    lost = {node.uid for node in before} - {node.uid for node in after}
    assert sum(reclaimed for _, reclaimed in census.look(after).values()) == len(lost)
