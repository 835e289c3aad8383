"""The picture of the autoscaling benchmark: cost over clairvoyant against unserved share, one panel per cold start.

A rival's line joins its settings that no other of its settings beats when one setting serves all traces: geometric
means over the traces. That is what a user can have; the table's choice per trace is kinder. Written as SVG by hand, so
that no plotting library is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape

from benchmarks.autoscale_cases import COLD_STARTS, PROMISES, Measured
from benchmarks.autoscale_summary import OURS
from benchmarks.frontier import FLOOR, Frontier, geomean
from benchmarks.policies.base import Outcome

WIDTH, HEIGHT, MARGIN, LEGEND = 420, 380, 56, 170
COSTS = (0.9, 1, 1.2, 1.5, 2, 3, 4)
SHARES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
COLOURS = ("#4477aa", "#66ccee", "#228833", "#ccbb44", "#aa7744", "#aa3377", "#bbbbbb", "#ee8866", "#44aa99", "#000000")
OUR_COLOUR = "#d62728"


def plot(measured: Sequence[Measured]) -> str:
    """An SVG document."""
    names = list(measured[0].rivals)
    parts = [_panel(measured, names, cold, index) for index, cold in enumerate(COLD_STARTS)]
    parts.append(_legend(names))
    width = len(COLD_STARTS) * WIDTH + LEGEND
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{HEIGHT}" font-family="sans-serif" '
        f'font-size="11"><rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>\n'
    )


def averaged(measured: Sequence[Measured], name: str, cold: int) -> Frontier:
    """Each setting of a rival over all traces: cost over clairvoyant and unserved share, those that no other beats."""
    count = len(measured[0].rivals[name][cold])
    return Frontier.of(
        _mean([(trace.rivals[name][cold][setting], trace.clairvoyant[cold]) for trace in measured])
        for setting in range(count)
    )


def _mean(pairs: Iterable[tuple[Outcome, Outcome]]) -> Outcome:
    pairs = list(pairs)
    unserved = geomean([max(outcome.unserved, FLOOR) for outcome, _ in pairs])
    cost = geomean([outcome.cost / bound.cost for outcome, bound in pairs])
    assert unserved is not None
    assert cost is not None
    return Outcome(unserved, cost)


def _panel(measured: Sequence[Measured], names: Sequence[str], cold: int, index: int) -> str:
    left = index * WIDTH + MARGIN
    x = _scale(COSTS[0], COSTS[-1], left, left + WIDTH - MARGIN - 12)
    y = _scale(SHARES[0], SHARES[-1], HEIGHT - MARGIN, 32)
    parts = [_text(left, 20, f"cold start {cold} s", size=13)]
    for cost in COSTS:
        parts.append(_line([(x(cost), y(SHARES[0])), (x(cost), y(SHARES[-1]))], "#e4e4e4", 1))
        parts.append(_text(x(cost), HEIGHT - MARGIN + 16, f"{cost:g}", anchor="middle"))
    for share in SHARES:
        parts.append(_line([(x(COSTS[0]), y(share)), (x(COSTS[-1]), y(share))], "#e4e4e4", 1))
        parts.append(_text(left - 4, y(share) + 4, f"{share * 100:g} %", anchor="end"))
    parts.append(_text((x(COSTS[0]) + x(COSTS[-1])) / 2, HEIGHT - 18, "cost over clairvoyant", anchor="middle"))
    for name, colour in reversed(list(zip(names, COLOURS, strict=False))):  # the first, the HPA, on top
        points = averaged(measured, name, cold).points
        shown = [p for p in points if COSTS[0] <= p.cost <= COSTS[-1] and p.unserved <= SHARES[-1]]
        parts.append(_line([(x(p.cost), y(p.unserved)) for p in shown], colour, 2))
    parts.append(_mark(x(1), y(FLOOR), "#000000", "clairvoyant"))
    for promise in PROMISES:
        ours = [
            (c.outcome, t.clairvoyant[cold])
            for t in measured
            for c in t.cases
            if (c.promise, c.cold_seconds) == (promise, cold)
        ]
        if ours:
            point = _mean(ours)
            parts.append(_mark(x(point.cost), y(point.unserved), OUR_COLOUR, f"{promise:.1%} promised"))
    return "".join(parts)


def _legend(names: Sequence[str]) -> str:
    left = len(COLD_STARTS) * WIDTH + 8
    parts = [_mark(left + 10, 40, OUR_COLOUR, OURS)]
    for row, (name, colour) in enumerate(zip(names, COLOURS, strict=False), start=1):
        parts.append(_line([(left, 40 + 18 * row), (left + 20, 40 + 18 * row)], colour, 2))
        parts.append(_text(left + 26, 44 + 18 * row, name))
    return "".join(parts)


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    # Logarithmic; what lies outside is drawn at the edge.
    def place(value: float) -> float:
        share = math.log(min(max(value, low), high) / low) / math.log(high / low)
        return start + share * (end - start)

    return place


def _line(points: Sequence[tuple[float, float]], colour: str, width: float) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>'


def _mark(x: float, y: float, colour: str, label: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>' + _text(x + 7, y - 4, label)


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 11) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'
