"""What work is counted in: one unit of it is what a reference replica carries, and that changes with the spec.

Another accelerator, model or promise makes the unit another amount of load. Whatever was remembered in units of work is
then worth another number of them; read as it stands, a service that moved from small devices to large ones would be
taken to need as many of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from berth.api.inferenceservice import InferenceServiceSpec
from berth.api.inferenceservice_parts import Signal
from berth.catalogue.records import Catalogue
from berth.inference.calibrate import basis_of
from berth.inference.capacity import Capacity

AUTO: Final = "Auto"


@dataclass(frozen=True, slots=True)
class Measure:
    """``load`` that is one unit of work, in a unit of its own for each ``what``."""

    what: str = ""
    load: float = 1.0

    def over(self, other: Measure) -> float | None:
        """How many units of ``other`` one of these is; None where they count different things."""
        return self.load / other.load if self.what == other.what else None


ONE: Final = Measure()


def stated(signal: Signal) -> float | None:
    """Load that a reference replica carries as the user says, in the signal's unit; None: it is sized."""
    load = signal.per_replica
    return None if load is None or load == AUTO else float(load)


def measure(spec: InferenceServiceSpec, catalogue: Catalogue, reference: Capacity | None) -> Measure:
    """Of a service whose reference replica is estimated to carry ``reference``: what the user states, else that.

    By the first signal, and in requests a second where it is sized: what one replica more carries of them counts for
    every sized signal alike.
    """
    scaling, runtime = spec.scaling, spec.runtime
    signals = scaling.demand.signals if scaling is not None and scaling.demand is not None else None
    load = stated(signals[0]) if signals else None
    if signals and load is not None:
        return Measure(basis_of(signals[0].preset, signals[0].query), load)
    engine = catalogue.serving.engines.get(runtime.engine) if runtime is not None else None
    preset = signals[0].preset if signals else engine.preset if engine is not None else ""
    if reference is None or not reference.requests_per_second:
        return Measure(basis_of(preset, AUTO, None))
    return Measure(basis_of(preset, AUTO), reference.requests_per_second)
