"""One pool as arrays: a row per node, a column per fact, and the topology tree over the rows.

A gang decision looks at every node of a pool at once, so what it reads are numpy columns; what changes are single
nodes and claims, so every change touches one row.

Room is everything allocatable minus every claim: terminating and promised pods are claims like others, daemons' too.
Whether a node may be used at all is judged apart, in ``usable`` and :class:`Unusable`, so that a node which comes back
needs no bookkeeping.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from enum import IntEnum
from types import MappingProxyType
from typing import Final

import numpy as np

from berth.catalogue.matching import LabelTable
from berth.catalogue.records import Accelerator
from berth.fleet.arrays import Bools, Ints32, Ints64
from berth.fleet.records import Claim, Level, NodeFacts, PoolSpec
from berth.fleet.rows import Rows
from berth.fleet.selection import LabelColumns
from berth.fleet.taints import TaintClasses, Taints
from berth.fleet.topology import Tree
from berth.values import CPU, MEMORY, MOST_AMOUNT, PODS, Requirements, Resources, Role, Toleration, tolerated

NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})

_KEPT: Final = 64  # columns of resources besides CPU, memory and devices: users may write any name
_MOST_DEVICES: Final = 1 << 21
"""Amounts are held to this, or to :data:`MOST_AMOUNT`, far over any machine."""


class Unusable(IntEnum):
    """Why a node takes no part in gangs, the weightiest first; the names are what is reported."""

    No = 0
    NotReady = 1
    Unschedulable = 2
    UnknownAccelerator = 3
    SharedDevices = 4
    NoDevices = 5
    HostInTwoDomains = 6


class Pool(Rows):
    """The nodes of one pool.

    ``version`` changes with every change and never returns to an earlier value; ``structure`` changes with it except
    where only claims changed; ``gains`` changes when something may fit that did not fit before, ``daemons`` when a
    daemon's claim changed. Devices are counted in ``1 / unit``: 1000 to a core where CPU itself is the accelerator,
    else 1.
    """

    def __init__(
        self,
        spec: PoolSpec,
        accelerator: Accelerator | None,
        table: LabelTable,
        claims_on: Callable[[str], Iterable[Claim]],
        ticks: Iterator[int],
    ) -> None:
        super().__init__()
        self.spec, self.accelerator = spec, accelerator
        self.resource = accelerator.resource if accelerator is not None else ""
        self.unit = 1000 if self.resource == CPU else 1
        self.labels: list[Mapping[str, str]] = []
        self.tree = Tree(spec.levels)
        self.levels: tuple[Level, ...] = self.tree.levels
        self.site_level = self.tree.level_of("Site")
        self.nvlink_level = self.tree.level_of("NVLinkDomain")
        self.version = self.structure = self.gains = self.daemons = next(ticks)
        self._table, self._claims_on, self._ticks = table, claims_on, ticks
        self._facts: list[NodeFacts | None] = []
        self._taints = TaintClasses(self.resource)
        self._selection = LabelColumns()

    @property
    def domain(self) -> list[Ints32]:
        """Per level the domain id of every row, -1 in holes."""
        return self.tree.domain

    @property
    def parent(self) -> list[Ints32]:
        """Per level, by domain id, the id one level up; -1 at the top and for ids out of use."""
        return self.tree.parent

    @property
    def domain_names(self) -> list[list[str]]:
        """Per level, by domain id, the label's value (the node's name for a private domain), "" out of use."""
        return self.tree.names

    @property
    def taint_classes(self) -> list[Taints]:
        """By ``taint_class``, the taints that forbid a pod without tolerations; class 0 has none."""
        return self._taints.classes

    @property
    def usd_per_accelerator_hour(self) -> Decimal | None:
        """The pool's own price, else the catalogue's."""
        if self.spec.usd_per_accelerator_hour is not None:
            return self.spec.usd_per_accelerator_hour
        return self.accelerator.usd_per_hour if self.accelerator is not None else None

    def why_unusable(self, row: int) -> Unusable:
        """Why gangs do not use the node of ``row``."""
        return Unusable(int(self.reason[row]))

    def facts(self, row: int) -> NodeFacts | None:
        """The node of ``row``, ``None`` in a hole."""
        return self._facts[row]

    def free_of(self, resource: str) -> Ints64:
        """What is free of any resource, by row."""
        if resource == self.resource:
            return self.free_devices.astype(np.int64)
        if resource in (CPU, MEMORY):
            return self.free_cpu if resource == CPU else self.free_memory
        if resource == PODS:
            return self.free_pods.astype(np.int64)
        return self._column(self._extra, resource, lambda claim: True)

    def bare_of(self, resource: str) -> Ints64:
        """What would be free of any resource if nothing but daemons were on the nodes, by row."""
        if resource in (CPU, MEMORY):
            return self.total_cpu - self.daemon_cpu if resource == CPU else self.total_memory - self.daemon_memory
        return self._column(self._bare, resource, lambda claim: claim.daemon)

    def matching(self, terms: tuple[Requirements, ...]) -> Bools:
        """The rows that meet one of ``terms`` (ORed, each ANDed; none given: every row), holes never."""
        held = self.domain[-1] >= 0
        return held & self._selection.any_of(terms, self.labels) if terms else held

    def admitting(self, tolerations: tuple[Toleration, ...], terms: tuple[Requirements, ...]) -> Bools:
        """The rows that a pod may go to by their taints and labels (see :meth:`matching`), usable now or not."""
        tolerates = np.array([tolerated(taints, tolerations) for taints in self.taint_classes], np.bool_)
        return self.matching(terms) & tolerates[self.taint_class]

    def held_by_other_role(self, role: Role) -> Bools:
        """The rows closed to ``role`` because work of the other role is there: whole nodes go to one role at a time."""
        return (self.inference_claims if role == "Training" else self.training_claims) > 0

    def put(self, facts: NodeFacts) -> None:
        """Take in a node, or what changed about one."""
        row = self.row.get(facts.name)
        if row is None:
            row = self._add(facts.name)
        before, self._facts[row] = self._facts[row], facts
        to_judge = {row}
        if before is None or before.labels is not facts.labels:
            self.labels[row] = facts.labels
            self.shared[row] = self._table.sharing(facts.labels) is not None
            self._selection.put(row, facts.labels)
            to_judge |= self.tree.put(row, facts.name, facts.labels)
        taint_class = self._taints.join(facts.taints)
        if before is not None:
            self._taints.leave(int(self.taint_class[row]))
        self.taint_class[row] = taint_class
        self._fill(row, facts)
        self._judge(to_judge)
        self._changed(structure=True, gain=True)

    def remove(self, name: str) -> None:
        """Let a node go. Its claims, if any are left, stay in the ledger."""
        row = self.row[name]
        self._taints.leave(int(self.taint_class[row]))
        to_judge = self.tree.remove(row)
        self._give_row(name)
        self._facts[row] = None
        self.labels[row] = NO_LABELS
        self._selection.put(row, NO_LABELS)
        self._judge(to_judge)
        self._changed(structure=True, gain=bool(to_judge))

    def hold(self, claim: Claim, sign: int) -> None:
        """Count a claim on one of the nodes in (``sign`` 1) or out (-1)."""
        self._hold(self.row[claim.node], claim, sign)
        self._changed(structure=False, gain=sign < 0)
        if claim.daemon:
            self.daemons = self.version

    def touch(self) -> None:
        """Something about the pool is different that no row shows, such as whom it shares nodes with."""
        self._changed(structure=False, gain=False)

    def respec(self, spec: PoolSpec) -> None:
        """Take over what does not touch rows: roles, price, fabric, capacity type, age."""
        self.spec = spec
        self._changed(structure=True, gain=True)

    def _column(self, columns: dict[str, Ints64], resource: str, counts: Callable[[Claim], bool]) -> Ints64:
        """The column of ``resource`` in ``columns``, made now where there is none: all that no counted claim holds."""
        column = columns.pop(resource, None)
        if column is None:
            column = np.zeros(self._room, np.int64)
            for row, facts in enumerate(self._facts):
                if facts is not None:
                    held = sum(_held(claim, resource) for claim in self._claims_on(facts.name) if counts(claim))
                    column[row] = _amount(facts.allocatable, resource) - held
        columns[resource] = column
        while len(columns) > _KEPT:
            del columns[next(iter(columns))]
        return column[: len(self)]

    def _add(self, name: str) -> int:
        row = self._take_row(name)
        if row == len(self._facts):
            self._facts.append(None)
            self.labels.append(NO_LABELS)
            self.tree.resize(len(self))
        return row

    def _fill(self, row: int, facts: NodeFacts) -> None:
        room = facts.allocatable
        self.total_devices[row] = self.free_devices[row] = _amount(room, self.resource, _MOST_DEVICES)
        self.total_cpu[row] = self.free_cpu[row] = _amount(room, CPU)
        self.total_memory[row] = self.free_memory[row] = _amount(room, MEMORY)
        self.free_pods[row] = _amount(room, PODS, _MOST_DEVICES)
        for column in (
            self.daemon_cpu, self.daemon_memory, self.training_claims, self.training_devices,
            self.inference_claims, self.inference_devices,
        ):  # fmt: skip
            column[row] = 0
        for columns in (self._extra, self._bare):
            for resource, amounts in columns.items():
                amounts[row] = _amount(room, resource)
        for claim in self._claims_on(facts.name):
            self._hold(row, claim, 1)

    def _hold(self, row: int, claim: Claim, sign: int) -> None:
        amounts = claim.amounts
        devices = sign * _amount(amounts, self.resource, _MOST_DEVICES)
        cpu, memory = sign * _amount(amounts, CPU), sign * _amount(amounts, MEMORY)
        self.free_devices[row] -= devices
        self.free_cpu[row] -= cpu
        self.free_memory[row] -= memory
        self.free_pods[row] -= sign
        if claim.daemon:
            self.daemon_cpu[row] += cpu
            self.daemon_memory[row] += memory
        if claim.role == "Training":
            self.training_claims[row] += sign
            self.training_devices[row] += devices
        elif claim.role == "Inference":
            self.inference_claims[row] += sign
            self.inference_devices[row] += devices
        for columns in (self._extra, self._bare) if claim.daemon else (self._extra,):
            for resource, column in columns.items():
                column[row] -= sign * _held(claim, resource)

    def _judge(self, rows: Iterable[int]) -> None:
        for row in rows:
            self.reason[row] = reason = self._reason(row)
            self.usable[row] = reason == Unusable.No

    def _reason(self, row: int) -> Unusable:
        facts = self._facts[row]
        if facts is None:
            return Unusable.No
        if not facts.ready:
            return Unusable.NotReady
        if facts.unschedulable:
            return Unusable.Unschedulable
        if self.accelerator is None:
            return Unusable.UnknownAccelerator
        if self.shared[row]:
            return Unusable.SharedDevices
        if not self.total_devices[row]:
            return Unusable.NoDevices
        return Unusable.HostInTwoDomains if self.tree.split(row) else Unusable.No

    def _changed(self, *, structure: bool, gain: bool) -> None:
        self.version = next(self._ticks)
        if structure:
            self.structure = self.version
        if gain:
            self.gains = self.version


def _held(claim: Claim, resource: str) -> int:
    return 1 if resource == PODS else _amount(claim.amounts, resource)


def _amount(resources: Resources, name: str, most: int = MOST_AMOUNT) -> int:
    amount = resources.get(name, 0)
    return min(amount, most) if amount > 0 else 0
