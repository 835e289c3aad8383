"""What would have to change for a refused gang to fit.

A user who waits wants to know what to wait for, or what to give up. Four changes are worked out, each by itself enough:
more free nodes, a looser topology.required, fewer workers, other gangs ending. The first three follow from the numbers
that refused the gang; the last is a choice among running gangs, the fewest, checked by taking their room away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from berth.catalogue.sizing import Unfit, training_devices
from berth.fleet.fleet import Fleet
from berth.training.after import after_jobs
from berth.training.candidates import Candidate, candidates, loosened, workers_now
from berth.training.records import Change, GangRequest, Refusal
from berth.training.refuse import Room, per_node, roomiest, rooms
from berth.values import plural

_NAMED = 4  # jobs named in the sentence


@dataclass(frozen=True, slots=True)
class RunningGang:
    """A gang that holds room: its claim keys, its priority, and since when (Unix seconds)."""

    name: str
    keys: tuple[str, ...]
    priority: int = 0
    started: float = 0.0


def explain(fleet: Fleet, request: GangRequest, refusal: Refusal, running: Sequence[RunningGang]) -> Refusal:
    """``refusal`` with the smallest changes that would make the gang fit, in ``changes`` and in its sentence.

    Refusals that no room can mend are returned as they are. Each change alone is enough as things are now.
    """
    if refusal.reason not in ("NoCapacity", "TooLarge"):
        return refusal
    groups = candidates(fleet, request)
    if isinstance(groups, Refusal):
        return refusal
    now = list(rooms(groups, request, None))
    if any(room.workers >= request.workers for room in now):
        return refusal
    parts: list[tuple[Change, str]] = []
    for part in (_more_nodes(now, request), _looser(groups, request), _fewer(now, request)):
        if part is not None:
            parts.append(part)
    gangs = [(gang.name, gang.keys, gang.priority, gang.started) for gang in running]
    ending = after_jobs(fleet, now, request, gangs) if refusal.reason != "TooLarge" else None
    if ending is not None:
        change = Change("AfterJobs", len(ending.jobs), pool=ending.pool, jobs=ending.jobs)
        parts.append((change, f"after {_listed(ending.jobs)} {'end' if len(ending.jobs) > 1 else 'ends'}"
                      + ("" if ending.fewest else " (maybe fewer are enough)")))  # fmt: skip
    if not parts:
        return refusal
    words = [words for _, words in parts]
    sentence = words[0] if len(words) == 1 else f"{', '.join(words[:-1])}, or {words[-1]}"
    changes = tuple(change for change, _ in parts)
    return replace(refusal, message=f"{refusal.message}. It would fit {sentence}", changes=changes)


def _more_nodes(now: list[Room], request: GangRequest) -> tuple[Change, str] | None:
    """The fewest nodes, like those there are, that added free to one domain would make the gang fit."""
    best: tuple[int, Room] | None = None
    for room in now:
        each = per_node(room, request)
        if each:
            nodes = -(-(request.workers - room.workers) // each)
            if best is None or nodes < best[0]:
                best = nodes, room
    if best is None:
        return None
    nodes, room = best
    together = ""
    if room.tree.split:
        together = f" that share one {room.candidate.pool.levels[room.candidate.bond].name}"
    words = f"with {plural(nodes, 'more free node')}{together} in {room.place}"
    return Change("MoreNodes", nodes, level=room.level, pool=room.candidate.pool.spec.name), words


def _looser(groups: list[list[Candidate]], request: GangRequest) -> tuple[Change, str] | None:
    """The innermost level outside the required one at which the gang fits as things are."""
    if request.required_level is None:
        return None
    best: tuple[int, Candidate, int] | None = None
    for candidate in (each for group in groups for each in group):
        fits = workers_now(candidate.pool, request, None)
        outermost = -1 if candidate.pool.site_level is None else candidate.pool.site_level
        for steps, level in enumerate(range(candidate.confine - 1, outermost - 1, -1), 1):
            if best is not None and steps >= best[0]:
                break
            if roomiest(loosened(candidate, request, level), request, fits).workers >= request.workers:
                best = steps, candidate, level
                break
    if best is None:
        return None
    _, candidate, level = best
    name = candidate.pool.levels[level].name if level >= 0 else ""
    words = f"with topology.required loosened to {name}" if name else "without topology.required"
    return Change("LooserLevel", level=name, pool=candidate.pool.spec.name), words


def _fewer(now: list[Room], request: GangRequest) -> tuple[Change, str] | None:
    """The largest gang that fits as things are, as long as it still holds the model."""
    fitting = [room for room in now if room.workers > 0 and _holds(room, request)]
    if not fitting:
        return None
    room = max(fitting, key=lambda room: room.workers)
    fewer = request.workers - room.workers
    return Change("FewerWorkers", fewer, pool=room.candidate.pool.spec.name), f"with {plural(room.workers, 'worker')}"


def _holds(room: Room, request: GangRequest) -> bool:
    kind = room.candidate.pool.accelerator
    if not request.memory_bytes or kind is None:
        return True
    devices = training_devices(kind, request.memory_bytes)
    return not isinstance(devices, Unfit) and devices <= room.workers * request.accelerators_per_worker


def _listed(jobs: tuple[str, ...]) -> str:
    named = list(jobs[:_NAMED])
    if len(jobs) > _NAMED:
        named.append(f"{len(jobs) - _NAMED} more")
    return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"
