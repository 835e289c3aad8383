"""How much one replica carries at the SLO, before anything was measured of it.

A roofline says how long a step takes with a number of requests in flight, and a queue says how many are in flight at a
given rate of arrivals. The utilisation that a service can hold is then a result: a tight promise at a high percentile
leaves a replica half idle, a backlog without promise fills it.

With P parameters of b bits, n devices, k bytes of KV cache a token, I tokens in and O out:

* a step of decoding B requests: ``max((P·b/8 + B·k·(I + O/2)) / (n·bandwidth·f_b) / a, 2·P·B·a / (n·flops·f_d)) + s``
  (weights and caches are read once a step; two operations a parameter and token; a tokens come of a step when the
  engine speculates, which costs a-fold operations);
* a prompt: ``2·P·I / (n·flops·f_p)``;
* ``s``, launches and all-reduces: ``layers × (launches + 2 all-reduces where n > 1)``.

In continuous batching every request passes O steps, so that each step carries B/O prompts and takes
``T(B) = decode(B) + B/O × prompt``; B requests in flight complete at the rate ``μ(B) = B / (O·T(B))``. Requests in
flight are then a processor-sharing queue with rates μ(n), whose stationary law depends on the distribution of lengths
only through its mean (Cohen 1979, "The multiple phase service network with generalized processor sharing"):
``π(n) ∝ Π λ/μ(k)``, with μ constant beyond what memory holds. An arrival sees that law (PASTA); the times at the
percentile p are those at the p-quantile of n, and the capacity is the largest λ that keeps them. Prompts take a step
each and so queue among themselves: with ρ = λ × such a step, j or more are found waiting with probability ρ^(j+1).

Fractions and constants: :class:`berth.catalogue.serving.Sizing`, with their sources in the catalogue.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import Final, Literal

import numpy as np

from berth.catalogue.records import Accelerator
from berth.catalogue.serving import Engine, Sizing
from berth.catalogue.sizing import SERVING_OVERHEAD_BYTES, ServedModel

Limit = Literal["Ttft", "Itl", "Latency", "Memory", "Requests", ""]
_MOST_MEMORY_SHARE: Final = 0.95
_HALVINGS: Final = 32
_MOST_AHEAD: Final = 24
_ROUNDING: Final = 1e-9

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Promise:
    """Seconds that the ``percentile`` (0–100) of requests must keep; ``inf`` where nothing is promised."""

    percentile: float = 99.0
    ttft: float = inf
    itl: float = inf
    latency: float = inf

    @property
    def timed(self) -> bool:
        """Whether any time is promised."""
        return bool(self.times)

    @property
    def times(self) -> dict[str, float]:
        """What is promised, by ``ttft``, ``itl`` and ``latency``."""
        bounds = {"ttft": self.ttft, "itl": self.itl, "latency": self.latency}
        return {name: bound for name, bound in bounds.items() if bound < inf}


@dataclass(frozen=True, slots=True)
class Requests:
    """Mean tokens of a request: ``tokens_in`` of the prompt and ``tokens_out`` of the answer, at least one each."""

    tokens_in: float
    tokens_out: float


@dataclass(frozen=True, slots=True)
class Speed:
    """What a step takes: seconds ``fixed``, ``per_request`` more for each in flight by either roof, and a ``prompt``.

    The memory roof is ``weights + n × cache``, the compute roof ``n × compute``.
    """

    fixed: float
    weights: float
    cache: float
    compute: float
    prompt: float
    tokens_out: float

    def step(self, batch: int) -> float:
        """Seconds of a step with ``batch`` requests, its share of prompts included: T(B)."""
        decode = max(self.weights + batch * self.cache, batch * self.compute) + self.fixed
        return decode + batch / self.tokens_out * self.prompt

    def prompting(self, batch: int) -> float:
        """Seconds of a step with ``batch`` requests that takes in one whole prompt."""
        return max(self.weights + batch * self.cache, batch * self.compute) + self.fixed + self.prompt

    def rate(self, batch: int) -> float:
        """Requests/s that ``batch`` in flight complete: μ(B)."""
        return batch / (self.tokens_out * self.step(batch)) if batch else 0.0


@dataclass(frozen=True, slots=True)
class Capacity:
    """What one replica carries at the SLO.

    ``concurrency``: requests of full length that memory holds. ``batch``: in flight at the promised percentile.
    ``requests_per_second``, ``tokens_per_second`` (out) and ``in_flight`` (mean) there; ``utilisation``: of the rate at
    which its queue would grow without bound. ``ttft``, ``itl``, ``latency``: seconds at the percentile. ``bound_by``
    says what stops it. All zero where even one request alone misses the promise; then the times are that one's.
    """

    concurrency: int
    batch: int
    requests_per_second: float
    tokens_per_second: float
    in_flight: float
    utilisation: float
    ttft: float
    itl: float
    latency: float
    bound_by: Limit


def memory_share(accelerator: Accelerator) -> float:
    """The share of a device's memory for weights and KV cache, down to a hundredth; 0 where memory is not known."""
    if accelerator.memory_bytes <= SERVING_OVERHEAD_BYTES:
        return 0.0
    free = 1 - SERVING_OVERHEAD_BYTES / accelerator.memory_bytes
    return min(_MOST_MEMORY_SHARE, int(free * 100) / 100)


def kv_room(accelerator: Accelerator, model: ServedModel, devices: int) -> int:
    """Bytes that weights and engine leave for KV cache on ``devices``; negative where they do not even fit."""
    return devices * (accelerator.memory_bytes - SERVING_OVERHEAD_BYTES) - model.weights


def concurrency(accelerator: Accelerator, model: ServedModel, devices: int, most: int) -> int:
    """Requests of full length that memory holds, at most ``most``; that where KV size or memory are not known."""
    if accelerator.host_memory or not model.kv_cache:
        return most
    return max(0, min(most, kv_room(accelerator, model, devices) // model.kv_cache))


def speed(
    accelerator: Accelerator,
    devices: int,
    model: ServedModel,
    requests: Requests,
    sizing: Sizing,
    tokens_per_step: float = 1.0,
) -> Speed | None:
    """The roofline of a replica, ``None`` where bandwidth or operations of the accelerator are not known."""
    compute = accelerator.compute
    bandwidth = devices * accelerator.memory_bandwidth * sizing.bandwidth_fraction
    flops = devices * compute.flops(model.bits)
    if not bandwidth or not flops:
        return None
    layers = sizing.layers_per_billionth * (model.parameters / 1e9) ** sizing.layers_exponent
    linked = accelerator.link_gbytes_per_second > 0
    reduce = sizing.reduce_seconds if linked else sizing.unlinked_reduce_seconds
    launches = layers * (sizing.layer_seconds + (2 * reduce if devices > 1 else 0.0))
    resident = requests.tokens_in + requests.tokens_out / 2
    return Speed(
        fixed=launches / tokens_per_step,
        weights=model.weights / bandwidth / tokens_per_step,
        cache=model.kv_bytes_per_token * resident / bandwidth / tokens_per_step,
        compute=2 * model.parameters / (flops * (compute.decode or sizing.decode_fraction)),
        prompt=2 * model.parameters * requests.tokens_in / (flops * (compute.prefill or sizing.prefill_fraction)),
        tokens_out=requests.tokens_out,
    )


def capacity(
    accelerator: Accelerator,
    devices: int,
    model: ServedModel,
    promise: Promise,
    sizing: Sizing,
    engine: Engine | None = None,
    *,
    requests: Requests | None = None,
    speculates: bool = False,
) -> Capacity | None:
    """The capacity of a replica on ``devices`` devices, ``None`` where its speed cannot be known.

    An engine that does not batch continuously waits for the longest of a batch and yields ``static_batch_share`` of it.
    """
    shape = requests or _shape(model, sizing)
    tokens_per_step = engine.tokens_per_step if engine is not None and speculates else 1.0
    roof = speed(accelerator, devices, model, shape, sizing, tokens_per_step)
    if roof is None:
        return None
    most = int(sizing.most_requests)
    held = concurrency(accelerator, model, devices, most)
    share = 1.0 if engine is None or engine.continuous_batching else sizing.static_batch_share
    return at_promise(roof, held, promise, sizing, limit="Memory" if held < most else "Requests", share=share)


def _shape(model: ServedModel, sizing: Sizing) -> Requests:
    """The assumed request, shortened in proportion where the model's context does not hold it."""
    total = sizing.input_tokens + sizing.output_tokens
    fit = min(1.0, model.context_tokens / total) if model.context_tokens else 1.0
    return Requests(max(1.0, sizing.input_tokens * fit), max(1.0, sizing.output_tokens * fit))


@lru_cache(maxsize=4_096)
def at_promise(
    roof: Speed, held: int, promise: Promise, sizing: Sizing, *, limit: Limit = "Memory", share: float = 1.0
) -> Capacity:
    """The capacity of a replica with ``roof`` that holds ``held`` requests at once, see the module.

    Remembered, for many services ask the same.
    """
    rates = np.array([roof.rate(batch) * share for batch in range(1, held + 1)])
    if not held:
        return _nothing(roof, limit)
    if not promise.timed:
        return _found(roof, rates, sizing.backlog_utilisation * float(rates.max()), promise, limit)
    best, bound = 0.0, limit
    for ahead in range(_MOST_AHEAD):
        deepest, stop = _deepest(roof, rates, promise, ahead, limit)
        if not deepest:
            bound = bound if ahead else stop
            break
        most = _prompts(promise, ahead) / roof.prompting(1)
        arrivals = _arrivals(rates, deepest, promise.percentile / 100, min(most, _highest(rates, sizing)))
        if arrivals > best:
            best, bound = arrivals, stop
    return _found(roof, rates, best, promise, bound) if best else _nothing(roof, bound)


def _nothing(roof: Speed, bound: Limit) -> Capacity:
    first, step = roof.prompting(1), roof.step(1)
    return Capacity(0, 0, 0.0, 0.0, 0.0, 0.0, first, step, first + (roof.tokens_out - 1) * step, bound)


def _found(roof: Speed, rates: Floats, arrivals: float, promise: Promise, bound: Limit) -> Capacity:
    held, share = len(rates), promise.percentile / 100
    mean, quantile = _in_flight(rates, arrivals, share)
    busy = arrivals * roof.prompting(1) * (1 - _ROUNDING)
    ahead = next((number for number in range(_MOST_AHEAD) if busy <= _prompts(promise, number)), _MOST_AHEAD)
    first, step, last = _times(roof, rates, quantile, ahead)
    return Capacity(
        concurrency=held,
        batch=min(quantile, held),
        requests_per_second=arrivals,
        tokens_per_second=arrivals * roof.tokens_out,
        in_flight=mean,
        utilisation=arrivals / float(rates.max()),
        ttft=first,
        itl=step,
        latency=last,
        bound_by=bound,
    )


def _prompts(promise: Promise, ahead: int) -> float:
    """The utilisation by prompts at which at most ``ahead`` are found waiting, ρ^(ahead+1) = 1 − percentile."""
    return float((1 - promise.percentile / 100) ** (1 / (ahead + 1)))


def _highest(rates: Floats, sizing: Sizing) -> float:
    return float(rates.max()) * sizing.backlog_utilisation


def _times(roof: Speed, rates: Floats, flying: int, ahead: int) -> tuple[float, float, float]:
    """Seconds to the first token, between tokens and to the last for the last of ``flying`` requests.

    ``ahead``: prompts found waiting for their step.
    """
    batch = min(flying, len(rates))
    step = roof.step(batch)
    waiting = (flying - batch) / float(rates[-1]) if flying > batch else 0.0
    first = waiting + (1 + ahead) * roof.prompting(batch)
    return first, step, first + (roof.tokens_out - 1) * step


def _deepest(roof: Speed, rates: Floats, promise: Promise, ahead: int, limit: Limit) -> tuple[int, Limit]:
    """The most requests in flight of which the last still keeps the promise, and what stops one more."""
    held = len(rates)
    wanted: tuple[tuple[Limit, float], ...] = (
        ("Ttft", promise.ttft), ("Itl", promise.itl), ("Latency", promise.latency),
    )  # fmt: skip

    def missed(flying: int) -> Limit | None:
        times = _times(roof, rates, flying, ahead)
        return next((name for (name, bound), time in zip(wanted, times, strict=True) if time > bound), None)

    low, high = 0, 1
    while (stop := missed(high)) is None and high < 64 * held:
        low, high = high, 2 * high
    while stop is not None and high - low > 1:
        middle = (low + high) // 2
        found = missed(middle)
        low, high, stop = (middle, high, stop) if found is None else (low, middle, found)
    if stop is None:
        low = high
    return low, (limit if stop is None or low >= held else stop)


def _arrivals(rates: Floats, deepest: int, share: float, most: float) -> float:
    """The largest arrivals/s up to ``most`` at which at most ``deepest`` are in flight for ``share`` of the time."""
    low, high = 0.0, most
    if _below(rates, high, deepest) >= share:
        return high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _below(rates, middle, deepest) >= share else (low, middle)
    return low


def _weights(rates: Floats, arrivals: float) -> tuple[Floats, float]:
    """π(0..held) up to a factor, and the ratio by which it falls beyond."""
    logs = np.concatenate(([0.0], np.cumsum(np.log(arrivals) - np.log(rates))))
    return np.exp(logs - logs.max()), arrivals / float(rates[-1])


def _below(rates: Floats, arrivals: float, deepest: int) -> float:
    """P(in flight ≤ ``deepest``) at ``arrivals``; 0 where the queue has no stationary law."""
    if arrivals <= 0:
        return 1.0
    weights, ratio = _weights(rates, arrivals)
    if ratio >= 1:
        return 0.0
    beyond = weights[-1] * ratio / (1 - ratio)
    if deepest < len(weights):
        return float(weights[: deepest + 1].sum() / (weights.sum() + beyond))
    return float(1 - beyond * ratio ** (deepest - len(weights) + 1) / (weights.sum() + beyond))


def _in_flight(rates: Floats, arrivals: float, share: float) -> tuple[float, int]:
    """The mean number in flight and its quantile at ``share``, at least 1."""
    weights, ratio = _weights(rates, arrivals)
    held = len(rates)
    beyond = weights[-1] * ratio / (1 - ratio)
    total = weights.sum() + beyond
    mean = float(weights @ np.arange(held + 1)) + beyond * (held + 1 / (1 - ratio))
    below = np.cumsum(weights) / total
    if below[-1] >= share - _ROUNDING:
        return float(mean / total), max(1, int(np.searchsorted(below, share - _ROUNDING)))
    left = (1 - share) * total / beyond
    return float(mean / total), held + int(np.ceil(np.log(left) / np.log(ratio) - _ROUNDING))
