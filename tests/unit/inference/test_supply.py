"""Which price of a pool is one on demand, and what its spot nodes cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from berth.inference.supply import supply
from tests.builders.fleet import make_fleet, make_node, make_pool


@pytest.mark.parametrize(
    ("changes", "usd", "is_spot"),
    [
        ({"capacity_type": "Spot"}, "0.30", True),
        ({"capacity_type": "Spot"}, None, False),
        ({}, "0.80", False),
    ],
    ids=["its own price", "the catalogue's price, which is on demand", "a pool of both"],
)
def test_only_a_spot_pools_own_price_is_one_of_spot(changes: dict[str, Any], usd: str | None, is_spot: bool) -> None:
    spec = replace(make_pool(accelerator="L4", roles=("Inference",), usd=usd), **changes)
    fleet = make_fleet([make_node("n", labels={"karpenter.sh/capacity-type": "spot"})], pools=[spec])
    found = supply(fleet.pools["p"], fleet.catalogue)
    assert found is not None
    assert found.price_is_spot is is_spot
    assert found.spot_discount > 0
