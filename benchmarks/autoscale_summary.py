"""What all traces come to: the figures of the last line, and the table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks import frontier
from benchmarks.autoscale_cases import COLD_STARTS, PROMISES, Case, Measured
from benchmarks.frontier import Frontier, geomean
from benchmarks.policies.base import Outcome
from benchmarks.policies.rivals import HPA

OURS = "Berth"


def summary(measured: Sequence[Measured]) -> dict[str, Any]:
    """The keys that this benchmark promises; ratios below 1 are better than the HPA tuned in hindsight."""
    cases = [case for trace in measured for case in trace.cases]
    reachable = [case for case in cases if not case.unreachable]
    by_trace = [ratio for trace in measured if (ratio := trace_ratio(trace.cases)) is not None]
    return {
        "geomean_unserved_ratio_vs_best_hpa_at_equal_cost": _rounded(geomean(_ratios(cases))),
        "geomean_patterned": _rounded(geomean(_ratios(c for t in measured if t.patterned for c in t.cases))),
        "worst_trace_ratio": _rounded(max(by_trace, default=None)),
        "promise_kept": _share([case.kept for case in reachable]),
        "outside_frontier": _share([case.outside for case in cases]),
        "unreachable": len(cases) - len(reachable),
        "per_trace": {trace.name: _trace(trace) for trace in measured},
    }


def trace_ratio(cases: Iterable[Case]) -> float | None:
    """Geometric mean over the cases of a trace that are above the floor."""
    return geomean(_ratios(cases))


def baselines(measured: Sequence[Measured]) -> dict[str, Any]:
    """By policy and promise: what its best setting in hindsight costs, per trace and cold start.

    ``can_keep``: the share of traces and cold starts in which some setting keeps the promise; the rest is over those.
    ``cost_over_clairvoyant``, ``cost_over_hpa`` (the HPA's best setting for the same promise, where it has one) and
    ``unserved_over_hpa`` (its frontier at equal cost) are geometric means. Our planner has one setting and no
    hindsight; its figures are over the cases in which it kept its promise, and where it took some of the slack, the
    HPA may leave as much unserved.
    """
    names = list(measured[0].rivals)
    rows = {name: {_percent(p): _rival(measured, name, p) for p in PROMISES} for name in names}
    if any(trace.cases for trace in measured):
        rows = {OURS: {_percent(p): _ours(measured, p) for p in PROMISES}, **rows}
    return rows


def details(measured: Sequence[Measured]) -> dict[str, Any]:
    """What the ratios rest on."""
    cases = [case for trace in measured for case in trace.cases]
    return {
        "cases": len(cases),
        "below_floor": sum(case.ratio is None for case in cases),
        "stepped": _rounded(geomean(_ratios(case for trace in measured for case in trace.stepped))),
        "mean_of_traces": _rounded(geomean([r for t in measured if (r := trace_ratio(t.cases)) is not None])),
    }


def table(rows: dict[str, Any]) -> list[str]:
    """``baselines`` as text, one line per policy."""
    head = "".join(f"| at most {promise} unserved".ljust(40) for promise in map(_percent, PROMISES))
    units = "| can keep  /clairv.  cost/HPA  uns./HPA  " * len(PROMISES)
    lines = [f"{'':16}{head}", f"{'policy':16}{units}"]
    for name, by_promise in rows.items():
        cells = []
        for figures in by_promise.values():
            keys = ("cost_over_clairvoyant", "cost_over_hpa", "unserved_over_hpa")
            values = "".join(f"{_text(figures[key]):>10}" for key in keys)
            cells.append(f"| {figures['can_keep']:8.0%}{values} ")
        lines.append(f"{name:16}{''.join(cells)}")
    return lines


def trace_line(trace: Measured) -> str:
    """One trace in one line."""
    kept = [case.kept for case in trace.cases if not case.unreachable]
    ratios = "  ".join(
        f"{cold} s: " + " ".join(_text(case.ratio) for case in trace.cases if case.cold_seconds == cold)
        for cold in COLD_STARTS
    )
    stepped = f", stepped {_text(trace_ratio(trace.stepped))}" if trace.stepped else ""
    ratio = _text(trace_ratio(trace.cases))
    ours = f"unserved/HPA at equal cost {ratio} ({ratios}){stepped}, kept {sum(kept)}/{len(kept)}"
    ours = ours if trace.cases else "no planner"
    day = f"day {trace.correlation:+.2f}{' patterned' if trace.patterned else ''}"
    return f"{trace.name:24} {trace.steps:6} steps, {day}: {ours}, {trace.seconds:.0f} s"


def _trace(trace: Measured) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "ratio": _rounded(trace_ratio(trace.cases)),
        "daily_autocorrelation": round(trace.correlation, 3),
        "patterned": trace.patterned,
        "promise_kept": _share([case.kept for case in trace.cases if not case.unreachable]),
        "cost_over_clairvoyant": _rounded(geomean([case.over_clairvoyant for case in trace.cases])),
        "cases": [
            {
                "promise": case.promise,
                "cold_start_s": case.cold_seconds,
                "unserved": _rounded(case.outcome.unserved),
                "cost_over_clairvoyant": _rounded(case.over_clairvoyant),
                "ratio": _rounded(case.ratio),
                **({"outside": True} if case.outside else {}),
                **({"unreachable": True} if case.unreachable else {}),
            }
            for case in trace.cases
        ],
    }
    if trace.stepped:
        figures["stepped_ratio"] = _rounded(trace_ratio(trace.stepped))
    return figures


def _rival(measured: Sequence[Measured], name: str, promise: float) -> dict[str, Any]:
    chosen: list[tuple[Measured, int, Outcome]] = []
    for trace in measured:
        for cold in COLD_STARTS:
            best = Frontier.of(trace.rivals[name][cold]).cheapest(promise)
            if best is not None:
                chosen.append((trace, cold, best))
    return _figures(chosen, promise, len(measured) * len(COLD_STARTS))


def _ours(measured: Sequence[Measured], promise: float) -> dict[str, Any]:
    pairs = [(trace, case) for trace in measured for case in trace.cases if case.promise == promise]
    kept = [(trace, case.cold_seconds, case.outcome) for trace, case in pairs if case.kept]
    return _figures(kept, promise, len(pairs))


def _figures(chosen: Sequence[tuple[Measured, int, Outcome]], promise: float, count: int) -> dict[str, Any]:
    over_hpa, unserved = list[float](), list[float]()
    for trace, cold, outcome in chosen:
        hpa = Frontier.of(trace.rivals[HPA][cold])
        if best := hpa.cheapest(max(promise, outcome.unserved)):
            over_hpa.append(outcome.cost / best.cost)
        if (ratio := frontier.compare(outcome, hpa).ratio) is not None:
            unserved.append(ratio)
    return {
        "can_keep": round(len(chosen) / max(count, 1), 4),
        "cost_over_clairvoyant": _rounded(geomean([o.cost / t.clairvoyant[cold].cost for t, cold, o in chosen])),
        "cost_over_hpa": _rounded(geomean(over_hpa)),
        "unserved_over_hpa": _rounded(geomean(unserved)),
    }


def _ratios(cases: Iterable[Case]) -> list[float]:
    return [case.ratio for case in cases if case.ratio is not None]


def _share(flags: Sequence[bool]) -> float | None:
    return round(sum(flags) / len(flags), 4) if flags else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def _percent(share: float) -> str:
    return f"{share:.1%}"


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
