"""The proof that a fleet kept up to date by single changes is the one its nodes, pools and claims make.

Everything is computed again from scratch and compared by meaning: row numbers and domain ids may differ, what they
stand for may not. Costs as much as building the fleet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from berth.fleet.pool import Pool
from berth.fleet.rows import Rows

PoolPicture = Mapping[str, Mapping[str, Any]]


def picture(pool: Pool, nodes: Iterable[str] | None = None) -> dict[str, dict[str, Any]]:
    """By node, everything a decision can read of it, with domains as paths of names and taints as taints.

    Of all nodes, or of those of ``nodes`` that the pool has.
    """
    rows = pool.row if nodes is None else {name: pool.row[name] for name in nodes if name in pool.row}
    places = list(rows.values())
    columns = {name: getattr(pool, name)[places].tolist() for name in Rows.COLUMNS if name != "taint_class"}
    return {
        name: {
            **{column: values[at] for column, values in columns.items()},
            "taints": pool.taint_classes[int(pool.taint_class[row])],
            "labels": pool.labels[row],
            "domains": tuple(
                (pool.tree.path(level, int(domains[row])), pool.tree.private(level, int(domains[row])))
                for level, domains in enumerate(pool.domain)
            ),
        }
        for at, (name, row) in enumerate(rows.items())
    }


def differences(kept: Mapping[str, Pool], fresh: Mapping[str, Pool], nodes: Iterable[str] | None = None) -> list[str]:
    """What ``kept`` has that ``fresh`` has not, and the other way round, a sentence each; of all nodes or ``nodes``."""
    found = [f"pool {name} exists only {'as kept' if name in kept else 'anew'}" for name in kept.keys() ^ fresh.keys()]
    for name in sorted(kept.keys() & fresh.keys()):
        if kept[name].spec != fresh[name].spec:
            found.append(f"pool {name}: {kept[name].spec} should be {fresh[name].spec}")
        found += [f"pool {name}: {text}" for text in rows_differ(kept[name], fresh[name], nodes)]
        found += [f"pool {name}: {text}" for text in broken(kept[name])]
    return sorted(found)


def broken(pool: Pool) -> Iterator[str]:
    """What contradicts itself inside the arrays of ``pool``."""
    if [pool.names[row] for row in pool.row.values()] != list(pool.row):
        yield "names and rows do not mirror each other"
    holes = [row for row, name in enumerate(pool.names) if not name]
    if len(holes) + pool.nodes != len(pool):
        yield "rows without a node are not marked as holes"
    for column in Rows.COLUMNS:
        if len(getattr(pool, column)) != len(pool):
            yield f"{column} has not as many rows as the pool"
        elif getattr(pool, column)[holes].any():
            yield f"{column} says something about a hole"
    for level, domains in enumerate(pool.domain):
        if (domains[holes] >= 0).any() or (np.delete(domains, holes) < 0).any():
            yield f"level {level}: a row without a domain, or a hole with one"
        elif (
            level and (pool.parent[level][np.delete(domains, holes)] != np.delete(pool.domain[level - 1], holes)).any()
        ):
            yield f"level {level}: a domain hangs elsewhere than its nodes"
        used = set(np.delete(domains, holes).tolist())
        if used != {number for number, key in enumerate(pool.domain_names[level]) if key}:
            yield f"level {level}: domains in use and domains known differ"


def rows_differ(kept: Pool, fresh: Pool, nodes: Iterable[str] | None = None) -> Iterator[str]:
    """What the two say differently of all nodes, or of ``nodes``."""
    return _pictures_differ(picture(kept, nodes), picture(fresh, nodes))


def _pictures_differ(kept: PoolPicture, fresh: PoolPicture) -> Iterator[str]:
    for node in kept.keys() ^ fresh.keys():
        yield f"node {node} exists only {'as kept' if node in kept else 'anew'}"
    for node in kept.keys() & fresh.keys():
        for fact, value in fresh[node].items():
            if kept[node][fact] != value:
                yield f"node {node}: {fact} is {kept[node][fact]}, should be {value}"
