"""What a policy for spot is, and the one simulation that judges all of them.

Steps of 60 s. In a step first the nodes change: a zone has up to 16, of which those that go are chosen by a seed, the
same for every policy, and take their replica along. Then the policy is told what is there, which of its replicas it has
been told will go, and how many replicas must be ready one cold start ahead; it answers with counts. A replica is paid
from then on and carries work after its cold start. On demand there is always room.
A step in which nothing changes asks nobody, but for ``Policy.patience``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.spot_traces import NODES, STEP_SECONDS, Group, Ints

ON_DEMAND: Final = "on-demand"
ON_DEMAND_PRICE: Final = 1.0
SPOT_PRICE: Final = 0.3
COLD_STEPS: Final = 3
NOTICE_STEPS: Final = 2


@dataclass(frozen=True, slots=True)
class Rules:
    """What every policy keeps: replicas on demand, and the share of all that one zone's spot may be."""

    floor: int = 1
    max_zone_loss: float = 0.34

    def per_zone(self, total: int) -> int:
        """The most spot replicas in one zone, of ``total``."""
        return int(self.max_zone_loss * total + 1e-9)


@dataclass(slots=True)
class Replica:
    """One that exists. ``ready_at`` and ``leaves_at`` are steps; the latter None while no notice was given."""

    number: int
    zone: str
    slot: int
    ready_at: int
    leaves_at: int | None = None


@dataclass(frozen=True, slots=True)
class View:
    """What a policy sees. ``nodes``: of each zone those there, ``going`` of them with notice, ``lost`` since before.

    ``needed``: replicas that must be ready one cold start ahead. ``replicas`` by place, a zone or ``ON_DEMAND``.
    """

    step: int
    needed: int
    demand: int
    nodes: Mapping[str, int]
    going: Mapping[str, int]
    lost: Mapping[str, int]
    replicas: Mapping[str, Sequence[Replica]]

    def ready(self, place: str) -> int:
        """Replicas of a place that carry work now."""
        return sum(replica.ready_at <= self.step for replica in self.replicas[place])


class Policy(Protocol):
    """One setting of one policy. ``patience``: after so many steps without any change it is asked again."""

    name: str
    patience: int

    def reset(self, zones: Sequence[str], rules: Rules, notice: bool) -> None:
        """A new service begins."""

    def decide(self, view: View) -> Mapping[str, int]:
        """Replicas wanted by place; in a zone without a free node a start fails and costs nothing."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """``unserved`` as a share of all work, ``cost`` in hours of a replica on demand; replicas lost without notice."""

    unserved: float
    cost: float
    lost: int = 0


@dataclass(slots=True)
class World:
    """A group's nodes one by one: ``up[zone][step, slot]``. Which of them go is drawn once, for all policies."""

    group: Group
    up: dict[str, NDArray[np.bool_]] = field(default_factory=dict)

    @classmethod
    def of(cls, group: Group) -> World:
        """The world of ``group``."""
        world = cls(group)
        for index, (zone, nodes) in enumerate(zip(group.zones, group.nodes, strict=True)):
            rng = np.random.default_rng([index, len(nodes)])
            up = np.zeros((len(nodes), NODES), dtype=bool)
            row = np.zeros(NODES, dtype=bool)
            row[rng.permutation(NODES)[: nodes[0]]] = True
            moves = [*(np.flatnonzero(np.diff(nodes)) + 1).tolist(), len(nodes)]
            up[: moves[0]] = row
            for begin, end in pairwise(moves):
                change = int(nodes[begin]) - int(row.sum())
                candidates = np.flatnonzero(row if change < 0 else ~row)
                row[rng.permutation(candidates)[: abs(change)]] = change > 0
                up[begin:end] = row
            world.up[zone] = up
        return world


def simulate(policy: Policy, world: World, demand: Ints, rules: Rules, *, notice: bool) -> Outcome:
    """Run ``policy`` over ``demand``, replicas by step. It starts with what the first step needs, ready, on demand."""
    zones = world.group.zones
    needed = ahead(demand)
    policy.reset(zones, rules, notice)
    run = _Run(world, zones, int(needed[0]), notice=notice)
    unserved = cost = 0.0
    asked = 0
    moved = True
    for step, (now, then) in enumerate(zip(demand.tolist(), needed.tolist(), strict=True)):
        news = run.nodes_change(step) or step - run.last_start <= COLD_STEPS
        if moved or news or step - asked >= policy.patience or then != needed[step - 1]:
            moved, asked = run.apply(step, policy.decide(run.view(step, then, now))), step
        cost += run.price
        if (short := now - run.ready(step)) > 0:
            unserved += short
    return Outcome(unserved / max(float(demand.sum()), 1.0), cost * STEP_SECONDS / 3600, run.losses)


def ahead(demand: Ints) -> Ints:
    """The most that is demanded from each step until a replica started in it is ready."""
    padded = np.append(demand, np.repeat(demand[-1:], COLD_STEPS))
    most: Ints = np.max(np.stack([padded[i : i + len(demand)] for i in range(COLD_STEPS + 1)]), axis=0)
    return most


class _Run:
    # The replicas of one policy.

    def __init__(self, world: World, zones: Sequence[str], first: int, *, notice: bool) -> None:
        self.world, self.zones, self.notice = world, zones, notice
        self.last_start, self.all_ready = -COLD_STEPS, first
        self.count, self.losses, self.price = first, 0, 0.0
        self.places: dict[str, list[Replica]] = {zone: [] for zone in zones}
        self.places[ON_DEMAND] = [Replica(i, ON_DEMAND, -1, 0) for i in range(first)]
        nodes = world.group.nodes
        self.nodes = dict.fromkeys(zones, 0)
        self.lost = dict(self.nodes)
        self.going = dict(self.nodes)
        moves = [0, *(np.flatnonzero((np.diff(nodes, axis=1) != 0).any(axis=0)) + 1).tolist()]
        early = NOTICE_STEPS if notice else 0
        # One step after a change what was lost in it is no news any more, so that is a change too.
        self.changed = {at + shift for at in moves for shift in range(-early, 2)}
        self.last = nodes.shape[1] - 1

    def nodes_change(self, step: int) -> bool:
        """Take along what the nodes that go hold; whether there is anything to see."""
        if step not in self.changed:
            return False
        for zone in self.zones:
            up = self.world.up[zone]
            now = up[step]
            before = up[step - 1] if step else np.zeros_like(now)
            self.nodes[zone] = int(now.sum())
            self.lost[zone] = int((before & ~now).sum())
            kept = [replica for replica in self.places[zone] if now[replica.slot]]
            self.losses += sum(not now[replica.slot] and replica.leaves_at is None for replica in self.places[zone])
            self.places[zone][:] = kept
            if self.notice:
                stays = np.logical_and.reduce(up[step : min(step + NOTICE_STEPS, self.last) + 1], axis=0)
                self.going[zone] = int((now & ~stays).sum())
                for replica in kept:
                    if not stays[replica.slot] and replica.leaves_at is None:
                        replica.leaves_at = step + NOTICE_STEPS
        self._account(step)
        return True

    def view(self, step: int, needed: int, demand: int) -> View:
        return View(step, needed, demand, self.nodes, self.going, self.lost, self.places)

    def ready(self, step: int) -> int:
        """Replicas that carry work."""
        if step - self.last_start <= COLD_STEPS:
            self._account(step)
        return self.all_ready

    def apply(self, step: int, wanted: Mapping[str, int]) -> bool:
        """Start and stop replicas; whether any did."""
        moved = False
        for place, replicas in self.places.items():
            change = wanted.get(place, 0) - len(replicas)
            if change < 0:
                # Those told to go first, then those that are not ready, then the youngest.
                replicas.sort(key=lambda r: (r.leaves_at is None, r.ready_at <= step, -r.number))
                del replicas[:-change]
                moved = True
            elif change > 0:
                moved = self._start(step, place, change) or moved
        if moved:
            self._account(step)
        return moved

    def _account(self, step: int) -> None:
        spot = sum(len(self.places[zone]) for zone in self.zones)
        self.price = ON_DEMAND_PRICE * len(self.places[ON_DEMAND]) + SPOT_PRICE * spot
        self.all_ready = sum(replica.ready_at <= step for place in self.places.values() for replica in place)

    def _start(self, step: int, place: str, count: int) -> bool:
        slots = [-1] * count
        if place != ON_DEMAND:
            taken = {replica.slot for replica in self.places[place]}
            up = self.world.up[place][step]
            slots = [slot for slot in np.flatnonzero(up).tolist() if slot not in taken][:count]
        for slot in slots:
            self.places[place].append(Replica(self.count, place, slot, step + COLD_STEPS))
            self.count += 1
            self.last_start = step
        return bool(slots)
