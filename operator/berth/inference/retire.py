"""Which replicas may go, and in what order.

A replica goes when those that are ready without it carry the work (the N/(N-1) proof), so a replacement is ready
before what it replaces ends. Not-ready ones go first, then the dearest variant, then the least loaded pod.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from berth.inference.need import leaving
from berth.inference.records import Variant
from berth.inference.service import Replica


def staying(wanted: Mapping[str, int], replicas: tuple[Replica, ...]) -> dict[str, int]:
    """Of each variant's wanted replicas those that no notice is about to take."""
    return {name: max(0, count - leaving(replicas, name)) for name, count in wanted.items()}


def settle(
    goal: Mapping[str, int],
    wanted: Mapping[str, int],
    replicas: tuple[Replica, ...],
    variants: Mapping[str, Variant],
    work: float,
    rooms: Mapping[str, int],
) -> dict[str, int]:
    """What each Deployment is to ask for now, on the way from ``wanted`` to ``goal``.

    ``goal`` counts replicas that will stay; those about to be taken are asked for beside them while they live and
    there is room (``rooms``: replicas of a variant that can exist). ``work`` must be carried by ready replicas all the
    time as far as it is now. A variant that is not in ``variants`` has no offer any more: its capacity counts as none.
    """
    capacity = {name: variant.capacity for name, variant in variants.items()}
    counts: dict[str, int] = {}
    surplus: dict[str, int] = {}
    for name in goal.keys() | wanted.keys():
        aim, have = goal.get(name, 0) + leaving(replicas, name), wanted.get(name, 0)
        if aim >= have:
            counts[name] = max(have, min(aim, rooms.get(name, aim)))
        else:
            counts[name], surplus[name] = have, have - aim
    ready = {name: _ready(replicas, name) for name in counts}
    carried = sum(capacity.get(name, 0.0) * count for name, count in ready.items())
    for name in sorted(surplus, key=lambda name: _dearness(variants.get(name)), reverse=True):
        unready = max(0, wanted.get(name, 0) - leaving(replicas, name) - ready[name])
        while surplus[name] > 0:
            if unready > 0:
                unready -= 1
            elif carried - capacity.get(name, 0.0) >= work - 1e-9:
                carried -= capacity.get(name, 0.0)
            else:
                break
            counts[name] -= 1
            surplus[name] -= 1
    return dict(sorted(counts.items()))


def proven(capacity_after: float, work: float) -> bool:
    """Whether ``work``, spread over what is left, stays within what replicas carry at the SLO.

    The load of N replicas on N-1 is N/(N-1) of what each has; in units of work that is ``work / capacity_after <= 1``.
    """
    return work <= capacity_after + 1e-9


def victims(replicas: Sequence[Replica], variant: str, count: int) -> tuple[str, ...]:
    """The ``count`` pods of ``variant`` that a decrease should take, the first to go first."""
    mine = [replica for replica in replicas if replica.variant == variant and not replica.terminating]
    return tuple(replica.name for replica in sorted(mine, key=_reluctance)[:count])


def _reluctance(replica: Replica) -> tuple[bool, bool, float, float, str]:
    """Smaller goes earlier: about to be taken, not ready, little in flight (unknown counts as much), young."""
    load = float("inf") if replica.in_flight is None else replica.in_flight
    return (replica.leaving_at is None, replica.ready, load if replica.ready else 0.0, -replica.created, replica.name)


def _ready(replicas: Sequence[Replica], variant: str) -> int:
    return sum(r.variant == variant and r.ready and not r.terminating and r.leaving_at is None for r in replicas)


def _dearness(variant: Variant | None) -> tuple[float, str]:
    if variant is None:
        return (float("inf"), "")
    return (variant.usd_per_hour / max(variant.capacity, 1e-9), variant.name)
