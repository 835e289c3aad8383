"""The cluster as decisions see it: pools of nodes as arrays, and one ledger of who holds room.

Every decision and every observation goes through one object, so that a node is one record and room that is promised
is gone for everybody else at once. Usage is derived from claims, never counted up and down by events: whoever observes
pods states the claims there are, saying one twice changes nothing, and :meth:`Fleet.check` computes everything again
from nodes, pools and claims alone and names what differs.

A claim or release answers with its undo. Undone in the reverse order, they leave the fleet exactly as it was, which is
how a decision tries something out; :meth:`Fleet.trial` does that for a whole block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from types import MappingProxyType

from berth.catalogue.records import Catalogue
from berth.fleet.audit import differences
from berth.fleet.compact import Packer
from berth.fleet.ledger import Ledger
from berth.fleet.membership import Membership
from berth.fleet.pool import Pool
from berth.fleet.records import Claim, NodeFacts, PoolSpec
from berth.fleet.report import PoolReport, report

Undo = Callable[[], None]
_Change = tuple[str, Claim | None, Claim | None]  # key, before, after


class Fleet:
    """Nodes, pools and claims.

    ``pools`` holds every pool by name, those of AcceleratorPools and discovered ones; ``nodes`` every node, also those
    in no pool; ``claims`` every claim by key, also those on unknown nodes. ``version`` changes whenever something may
    fit that did not fit before.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self.version = 0
        self.catalogue = catalogue
        self.catalogue_version = 0  # grows with every change of it
        self.membership = Membership(catalogue)
        self._ledger = Ledger()
        self._nodes: dict[str, NodeFacts] = {}
        self._owner: dict[str, str] = {}
        self._pools: dict[str, Pool] = {}
        self._ticks = count(1)
        self._labels: Packer[str] = Packer()
        self._amounts: Packer[int] = Packer()
        self._trials: list[list[Undo]] = []
        self._touched: set[str] | None = None  # nodes about which something was said, while a recount wants to know
        self.pools: Mapping[str, Pool] = MappingProxyType(self._pools)
        self.nodes: Mapping[str, NodeFacts] = MappingProxyType(self._nodes)
        self.claims: Mapping[str, Claim] = self._ledger.claims

    def pool_of(self, node: str) -> Pool | None:
        """The pool that has ``node``."""
        owner = self._owner.get(node)
        return None if owner is None else self._pools[owner]

    def claims_on(self, node: str) -> list[Claim]:
        """The claims on ``node``, by key."""
        return sorted(self._ledger.on(node), key=lambda claim: claim.key)

    def set_node(self, facts: NodeFacts) -> bool:
        """Take in a node as it is now. Returns whether anything is different from before."""
        before = self._nodes.get(facts.name)
        if before is None:
            kept = replace(
                facts, labels=self._labels.pack(facts.labels), allocatable=self._amounts.pack(facts.allocatable)
            )
        else:
            # Equal parts stay the same objects, by which everything below sees at once what is new.
            labels = before.labels if before.labels == facts.labels else self._labels.pack(facts.labels)
            room = (
                before.allocatable if before.allocatable == facts.allocatable else self._amounts.pack(facts.allocatable)
            )
            kept = replace(facts, labels=labels, allocatable=room)
            if kept == before:
                return False
        self._nodes[facts.name] = kept
        self._touch(facts.name)
        if before is None or before.labels is not kept.labels or before.allocatable is not kept.allocatable:
            self._assign(facts)
        if (pool := self.pool_of(facts.name)) is not None:
            pool.put(kept)
        self.version += 1
        return True

    def remove_node(self, name: str) -> bool:
        """Forget a node. Claims on it stay until they are released. Returns whether it was known."""
        if self._nodes.pop(name, None) is None:
            return False
        self._touch(name)
        self.membership.leave(name)
        self._disown(name)
        self._follow_membership()
        self.version += 1
        return True

    def set_pools(self, specs: Iterable[PoolSpec]) -> bool:
        """State the AcceleratorPools there are, all of them. Returns whether anything is different from before."""
        membership = Membership(self.catalogue, specs)
        if membership.stated == self.membership.stated:
            return False
        self._adopt(membership)
        return True

    def set_catalogue(self, catalogue: Catalogue) -> None:
        """Go by another catalogue from now on."""
        self.catalogue = catalogue
        self.catalogue_version += 1
        self._pools.clear()
        self._owner.clear()
        self._adopt(Membership(catalogue, self.membership.stated.values()))

    def claim(self, claims: Iterable[Claim]) -> Undo:
        """Hold room. A key that holds room already holds this room instead.

        The undo gives back what there was, but leaves alone a key about which something newer was said since.
        """
        return self._apply((claim.key, claim) for claim in claims)

    def release(self, keys: Iterable[str]) -> Undo:
        """Hold no room any more for ``keys``; unknown ones are no matter. The undo as in :meth:`claim`."""
        return self._apply((key, None) for key in keys)

    def report(self, pool: str) -> PoolReport:
        """What ``pool`` has and lacks. Raises: KeyError where there is none of that name."""
        return report(self._pools[pool], self.membership, self.catalogue.accelerators)

    def check(self) -> list[str]:
        """Compute everything again from nodes, pools and claims alone; what differs from what is kept, if anything."""
        fresh = Fleet(self.catalogue)
        fresh.set_pools(self.membership.stated.values())
        for facts in self._nodes.values():
            fresh.set_node(facts)
        fresh.claim(self.claims.values())
        return differences(self._pools, fresh.pools)

    def second(self, touched: set[str]) -> Fleet:
        """An empty fleet of the same pools over the same claims; nodes that change from now on go into ``touched``."""
        second = Fleet(self.catalogue)
        second._ledger, second._ticks, second.claims = self._ledger, self._ticks, self.claims
        second.set_pools(self.membership.stated.values())
        self._touched = touched
        return second

    def forget_second(self) -> None:
        """Nobody wants to know of changes any more."""
        self._touched = None

    def become(self, second: Fleet) -> None:
        """Hold the pools of ``second``, which has the same nodes and claims; it must not be used any more."""
        self.membership, self._owner = second.membership, second._owner
        self._pools.clear()
        self._pools.update(second._pools)
        self.version += 1

    @contextmanager
    def trial(self) -> Iterator[Fleet]:
        """What is claimed and released inside is undone at the end, and all versions are as if it had never been."""
        undos = list[Undo]()
        before = [(pool, pool.structure, pool.version, pool.gains) for pool in self._pools.values()]
        self._trials.append(undos)
        try:
            yield self
        finally:
            for undo in reversed(undos):
                undo()
            self._trials.pop()
            for pool, structure, version, gains in before:
                if pool.structure == structure:
                    pool.version, pool.gains = version, gains

    def _apply(self, wanted: Iterable[tuple[str, Claim | None]]) -> Undo:
        changes: list[_Change] = []
        for key, claim in wanted:
            if self._ledger.claims.get(key) != claim:
                changes.append((key, self._set(key, claim), claim))
        self._gained(changes)

        def undo() -> None:
            undone: list[_Change] = []
            while changes:
                key, before, after = changes.pop()
                if self._ledger.claims.get(key) is after:
                    self._set(key, before)
                    undone.append((key, after, before))
            self._gained(undone)

        if self._trials:
            self._trials[-1].append(undo)
        return undo

    def _set(self, key: str, claim: Claim | None) -> Claim | None:
        before = self._ledger.put(key, claim)
        for held, sign in ((before, -1), (claim, 1)):
            if held is not None:
                self._touch(held.node)
                if (pool := self.pool_of(held.node)) is not None:
                    pool.hold(held, sign)
        return before

    def _touch(self, node: str) -> None:
        if self._touched is not None:
            self._touched.add(node)

    def _gained(self, changes: Iterable[_Change]) -> None:
        if not self._trials and any(before is not None for _, before, _ in changes):
            self.version += 1

    def _assign(self, facts: NodeFacts) -> None:
        """Find the pool of a node that is new or different, and let the one that had it go."""
        self.membership.leave(facts.name)
        owner = self.membership.join(facts)
        if owner != self._owner.get(facts.name):
            self._disown(facts.name)
        self._follow_membership()
        if owner is not None:
            self._owner[facts.name] = owner

    def _disown(self, name: str) -> None:
        owner = self._owner.pop(name, None)
        if owner is not None:
            self._pools[owner].remove(name)

    def _follow_membership(self) -> None:
        for name in self.membership.take_changed():
            spec = self.membership.spec(name)
            if spec is None:
                self._pools.pop(name, None)
            else:
                self._shape(spec)
                self._pools[name].touch()

    def _shape(self, spec: PoolSpec) -> None:
        """Make the pool what ``spec`` says, with the nodes it has; made anew only where rows are affected."""
        before = self._pools.get(spec.name)
        if before is not None and before.spec == spec:
            return
        if before is not None and (before.spec.accelerator, before.spec.levels) == (spec.accelerator, spec.levels):
            before.respec(spec)
            return
        accelerator = self.catalogue.accelerators.get(spec.accelerator)
        pool = Pool(spec, accelerator, self.catalogue.labels, self._ledger.on, self._ticks)
        self._pools[spec.name] = pool
        for name in before.row if before is not None else ():
            pool.put(self._nodes[name])

    def _adopt(self, membership: Membership) -> None:
        """Go by another set of pools: nodes move, pools that stay keep their rows."""
        owners = {name: membership.join(facts) for name, facts in self._nodes.items()}
        membership.take_changed()
        self.membership = membership
        for name in [name for name, owner in self._owner.items() if owners[name] != owner]:
            self._disown(name)
        for name in self._pools.keys() - membership.specs.keys():
            del self._pools[name]
        for spec in membership.specs.values():
            self._shape(spec)
            self._pools[spec.name].touch()
        for name, owner in owners.items():
            if owner is not None and owner != self._owner.get(name):
                self._owner[name] = owner
                self._pools[owner].put(self._nodes[name])
        self.version += 1
