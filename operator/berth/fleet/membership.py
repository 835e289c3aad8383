"""Which pool a node belongs to: exactly one, or none.

A node that two pools sold would be sold twice. AcceleratorPools are asked by age, then by name; the first that selects
the node has it, and every pool that also selects it is told. What no AcceleratorPool selects is left to discovery.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from berth.catalogue.records import Catalogue
from berth.fleet.discovery import Discovery
from berth.fleet.records import NodeFacts, PoolSpec
from berth.values import selects


class Membership:
    """Nodes by pool, for one set of AcceleratorPools."""

    def __init__(self, catalogue: Catalogue, stated: Iterable[PoolSpec] = ()) -> None:
        self.stated = {spec.name: spec for spec in sorted(stated, key=lambda spec: (spec.created, spec.name))}
        self._discovery = Discovery(catalogue, self.stated)
        self._shared: dict[str, tuple[str, ...]] = {}
        self._sharing_changed: set[str] = set()

    @property
    def specs(self) -> Mapping[str, PoolSpec]:
        """Every pool there is, stated ones first."""
        return {**self.stated, **self._discovery.specs}

    def spec(self, pool: str) -> PoolSpec | None:
        """What ``pool`` is, ``None`` when it is no more."""
        return self.stated.get(pool) or self._discovery.specs.get(pool)

    def join(self, facts: NodeFacts) -> str | None:
        """The pool of a new node, ``None`` when it belongs to none."""
        owners = tuple(name for name, spec in self.stated.items() if selects(spec.selector, facts.labels))
        if len(owners) > 1:
            self._shared[facts.name] = owners
            self._sharing_changed.update(owners)
        return owners[0] if owners else self._discovery.join(facts.name, facts.labels, facts.allocatable)

    def leave(self, node: str) -> None:
        """Forget a node."""
        self._sharing_changed.update(self._shared.pop(node, ()))
        self._discovery.leave(node)

    def take_changed(self) -> set[str]:
        """The pools about which something became different since the last call, their nodes' own facts apart.

        Discovered ones that came, went or are specified otherwise, and stated ones that share other nodes.
        """
        changed = self._discovery.changed | self._sharing_changed
        self._discovery.changed.clear()
        self._sharing_changed.clear()
        return changed

    def shared(self, pool: str) -> dict[str, tuple[str, ...]]:
        """The nodes that ``pool`` and others select, each with all the pools that do, its owner first."""
        return {node: owners for node, owners in self._shared.items() if pool in owners}
