"""Who holds room where: the one record from which usage is derived.

Claims are kept whether their node is known or not, because pods and nodes are observed independently and a node that
comes back must not look empty. Nothing here is a counter: a key has one claim, and saying it again replaces it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from berth.fleet.records import Claim


class Ledger:
    """Claims by key and by node."""

    def __init__(self) -> None:
        self._claims: dict[str, Claim] = {}
        self._on: dict[str, set[str]] = {}
        self.claims: Mapping[str, Claim] = MappingProxyType(self._claims)

    def on(self, node: str) -> Iterator[Claim]:
        """The claims on ``node``."""
        return (self._claims[key] for key in self._on.get(node, ()))

    def put(self, key: str, claim: Claim | None) -> Claim | None:
        """Make ``claim`` the claim of ``key``, or with ``None`` leave it none. Returns the one there was."""
        before = self._claims.pop(key, None)
        if before is not None:
            keys = self._on[before.node]
            keys.discard(key)
            if not keys:
                del self._on[before.node]
        if claim is not None:
            self._claims[key] = claim
            self._on.setdefault(claim.node, set()).add(key)
        return before
