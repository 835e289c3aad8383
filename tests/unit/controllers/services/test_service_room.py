"""The room that a rollout may use for a replica more is that of the pods as they are, with what they tolerate."""

from __future__ import annotations

import pytest

from berth.controllers.services.plans import pod_facts
from berth.controllers.services.supply import Market
from berth.inference.room import Rooms
from berth.values import Taint
from tests.builders.fleet import make_claim, make_fleet, make_node, make_pool
from tests.unit.controllers.services.views import make_view

DEVICE = Taint("nvidia.com/gpu", "present", "NoSchedule")
OTHERS = Taint("team", "search", "NoSchedule")


@pytest.mark.parametrize(
    ("taints", "taken", "room"),
    [((), 1, 3), ((DEVICE,), 1, 3), ((DEVICE,), 4, 0), ((DEVICE, OTHERS), 1, 0)],
    ids=["no taint", "the device's own taint", "full", "a taint that nobody tolerates"],
)
def test_room_for_one_more(taints: tuple[Taint, ...], taken: int, room: int) -> None:
    pools = [make_pool("l4", accelerator="L4", roles=("Inference",))]
    fleet = make_fleet([make_node("l4-0", pool="l4", devices=4, taints=taints)], pools=pools)
    fleet.claim([make_claim(f"c{number}", "l4-0", 1, role="Inference") for number in range(taken)])
    market = Market(fleet, Rooms(fleet), pod_facts(fleet))
    view = make_view(accelerators={"types": ["L4"], "perReplica": 1})
    (variant,) = market.choice(view).variants.values()
    assert market.space(view, variant).free == room
