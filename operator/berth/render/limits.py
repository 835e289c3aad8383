"""What no node can start, told before anything is placed.

Some frameworks want every rank named in one variable, which grows with the gang until the system refuses the program.
"""

from __future__ import annotations

from typing import Final

from berth.render.gang import GangPlan
from berth.render.rendezvous import environment

LONGEST_VARIABLE: Final = 131_071
"""Bytes of ``NAME=value`` that Linux hands to a new program: MAX_ARG_STRLEN of execve(2), less the closing zero."""
ATTEMPTS: Final = 999
"""The number of an attempt is part of each rank's name; one of three digits stands for all."""


def unstartable(name: str, namespace: str, workers: int, per_worker: int, framework: str) -> str:
    """Why execve(2) would start no rank of such a gang, for the length of what it is told; "" where it would."""
    nodes = ("",) * workers
    plan = GangPlan(name, namespace, "", ATTEMPTS, "", "", per_worker, nodes, {}, "", framework)
    told = environment(plan, workers - 1)
    size, variable = max((len(f"{key}={value}".encode()), key) for key, value in told.items())
    if size <= LONGEST_VARIABLE:
        return ""
    return (
        f"spec.workers: {framework} wants all {workers} workers named in {variable}, which would be {size} bytes, and "
        f"a program can be started with {LONGEST_VARIABLE}; use fewer workers or shorter names of job and namespace"
    )
