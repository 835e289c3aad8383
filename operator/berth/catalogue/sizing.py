"""Does a model fit an accelerator, and on how many devices.

Training counts nominal memory only: parameters, gradients and optimiser states are sharded over the whole gang and the
framework's own needs vary too much to guess. Serving is stricter, because one device too few is an out-of-memory crash
at the first long request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from berth.catalogue.records import Accelerator

BYTES_PER_PARAMETER: Final = 12
"""Mixed precision with Adam states: 840 GB for 70B parameters. 16 with FP32 master weights."""
SERVING_OVERHEAD_BYTES: Final = 3_500_000_000
"""What the engine keeps on each device besides weights and KV cache: context, graphs, activations."""


@dataclass(frozen=True, slots=True)
class Unfit:
    """Why an accelerator cannot do the work, as one sentence."""

    reason: str


def training_bytes(parameters: int, bytes_per_parameter: int = BYTES_PER_PARAMETER) -> int:
    """Bytes of weights, gradients and optimiser states."""
    return parameters * bytes_per_parameter


def training_devices(accelerator: Accelerator, needed: int) -> int | Unfit:
    """The fewest devices whose nominal memory holds ``needed`` bytes: ``ceil(needed / memory)``, at least 1.

    840 GB are 11 of 80 GB or 6 of 141 GB.
    """
    refused = _limits(accelerator, model_bytes=needed)
    if refused is not None:
        return refused
    return max(1, -(-needed // accelerator.memory_bytes)) if accelerator.memory_bytes else 1


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What a replica holds: weights of ``parameters`` × ``bits`` and the KV cache of one request of full length."""

    parameters: int
    bits: int = 16
    kv_bytes_per_token: int = 0
    context_tokens: int = 0

    @property
    def weights(self) -> int:
        """Bytes of the weights, rounded up."""
        return -(-self.parameters * self.bits // 8)

    @property
    def kv_cache(self) -> int:
        """Bytes of the KV cache of one request of full length."""
        return self.kv_bytes_per_token * self.context_tokens


def serving_devices(accelerator: Accelerator, model: ServedModel) -> int | Unfit:
    """The smallest power of two of devices that holds ``model`` beside the overhead on each of them.

    A power of two, because tensor parallelism splits attention heads evenly. 70B parameters of 16 bits: one device of
    192 GB, two of 80 GB, four of 48 GB.
    """
    needed = model.weights + model.kv_cache
    refused = _limits(accelerator, model_bytes=needed, parameters=model.parameters)
    if refused is not None:
        return refused
    if accelerator.host_memory:
        return 1
    room = accelerator.memory_bytes - SERVING_OVERHEAD_BYTES
    if room <= 0:
        return Unfit(
            f"{accelerator.name} has {_gigabytes(accelerator.memory_bytes)} a device, "
            f"no more than the {_gigabytes(SERVING_OVERHEAD_BYTES)} that an engine keeps on each"
        )
    fewest = max(1, -(-needed // room))
    return 1 << (fewest - 1).bit_length()


def serving_fits(accelerator: Accelerator, model: ServedModel, devices: int) -> Unfit | None:
    """Why ``devices`` devices cannot hold ``model``, ``None`` where they can. ``devices`` is at least 1."""
    fewest = serving_devices(accelerator, model)
    if isinstance(fewest, Unfit):
        return fewest
    needed = model.weights + model.kv_cache + devices * SERVING_OVERHEAD_BYTES
    if accelerator.host_memory or needed <= devices * accelerator.memory_bytes:
        return None
    return Unfit(
        f"{devices} × {accelerator.name} is {_gigabytes(devices * accelerator.memory_bytes)}, but "
        f"{_gigabytes(model.weights)} of weights, {_gigabytes(model.kv_cache)} of KV cache for one full request and "
        f"{_gigabytes(SERVING_OVERHEAD_BYTES)} a device for the engine are {_gigabytes(needed)}; use {fewest}"
    )


def _limits(accelerator: Accelerator, *, model_bytes: int, parameters: int = 0) -> Unfit | None:
    largest, below = accelerator.max_model_bytes, accelerator.max_parameters
    if largest is not None and model_bytes > largest:
        return Unfit(
            f"{accelerator.name} takes models of up to {_gigabytes(largest)}; this one is {_gigabytes(model_bytes)}"
        )
    if below is not None and parameters >= below:
        return Unfit(
            f"{accelerator.name} takes models below {_billions(below)} parameters; this one has {_billions(parameters)}"
        )
    if not accelerator.memory_bytes and not accelerator.host_memory:
        return Unfit(f"the catalogue does not know the memory of {accelerator.name}; state it in an overlay")
    return None


def _gigabytes(amount: int) -> str:
    return f"{amount / 10**9:.4g} GB"


def _billions(count: int) -> str:
    return f"{count / 10**9:.4g}B"
