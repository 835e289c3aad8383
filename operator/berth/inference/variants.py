"""Names of variants, which are names of Deployments and values of a label.

A name is a function of what the variant is, so that an operator that starts anew finds its Deployments, and short
enough that service, accelerator and a digest of the rest fit 63 characters. What runs under another name, because its
pool had another one, keeps it: see :mod:`berth.inference.adopt`.
"""

from __future__ import annotations

import re
from base64 import b32encode
from hashlib import sha256
from typing import Final

from berth.values import CapacityType

_SHORT: Final[dict[CapacityType, str]] = {"OnDemand": "od", "Spot": "spot", "Reserved": "res"}
_SLUG: Final = 8
_DIGEST: Final = 6
_REST: Final = re.compile(r"[^a-z0-9]+")


def variant_name(service: str, accelerator: str, capacity_type: CapacityType, pool: str, zone: str = "") -> str:
    """``<service>-<accelerator>-<od|spot|res>-<digest>``: a DNS-1035 label for a service of at most 40 characters."""
    slug = _REST.sub("", accelerator.lower())[:_SLUG]
    identity = "\0".join((accelerator, capacity_type, pool, zone))
    digest = b32encode(sha256(identity.encode()).digest()).decode().lower()[:_DIGEST]
    return "-".join(part for part in (service, slug, _SHORT[capacity_type], digest) if part)
