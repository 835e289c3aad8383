"""From chosen domains to hosts and the workers each takes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from berth.training.counts import fewest, tight_values, value_counts
from berth.training.tree import Ints, Tree


def pick(tree: Tree, level: int, ids: Ints, count: int, need: int) -> Ints:
    """``count`` of ``ids`` that hold ``need`` and leave the least of themselves; among equals the first by path,
    hosts that are not penalised before those that are."""
    capacity = tree.capacity[level][ids]
    values, available = value_counts(capacity)
    wanted = tight_values(values, available, count, need)
    parts = []
    for at in np.flatnonzero(wanted).tolist():
        equal = ids[capacity == values[at]]
        parts.append(equal if wanted[at] == len(equal) else _first(tree, level, equal, int(wanted[at])))
    return tree.by_path(level, np.concatenate(parts))


def _first(tree: Tree, level: int, ids: Ints, count: int) -> Ints:
    if level < tree.host or tree.penalised is None or not tree.penalised[ids].any():
        return tree.by_path(level, ids)[:count]
    good = ids[~tree.penalised[ids]]
    if len(good) >= count:
        return tree.by_path(level, good)[:count]
    bad = tree.by_path(level, ids[tree.penalised[ids]])
    return np.concatenate((good, bad[: count - len(good)]))


def fill(tree: Tree, ids: Ints, need: int, *, lean: bool) -> tuple[Ints, Ints]:
    """The fewest of the hosts ``ids`` that hold ``need``, and the units each takes (at least one).

    Fewest penalised ones first, then the least left behind; ``lean`` the other way round.
    """
    capacity = tree.capacity[tree.host][ids]
    count = fewest(capacity, need)
    bad = tree.penalised[ids] if tree.penalised is not None and not lean else None
    if bad is None or not bad.any():
        chosen = pick(tree, tree.host, ids, count, need)
    else:
        chosen = _healthiest(tree, ids, bad, count, need)
    units = tree.capacity[tree.host][chosen].copy()
    units[int(np.argmin(units))] -= int(units.sum()) - need
    return chosen, units


def _healthiest(tree: Tree, ids: Ints, bad: NDArray[np.bool_], count: int, need: int) -> Ints:
    capacity = tree.capacity[tree.host][ids]
    worst = np.sort(capacity[bad])[::-1]
    best = np.sort(capacity[~bad])[::-1]
    for number in range(len(worst) + 1):
        rest = count - number
        held = int(worst[:number].sum())
        if 0 <= rest <= len(best) and held + int(best[:rest].sum()) >= need:
            chosen = pick(tree, tree.host, ids[bad], number, held) if number else ids[:0]
            if rest:
                chosen = np.concatenate((chosen, pick(tree, tree.host, ids[~bad], rest, max(need - held, 1))))
            return tree.by_path(tree.host, chosen)
    raise AssertionError("the fewest hosts hold the gang")
