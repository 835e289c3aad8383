"""What is told of replicas whose nodes are about to be taken away, those on spot and the others apart.

An autoscaler that empties a node on demand is no market's doing, and what people do about the two differs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from berth.api.names import ServiceEvent
from berth.inference.service import Event, Replica
from berth.values import format_duration, plural


def leaving_reason(replicas: Iterable[Replica]) -> str:
    """Why replacements are made, in one word; empty where no replica is about to be taken."""
    spot = {replica.spot for replica in replicas if replica.leaving_at is not None}
    return "" if not spot else ServiceEvent.SPOT_RECLAIMED if True in spot else ServiceEvent.NODE_LEAVING


def leaving_events(replicas: Iterable[Replica], now: float) -> tuple[Event, ...]:
    """An event for those on spot and one for the others, as far as there are any; ``now`` in unix seconds."""
    gone = [replica for replica in replicas if replica.leaving_at is not None]
    told = []
    for reason, kind, spot in (
        (ServiceEvent.SPOT_RECLAIMED, "spot replica", True),
        (ServiceEvent.NODE_LEAVING, "replica", False),
    ):
        ends = [replica.leaving_at for replica in gone if replica.spot is spot and replica.leaving_at is not None]
        if ends:
            told.append(Event(reason, f"{_end(len(ends), kind, min(ends) - now)}; replacements start first", True))
    return tuple(told)


def _end(count: int, kind: str, seconds: float) -> str:
    is_, ends, it = ("is", "ends", "it") if count == 1 else ("are", "end", "them")
    if math.isinf(seconds):
        return f"{plural(count, kind)} {is_} to leave, and the node waits for {it}"
    return f"{plural(count, kind)} {ends} in {format_duration(max(0.0, seconds))}"
