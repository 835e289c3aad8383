"""The tree of domains that the labels of a pool's nodes describe.

A domain is what it is called *and where it hangs*: rack "1" of block "a" and rack "1" of block "b" are two racks, so
identity is the path from the top. A node that lacks a level's label is near nobody there: it gets a domain of its own,
and so does everything below, because a path through an unknown block is no path. One host under two parents makes the
labels contradict each other; its nodes are reported and placement leaves them alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from berth.fleet.arrays import Ints32, grown
from berth.fleet.records import Level, LevelRole

DomainKey = tuple[int, str, bool]
"""Parent's id, label value or, for a private domain, node name; whether it is private."""


class Tree:
    """Domain ids of every row at every level, outermost first, the host last.

    ``domain[level][row]`` is an id or -1 in a hole; ``parent[level][id]`` the id one level up, -1 at the top and for
    an id out of use; ``names[level][id]`` the label's value or, for a private domain, the node's name, "" out of use.
    Ids are dense and used again.
    """

    def __init__(self, levels: Sequence[Level]) -> None:
        self.levels = tuple(levels)
        self.depth = len(self.levels)
        self.domain: list[Ints32] = []
        self.parent: list[Ints32] = [np.empty(0, np.int32) for _ in self.levels]
        self.names: list[list[str]] = [[] for _ in self.levels]
        self._labels = tuple(level.node_label for level in self.levels)
        self._rows = np.full((self.depth, 16), -1, np.int32)
        self._parents: list[Ints32] = [np.full(16, -1, np.int32) for _ in self.levels]
        self._ids: list[dict[DomainKey, int]] = [{} for _ in self.levels]
        self._keys: list[list[DomainKey | None]] = [[] for _ in self.levels]
        self._members: list[list[int]] = [[] for _ in self.levels]
        self._unused: list[list[int]] = [[] for _ in self.levels]
        self._hosts: dict[str, tuple[int, ...]] = {}
        self._to_judge: set[int] = set()
        self.resize(0)

    def level_of(self, role: LevelRole) -> int | None:
        """The index of the level that plays ``role``."""
        return next((index for index, level in enumerate(self.levels) if level.role == role), None)

    def resize(self, rows: int) -> None:
        """Give the tree ``rows`` rows; new ones are holes."""
        if rows > self._rows.shape[1]:
            bigger = np.full((self.depth, 2 * max(rows, 8)), -1, np.int32)
            bigger[:, : self._rows.shape[1]] = self._rows
            self._rows = bigger
        self.domain = [line[:rows] for line in self._rows]

    def put(self, row: int, name: str, labels: Mapping[str, str]) -> set[int]:
        """Hang the node of ``row`` where its labels say. Returns the rows whose host became, or ceased to be, split."""
        before = self._rows[:, row].tolist()
        path, parent = [], -1
        for level, label in enumerate(self._labels):
            value = labels.get(label)
            key = (parent, name, True) if value is None else (parent, value, False)
            parent = self._join(level, key)
            path.append(parent)
        self._rows[:, row] = path
        self._leave(before)
        return self._rows_to_judge()

    def remove(self, row: int) -> set[int]:
        """Take the node of ``row`` out. Returns the rows whose host ceased to be split."""
        before = self._rows[:, row].tolist()
        self._rows[:, row] = -1
        self._leave(before)
        return self._rows_to_judge()

    def split(self, row: int) -> bool:
        """Whether another node names the same host under another parent."""
        key = self._keys[-1][int(self._rows[-1, row])]
        return key is not None and not key[2] and len(self._hosts[key[1]]) > 1

    def missing(self, level: int) -> Ints32:
        """The rows without the level's label, the host level apart: a node is its own host."""
        if level == self.depth - 1:
            return np.empty(0, np.int32)
        private = [key is not None and key[2] for key in self._keys[level]]
        of_row = self.domain[level]
        flags = np.array([*private, False], np.bool_)
        return np.flatnonzero(flags[of_row]).astype(np.int32)

    def private(self, level: int, domain: int) -> bool:
        """Whether ``domain`` stands for a label that its only node lacks."""
        key = self._keys[level][domain]
        return key is not None and key[2]

    def path(self, level: int, domain: int) -> tuple[str, ...]:
        """The names from the outermost level down to ``domain``."""
        names: list[str] = []
        for above in range(level, -1, -1):
            names.append(self.names[above][domain])
            domain = int(self.parent[above][domain])
        return tuple(reversed(names))

    def _join(self, level: int, key: DomainKey) -> int:
        found = self._ids[level].get(key)
        if found is None:
            found = self._open(level, key)
        self._members[level][found] += 1
        return found

    def _open(self, level: int, key: DomainKey) -> int:
        if self._unused[level]:
            new = self._unused[level].pop()
        else:
            new = len(self.names[level])
            self.names[level].append("")
            self._keys[level].append(None)
            self._members[level].append(0)
            self._parents[level] = grown(self._parents[level], new + 1, -1)
            self.parent[level] = self._parents[level][: new + 1]
        self._ids[level][key] = new
        self._keys[level][new] = key
        self.names[level][new] = key[1]
        self._parents[level][new] = key[0]
        if level == self.depth - 1 and not key[2]:
            self._note_host(key[1], new, opened=True)
        return new

    def _leave(self, path: Sequence[int]) -> None:
        for level in range(self.depth - 1, -1, -1):
            domain = path[level]
            if domain < 0:
                continue
            self._members[level][domain] -= 1
            if self._members[level][domain] == 0:
                self._close(level, domain)

    def _close(self, level: int, domain: int) -> None:
        key = self._keys[level][domain]
        assert key is not None
        del self._ids[level][key]
        self._keys[level][domain] = None
        self.names[level][domain] = ""
        self._parents[level][domain] = -1
        self._unused[level].append(domain)
        if level == self.depth - 1 and not key[2]:
            self._note_host(key[1], domain, opened=False)

    def _note_host(self, host: str, domain: int, *, opened: bool) -> None:
        others = tuple(known for known in self._hosts.get(host, ()) if known != domain)
        alike = (*others, domain) if opened else others
        if alike:
            self._hosts[host] = alike
        else:
            del self._hosts[host]
        if len(alike) == (2 if opened else 1):
            self._to_judge.update(alike)

    def _rows_to_judge(self) -> set[int]:
        domains, self._to_judge = self._to_judge, set()
        if not domains:
            return set()
        return set(np.flatnonzero(np.isin(self.domain[-1], list(domains))).tolist())
