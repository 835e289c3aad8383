"""What follows from a service's spec and the catalogue alone is worked out once."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Generic, TypeVar

from berth.controllers.services.view import ServiceView
from berth.fleet.fleet import Fleet

T = TypeVar("T")


class PerSpec(Generic[T]):
    """Answers by service and ``name``, anew where the spec or the catalogue is another one."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._known: dict[tuple[str, str], tuple[tuple[int, int], T]] = {}

    def get(self, view: ServiceView, make: Callable[[], T], name: str = "") -> T:
        """The answer, from ``make`` where it is not known yet."""
        state = (view.object.metadata.generation, self._fleet.catalogue_version)
        known = self._known.get((view.uid, name))
        if known is None or known[0] != state:
            known = self._known[view.uid, name] = (state, make())
        return known[1]

    def keep(self, uids: Container[str]) -> None:
        """Forget all other services."""
        self._known = {key: known for key, known in self._known.items() if key[0] in uids}
