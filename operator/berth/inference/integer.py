"""Integer programs that the search of our own finds nothing for, by HiGHS through SciPy.

SciPy is loaded the first time that one is met.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from berth.inference.program import Program, Row, Soft, Solution

NODES: Final = 1_000
_OPTIMAL: Final = 0
_INFEASIBLE: Final = 2


def solve_mix(program: Program, most_nodes: int = NODES) -> Solution | bool | None:
    """The cheapest solution found in ``most_nodes``; ``None`` where there is none, ``False`` where none was found."""
    from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415

    columns, softs = program.columns, program.softs
    parts = [(i, length, slope) for i, column in enumerate(columns) for length, slope in column.pieces]
    lows = np.array([column.low for column in columns], float)
    rows: list[Row | Soft] = [*program.rows, *softs]
    matrix = np.array([row.coefficients for row in rows], float).reshape(len(rows), len(lows))
    least = np.array([row.least for row in rows]) - matrix @ lows
    if not parts:
        counts = tuple(column.low for column in columns)
        cost = program.cost(counts)
        return Solution(counts, cost, cost, True) if program.feasible(counts) else None
    missed = [program.missed(soft) for soft in softs]
    gaps = np.vstack([np.zeros((len(program.rows), len(softs))), np.eye(len(softs))])
    index = [i for i, _, _ in parts]
    answer: Any = milp(
        np.array([slope for _, _, slope in parts] + [soft.price for soft in softs]),
        integrality=np.array([1] * len(parts) + [0] * len(softs)),
        bounds=Bounds(np.zeros(len(parts) + len(softs)), np.array([length for _, length, _ in parts] + missed, float)),
        constraints=LinearConstraint(np.hstack([matrix[:, index], gaps]), least, np.inf),
        options={"node_limit": most_nodes, "mip_rel_gap": 0.0},
    )
    if answer.x is None:
        return None if answer.status == _INFEASIBLE else False
    totals = lows.copy()
    np.add.at(totals, index, np.round(answer.x[: len(parts)]))
    counts = tuple(int(total) for total in totals)
    cost = program.cost(counts)
    proven = answer.status == _OPTIMAL
    return Solution(counts, cost, cost if proven else min(cost, float(answer.mip_dual_bound)), proven)
