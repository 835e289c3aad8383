"""What a device costs an hour: the pool's own price, else the catalogue's, else what a claim about it implies.

A service must not go without hardware because nobody wrote down a price, and must not prefer it for that reason either:
what has no price at all counts as dear as the dearest, so that it is used last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from berth.catalogue.records import Accelerator, Catalogue
from berth.inference.request import ServiceRequest
from berth.inference.sized import Sized, size
from berth.inference.supply import Supply

Basis = Literal["Pool", "Catalogue", "PricePerformance", "Unknown"]
_ENOUGH_DEVICES: Final = 1024


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per device and hour, and where they come from."""

    usd: float
    basis: Basis


def device_prices(
    pools: Mapping[str, tuple[Supply, ...]],
    devices: Mapping[str, int],
    rates: Mapping[str, float],
    request: ServiceRequest,
    catalogue: Catalogue,
) -> dict[str, Price]:
    """The price of every pool in ``pools`` (by accelerator), by the pool's name.

    ``devices`` and ``rates`` (requests/s) of a replica by accelerator.
    """
    found: dict[str, Price] = {}
    unpriced: list[tuple[str, Supply]] = []
    for name, entries in pools.items():
        for pool in entries:
            price = _known(catalogue.accelerators[name], pool, rates[name] / devices[name], request, catalogue)
            if price is None:
                unpriced.append((name, pool))
            else:
                found[pool.pool] = price
    dearest = max(
        (found[pool.pool].usd * devices[name] / rates[name]
         for name, entries in pools.items() for pool in entries if pool.pool in found),
        default=0.0,
    )  # fmt: skip
    for name, pool in unpriced:
        found[pool.pool] = Price(dearest * rates[name] / devices[name], "Unknown")
    return found


def _known(
    accelerator: Accelerator, pool: Supply, rate: float, request: ServiceRequest, catalogue: Catalogue
) -> Price | None:
    if pool.usd_per_device_hour is not None:
        return Price(float(pool.usd_per_device_hour), "Pool")
    if accelerator.usd_per_hour is not None:
        return Price(float(accelerator.usd_per_hour), "Catalogue")
    other = catalogue.accelerators.get(accelerator.price_performance_of)
    if other is None or other.usd_per_hour is None or not accelerator.price_performance:
        return None
    sized: Sized | str = size(other, request, _ENOUGH_DEVICES, catalogue.serving.sizing)
    if isinstance(sized, str) or sized.capacity is None or not rate:
        return None
    of_other = sized.capacity.requests_per_second / sized.devices
    return Price(float(other.usd_per_hour / accelerator.price_performance) * rate / of_other, "PricePerformance")
