"""What a forecaster keeps is bounded: a thousand services have one each."""

from __future__ import annotations

import tracemalloc

from berth.inference.forecast.model import DemandModel

MOST_KIB = 128


def test_a_forecaster_of_days_holds_little_memory() -> None:
    step = 60.0
    tracemalloc.start()
    try:
        model = DemandModel(step_seconds=step)
        model.lowest, model.highest = 1.0, 4.0
        for number in range(200):
            model.observe(1.7e9 + number * step, 2.0)
            model.target(1.7e9 + number * step, 200.0, 0.99)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < MOST_KIB * 1024
