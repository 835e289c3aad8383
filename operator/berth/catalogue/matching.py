"""How node labels are read: conditions on them, and the table of what they mean.

Every cloud tells the same few things, where a node stands in the network, how it is paid for, which product and which
network it has, in its own words. The words are data; the rest of Berth asks :class:`LabelTable` and knows no cloud.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Final, Literal

from berth.values import NO_RESOURCES, CapacityType, Resources

LevelRole = Literal["", "Site", "NVLinkDomain"]
NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})


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
        if self.values and not matches_any(value, self.values):
            return False
        if self.above is not None and _number(value, self.above) <= self.above:
            return False
        return all(match.matches(labels) for match in self.also)


def matches_any(value: str, patterns: Iterable[str]) -> bool:
    """Whether ``value`` is one of ``patterns`` or matches one."""
    return any(value == pattern or fnmatchcase(value, pattern) for pattern in patterns)


def _number(text: str | None, otherwise: int) -> int:
    return int(text) if text is not None and text.isascii() and text.isdecimal() else otherwise


@dataclass(frozen=True, slots=True)
class TopologyLabel:
    """One level of a topology: jobs use ``name``, nodes carry ``label``.

    Values that match one of ``ignore`` do not name a domain of this level.
    """

    name: str
    label: str
    role: LevelRole = ""
    ignore: tuple[str, ...] = ()


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
    """The network of a node as it tells it; ``gbps`` per rail and ``rails`` are 0 where it does not say."""

    kind: str
    gbps: int = 0
    rails: int = 0


@dataclass(frozen=True, slots=True)
class FabricEvidence:
    """What tells a node's fabric: labels that ``match``, or an extended ``resource`` that the node offers.

    Where ``facts.kind`` is empty the value of the matched label is the kind itself. ``gbps_label`` and ``rails_label``
    are read from the same node and win over ``facts``; with ``rails_counted`` the rails are the resource's amount.
    """

    match: LabelMatch | None
    resource: str
    facts: FabricFacts
    gbps_label: str
    rails_label: str
    rails_counted: bool
    source: str
    as_of: str

    def read(self, labels: Mapping[str, str], resources: Resources) -> FabricFacts | None:
        """The fabric of a node with ``labels`` and ``resources``, ``None`` where this does not tell."""
        if self.match is not None and not self.match.matches(labels):
            return None
        offered = resources.get(self.resource, 0) if self.resource else 0
        if self.resource and offered <= 0:
            return None
        return FabricFacts(
            self.facts.kind or (labels[self.match.key] if self.match else ""),
            _number(labels.get(self.gbps_label), self.facts.gbps),
            _number(labels.get(self.rails_label), offered if self.rails_counted else self.facts.rails),
        )


@dataclass(frozen=True, slots=True)
class LabelTable:
    """How the clouds write on nodes what Berth needs to know. Earlier entries win over later ones."""

    sites: tuple[TopologyLabel, ...]
    nvlinks: tuple[TopologyLabel, ...]
    host: TopologyLabel
    level_sets: tuple[LevelSet, ...]
    capacity_type_labels: tuple[CapacityLabel, ...]
    capacity_words: Mapping[str, CapacityType]
    sharing_labels: tuple[SharingLabel, ...]
    fabric_evidence: tuple[FabricEvidence, ...]
    product_labels: tuple[str, ...]
    product_suffixes: tuple[str, ...]
    region_label: str

    def occurring(self, labels: Mapping[str, str]) -> frozenset[str]:
        """The keys in ``labels`` that name a domain of some level: what :meth:`levels` is to be asked with.

        A cloud may fill a level's label with something else where it has no such domain (AKS writes the fault domain
        into the zone label of a node without a zone); those values are left out.
        """
        ignored = {
            level.label
            for level in (*self.sites, *self.nvlinks)
            if level.ignore and level.label in labels and matches_any(labels[level.label], level.ignore)
        }
        return frozenset(labels.keys() - ignored)

    def levels(self, occurring: Collection[str]) -> tuple[TopologyLabel, ...]:
        """The levels of nodes on which the label keys ``occurring`` occur, outermost first, the host last.

        One provider's set is used, the first with a label that occurs, and of it only the levels that occur. The site
        goes before it and the NVLink domain after it, by the first of their labels that occurs; the host level is
        always there.
        """
        chosen: Iterable[TopologyLabel] = next(
            (entry.levels for entry in self.level_sets if any(level.label in occurring for level in entry.levels)), ()
        )
        site = next((level for level in self.sites if level.label in occurring), None)
        nvlink = next((level for level in self.nvlinks if level.label in occurring), None)
        inner = [level for level in chosen if level.label in occurring]
        return tuple(level for level in (site, *inner, nvlink, self.host) if level is not None)

    def capacity_type(self, labels: Mapping[str, str]) -> CapacityType | None:
        """How a node with ``labels`` is paid for, ``None`` where no known label says."""
        for entry in self.capacity_type_labels:
            if entry.label in labels and (kind := entry.read(labels[entry.label])) is not None:
                return kind
        return None

    def capacity_type_by(self, label: str, labels: Mapping[str, str]) -> CapacityType | None:
        """The same by the one label that a pool names; an unknown label is read by the usual words."""
        value = labels.get(label)
        if value is None:
            return None
        known = next((entry for entry in self.capacity_type_labels if entry.label == label), None)
        return known.read(value) if known is not None else self.capacity_words.get(value.lower())

    def sharing(self, labels: Mapping[str, str]) -> str | None:
        """Why the node's "devices" are parts of one device, not to be counted for gangs; ``None`` where whole."""
        return next((reason for entry in self.sharing_labels if (reason := entry.read(labels)) is not None), None)

    def fabric(self, labels: Mapping[str, str], resources: Resources = NO_RESOURCES) -> FabricFacts | None:
        """The network of a node with ``labels`` and allocatable ``resources``, ``None`` where nothing known tells."""
        return next(
            (facts for entry in self.fabric_evidence if (facts := entry.read(labels, resources)) is not None), None
        )

    def product_name(self, value: str) -> str:
        """A product label's value without the suffix that marks shared devices."""
        for suffix in self.product_suffixes:
            value = value.removesuffix(suffix)
        return value
