"""The columns of a pool: what a decision reads of every node, one array per fact.

Columns are views of exactly as many elements as there are rows and are valid until the next change of the pool: take
them anew for each decision. A row whose node left is a hole, all zero, until another node takes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from berth.fleet.arrays import Bools, Ints8, Ints32, Ints64, grown


class Rows:
    """Rows by node name, and the columns over them.

    ``names[row]`` is "" in a hole, ``row[name]`` its inverse. CPU in millicores, memory in bytes, devices in pieces.
    ``free_…`` is allocatable minus every claim, negative where more is claimed than there is; ``daemon_…`` the part
    that daemons hold; ``training_…`` and ``inference_…`` the claims of each role and the devices they hold.
    """

    total_devices: Ints32
    free_devices: Ints32
    total_cpu: Ints64
    free_cpu: Ints64
    total_memory: Ints64
    free_memory: Ints64
    free_pods: Ints32
    daemon_cpu: Ints64
    daemon_memory: Ints64
    training_claims: Ints32
    training_devices: Ints32
    inference_claims: Ints32
    inference_devices: Ints32
    usable: Bools
    reason: Ints8
    shared: Bools
    taint_class: Ints32

    COLUMNS: ClassVar[Mapping[str, type[np.generic]]] = {
        "total_devices": np.int32, "free_devices": np.int32,
        "total_cpu": np.int64, "free_cpu": np.int64,
        "total_memory": np.int64, "free_memory": np.int64,
        "free_pods": np.int32,
        "daemon_cpu": np.int64, "daemon_memory": np.int64,
        "training_claims": np.int32, "training_devices": np.int32,
        "inference_claims": np.int32, "inference_devices": np.int32,
        "usable": np.bool_, "reason": np.int8, "shared": np.bool_, "taint_class": np.int32,
    }  # fmt: skip

    def __init__(self) -> None:
        self.names: list[str] = []
        self.row: dict[str, int] = {}
        self._holes: list[int] = []
        self._full: dict[str, NDArray[Any]] = {name: np.zeros(0, kind) for name, kind in self.COLUMNS.items()}
        self._extra: dict[str, Ints64] = {}  # free, of resources that somebody asked for
        self._bare: dict[str, Ints64] = {}  # the same without any claim but daemons'
        self._room = 0
        self._show()

    def __len__(self) -> int:
        """How many rows there are, holes counted."""
        return len(self.names)

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return len(self.row)

    def _take_row(self, name: str) -> int:
        """A row for a new node: a hole, or one more."""
        if self._holes:
            row = self._holes.pop()
            self.names[row] = name
        else:
            row = len(self.names)
            self.names.append(name)
            if row == self._room:
                self._grow()
            self._show()
        self.row[name] = row
        return row

    def _give_row(self, name: str) -> int:
        """Make the row of a node that left a hole."""
        row = self.row.pop(name)
        self.names[row] = ""
        self._holes.append(row)
        for array in (*self._full.values(), *self._extra.values(), *self._bare.values()):
            array[row] = 0
        return row

    def _grow(self) -> None:
        self._room = max(16, 2 * self._room)
        for column, array in self._full.items():
            self._full[column] = grown(array, self._room, 0)
        for columns in (self._extra, self._bare):
            for resource, amounts in columns.items():
                columns[resource] = grown(amounts, self._room, 0)

    def _show(self) -> None:
        for column, array in self._full.items():
            setattr(self, column, array[: len(self.names)])
