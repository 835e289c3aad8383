"""Which nodes should get a model's weights before a replica comes to them.

A replica that finds its weights on the node starts minutes sooner. What is coming is known ahead: the peak that the
forecast sees, and the places that take over when a zone loses its spot nodes. Weights on a node too many cost network
and disk and no device, so the estimate errs to that side; how much is fetched at once is bounded instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from berth.inference.records import Variant
from berth.inference.service import Verdict
from berth.values import plural

K = TypeVar("K")

DISK_SHARE: Final = 0.8
"""Of a node's local storage that weights may fill: by default the kubelet begins to delete images at 85 %."""
_SLACK: Final = 1e-9


@dataclass(frozen=True, slots=True)
class CacheNode:
    """A node where replicas of a variant may come. ``slots``: how many more its free devices take.

    ``holds`` the weights, or is ``fetching`` them; ``barred`` from fetching: it failed lately, or has no room for them.
    """

    name: str
    slots: int
    holds: bool = False
    fetching: bool = False
    barred: bool = False


@dataclass(frozen=True, slots=True)
class CachePlace:
    """A variant, the ``count`` of its replicas that are planned, and nodes for more, in the order of their use."""

    variant: Variant
    count: int = 0
    nodes: tuple[CacheNode, ...] = ()

    @property
    def slots(self) -> int:
        """How many more replicas find room."""
        return sum(node.slots for node in self.nodes)


def coming(places: Iterable[CachePlace], work: float, *, least: int = 0, most: int) -> dict[str, int]:
    """Replicas by variant that carry ``work`` more, ``least`` to ``most`` of them, as far as there is room.

    Cheapest work first. It ignores the bounds on the mix, which move a few replicas to other variants.
    """
    found: dict[str, int] = {}
    for place in sorted(places, key=_price):
        total = sum(found.values())
        capacity = place.variant.capacity
        missing = math.ceil(work / capacity - _SLACK) if capacity > 0 and work > _SLACK else 0
        count = min(place.slots, max(missing, least - total), most - total)
        if count > 0:
            found[place.variant.name] = count
            work -= count * capacity
    return found


def stand_ins(places: Sequence[CachePlace]) -> dict[str, int]:
    """Replicas by variant that stand in where one zone loses its spot: the most that any zone's loss asks for."""
    most: dict[str, int] = {}
    for zone in {place.variant.zone for place in places if place.variant.spot and place.count}:
        lost = [place for place in places if place.variant.spot and place.variant.zone == zone]
        rest = [place for place in places if place not in lost]
        work = sum(place.count * place.variant.capacity for place in lost)
        need = coming(rest, work, most=sum(place.slots for place in rest))
        most = larger(most, need)
    return most


def larger(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """By variant the larger of two counts."""
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in one.keys() | other.keys()}


def uncovered(place: CachePlace, count: int) -> int:
    """Of ``count`` replicas to come those that find no node that holds the weights or is about to."""
    return max(0, count - sum(node.slots for node in place.nodes if node.holds or node.fetching))


def to_fetch(places: Iterable[CachePlace], need: Mapping[str, int]) -> list[tuple[str, str]]:
    """(variant, node) of the fetches that ``need`` asks for, each node once, in the order of the nodes' use."""
    found: dict[str, str] = {}
    for place in places:
        missing = uncovered(place, need.get(place.variant.name, 0))
        for node in place.nodes:
            if missing <= 0:
                break
            if node.slots and not (node.holds or node.fetching or node.barred):
                found.setdefault(node.name, place.variant.name)
                missing -= node.slots
    return [(variant, node) for node, variant in found.items()]


def in_turns(wanted: Sequence[Sequence[K]], most: int) -> list[K]:
    """At most ``most`` of all that is wanted, one of each in turn, so that nobody waits for another's last."""
    return [entry for _, entry in zip(range(max(0, most)), _turns(wanted), strict=False)]


def _turns(wanted: Sequence[Sequence[K]]) -> Iterator[K]:
    for turn in range(max(map(len, wanted), default=0)):
        yield from (entries[turn] for entries in wanted if turn < len(entries))


def has_disk(allocatable: int | None, held: int, weights: int) -> bool:
    """Whether ``weights`` bytes find room beside ``held`` on ``allocatable`` bytes of local storage; None: not told."""
    return allocatable is None or held + weights <= DISK_SHARE * allocatable


def verdict(places: Iterable[CachePlace], need: Mapping[str, int], problem: str = "") -> Verdict:
    """The condition Prefetched: whether what is coming finds its weights. ``problem``: what the last fetch died of."""
    missing, under_way = 0, False
    for place in places:
        count = need.get(place.variant.name, 0)
        short = max(0, count - sum(node.slots for node in place.nodes if node.holds))
        missing += short
        cold = [node for node in place.nodes if node.slots and not node.holds]
        under_way = under_way or (short > 0 and any(node.fetching or not node.barred for node in cold))
    if not missing:
        return Verdict(True, "Sufficient", "replicas to come find nodes that hold the weights")
    if under_way:
        return Verdict(False, "Fetching", f"weights are being fetched for {plural(missing, 'replica')} to come")
    if problem:
        return Verdict(False, "FetchFailed", problem)
    return Verdict(False, "NoCacheRoom", f"no node has room for the weights of {plural(missing, 'replica')} to come")


def _price(place: CachePlace) -> tuple[float, str]:
    variant = place.variant
    return (variant.usd_per_hour / variant.capacity if variant.capacity > 0 else math.inf, variant.name)
