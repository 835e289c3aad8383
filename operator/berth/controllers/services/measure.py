"""What work is counted in: one unit of it is what a reference replica carries, and that changes with the spec.

Another accelerator, model or promise makes the unit another amount of load. Whatever was remembered in units of work is
then worth another number of them; read as it stands, a service that moved from small devices to large ones would be
taken to need as many of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from berth.api.inferenceservice import InferenceServiceSpec
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


def measure(spec: InferenceServiceSpec, catalogue: Catalogue, reference: Capacity | None) -> Measure:
    """Of a service whose reference replica is estimated to carry ``reference``: what the user states, else that.

    By the first signal, and in requests a second where it is sized: what one replica more carries of them counts for
    every sized signal alike.
    """
    scaling, runtime = spec.scaling, spec.runtime
    stated = scaling.demand.signals if scaling is not None and scaling.demand is not None else None
    if stated and stated[0].per_replica not in (None, AUTO):
        return Measure(basis_of(stated[0].preset, stated[0].query), float(stated[0].per_replica or 1.0))
    engine = catalogue.serving.engines.get(runtime.engine) if runtime is not None else None
    preset = stated[0].preset if stated else engine.preset if engine is not None else ""
    if reference is None or not reference.requests_per_second:
        return Measure(basis_of(preset, AUTO, None))
    return Measure(basis_of(preset, AUTO), reference.requests_per_second)
