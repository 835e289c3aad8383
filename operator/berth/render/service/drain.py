"""How long a replica goes on answering once it has been told to go.

It leaves the Service at once and stops when its last answer is out. Nothing tells from outside when that is, so it gets
the time of a long answer, in coarse steps: too short cuts streams, too long holds devices that answer nobody.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from berth.api.inferenceservice import InferenceServiceSpec
from berth.catalogue.serving import Sizing
from berth.values import parse_duration

STEPS: Final = (15, 30, 60, 120, 300, 600)
"""Seconds."""
UNSTATED: Final = 60
_LONG: Final = 4
"""A long answer is so many times the usual one; a slow one takes twice the promised latency."""


def drain_seconds(spec: InferenceServiceSpec, sizing: Sizing) -> int:
    """Seconds of draining: by the promised latency, else by the promised times of tokens, else :data:`UNSTATED`."""
    slo = spec.slo
    if slo is None or (slo.latency is None and slo.itl is None):
        return UNSTATED
    if slo.latency is not None:
        seconds = 2 * parse_duration(slo.latency)
    else:
        first = parse_duration(slo.ttft) if slo.ttft is not None else 0.0
        tokens = _LONG * sizing.output_tokens
        seconds = first + parse_duration(slo.itl or "0s") * min(tokens, spec.model.context_tokens or tokens)
    return STEPS[min(bisect_left(STEPS, seconds), len(STEPS) - 1)]
