"""The spot benchmark: formats of traces, the simulation's accounts, and that its bound is one."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks import spot_traces
from benchmarks.spot_policies import clairvoyant
from benchmarks.spot_policies.base import COLD_STEPS, ON_DEMAND, Rules, World, ahead, simulate
from benchmarks.spot_policies.ours import Ours
from benchmarks.spot_policies.simple import OnDemandOnly, SpotOnly
from benchmarks.spot_policies.skyserve import SkyServe
from benchmarks.spot_traces import Group
from berth.values import ConfigProblem

FREE = Rules(floor=0, max_zone_loss=1.0)


def group(*zones: list[int]) -> Group:
    return Group("test", tuple(f"zone-{i}" for i in range(len(zones))), np.array(zones))


def test_every_format_is_read_and_zones_of_one_date_and_gap_belong_together(tmp_path):
    for zone, values in (("a", [0, 1, 1, 1, 0]), ("b", [1, 1, 1, 1, 1])):
        name = f"preemption_1-node_aws-04-22-2023_{zone}_v100_1.json"
        (tmp_path / name).write_text(json.dumps({"metadata": {"gap_seconds": 60}, "data": values}))
    (tmp_path / "held.csv").write_text("0,add,n1\n0,add,n2\n90000,remove,n1\n240000,add,n3\n")
    (tmp_path / "seen.txt").write_text("2021-12-11, 11:00:00, 8\n2021-12-11, 11:03:00, 4\n2021-12-11, 11:05:00, 8\n")
    (tmp_path / "bad.json").write_text("{}")
    found = spot_traces.read_folder(tmp_path)
    groups = {each.name: each.nodes.tolist() for each in found.groups}
    assert groups["preemption-04-22-2023-60s"] == [[0, 16, 16, 16, 0], [16, 16, 16, 16, 16]]
    assert groups["held"] == [[16, 8, 8, 8]]
    assert groups["seen"] == [[16, 16, 16, 8, 8]]
    assert len(found.problems) == 1


@pytest.mark.parametrize("text", ["", "1,2\n", "0,add,n\n", "x,add,n\n9,add,m\n", "2021-12-11, 25:00:00, 1\n"])
def test_what_cannot_be_read_is_said(tmp_path, text):
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(ConfigProblem):
        spot_traces.read_folder(tmp_path)


def test_what_is_on_demand_is_always_served_and_paid_one_cold_start_ahead():
    demand = np.array([2] * 10 + [4] * 10)
    outcome = simulate(OnDemandOnly(), World.of(group([16] * 20)), demand, FREE, notice=False)
    assert outcome.unserved == 0
    assert outcome.cost == pytest.approx(float(ahead(demand).sum()) / 60)


def test_a_loss_without_notice_is_missing_for_a_cold_start():
    nodes = [16] * 10 + [0] * 10
    outcome = simulate(SkyServe(0.0, 0), World.of(group(nodes)), np.full(20, 2), FREE, notice=False)
    assert outcome.lost == 2
    assert outcome.unserved == pytest.approx(COLD_STEPS * 2 / 40)


def test_a_notice_is_seen_before_the_loss():
    seen = []

    class Watch(SpotOnly):
        def decide(self, view):
            seen.append((view.step, sum(each.leaves_at is not None for each in view.replicas["zone-0"])))
            return {**super().decide(view), ON_DEMAND: 0}

    simulate(Watch(), World.of(group([16] * 10 + [0] * 5)), np.full(15, 2), FREE, notice=True)
    assert (8, 2) in seen
    assert all(count == 0 for step, count in seen if step < 8)


@pytest.mark.parametrize("rules", [Rules(), FREE])
def test_nobody_who_serves_everything_is_cheaper_than_the_clairvoyant(rules):
    for made in spot_traces.generate(days=1):
        demand = np.full(made.nodes.shape[1], 10)
        bound = clairvoyant.cheapest(made, demand, rules)
        world = World.of(made)
        for policy in (OnDemandOnly(), SkyServe(1.0, 0), SkyServe(0.3, 4), Ours(1e-5)):
            outcome = simulate(policy, world, demand, rules, notice=True)
            assert outcome.cost >= bound or outcome.unserved > 0
        assert bound >= 0.3 * demand.sum() / 60


def test_the_clairvoyant_is_on_spot_exactly_where_it_can_be():
    demand = np.full(60, 10)
    steady = clairvoyant.cheapest(group([16] * 60), demand, FREE)
    nothing = clairvoyant.cheapest(group([0] * 60), demand, FREE)
    assert nothing == pytest.approx(10.0)
    assert steady == pytest.approx((COLD_STEPS * 10 * 1.0 + COLD_STEPS * 10 * 0.3 + (60 - COLD_STEPS) * 10 * 0.3) / 60)
    assert clairvoyant.cheapest(group([16] * 60), demand, Rules()) > steady


def test_ours_keeps_the_floor_and_the_zone_rule_in_what_it_aims_at():
    made = spot_traces.generate(days=1)[1]
    world, rules, totals = World.of(made), Rules(), []

    class Checked(Ours):
        def _goal(self, needed, rooms, stays, outlook):
            mix = super()._goal(needed, rooms, stays, outlook)
            totals.append(mix)
            return mix

    simulate(Checked(), world, np.full(made.nodes.shape[1], 10), rules, notice=True)
    assert all(mix.counts[ON_DEMAND] >= 1 and mix.replicas >= 10 for mix in totals)
    assert all(
        count <= rules.per_zone(mix.replicas)
        for mix in totals
        for place, count in mix.counts.items()
        if place != ON_DEMAND
    )
