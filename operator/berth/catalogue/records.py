"""What the catalogue knows, as plain records.

A fact about a product is data with a source and a date, so that a price, a new accelerator or another cloud's labels
change without a change of code, and so that a user can see where a figure came from. ``None`` and, for speeds, 0 mean
that the figure is not known; nothing here is ever guessed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from types import MappingProxyType
from typing import Literal

from berth.catalogue.matching import (
    CapacityLabel,
    FabricEvidence,
    FabricFacts,
    LabelMatch,
    LabelTable,
    LevelRole,
    LevelSet,
    SharingLabel,
    TopologyLabel,
)
from berth.catalogue.serving import (
    UNKNOWN_COMPUTE,
    ChoiceRule,
    Compute,
    Engine,
    Maturity,
    ReclaimSignal,
    Serving,
    SpotPrior,
    StartPhase,
)
from berth.values import Role

__all__ = [
    "Accelerator",
    "CapacityLabel",
    "Catalogue",
    "ChoiceRule",
    "Compute",
    "Engine",
    "FabricEvidence",
    "FabricFacts",
    "FabricKind",
    "LabelMatch",
    "LabelTable",
    "LevelRole",
    "LevelSet",
    "Maturity",
    "RdmaResource",
    "ReclaimSignal",
    "Redundancy",
    "Serving",
    "SharingLabel",
    "SpeedClass",
    "SpotPrior",
    "StartPhase",
    "Storage",
    "TopologyLabel",
]

Work = Literal["Training", "FineTuning", "Inference"]
StorageKind = Literal["FileSystem", "ObjectStore", "Cache", "BlockDevice", "Tier", "SharedMemoryStore"]
DeviceCount = Literal["PerRail", "PerPod"]


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One product that runs models. Money in US dollars, exact.

    ``resource`` is the device's name in a node's allocatable; empty where no device plugin is known publicly: nothing
    can be placed on it before an overlay names one. ``memory_bytes`` is the nominal size, decimal, 0 unknown;
    ``memory_bandwidth`` bytes/s and ``link_gbytes_per_second`` (NVLink, xGMI, chip to chip; total per device) 0
    unknown. ``roles`` is what it can do; ``pool_roles`` the roles of a pool that discovery makes of such nodes.
    ``host_memory``: it computes in the node's own memory, which the catalogue cannot know.
    ``max_model_bytes`` is the largest model, inclusive; a model must have *fewer* than ``max_parameters``.
    ``opt_in``: used only where a workload names it. ``compiled``: runs only models compiled for it.
    ``price_performance`` is work per dollar relative to ``price_performance_of``, as its source states it.
    """

    name: str
    vendor: str
    resource: str
    memory_bytes: int
    memory_bandwidth: int
    link_gbytes_per_second: int
    roles: frozenset[Work]
    pool_roles: tuple[Role, ...]
    list_price_usd: Decimal | None
    usd_per_hour: Decimal | None
    maturity: Maturity
    max_model_bytes: int | None
    max_parameters: int | None
    products: tuple[LabelMatch, ...]
    source: str
    as_of: str
    memory_type: str = ""
    runtime: str = ""
    devices_per_domain: int | None = None
    host_memory: bool = False
    opt_in: bool = False
    compiled: bool = False
    usd_per_million_tokens: Decimal | None = None
    price_performance: Decimal | None = None
    price_performance_of: str = ""
    compute: Compute = UNKNOWN_COMPUTE
    notes: str = ""


@dataclass(frozen=True, slots=True)
class SpeedClass:
    """A generation of a fabric: ``gbps`` gigabits per second and link."""

    name: str
    gbps: int
    source: str
    as_of: str


@dataclass(frozen=True, slots=True)
class RdmaResource:
    """An extended resource through which pods get network devices.

    ``PerRail``: one unit per rail. ``PerPod``: one unit opens them all. ``{rail}`` in the name stands for the rail's
    number from 0; such a fabric has one resource per rail.
    """

    name: str
    count: DeviceCount

    def request(self, rails: int) -> dict[str, int]:
        """What a pod that uses ``rails`` rails asks for."""
        if "{rail}" in self.name:
            return {self.name.replace("{rail}", str(rail)): 1 for rail in range(rails)}
        return {self.name: rails if self.count == "PerRail" else 1}


@dataclass(frozen=True, slots=True)
class FabricKind:
    """A kind of network between devices. ``preference`` orders kinds for training, smaller first.

    ``between_nodes`` is false for links that end at the chassis or the rack and so never carry a gang by themselves.
    ``latency_nanoseconds`` and ``gbytes_per_second`` (per device, for such links) are 0 where unknown.
    """

    name: str
    rdma: bool
    between_nodes: bool
    preference: int
    classes: tuple[SpeedClass, ...]
    rdma_resources: tuple[RdmaResource, ...]
    source: str
    as_of: str
    latency_nanoseconds: int = 0
    gbytes_per_second: int = 0
    notes: str = ""

    def request(self, rails: int, offered: Collection[str]) -> dict[str, int]:
        """The RDMA devices for ``rails`` rails, by the first candidate that a node with ``offered`` resources has.

        Empty when the fabric has no RDMA, no rail is asked for, or the node offers none of the candidates: then its
        pods reach the network without a device of their own.
        """
        for candidate in self.rdma_resources if rails > 0 else ():
            wanted = candidate.request(rails)
            if all(name in offered for name in wanted):
                return wanted
        return {}


@dataclass(frozen=True, slots=True)
class Storage:
    """A store of data sets, checkpoints, weights or KV cache. Speeds in bytes/s, ``None`` unknown.

    ``write_bytes_per_second`` and ``read_bytes_per_second`` are the whole system's; the ``node_…`` ones what a single
    client node gets. ``schemes`` are the URI schemes and ``drivers`` the CSI drivers that lead to it. ``tier`` orders
    media from the hottest, 0, down. ``restore_seconds`` is the wait before archived data can be read.
    """

    name: str
    kind: StorageKind
    schemes: tuple[str, ...]
    drivers: tuple[str, ...]
    source: str
    as_of: str
    write_bytes_per_second: int | None = None
    read_bytes_per_second: int | None = None
    node_write_bytes_per_second: int | None = None
    node_read_bytes_per_second: int | None = None
    drive_bytes_per_second: int | None = None
    tier: int | None = None
    restore_seconds: int | None = None
    notes: str = ""

    def write_bandwidth(self, nodes: int) -> int | None:
        """Bytes/s that ``nodes`` clients sustain together, ``None`` where neither limit is known."""
        limits = [
            limit
            for limit in (
                self.write_bytes_per_second,
                None if self.node_write_bytes_per_second is None else nodes * self.node_write_bytes_per_second,
            )
            if limit is not None
        ]
        return min(limits, default=None)


@dataclass(frozen=True, slots=True)
class Redundancy:
    """How a store survives the loss of a part: ``data`` pieces carry the content, ``parity`` more may be lost."""

    name: str
    data: int
    parity: int
    source: str
    as_of: str

    def stored_bytes(self, size: int) -> int:
        """Bytes on media for ``size`` bytes of content, rounded up (10 + 2: 120 for 100; 1 + 2: 300)."""
        return -(-size * (self.data + self.parity) // self.data)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Everything known, by name. Immutable: an overlay makes another one."""

    accelerators: Mapping[str, Accelerator]
    fabrics: Mapping[str, FabricKind]
    storage: Mapping[str, Storage]
    redundancy: Mapping[str, Redundancy]
    labels: LabelTable
    serving: Serving
    _products: Mapping[str, tuple[tuple[LabelMatch, Accelerator], ...]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        by_label: dict[str, list[tuple[LabelMatch, Accelerator]]] = {label: [] for label in self.labels.product_labels}
        for accelerator in self.accelerators.values():
            for match in accelerator.products:
                by_label.setdefault(match.key, []).append((match, accelerator))
        frozen = MappingProxyType({label: tuple(pairs) for label, pairs in by_label.items()})
        object.__setattr__(self, "_products", frozen)

    def identify(self, labels: Mapping[str, str]) -> Accelerator | None:
        """The accelerator of a node with ``labels``; shared ones too, see :meth:`LabelTable.sharing`.

        Labels are asked in the order of ``labels.product_labels``, the exact ones before the vague; ``None`` when
        none names a product that the catalogue knows.
        """
        for label, pairs in self._products.items():
            value = labels.get(label)
            if value is None:
                continue
            name = self.labels.product_name(value)
            plain = labels if name == value else {**labels, label: name}
            for match, accelerator in pairs:
                if match.matches(plain):
                    return accelerator
        return None

    def storage_of(self, *, scheme: str = "", driver: str = "") -> Storage | None:
        """The store behind a CSI driver or, without one that is known, behind a URI scheme; the first that fits."""
        by_driver = (entry for entry in self.storage.values() if driver and driver in entry.drivers)
        by_scheme = (entry for entry in self.storage.values() if scheme and scheme in entry.schemes)
        return next(by_driver, None) or next(by_scheme, None)
