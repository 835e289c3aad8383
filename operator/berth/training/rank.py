"""Ranks follow the tree: neighbours in rank are neighbours in the fabric.

Collectives between consecutive ranks carry the most traffic, so ranks go through the domains depth first: all of a
host, then all of its rack, then all of its block. Larger shares come first, so that groups of ranks that are powers
of two tend to end where domains do; equal ones go by name. Slices lie in one NVLink domain, and a domain's ranks are
consecutive, so slices are whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from berth.fleet.pool import Pool
from berth.training.names import natural
from berth.training.search import Found
from berth.training.tree import Ints, Tree


def in_rank_order(tree: Tree, hosts: Ints, workers: Ints) -> Ints:
    """Positions in ``hosts`` in the order of their ranks."""
    keys: list[Ints] = []
    for level in range(tree.host, -1, -1):
        ids = tree.up(tree.host, hosts, level)
        distinct, place = np.unique(ids, return_inverse=True)
        share = np.bincount(place, workers).astype(np.int64)
        keys += [place, tree.ranker(level, distinct)[place], -share[place]]
    return np.lexsort(keys)


def nodes_in_rank_order(pool: Pool, tree: Tree, found: Found, fits: Ints) -> tuple[str, ...]:
    """The node of every rank. ``fits`` says how many workers each row takes; a host may be several rows."""
    names: list[str] = []
    order = in_rank_order(tree, found.hosts, found.workers)
    rows = _rows_by_host(pool, found.hosts, fits)
    for at in order.tolist():
        left = int(found.workers[at])
        for row in rows[int(found.hosts[at])]:
            share = min(left, int(fits[row]))
            names.extend([pool.names[row]] * share)
            left -= share
            if not left:
                break
    return tuple(names)


def _rows_by_host(pool: Pool, hosts: Ints, fits: Ints) -> dict[int, Sequence[int]]:
    """The rows of each of ``hosts`` that take workers, the most first, then by name."""
    of_row = pool.domain[-1]
    wanted = np.zeros(len(pool.parent[-1]) + 1, np.bool_)  # the last for holes, whose id is -1
    wanted[hosts] = True
    rows = np.flatnonzero(wanted[of_row] & (fits > 0))
    if len(rows) == len(hosts):
        return {int(of_row[row]): (row,) for row in rows.tolist()}
    found: dict[int, list[int]] = {}
    for row in sorted(rows.tolist(), key=lambda row: (-int(fits[row]), natural(pool.names[row]))):
        found.setdefault(int(of_row[row]), []).append(row)
    return dict(found)
