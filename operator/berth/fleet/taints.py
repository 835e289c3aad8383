"""Taints as a small number per row.

Thousands of nodes carry a handful of different sets of taints. Placement asks once per set whether the gang tolerates
it and then reads one column.
"""

from __future__ import annotations

from collections.abc import Iterable

from berth.values import Taint

Taints = tuple[Taint, ...]


class TaintClasses:
    """The distinct sets of forbidding taints in use. Class 0, without any, is always there."""

    def __init__(self, resource: str) -> None:
        self.classes: list[Taints] = [()]
        self._resource = resource
        self._ids: dict[Taints, int] = {(): 0}
        self._members: list[int] = [0]

    def join(self, taints: Iterable[Taint]) -> int:
        """The class of a node with ``taints``, one member more."""
        forbidding = self.forbidding(taints)
        found = self._ids.get(forbidding)
        if found is None:
            found = self._open(forbidding)
        self._members[found] += 1
        return found

    def leave(self, number: int) -> None:
        """One member less; a class without members gives its number to the next new one."""
        self._members[number] -= 1
        if number and self._members[number] == 0:
            del self._ids[self.classes[number]]
            self.classes[number] = ()

    def forbidding(self, taints: Iterable[Taint]) -> Taints:
        """The taints that keep a pod out unless it tolerates them, in a fixed order.

        A NoSchedule taint named like the accelerator's resource keeps nobody out who asks for the accelerator: pods
        that do tolerate it, by the API server's ExtendedResourceToleration or by ours.
        """
        return tuple(
            sorted(
                {
                    taint
                    for taint in taints
                    if taint.effect == "NoExecute" or (taint.effect == "NoSchedule" and taint.key != self._resource)
                },
                key=lambda taint: (taint.key, taint.value, taint.effect),
            )
        )

    def _open(self, taints: Taints) -> int:
        unused = next((number for number in range(1, len(self.classes)) if not self._members[number]), None)
        if unused is None:
            unused = len(self.classes)
            self.classes.append(())
            self._members.append(0)
        self.classes[unused] = taints
        self._ids[taints] = unused
        return unused
