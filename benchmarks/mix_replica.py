"""One replica, step by step: requests come at random, with random lengths, and join the batch when memory has room.

The operator derives what a replica carries from a queue's stationary law. Here nothing is stationary or fluid: every
step takes its time with the requests that are in it, a prompt holds all of them up, and answers end when they have all
their tokens. It shares only the speed of a step with what it checks.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import numpy as np

from berth.catalogue.records import Catalogue
from berth.catalogue.sizing import ServedModel
from berth.inference.capacity import Capacity, Promise, Requests, Speed, speed

WARM_UP: Final = 0.1


def kept_share(
    catalogue: Catalogue, name: str, devices: int, model: ServedModel, carried: Capacity, promise: Promise, answers: int
) -> dict[str, Any]:
    """Shares of ``answers`` requests, at the rate ``carried`` states, whose first and mean next tokens come in time."""
    sizing = catalogue.serving.sizing
    roof = speed(
        catalogue.accelerators[name], devices, model, Requests(sizing.input_tokens, sizing.output_tokens), sizing
    )
    assert roof is not None
    first, between, busy = simulate(roof, carried.concurrency, carried.requests_per_second, answers)
    return {
        "ttft_kept": round(float((first <= promise.ttft).mean()), 4),
        "itl_kept": round(float((between <= promise.itl).mean()), 4),
        "in_flight": round(busy, 1),
        "in_flight_expected": round(carried.in_flight, 1),
    }


def simulate(roof: Speed, held: int, rate: float, answers: int, seed: int = 7) -> tuple[np.ndarray, np.ndarray, float]:
    """Seconds to the first token and mean seconds between tokens per answer, and the mean number in flight.

    Arrivals are Poisson at ``rate``; answers have geometric lengths of the mean ``roof.tokens_out``. A step takes in
    at most one prompt.
    """
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1 / rate, answers))
    lengths = rng.geometric(1 / roof.tokens_out, answers)
    waiting: deque[int] = deque()
    prompts: deque[int] = deque()
    running: dict[int, int] = {}
    began: dict[int, float] = {}
    first, between = np.full(answers, np.nan), np.full(answers, np.nan)
    now, coming, done, flying = 0.0, 0, 0, 0.0
    while done < answers:
        while coming < answers and arrivals[coming] <= now:
            waiting.append(coming)
            coming += 1
        while waiting and len(running) + len(prompts) < held:
            prompts.append(waiting.popleft())
        if not running and not prompts:
            now = float(arrivals[coming])
            continue
        ready = [prompts.popleft()] if prompts else []
        batch = len(running)
        decode = max(roof.weights + batch * roof.cache, batch * roof.compute) + roof.fixed
        took = decode + len(ready) * roof.prompt
        flying += (batch + len(prompts) + len(ready) + len(waiting)) * took
        now += took
        for request in list(running):
            running[request] -= 1
            if not running[request]:
                del running[request]
                between[request] = (now - began[request]) / max(1, lengths[request] - 1)
                done += 1
        for request in ready:
            first[request], began[request] = now - arrivals[request], now
            if lengths[request] > 1:
                running[request] = int(lengths[request]) - 1
            else:
                between[request] = 0.0
                done += 1
    warm = int(WARM_UP * answers)
    return first[warm:], between[warm:], flying / now
