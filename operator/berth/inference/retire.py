"""Which replicas may go, and in what order.

A replica goes when those that are ready without it carry the work (the N/(N-1) proof), so a replacement is ready
before what it replaces ends. Not-ready ones go first, then the dearest variant, then the least loaded pod.

Everything is counted from what is asked for and not from the pods there are: between a decrease and the end of its
pods the same pod would otherwise be counted twice, once as gone and once as there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from berth.inference.records import Variant
from berth.inference.service import Replica


def leaving(wanted: int, replicas: Sequence[Replica], variant: str) -> int:
    """Of ``wanted`` replicas of ``variant`` those that a notice is about to take.

    Pods beyond ``wanted`` are on their way out already.
    """
    alive = _alive(replicas, variant)
    return sum(replica.leaving_at is not None for replica in alive[max(0, len(alive) - wanted) :])


def staying(wanted: Mapping[str, int], replicas: Sequence[Replica]) -> dict[str, int]:
    """Of each variant's wanted replicas those that no notice is about to take."""
    return {name: count - leaving(count, replicas, name) for name, count in wanted.items()}


def settle(
    goal: Mapping[str, int],
    wanted: Mapping[str, int],
    replicas: Sequence[Replica],
    variants: Mapping[str, Variant],
    work: float,
    rooms: Mapping[str, int],
    least: int = 0,
    *,
    short: bool = False,
    urgent: bool = False,
) -> dict[str, int]:
    """What each Deployment is to ask for now, on the way from ``wanted`` to ``goal``.

    ``goal`` counts replicas that will stay; those about to be taken are asked for beside them, where there is room
    (``rooms``: replicas of a variant that can exist), until they are replaced. ``work`` is carried by, and ``least`` is
    the number of, ready replicas all the time as far as it is so now. ``short``: the goal is less than is needed, so
    those about to be taken serve to their end. ``urgent``: they need what is left to them for their last answers, so
    they go as soon as the others carry the work, though the goal is not reached yet. A variant that is not in
    ``variants`` has no offer any more: its capacity counts as none.
    """
    capacity = {name: variant.capacity for name, variant in variants.items()}
    stays = staying({name: wanted.get(name, 0) for name in goal.keys() | wanted.keys()}, replicas)
    ready = {name: min(count, _ready(replicas, name)) for name, count in stays.items()}
    carried = sum(capacity.get(name, 0.0) * count for name, count in ready.items())
    serving = sum(ready.values())
    counts: dict[str, int] = {}
    for name in sorted(stays, key=lambda name: _dearness(variants.get(name)), reverse=True):
        surplus = stays[name] - goal.get(name, 0)
        counts[name] = max(stays[name], goal.get(name, 0))
        unready = stays[name] - ready[name]
        while surplus > 0:
            if unready > 0:
                unready -= 1
            elif carried - capacity.get(name, 0.0) >= work - 1e-9 and serving > least:
                carried -= capacity.get(name, 0.0)
                serving -= 1
            else:
                break
            counts[name] -= 1
            surplus -= 1
    reached = urgent or all(ready.get(name, 0) >= count for name, count in goal.items())
    replaced = not short and reached and carried >= work - 1e-9 and serving >= least
    for name, count in counts.items():
        asked = _asked(count, replicas, name)[0 if replaced else 1]
        counts[name] = min(asked, max(wanted.get(name, 0), rooms.get(name, asked)))
    return dict(sorted(counts.items()))


def _asked(stays: int, replicas: Sequence[Replica], variant: str) -> tuple[int, int]:
    """The fewest and the most replicas to ask for, so that ``stays`` of them have no notice.

    The fewest may be more than ``stays``: pods that are not ready would go before those with a notice.
    """
    noticed = leaving(len(replicas), replicas, variant)
    fit = [n for n in range(stays, stays + noticed + 1) if n - leaving(n, replicas, variant) == stays]
    return min(fit), max(fit)


def victims(replicas: Sequence[Replica], variant: str, remain: int) -> tuple[str, ...]:
    """The pods of ``variant`` that a decrease to ``remain`` takes, the first to go first."""
    mine = _alive(replicas, variant)
    return tuple(replica.name for replica in mine[: max(0, len(mine) - remain)])


def _alive(replicas: Sequence[Replica], variant: str) -> list[Replica]:
    """The pods of ``variant``, the first to go first."""
    return sorted((r for r in replicas if r.variant == variant and not r.terminating), key=_reluctance)


def _reluctance(replica: Replica) -> tuple[bool, bool, float, float, str]:
    """Smaller goes earlier: not ready (nothing moves Kubernetes to another order), about to be taken, little in flight
    (unknown counts as much), young."""
    load = float("inf") if replica.in_flight is None else replica.in_flight
    return (replica.ready, replica.leaving_at is None, load if replica.ready else 0.0, -replica.created, replica.name)


def _ready(replicas: Sequence[Replica], variant: str) -> int:
    return sum(r.variant == variant and r.ready and not r.terminating and r.leaving_at is None for r in replicas)


def _dearness(variant: Variant | None) -> tuple[float, str]:
    if variant is None:
        return (float("inf"), "")
    return (variant.usd_per_hour / max(variant.capacity, 1e-9), variant.name)
