"""Why a pod template fits no node of a place, however empty, in words that name its field and what would fit.

Without them a service whose template asks for what no node has looks like one for which the fleet is too small.
"""

from __future__ import annotations

import numpy as np

from berth.fleet.arrays import Bools
from berth.fleet.pool import Pool
from berth.inference.access import SELECTOR, SHOWN, Access, asks
from berth.values import MOST_AMOUNT, Requirements, Resources, Toleration, amount_words, plural, tolerated


def misfit(pool: Pool, rows: Bools, needs: Resources, access: Access) -> str:
    """Why none of ``rows``, the nodes of the place, would take a pod; empty where one would, or where there is none.

    O(nodes).
    """
    if not rows.any():
        return ""
    selected = rows & pool.matching(access.terms)
    if not selected.any():
        return _unselected(pool, rows, access.terms)
    open_rows = selected & pool.admitting(*access)
    if not open_rows.any():
        return _tainted(pool, selected, access.tolerations)
    return _short(pool, open_rows, needs)


def _unselected(pool: Pool, rows: Bools, terms: tuple[Requirements, ...]) -> str:
    """The first requirement that no node meets, and what nodes have instead."""
    labels = [pool.labels[row] for row in np.flatnonzero(rows).tolist()]
    unmet = [next((entry for entry in term if not any(map(entry.matches, labels))), None) for term in terms]
    found = next((entry for entry in unmet if entry is not None), None)
    if found is None or any(entry is None for entry in unmet):
        return f"{SELECTOR} asks for labels that none of its {plural(len(labels), 'node')} has all at once"
    values = sorted({known[found.key] for known in labels if found.key in known})
    have = f"they have {', '.join(values[:SHOWN])} there" if values else "they do not have that label"
    return f"{asks(found)}, which none of its {plural(len(labels), 'node')} meets: {have}"


def _tainted(pool: Pool, rows: Bools, tolerations: tuple[Toleration, ...]) -> str:
    """The taints that nothing tolerates."""
    classes = {int(number) for number in pool.taint_class[rows]}
    keys = sorted(
        {
            taint.key
            for number in classes
            for taint in pool.taint_classes[number]
            if not tolerated((taint,), tolerations)
        }
    )
    count = plural(int(rows.sum()), "node")
    named = ", ".join(keys[:SHOWN])
    return f"all {count} it may use are tainted {named}, which spec.template.spec.tolerations does not tolerate"


def _short(pool: Pool, rows: Bools, needs: Resources) -> str:
    """The resource of which no node has enough beside its daemons."""
    fits, most = rows.copy(), {}
    for resource, amount in sorted(needs.items()):
        if amount > 0:
            column = pool.bare_of(resource)
            most[resource] = int(column[rows].max(initial=0))
            fits &= column >= amount
    if fits.any():
        return ""
    lacks = next((name for name, amount in most.items() if amount < needs[name]), None)
    if lacks is None:
        return "no node has at once all that a replica asks for (spec.template.spec: resources)"
    least = "at least " if needs[lacks] >= MOST_AMOUNT else ""
    says = f"a replica asks for {least}{amount_words(lacks, needs[lacks])} (spec.template.spec: resources)"
    if most[lacks] <= 0:
        return f"{says}, and no node has any to give; correct the name or take it out"
    return f"{says}, and no node has more than {amount_words(lacks, most[lacks])} beside its daemons; ask for less"
