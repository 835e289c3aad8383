"""How many devices a replica takes on one accelerator, and whether it then keeps the promise."""

from __future__ import annotations

from dataclasses import dataclass

from berth.catalogue.records import Accelerator
from berth.catalogue.serving import Sizing
from berth.catalogue.sizing import ServedModel, Unfit, serving_devices, serving_fits
from berth.inference.capacity import Capacity, Promise, capacity, concurrency, kv_room
from berth.inference.request import ServiceRequest
from berth.values import plural


@dataclass(frozen=True, slots=True)
class Sized:
    """``devices`` of a replica, what it carries (``None`` unknown) and the ``bandwidth`` of its memory, bytes/s."""

    devices: int
    capacity: Capacity | None
    bandwidth: int


def size(accelerator: Accelerator, request: ServiceRequest, most: int, sizing: Sizing) -> Sized | str:
    """The replica on nodes of up to ``most`` devices, or why there is none.

    Without a number given: the fewest devices (a power of two, as tensor parallelism splits heads evenly) that hold
    weights and KV cache; more where only more keep the promise for more than a few requests at once.
    """
    model = request.model
    if model is None:
        devices = request.devices or 1
        return Sized(devices, None, devices * accelerator.memory_bandwidth) if devices <= most else _too_few(
            devices, most)  # fmt: skip
    if request.devices is not None:
        refused = serving_fits(accelerator, model, request.devices)
        if refused is not None:
            return refused.reason
        if request.devices > most:
            return _too_few(request.devices, most)
        return _judged(accelerator, request, model, request.devices, sizing, least=1)
    fewest = serving_devices(accelerator, model)
    if isinstance(fewest, Unfit):
        return fewest.reason
    if accelerator.host_memory:
        return _judged(accelerator, request, model, 1, sizing, least=1)
    if fewest > most:
        return _too_few(fewest, most, model.weights)
    least = int(sizing.least_requests)
    first = best = _judged(accelerator, request, model, fewest, sizing, least)
    devices = fewest
    while not _enough(best, least) and 2 * devices <= most:
        devices *= 2
        answer = _judged(accelerator, request, model, devices, sizing, least)
        if isinstance(best, str) or _enough(answer, least):
            best = answer
    return first if isinstance(best, str) else best


def _enough(answer: Sized | str, least: int) -> bool:
    return not isinstance(answer, str) and (answer.capacity is None or answer.capacity.batch >= least)


def _judged(
    accelerator: Accelerator, request: ServiceRequest, model: ServedModel, devices: int, sizing: Sizing, least: int
) -> Sized | str:
    held = concurrency(accelerator, model, devices, int(sizing.most_requests))
    if held < least:
        return _few_requests(accelerator, model, devices, held)
    found = capacity(
        accelerator, devices, model, request.promise, sizing, request.engine, speculates=request.speculates
    )
    if found is not None and not found.requests_per_second:
        return _too_slow(found, request.promise, devices)
    return Sized(devices, found, devices * accelerator.memory_bandwidth)


def _few_requests(accelerator: Accelerator, model: ServedModel, devices: int, held: int) -> str:
    room = kv_room(accelerator, model, devices)
    on = f" on {devices} devices" if devices > 1 else ""
    return (
        f"{_gigabytes(model.weights)} of weights leave {_gigabytes(max(room, 0))} for KV{on}, {held} request"
        f"{'' if held == 1 else 's'}"
    )


def _too_slow(found: Capacity, promise: Promise, devices: int) -> str:
    what, time, bound = next(
        (what, time, bound)
        for what, time, bound in (
            ("the first token takes", found.ttft, promise.ttft),
            ("a token takes", found.itl, promise.itl),
            ("a request takes", found.latency, promise.latency),
        )
        if time > bound
    )
    on = f" on {devices}" if devices > 1 else ""
    return f"{what} {_seconds(time)}{on} with nothing else to do, and {_seconds(bound)} are promised"


def _too_few(devices: int, most: int, weights: int = 0) -> str:
    holds = f" to hold {_gigabytes(weights)} of weights" if weights else ""
    return f"a replica takes {plural(devices, 'device')}{holds}, and its nodes have {most}"


def _seconds(amount: float) -> str:
    return f"{amount * 1000:.0f} ms" if amount < 1 else f"{amount:.3g} s"


def _gigabytes(amount: int) -> str:
    return f"{amount / 10**9:.3g} GB"
