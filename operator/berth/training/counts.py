"""How few domains a gang needs, and which of them leave the least behind.

With capacities alone the fewest domains are the largest ones: sort, add up, stop. Among all choices of that many the
tightest is a subset-sum question with a fixed number of terms. Measured as what is lost against taking the largest
value every time, the sums are small numbers, and a set of small numbers is one Python integer: adding a domain is one
shift, whatever the size of the fleet.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

_FEW_VALUES: Final = 64
_MOST_COUNTED: Final = 1 << 14
MAX_BITS: Final = 1 << 26
"""Bits times shifts that one subset-sum may cost; past it swaps alone must do."""


def fewest(capacity: Ints, need: int) -> int:
    """The least number of members that together hold ``need``; 0 when all together do not."""
    if not len(capacity):
        return 0
    values, often = value_counts(capacity)
    values, often = values[::-1], often[::-1]
    amount = np.cumsum(values * often)
    at = int(np.searchsorted(amount, need))
    if at == len(values):
        return 0
    missing = need - (int(amount[at - 1]) if at else 0)
    return int(often[:at].sum()) - (-missing // max(int(values[at]), 1))


def fewest_by_group(capacity: Ints, group: Ints, groups: int, need: int) -> Ints:
    """:func:`fewest` for each of ``groups``; ``group`` is each member's."""
    top = int(capacity.max(initial=0))
    if len(capacity) > 16 * groups and top <= _FEW_VALUES:
        return _fewest_by_value(capacity, group, groups, need, top)
    order = np.lexsort((-capacity, group))
    values, of = capacity[order], group[order]
    sums = np.cumsum(values)
    total = np.bincount(of, values, groups).astype(np.int64)
    before = np.concatenate(([0], np.cumsum(total)[:-1]))
    short = np.bincount(of[sums - before[of] < need], minlength=groups)
    return np.where(total >= need, short + 1, 0)


def _fewest_by_value(capacity: Ints, group: Ints, groups: int, need: int, top: int) -> Ints:
    """With few distinct values, count members per value instead of sorting them."""
    members = np.bincount(group * (top + 1) + capacity, minlength=groups * (top + 1)).reshape(groups, top + 1)[:, ::-1]
    values = np.arange(top, -1, -1)
    number, amount = np.cumsum(members, axis=1), np.cumsum(members * values, axis=1)
    enough = amount >= need
    at = np.argmax(enough, axis=1)
    rows = np.arange(groups)
    full = members[rows, at]
    missing = need - (amount[rows, at] - full * values[at])
    return np.where(enough.any(axis=1), number[rows, at] - full - (-missing // np.maximum(values[at], 1)), 0)


def tight(capacity: Ints, count: int, need: int) -> Ints:
    """``count`` positions of ``capacity`` whose sum is the least that is still ``need`` or more, ascending.

    Among equal capacities the earlier position is taken. The ``count`` largest must hold ``need``.
    """
    values, available = value_counts(capacity)
    wanted = tight_values(values, available, count, need)
    parts = [np.flatnonzero(capacity == values[at])[: wanted[at]] for at in np.flatnonzero(wanted).tolist()]
    return np.sort(np.concatenate(parts))


def value_counts(capacity: Ints) -> tuple[Ints, Ints]:
    """The distinct values, ascending, and how often each occurs."""
    if int(capacity.max()) > _MOST_COUNTED:
        values, available = np.unique(capacity, return_counts=True)
        return values, available
    often = np.bincount(capacity)
    values = np.flatnonzero(often)
    return values, often[values]


def tight_values(values: Ints, available: Ints, count: int, need: int) -> Ints:
    """How many to take of each of ``values`` (ascending, so many ``available``): ``count``, least sum >= ``need``."""
    taken = np.zeros(len(values), np.int64)
    left = count
    for at in range(len(values) - 1, -1, -1):
        taken[at] = min(left, int(available[at]))
        left -= int(taken[at])
    slack = int(taken @ values) - need
    if slack > 0 and not _swap(values, available, taken, slack):
        better = _subset(values, available, count, need)
        if better is not None:
            return better
        while slack > 0 and (step := _best_swap(values, available, taken, slack)):
            slack -= step
    return taken


def _swaps(values: Ints, available: Ints, taken: Ints) -> tuple[Ints, Ints, Ints]:
    out = np.flatnonzero(taken)
    into = np.flatnonzero(available - taken)
    return out, into, values[out][:, None] - values[into][None, :]


def _swap(values: Ints, available: Ints, taken: Ints, slack: int) -> bool:
    """Give away exactly ``slack`` by exchanging one member, if that can be."""
    out, into, loss = _swaps(values, available, taken)
    found = np.argwhere(loss == slack)
    if not len(found):
        return False
    taken[out[found[0][0]]] -= 1
    taken[into[found[0][1]]] += 1
    return True


def _best_swap(values: Ints, available: Ints, taken: Ints, slack: int) -> int:
    out, into, loss = _swaps(values, available, taken)
    allowed = np.where((loss > 0) & (loss <= slack), loss, 0)
    if not allowed.size or not allowed.any():
        return 0
    row, column = np.unravel_index(int(np.argmax(allowed)), allowed.shape)
    taken[out[row]] -= 1
    taken[into[column]] += 1
    return int(allowed[row, column])


def _subset(values: Ints, available: Ints, count: int, need: int) -> Ints | None:
    """Exact, by bitset: bit ``number·stride + loss`` says that ``number`` members can lose ``loss`` against the top."""
    top = int(values[-1])
    most = count * top - need
    stride = most + 1
    bundles: list[tuple[int, int, int]] = []
    for at, value in enumerate(values.tolist()):
        left, size = min(int(available[at]), count), 1
        if top - value > most:
            continue
        while left > 0:
            size = min(size, left)
            bundles.append((at, size, size * (top - value)))
            left -= size
            size *= 2
    if (count + 1) * stride * len(bundles) > MAX_BITS:
        return None
    rows = ((1 << (stride * (count + 1))) - 1) // ((1 << stride) - 1)  # bit 0 of every row
    reach, history = 1, [1]
    for _, size, loss in bundles:
        if loss <= most and size <= count:
            keep = (rows & ((1 << (stride * (count + 1 - size))) - 1)) * ((1 << (stride - loss)) - 1)
            reach |= (reach & keep) << (size * stride + loss)
        history.append(reach)
    losses = reach >> (count * stride)
    at_bit = count * stride + losses.bit_length() - 1
    taken = np.zeros(len(values), np.int64)
    for step in range(len(bundles) - 1, -1, -1):
        if not history[step] >> at_bit & 1:
            at, size, loss = bundles[step]
            taken[at] += size
            at_bit -= size * stride + loss
    return taken
