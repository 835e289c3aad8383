"""What keeps a service from being made smaller or moved for a while, and until when.

A missed promise may be want of capacity, so what there is stays while that is found out. But replicas are not the cure
of every miss: a slow node, long prompts or a promise that the hardware cannot keep would hold a peak's capacity for
ever. So a miss holds it for half an hour, six windows in which capacity is tried. Where replicas carry less than
believed, the need has come to say so by then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from berth.api.common import rfc3339
from berth.inference.need import Need, partly_until
from berth.inference.service import Memory, Rules, Sight

MISS_HOLDS_SECONDS: Final = 1800.0
MISS_OVER_SECONDS: Final = 300.0
"""Times at a percentile are measured over as much: a miss is over when none was seen for so long."""


@dataclass(frozen=True, slots=True)
class Hold:
    """``reason`` in one word; ``until`` unix seconds, None: until something else changes."""

    reason: str
    until: float | None = None

    def sentence(self, what: str) -> str:
        """``what`` with its end, as a part of a message; empty where the end is not known."""
        return "" if self.until is None else f"{what} until {rfc3339(self.until)} ({self.reason})"


def remember_miss(memory: Memory, sight: Sight) -> Memory:
    """The memory with the clock of the miss that lasts; what a process before this one saw is not over unlooked at."""
    if sight.slo_met is False:
        since = sight.now if memory.missed_since is None else memory.missed_since
        return replace(memory, missed_since=since, missed_last=sight.now)
    if memory.missed_since is None:
        return memory
    last = sight.now if memory.missed_last is None else memory.missed_last
    over = sight.now - last >= MISS_OVER_SECONDS
    return replace(memory, missed_since=None if over else memory.missed_since, missed_last=None if over else last)


def not_later(memory: Memory, now: float) -> Memory:
    """``memory`` where nothing has begun after ``now``: a clock that was ahead and is set back would hold as long."""

    def until(at: float | None) -> float | None:
        return None if at is None else min(at, now)

    footing = memory.footing
    return replace(
        memory,
        lower_since=until(memory.lower_since),
        unknown_since=until(memory.unknown_since),
        idle_since=until(memory.idle_since),
        last_up=until(memory.last_up),
        last_down=until(memory.last_down),
        missed_since=until(memory.missed_since),
        missed_last=until(memory.missed_last),
        footing=footing and replace(footing, fell=until(footing.fell), returned=until(footing.returned)),
    )


def miss_ends(memory: Memory) -> float | None:
    """When the miss that lasts holds capacity no longer, which may be past; None where there is none."""
    return None if memory.missed_since is None else memory.missed_since + MISS_HOLDS_SECONDS


def fixed(rules: Rules, memory: Memory, sight: Sight, need: Need) -> Hold | None:
    """Why every replica has to stay where it is."""
    if need.frozen:
        return Hold("DemandUnknown")
    partly = partly_until(rules, memory, sight)
    if partly is not None:
        return Hold("DemandUnknown", partly)
    ends = miss_ends(memory)
    return Hold("SloMissed", ends) if sight.slo_met is False and ends is not None and sight.now < ends else None


def waits(rules: Rules, memory: Memory, sight: Sight) -> Hold | None:
    """Why no less may be carried yet: the longer of the waits after growth and since less has been enough."""
    lower = sight.now if memory.lower_since is None else memory.lower_since
    holds = [Hold("DownAfter", lower + rules.down_after)]
    if memory.last_up is not None:
        holds.append(Hold("ColdStart", memory.last_up + sight.cold_start_seconds))
    last = max(holds, key=lambda hold: hold.until or 0.0)
    return last if last.until is not None and sight.now < last.until else None
