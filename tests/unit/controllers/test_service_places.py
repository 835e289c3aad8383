"""Which nodes the replicas of a variant may be bound to: those of its capacity type, whatever shares their product."""

from __future__ import annotations

from typing import Any

import pytest

from berth.controllers.services.places import seen_requirements, stated_requirements
from berth.fleet.fleet import Fleet
from berth.inference.records import Variant
from berth.values import CapacityType, Requirements
from tests.builders.fleet import make_fleet, make_node, make_pool
from tests.builders.services import make_variant

PRODUCT = {"nvidia.com/gpu.product": "NVIDIA-L4"}
KARPENTER = "karpenter.sh/capacity-type"
SPOT, ON_DEMAND = {KARPENTER: "spot"}, {KARPENTER: "on-demand"}
UNSAID: dict[str, str] = {}
GKE = {"cloud.google.com/gke-spot": "true"}
RESERVED = {"cloud.google.com/reservation-name": "ours"}


def nodes(*paid: dict[str, str], zone: str = "a") -> list[Any]:
    return [
        make_node(f"n{number}", pool=None, zone=zone, devices=4, labels={**PRODUCT, **labels})
        for number, labels in enumerate(paid)
    ]


def chosen(fleet: Fleet, capacity_type: CapacityType, zone: str = "") -> Requirements:
    paid = {pool.spec.capacity_type: name for name, pool in fleet.pools.items()}
    name = paid[capacity_type if capacity_type in paid else None]
    return asked(fleet, name, make_variant(pool=name, capacity_type=capacity_type, zone=zone))


def asked(fleet: Fleet, pool: str, variant: Variant) -> Requirements:
    return (*stated_requirements(fleet.pools[pool]), *seen_requirements(fleet.pools[pool], variant, fleet))


def takes(requirements: Requirements, labels: dict[str, str]) -> bool:
    return all(entry.matches({**PRODUCT, "topology.kubernetes.io/zone": "a", **labels}) for entry in requirements)


@pytest.mark.parametrize(
    ("capacity_type", "mine", "others"),
    [
        ("OnDemand", [ON_DEMAND, UNSAID], [SPOT, GKE, RESERVED]),
        ("Spot", [SPOT], [ON_DEMAND, UNSAID, RESERVED]),
        ("Reserved", [RESERVED], [ON_DEMAND, SPOT, UNSAID]),
    ],
)
def test_a_discovered_pool_keeps_off_its_sisters_of_the_same_product(
    capacity_type: CapacityType, mine: list[dict[str, str]], others: list[dict[str, str]]
) -> None:
    fleet = make_fleet(nodes(ON_DEMAND, SPOT, RESERVED), pools=())
    found = chosen(fleet, capacity_type)
    assert all(takes(found, labels) for labels in mine)
    assert not any(takes(found, labels) for labels in others)


def test_nodes_that_come_change_no_template() -> None:
    before = make_fleet(nodes(ON_DEMAND, SPOT), pools=())
    after = make_fleet(nodes(ON_DEMAND, SPOT, GKE, RESERVED, UNSAID), pools=())
    kinds: tuple[CapacityType, ...] = ("OnDemand", "Spot")
    assert [chosen(before, kind) for kind in kinds] == [chosen(after, kind) for kind in kinds]


def test_an_acceleratorpool_of_another_accelerator_changes_no_template() -> None:
    before = make_fleet(nodes(ON_DEMAND), pools=())
    after = make_fleet([*nodes(ON_DEMAND), make_node("h100")], pools=[make_pool()])
    assert chosen(before, "OnDemand") == asked(after, "l4", make_variant(pool="l4"))
