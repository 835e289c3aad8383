"""Why an empty pool takes so few of a gang's workers, in words that name the field or the label to change.

Three things keep workers out however empty a pool is: a node lacks what a worker asks for, a node is barred to the
gang, or nodes lack the label by which they would be near each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from berth.fleet.arrays import Bools
from berth.fleet.pool import Pool, Unusable
from berth.training.candidates import Candidate, allowed_rows, beside_devices, devices_per_worker
from berth.training.records import GangRequest
from berth.values import PODS, amount_words, plural, tolerated

RESOURCES = "spec.template.spec: resources"


def no_worker(pools: Sequence[Pool], request: GangRequest) -> str:
    """Why not even one worker fits on any node of ``pools`` were they empty; "" where one does."""
    lacking = [_lacking(pool, request) for pool in pools]
    if not all(lacking):
        return ""
    names = " or ".join(pool.spec.name for pool in pools[:3])
    barred = _causes(pools, request)
    if not any(bool(allowed_rows(pool, request).any()) for pool in pools):
        return f"No node of {names} may take a worker: {barred}"
    most = {name: max(found.get(name, 0) for found in lacking) for name in lacking[0]}
    asked = dict(beside_devices(pools[0], request)) | {PODS: 1}
    short = [name for name, amount in most.items() if name in asked and amount < asked[name]]
    beside = f"; not counted: {barred}" if barred else ""
    if not short:
        return f"No node of {names} has at once all that a worker asks for ({RESOURCES}){beside}"
    name = short[0]
    if most[name] <= 0:
        return (
            f"A worker asks for {amount_words(name, asked[name])} ({RESOURCES}), and no node of {names} has any to "
            f"give; correct the name or take it out{beside}"
        )
    fix = "ask for less"
    if name in request.admitted:
        fix = (
            f"admission adds of that to the template, as a LimitRange's default or a RuntimeClass's overhead: name "
            f"{name} in resources.requests of every container, or lower what is added"
        )
    return (
        f"A worker asks for {amount_words(name, asked[name])} ({RESOURCES}), and no node of {names} has more than "
        f"{amount_words(name, most[name])} beside its daemons; {fix}{beside}"
    )


def few_workers(candidate: Candidate, request: GangRequest) -> list[str]:
    """Clauses that say what else than the number of its nodes keeps workers out of the pool."""
    clauses = [*_tight(candidate.pool, request), *_unlabelled(candidate, request)]
    barred = _causes([candidate.pool], request)
    return [*clauses, f"not counted: {barred}"] if barred else clauses


def _with_devices(pool: Pool, request: GangRequest) -> Bools:
    """Rows of nodes that have the accelerators for a worker."""
    rows: Bools = pool.bare_of(pool.resource) >= devices_per_worker(pool, request)
    return rows & (pool.domain[-1] >= 0)


def _lacking(pool: Pool, request: GangRequest) -> dict[str, int]:
    """By resource the most that a node has which may take a worker; empty where some node has enough of each."""
    rows = _with_devices(pool, request) & allowed_rows(pool, request)
    wants = [*beside_devices(pool, request), (PODS, 1)]
    columns = {name: pool.bare_of(name)[rows] for name, _ in wants}
    if bool(rows.any()) and bool(np.all([columns[name] >= amount for name, amount in wants], axis=0).any()):
        return {}
    return {name: int(column.max(initial=0)) for name, column in columns.items()}


def _tight(pool: Pool, request: GangRequest) -> list[str]:
    """The resource of which a node runs out before its accelerators are used, where one does."""
    rows = _with_devices(pool, request) & allowed_rows(pool, request)
    if not rows.any():
        return []
    by_devices = pool.bare_of(pool.resource)[rows] // devices_per_worker(pool, request)
    tight: list[tuple[int, str, int]] = []
    for name, amount in beside_devices(pool, request):
        each = np.maximum(pool.bare_of(name)[rows] // amount, 0)
        if (each < by_devices).any():
            tight.append((int(each.min()), name, amount))
    if not tight:
        return []
    fewest, name, amount = min(tight)
    there = f"only {plural(fewest, 'worker')}" if fewest else "no worker"
    return [f"{amount_words(name, amount)} for each worker ({RESOURCES}) leave room for {there} on some nodes"]


def _unlabelled(candidate: Candidate, request: GangRequest) -> list[str]:
    """Levels at which nodes stand alone although the gang must share a domain there, outermost first."""
    pool = candidate.pool
    shared = max(candidate.confine, candidate.bond if candidate.group > 1 else -1)
    clauses = []
    for level in range(min(shared, candidate.host - 1) + 1):
        missing = len(pool.tree.missing(level))
        if missing:
            named = pool.levels[level]
            clauses.append(
                f"{missing} of its {plural(pool.nodes, 'node')} lack the label {named.node_label} of level {named.name}"
                f" and are near no other"
            )
    return clauses


def _causes(pools: Iterable[Pool], request: GangRequest) -> str:
    """How many nodes with the accelerators are barred to the gang, by cause; "" for none."""
    counts: Counter[str] = Counter()
    for pool in pools:
        rows = _with_devices(pool, request)
        for reason in Unusable:
            if reason is not Unusable.No:
                counts[reason.name] += int((rows & (pool.reason == reason)).sum())
        rows = rows & pool.usable
        if request.node_terms:
            selected = pool.matching(request.node_terms)
            counts["outside spec.template.spec (nodeSelector, affinity)"] += int((rows & ~selected).sum())
            rows &= selected
        for number, taints in enumerate(pool.taint_classes):
            if not tolerated(taints, request.tolerations):
                tainted = rows & (pool.taint_class == number)
                keys = ", ".join(sorted({taint.key for taint in taints}))
                counts[f"tainted {keys} (spec.template.spec.tolerations)"] += int(tainted.sum())
        failed = [pool.row[name] for name in request.excluded_nodes if name in pool.row]
        counts["avoided for now, where this job failed"] += int(rows[failed].sum())
    return ", ".join(f"{plural(number, 'node')} {cause}" for cause, number in counts.items() if number)
