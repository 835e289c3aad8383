"""What the catalogue knows, as plain records.

A fact about a product is data with a source and a date, so that a price, a new accelerator or another cloud's labels
change without a change of code, and so that a user can see where a figure came from. ``None`` and, for speeds, 0 mean
that the figure is not known; nothing here is ever guessed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Literal

from berth.values import CapacityType, Role

Work = Literal["Training", "FineTuning", "Inference"]
Maturity = Literal["GenerallyAvailable", "Early", "Emerging", "Legacy"]
LevelRole = Literal["", "Site", "NVLinkDomain"]
StorageKind = Literal["FileSystem", "ObjectStore", "Cache", "BlockDevice", "Tier", "SharedMemoryStore"]
DeviceCount = Literal["PerRail", "PerPod"]


@dataclass(frozen=True, slots=True)
class LabelMatch:
    """A condition on a node's labels: ``key`` is there, and more where more is given.

    ``values`` are exact or shell-style patterns (``*`` cannot occur in a label's value), any of which will do; empty
    means any value. ``above`` asks for an integer greater than it. ``also`` must all match too.
    """

    key: str
    values: tuple[str, ...] = ()
    above: int | None = None
    also: tuple[LabelMatch, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether ``labels`` meet the condition."""
        value = labels.get(self.key)
        if value is None:
            return False
        if self.values and not any(fnmatchcase(value, pattern) for pattern in self.values):
            return False
        if self.above is not None and not (value.isdecimal() and int(value) > self.above):
            return False
        return all(match.matches(labels) for match in self.also)


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One product that runs models. Money in US dollars, exact.

    ``resource`` is the device's name in a node's allocatable; empty where no device plugin is known publicly: nothing
    can be placed on it before an overlay names one. ``memory_bytes`` is the nominal size, decimal, 0 unknown;
    ``memory_bandwidth`` bytes/s and ``link_gbytes_per_second`` (NVLink, xGMI, chip to chip; total per device) 0
    unknown. ``roles`` is what it can do; ``pool_roles`` the roles of a pool that discovery makes of such nodes.
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
    opt_in: bool = False
    compiled: bool = False
    usd_per_million_tokens: Decimal | None = None
    price_performance: Decimal | None = None
    price_performance_of: str = ""
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
class TopologyLabel:
    """One level of a topology: jobs use ``name``, nodes carry ``label``."""

    name: str
    label: str
    role: LevelRole = ""


@dataclass(frozen=True, slots=True)
class LevelSet:
    """The labels with which one provider describes its network, outermost first, between the site and the host."""

    provider: str
    levels: tuple[TopologyLabel, ...]
    source: str
    as_of: str


@dataclass(frozen=True, slots=True)
class CapacityLabel:
    """A label that says how a node is paid for; ``values`` maps its values (patterns allowed) to the meaning."""

    label: str
    values: Mapping[str, CapacityType]
    source: str
    as_of: str

    def read(self, value: str) -> CapacityType | None:
        """The meaning of ``value``, ``None`` where it has none."""
        if value in self.values:
            return self.values[value]
        return next((kind for pattern, kind in self.values.items() if fnmatchcase(value, pattern)), None)


@dataclass(frozen=True, slots=True)
class SharingLabel:
    """A condition by which a node's "devices" are parts of one device; ``means`` says what it is, for a reason."""

    means: str
    match: LabelMatch
    source: str
    as_of: str

    def read(self, labels: Mapping[str, str]) -> str | None:
        """The reason to show, ``time slicing (nvidia.com/gpu.replicas=4)``; ``None`` where the condition fails."""
        key = self.match.key
        return f"{self.means} ({key}={labels[key]})" if self.match.matches(labels) else None


@dataclass(frozen=True, slots=True)
class FabricFacts:
    """The network of a node as its labels tell it; ``gbps`` per rail and ``rails`` are 0 where they do not say."""

    kind: str
    gbps: int = 0
    rails: int = 0


@dataclass(frozen=True, slots=True)
class FabricLabel:
    """A label that tells a node's fabric. Where ``facts.kind`` is empty the label's value is the kind itself.

    ``gbps_label`` and ``rails_label`` are read from the same node and win over ``facts``.
    """

    match: LabelMatch
    facts: FabricFacts
    gbps_label: str
    rails_label: str
    source: str
    as_of: str

    def read(self, labels: Mapping[str, str]) -> FabricFacts | None:
        """The fabric that ``labels`` tell, ``None`` where this label does not say."""
        if not self.match.matches(labels):
            return None
        return FabricFacts(
            self.facts.kind or labels[self.match.key],
            _number(labels.get(self.gbps_label), self.facts.gbps),
            _number(labels.get(self.rails_label), self.facts.rails),
        )


def _number(text: str | None, otherwise: int) -> int:
    return int(text) if text is not None and text.isdecimal() else otherwise


@dataclass(frozen=True, slots=True)
class LabelTable:
    """How the clouds write on nodes what Berth needs to know. Earlier entries win over later ones."""

    site: TopologyLabel
    nvlink: TopologyLabel
    host: TopologyLabel
    level_sets: tuple[LevelSet, ...]
    capacity_type_labels: tuple[CapacityLabel, ...]
    sharing_labels: tuple[SharingLabel, ...]
    fabric_labels: tuple[FabricLabel, ...]
    product_labels: tuple[str, ...]
    product_suffixes: tuple[str, ...]
    region_label: str

    def levels(self, occurring: Collection[str]) -> tuple[TopologyLabel, ...]:
        """The levels of nodes on which the label keys ``occurring`` occur, outermost first, the host last.

        One provider's set is used, the first with a label that occurs, and of it only the levels that occur; the site
        goes before it and the NVLink domain after it where their labels occur. The host level is always there.
        """
        chosen: Iterable[TopologyLabel] = next(
            (entry.levels for entry in self.level_sets if any(level.label in occurring for level in entry.levels)), ()
        )
        framed = [self.site, *chosen, self.nvlink]
        return (*(level for level in framed if level.label in occurring), self.host)

    def capacity_type(self, labels: Mapping[str, str]) -> CapacityType | None:
        """How a node with ``labels`` is paid for, ``None`` where no known label says."""
        for entry in self.capacity_type_labels:
            if entry.label in labels and (kind := entry.read(labels[entry.label])) is not None:
                return kind
        return None

    def capacity_type_by(self, label: str, labels: Mapping[str, str]) -> CapacityType | None:
        """The same by one label that a pool names; values of an unknown label are read as any known label's."""
        value = labels.get(label)
        if value is None:
            return None
        own = [entry for entry in self.capacity_type_labels if entry.label == label]
        for entry in own or self.capacity_type_labels:
            for kind in (found for text in (value, value.lower()) if (found := entry.read(text)) is not None):
                return kind
        return None

    def sharing(self, labels: Mapping[str, str]) -> str | None:
        """Why the node's "devices" are parts of one device, not to be counted for gangs; ``None`` where whole."""
        return next((reason for entry in self.sharing_labels if (reason := entry.read(labels)) is not None), None)

    def fabric(self, labels: Mapping[str, str]) -> FabricFacts | None:
        """The network of a node with ``labels``, ``None`` where no known label says."""
        return next((facts for entry in self.fabric_labels if (facts := entry.read(labels)) is not None), None)

    def product_name(self, value: str) -> str:
        """A product label's value without the suffix that marks shared devices."""
        for suffix in self.product_suffixes:
            value = value.removesuffix(suffix)
        return value


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Everything known, by name. Immutable: an overlay makes another one."""

    accelerators: Mapping[str, Accelerator]
    fabrics: Mapping[str, FabricKind]
    storage: Mapping[str, Storage]
    redundancy: Mapping[str, Redundancy]
    labels: LabelTable
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
            if label not in labels:
                continue
            plain = {**labels, label: self.labels.product_name(labels[label])}
            for match, accelerator in pairs:
                if match.matches(plain):
                    return accelerator
        return None

    def storage_of(self, *, scheme: str = "", driver: str = "") -> Storage | None:
        """The store behind a CSI driver or, without one that is known, behind a URI scheme; the first that fits."""
        by_driver = (entry for entry in self.storage.values() if driver and driver in entry.drivers)
        by_scheme = (entry for entry in self.storage.values() if scheme and scheme in entry.schemes)
        return next(by_driver, None) or next(by_scheme, None)
