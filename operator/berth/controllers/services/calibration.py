"""What a service's sources tell, as trials of what its replicas carry.

Only signals whose ``perReplica`` is Auto are taken, the first of them: what the user states is not learned. Load and
capacity stay in that signal's unit until their ratio is formed, so that it does not matter which unit that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from berth.api.inferenceservice_parts import Signal
from berth.controllers.services.measure import stated
from berth.controllers.services.supply import Choice
from berth.controllers.services.view import ServiceView
from berth.inference.calibrate import Kind, Load, kept
from berth.inference.capacity import Capacity
from berth.inference.demand import EXPIRES_SECONDS
from berth.inference.service import Replica
from berth.telemetry.presets import counts_requests_in_flight, presets, reported_by_replicas
from berth.telemetry.readings import Telling
from berth.values import plural

QUEUED: Final = 1.0
"""Requests that wait at each replica, from which on it is full: fewer come and go with every burst."""


def listen(
    view: ServiceView,
    choice: Choice,
    signals: Sequence[Signal],
    telling: Telling,
    replicas: Iterable[Replica],
    now: float,
) -> None:
    """Take one look at the loads of ``view`` into what is learned of it."""
    signal, estimate = tried(signals), choice.found.reference_capacity
    reading = telling.readings.get(signal.name) if signal is not None else None
    if signal is None or estimate is None or reading is None or reading.load is None:
        return
    unit = load_of(estimate, signal.preset)
    ready = [entry for entry in replicas if entry.ready and not entry.terminating]
    if not ready or unit <= 0 or now - reading.at > EXPIRES_SECONDS:
        return
    if counts_requests_in_flight(signal.preset):
        by_pod = telling.in_flight
    else:  # counted in front of the replicas, among which a Service spreads it evenly
        by_pod = {pod.name: reading.load / len(ready) for pod in ready}
    loads = _loads(choice, unit, ready, by_pod, telling)
    promise = choice.request.promise
    if loads:
        view.capacities.hear(now, loads, kept(promise.times, telling.seconds), timed=promise.timed)


def tried(signals: Sequence[Signal]) -> Signal | None:
    """The signal that capacity is learned by: the first that is sized and counts requests of one kind."""
    return next((entry for entry in signals if stated(entry) is None and _counts(entry.preset)), None)


def load_of(estimate: Capacity, preset: str) -> float:
    """What of a capacity is the load that ``preset`` counts."""
    return estimate.in_flight if counts_requests_in_flight(preset) else estimate.requests_per_second


def carries(view: ServiceView, choice: Choice, signals: Sequence[Signal]) -> str:
    """What replicas were found to carry, in a sentence; empty before any trial."""
    signal, estimate = tried(signals), choice.found.reference_capacity
    if signal is None or estimate is None:
        return ""
    what = "requests in flight" if counts_requests_in_flight(signal.preset) else "requests/s"
    said: dict[Kind, str] = {}
    for candidate in choice.found.found:
        variant = candidate.variant
        kind = Kind(variant.accelerator, variant.devices)
        trials = view.capacities.trials(kind)
        if trials and kind not in said:
            sized = load_of(estimate, signal.preset) * choice.sized[variant.name]
            said[kind] = (
                f"a replica on {variant.accelerator} carries {sized * view.capacities.factor(kind):.3g} {what},"
                f" measured in {plural(trials, 'trial')} ({sized:.3g} estimated)"
            )
    return "; ".join(said.values())


def _counts(preset: str) -> bool:
    """Whether the load of ``preset`` is all requests that there are: a gauge of a gateway counts those that wait."""
    return preset in presets() and (reported_by_replicas(preset) or not counts_requests_in_flight(preset))


def _loads(
    choice: Choice, unit: float, ready: Sequence[Replica], by_pod: Mapping[str, float], telling: Telling
) -> dict[Kind, Load]:
    """The load of each kind of replicas; those that report nothing are left out."""
    variants = choice.variants
    kinds: dict[Kind, list[Replica]] = {}
    for replica in ready:
        variant = variants.get(replica.variant)
        if variant is not None and replica.name in by_pod:
            kinds.setdefault(Kind(variant.accelerator, variant.devices), []).append(replica)
    whole = sum(by_pod[replica.name] for mine in kinds.values() for replica in mine)
    loads: dict[Kind, Load] = {}
    for kind, mine in kinds.items():
        sized = len(mine) * unit * choice.sized[mine[0].variant]
        load = sum(by_pod[replica.name] for replica in mine)
        waiting = [telling.waiting[replica.name] for replica in mine if replica.name in telling.waiting]
        waits = sum(waiting)
        loads[kind] = Load(
            each=load / sized,
            running=max(load - waits, 0.0) / sized,
            queued=waits >= QUEUED * len(mine) if waiting else None,
            share=load / whole if whole > 0 else 0.0,
        )
    return loads
