"""Decisions of one service in short, for the tests of the plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from berth.inference.mix import cheapest_mix
from berth.inference.plan import decide
from berth.inference.service import Memory, Plan, Rules, Sight, SpotRules
from tests.builders.services import make_offer, make_replica, make_sight

NAMES = ("od", "spot-a", "spot-b")
NOW = 10_000.0
PATIENT = Memory(lower_since=0.0)
"""Less has been enough for long."""
SPOT = SpotRules(allowed=True)


def plan(sight: Sight, rules: Rules | None = None, memory: Memory | None = None) -> Plan:
    return decide(rules or Rules(), memory or Memory(), sight, cheapest_mix)


def case(
    work: float | None,
    wanted: dict[str, int],
    pods: str,
    rooms: dict[str, int],
    *,
    rules: Rules | None = None,
    memory: Memory | None = None,
    capacity: Mapping[str, float] | None = None,
    **fields: Any,
) -> tuple[Rules, Memory, Sight]:
    """A drawn case in short: ``pods`` are names of variants, ``-`` behind one that is not ready, ``!`` a notice."""
    replicas = tuple(
        make_replica(
            f"p{i}", text.rstrip("-!"), ready=text.rstrip("!")[-1] != "-", leaving_at=NOW + 60 if "!" in text else None
        )
        for i, text in enumerate(pods.split())
    )
    offers = tuple(
        make_offer(name, rooms.get(name, 0), usd=usd, capacity=(capacity or {}).get(name, 1))
        for name, usd in zip(NAMES, (1.0, 0.3, 0.35), strict=True)
    )
    sight = make_sight(work, wanted, replicas=replicas, offers=offers, cold_start_seconds=30.0, **fields)
    return rules or Rules(max_replicas=1), memory or Memory(), sight
