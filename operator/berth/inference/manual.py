"""How many replicas scaling.mode Manual asks for: what the user has set, and until then no fewer than there are.

``spec.replicas`` has a default, without which the scale subresource does not work, so that a number stands there that
nobody may ever have chosen. Taken at its word by an edit of the mode alone, it would end most of a busy service. So it
is remembered which number was there while it had no meaning, and as long as it is still the same it takes nothing away.
"""

from __future__ import annotations

from dataclasses import replace

from berth.inference.service import Memory, Mode, Rules, Sight
from berth.values import plural


def remember(rules: Rules, memory: Memory, sight: Sight) -> Memory:
    """The memory with the number that nobody has set yet, and what is held against it from the first look in Manual.

    That is what the last plan aimed at: replicas on their way out beside their replacements do not count twice.
    """
    if rules.mode is not Mode.MANUAL:
        return replace(memory, unset=rules.manual_replicas, unset_keeps=None)
    if memory.unset is None:
        return memory
    if memory.unset != rules.manual_replicas:
        return replace(memory, unset=None, unset_keeps=None)
    if memory.unset_keeps is not None:
        return memory
    return replace(memory, unset_keeps=sum(sight.wanted.values()) if memory.aimed is None else memory.aimed)


def asked(rules: Rules, memory: Memory) -> int:
    """Replicas in Manual."""
    return max(rules.manual_replicas, memory.unset_keeps or 0)


def holds(rules: Rules, memory: Memory) -> bool:
    """Whether more replicas are kept than ``spec.replicas`` says."""
    return rules.mode is Mode.MANUAL and asked(rules, memory) > rules.manual_replicas


def moves(memory: Memory, sight: Sight) -> bool:
    """Whether what is held is, at least in part, on offers that may be used no more: others of another size take over,
    so that it counts as work until they have, and as so many of these then."""
    return memory.unset_keeps is not None and any(
        offer.closed and sight.wanted.get(offer.variant.name) for offer in sight.offers
    )


def words(rules: Rules, memory: Memory) -> str:
    """Why there are so many replicas."""
    if not holds(rules, memory):
        return f"scaling.mode is Manual and spec.replicas is {rules.manual_replicas}"
    kept = asked(rules, memory)
    return (
        f"scaling.mode is Manual, and spec.replicas is still the {rules.manual_replicas} of before, so holding"
        f" {plural(kept, 'replica')} until spec.replicas is set, as with kubectl scale --replicas={kept}"
    )
