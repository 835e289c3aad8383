"""Which pool a node belongs to: exactly one, or none.

A node that two pools sold would be sold twice. AcceleratorPools are asked by age, then by name; the first that selects
the node has it, and every pool that also selects it is told. What no AcceleratorPool selects is left to discovery.
"""

from __future__ import annotations

from collections import Counter
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
        return owners[0] if owners else self._discovery.join(facts.name, facts.labels, facts.allocatable)

    def leave(self, node: str) -> None:
        """Forget a node."""
        self._shared.pop(node, None)
        self._discovery.leave(node)

    def take_changed(self) -> set[str]:
        """The discovered pools that came, went or became different since the last call."""
        changed = set(self._discovery.changed)
        self._discovery.changed.clear()
        return changed

    def older(self, pool: str, other: str) -> bool:
        """Whether AcceleratorPool ``pool`` takes precedence over ``other``."""
        return list(self.stated).index(pool) < list(self.stated).index(other)

    def shared_with(self, pool: str) -> dict[str, int]:
        """The other pools that select nodes which ``pool`` selects, and how many nodes each."""
        others = (other for owners in self._shared.values() if pool in owners for other in owners if other != pool)
        return dict(sorted(Counter(others).items()))

    def shared_nodes(self, pool: str) -> list[str]:
        """The nodes that ``pool`` and another one select, by name."""
        return sorted(node for node, owners in self._shared.items() if pool in owners)
