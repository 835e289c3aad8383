"""Refusals that still stand, so that the same question is not answered twice.

A refusal is a proof about room: so many workers fit, fewer than were asked for. Room that is taken, or rows that are
barred besides, leave the proof true; only room that came free, other nodes, or fewer barred rows can end it. So each
refusal is kept with what it rests on, for all requests that ask for the same, from one pass over the queue to the next.
Its numbers are those of when it was given.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Final

import numpy as np

from berth.fleet.arrays import Bools
from berth.fleet.fleet import Fleet
from berth.fleet.pool import Pool
from berth.training.placement import usable_rows
from berth.training.records import GangRequest, Refusal, RefusalReason

KEEPING: Final[frozenset[RefusalReason]] = frozenset({"NoCapacity"})
"""Why a job waits for room, and therefore keeps free what it could use."""

_OF_STRUCTURE: Final[frozenset[RefusalReason]] = frozenset({"NoPool", "FabricUnsatisfied", "UnknownLevel"})
_BESIDE: Final = frozenset({"per_worker", "penalised_nodes"})
_fixed: Final = attrgetter(*(each.name for each in fields(GangRequest) if each.name not in _BESIDE))
_SPARE: Final = 64

Ground = tuple[tuple[str | int, ...], ...]
"""By pool its name and counters; equal grounds allow no more than before, and the same rows to an empty pool."""
RowSet = int
"""Rows of one pool as a bit set."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A refusal, what it rests on, and by pool the rows to keep free for the refused."""

    refusal: Refusal
    ground: Ground
    barred: Mapping[str, RowSet]
    keeps: Mapping[str, RowSet]


class Refusals:
    """What is remembered between passes over one fleet. Forgetting it costs time and changes no placement."""

    def __init__(self) -> None:
        self.standing: dict[int, Standing] = {}
        self._shapes: dict[Hashable, int] = {}
        self._asked: dict[str, tuple[GangRequest, int]] = {}  # by job

    def shape(self, uid: str, request: GangRequest) -> int:
        """The number of what ``request`` asks for; equal requests have the same."""
        known = self._asked.get(uid)
        if known is None or known[0] is not request:
            known = self._asked[uid] = (request, self._shapes.setdefault(_shape(request), len(self._shapes)))
        return known[1]

    def trim(self, jobs: int) -> None:
        """Forget everything once it is about far more than the ``jobs`` that wait."""
        if max(len(self._asked), len(self._shapes)) > 2 * jobs + _SPARE:
            self.standing.clear()
            self._shapes.clear()
            self._asked.clear()


class Look:
    """Refusals as one pass sees them: while it lasts, room is only taken and rows are only kept.

    ``held`` are by pool the rows kept free by those refused so far, ``given`` counts the refusals not known before.
    """

    def __init__(self, fleet: Fleet, memory: Refusals) -> None:
        self.held: dict[str, Bools] = {}
        self.given = 0
        self._kept: dict[str, RowSet] = {}
        self._fleet, self._memory = fleet, memory
        self._valid: dict[int, Standing] = {}  # by shape, refusals that hold from here to the end of the pass
        self._keeping: set[int] = set()
        self._closed: bool | None = None  # None: to be seen
        self._read()

    @property
    def closed(self) -> bool:
        """Whether somebody is refused and every free device of every usable node is kept; it stays so."""
        if self._closed is None:
            self._closed = bool(self._kept) and not any(map(self._open, self._fleet.pools.items()))
        return self._closed

    def recall(self, uid: str, request: GangRequest) -> Refusal | None:
        """The refusal that answers this request still, if there is one."""
        shape = self._memory.shape(uid, request)
        known = self._valid.get(shape)
        if known is None:
            known = self._memory.standing.get(shape)
            if known is None or known.ground != self._ground(request, known.refusal) or not self._bars(known.barred):
                return None
            self._valid[shape] = known
        return known.refusal

    def remember(self, uid: str, request: GangRequest, refusal: Refusal) -> None:
        """Take in a refusal just given."""
        self.given += 1
        ground = self._ground(request, refusal)
        pools = {str(entry[0]) for entry in ground}
        barred = {pool: rows for pool, rows in self._kept.items() if pool in pools}
        keeps = usable_rows(self._fleet, request) if refusal.reason in KEEPING else {}
        sets = {pool: _row_set(mask) for pool, mask in keeps.items()}
        shape = self._memory.shape(uid, request)
        self._valid[shape] = self._memory.standing[shape] = Standing(refusal, ground, barred, sets)

    def keep(self, uid: str, request: GangRequest) -> None:
        """Keep free from now on what the refused could use."""
        shape = self._memory.shape(uid, request)
        if shape in self._keeping:
            return
        self._keeping.add(shape)
        for pool, rows in self._valid[shape].keeps.items():
            self._keep_rows(pool, rows)

    def keep_nodes(self, pool: str, nodes: Iterable[str]) -> None:
        """Keep ``nodes`` free from now on, those of them that ``pool`` has."""
        known = self._fleet.pools.get(pool)
        if known is not None:
            self._keep_rows(pool, sum(1 << known.row[node] for node in set(nodes) if node in known.row))

    def _keep_rows(self, pool: str, rows: RowSet) -> None:
        before = self._kept.get(pool, 0)
        after = before | rows
        if after != before:
            self._kept[pool] = after
            self.held[pool] = _mask(after, len(self._fleet.pools[pool]))
            self._closed = self._closed or None

    def placed(self) -> None:
        """A job was placed: room is taken. Should any have come free by that, nothing is taken to stand."""
        before = self._states
        self._read()
        self._closed = self._closed or None
        if self._states != before:
            self._valid.clear()

    def _read(self) -> None:
        self._states = {name: _state(name, pool) for name, pool in self._fleet.pools.items()}
        self._grounds: dict[tuple[str, ...], Ground] = {}

    def _ground(self, request: GangRequest, refusal: Refusal) -> Ground:
        pools = self._fleet.pools
        if refusal.reason in _OF_STRUCTURE:
            return tuple((name, pool.structure) for name, pool in pools.items())
        known = self._grounds.get(request.types)
        if known is None:
            kinds = {name: pool.accelerator.name for name, pool in pools.items() if pool.accelerator is not None}
            wanted = [name for name, kind in kinds.items() if not request.types or kind in request.types]
            known = self._grounds[request.types] = tuple(self._states[name] for name in wanted)
        return known

    def _bars(self, barred: Mapping[str, RowSet]) -> bool:
        """Whether all rows that were barred when the refusal was given are barred now."""
        return all(rows | (kept := self._kept.get(pool, 0)) == kept for pool, rows in barred.items())

    def _open(self, entry: tuple[str, Pool]) -> bool:
        name, pool = entry
        free: Bools = pool.usable & (pool.free_devices > 0)
        held = self.held.get(name)
        return bool(np.any(free if held is None else free & ~held))


def _state(name: str, pool: Pool) -> tuple[str | int, ...]:
    """Daemons count, since one more of them is no gain and yet changes which rows could ever be used."""
    return (name, pool.gains, pool.structure, pool.daemons)


def _shape(request: GangRequest) -> Hashable:
    """All that decides whether there is a placement; penalised nodes only decide which."""
    return (_fixed(request), tuple(sorted(request.per_worker.items())))


def _row_set(mask: Bools) -> RowSet:
    return int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")


def _mask(rows: RowSet, length: int) -> Bools:
    packed = np.frombuffer(rows.to_bytes(-(-length // 8), "little"), np.uint8)
    return np.unpackbits(packed, count=length, bitorder="little").view(np.bool_)
