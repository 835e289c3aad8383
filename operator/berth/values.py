"""Units and records that every layer shares.

Everything below this module speaks in plain integers: CPU in millicores, memory in bytes, devices in
pieces, time in seconds. Text is turned into numbers once, at the edge, by the functions here, so that no
decision ever parses a string. Nothing in this module does I/O or reads a clock.

Exceptions
    BerthError
    ├── ValueProblem        a text that is not the quantity, duration or count it should be
    └── ConfigProblem       a file of ours or of the user's (catalogue, fleet, settings); names file, line, field
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Final, Literal

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
_BINARY: Final = ((60, "Ei"), (50, "Pi"), (40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki"))
PODS: Final = "pods"

Resources = Mapping[str, int]
"""Resource name to amount: ``cpu`` in millicores, every other one in its own unit (bytes, devices, pods)."""

Role = Literal["Training", "Inference"]
CapacityType = Literal["OnDemand", "Spot", "Reserved"]

NO_RESOURCES: Final[Resources] = MappingProxyType({})

MOST_AMOUNT: Final = 1 << 53
"""What any amount is held to, far over any machine, so that no sum of absurd requests leaves an array's type."""


class BerthError(Exception):
    """Root of the exception tree."""


class ValueProblem(BerthError, ValueError):
    """A text does not have the form that its field asks for. The message names the form and an example."""


class ConfigProblem(BerthError):
    """A file or object that configures Berth cannot be used.

    ``source`` is the file or object, ``line`` counts from 1 (0 where no line is known), ``field`` is a dotted path.
    """

    def __init__(self, message: str, *, source: str = "", line: int = 0, field: str = "") -> None:
        self.message, self.source, self.line, self.field = message, source, line, field
        where = source + (f":{line}" if line else "")
        super().__init__(": ".join(part for part in (where, field, message) if part))


_SUFFIX: Final[Mapping[str, Decimal]] = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9), "T": Decimal(10**12),
    "P": Decimal(10**15), "E": Decimal(10**18),
    "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40),
    "Pi": Decimal(2**50), "Ei": Decimal(2**60),
}  # fmt: skip
_QUANTITY: Final = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))([eE][+-]?\d{1,3}|[numkMGTPE]|[KMGTPE]i)?")
_DURATION: Final = re.compile(r"([0-9]{1,5}(?:h|m|s|ms)){1,4}")
_DURATION_PART: Final = re.compile(r"([0-9]{1,5})(h|ms|m|s)")
_UNIT_SECONDS: Final[Mapping[str, float]] = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_INTEGER: Final = re.compile(r"-?[0-9]{1,18}")
_COUNT: Final = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)([KMBT]?)")
_COUNT_UNIT: Final[Mapping[str, int]] = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}


def parse_quantity(text: str | int | float) -> Decimal:
    """A Kubernetes ``resource.Quantity`` as an exact decimal (``"840G"`` is 840e9, ``"840Gi"`` 840·2³⁰).

    Raises:
        ValueProblem: the text is not a quantity.
    """
    match = _QUANTITY.fullmatch(str(text).strip())
    if match is None:
        raise ValueProblem(f"{text!r} is not a quantity; write for example 500m, 4, 16Gi or 840G")
    number, suffix = match.group(1), match.group(2) or ""
    try:
        return Decimal(number) * _SUFFIX[suffix] if suffix in _SUFFIX else Decimal(number + suffix)
    except InvalidOperation as problem:
        raise ValueProblem(f"{text!r} is not a quantity; write for example 500m, 4, 16Gi or 840G") from problem


def parse_resource(name: str, text: str | int | float) -> int:
    """The amount of one resource in this module's unit, rounded up as the scheduler does.

    Raises:
        ValueProblem: the text is not a quantity.
    """
    amount = parse_quantity(text) * (1000 if name == CPU else 1)
    whole = int(amount)
    return whole + 1 if amount > whole else whole


def parse_resources(texts: Mapping[str, str | int | float]) -> dict[str, int]:
    """Every resource of a ``requests``, ``limits`` or ``allocatable`` map. Raises: ValueProblem."""
    return {name: parse_resource(name, text) for name, text in texts.items()}


def format_resource(name: str, amount: int) -> str:
    """The shortest Kubernetes quantity of ``amount``; the inverse of :func:`parse_resource`."""
    if name == CPU:
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    if name in (MEMORY, EPHEMERAL_STORAGE):
        for power, suffix in ((40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")):
            if amount and amount % (1 << power) == 0:
                return f"{amount >> power}{suffix}"
    return str(amount)


def amount_words(name: str, amount: int) -> str:
    """An amount for people: cores, bytes rounded in the largest fitting unit, or pieces, with the resource's name."""
    if name == CPU:
        return f"{amount / 1000:.12g} cpu"
    if name in (MEMORY, EPHEMERAL_STORAGE):
        power, unit = next((each for each in _BINARY if amount >> each[0]), _BINARY[-1])
        return f"{amount / (1 << power):.4g}{unit} of {name}"
    return f"{amount} {name}"


def format_bytes(amount: int) -> str:
    """Bytes as a decimal quantity for people and for status: 840000000000 is ``840G``."""
    for power, suffix in ((12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if amount and amount % 10**power == 0:
            return f"{amount // 10**power}{suffix}"
    return str(amount)


def parse_duration(text: str) -> float:
    """Seconds of a Gateway API duration such as ``1h30m``.

    Raises:
        ValueProblem: the text is not one to four numbers with the units h, m, s, ms.
    """
    if _DURATION.fullmatch(text) is None:
        raise ValueProblem(f"{text!r} is not a duration; write for example 90s, 10m or 1h30m (30 days = 720h)")
    return sum(int(number) * _UNIT_SECONDS[unit] for number, unit in _DURATION_PART.findall(text))


def format_duration(seconds: float) -> str:
    """Seconds for people, at most two units: 93784 is ``26h3m``."""
    total = round(max(seconds, 0.0))
    hours, minutes, rest = total // 3600, total // 60 % 60, total % 60
    if hours:
        return f"{hours}h{minutes}m" if minutes else f"{hours}h"
    if minutes:
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    return f"{rest}s"


def parse_count(text: str | int) -> int:
    """A parameter count: ``70B``, ``1.8T`` or a plain integer. Raises: ValueProblem."""
    match = _COUNT.fullmatch(str(text)) if not isinstance(text, int) else None
    if isinstance(text, int) and text >= 0:
        return text
    if match is None:
        raise ValueProblem(f"{text!r} is not a count; write for example 70B, 1.8T or 70000000000")
    return int(Decimal(match.group(1)) * _COUNT_UNIT[match.group(2)])


def parse_share(text: str) -> float:
    """A share such as ``80%`` as 0.8. Raises: ValueProblem."""
    match = re.fullmatch(r"(\d{1,3}(?:\.\d{1,4})?)%", text)
    if match is None:
        raise ValueProblem(f"{text!r} is not a share; write for example 80%")
    return float(match.group(1)) / 100


def add(left: Resources, right: Resources) -> dict[str, int]:
    """The sum of two resource maps."""
    total = dict(left)
    for name, amount in right.items():
        total[name] = total.get(name, 0) + amount
    return total


def pod_needs(
    containers: Iterable[Resources],
    initial: Iterable[tuple[bool, Resources]],
    requests: Resources = NO_RESOURCES,
    limits: Resources = NO_RESOURCES,
    overhead: Resources = NO_RESOURCES,
) -> dict[str, int]:
    """What the scheduler counts for a pod: its containers as :func:`pod_total` has them, its overhead, and itself.

    ``requests`` and ``limits`` are of the pod as a whole (KEP-2837): its requests stand above its containers', a limit
    stands in for a request where neither the pod nor a container states one. Nothing is over :data:`MOST_AMOUNT`.
    """
    total = pod_total(containers, initial)
    whole = {**{name: amount for name, amount in limits.items() if name not in total}, **requests}
    total = add(total | {name: max(amount, total.get(name, 0)) for name, amount in whole.items()}, overhead)
    total[PODS] = 1
    return {name: min(amount, MOST_AMOUNT) for name, amount in total.items()}


def plural(number: int, noun: str) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def percent(share: float) -> str:
    """``99.5%`` of 0.995, to a thousandth of a percent and never rounded up: what falls short of all is not 100%."""
    return f"{math.floor(1e5 * share + 1e-6) / 1e3:g}%"


def pod_total(containers: Iterable[Resources], initial: Iterable[tuple[bool, Resources]]) -> dict[str, int]:
    """Containers and sidecars together, or the largest step of a pod's start, whichever is more by resource.

    ``initial`` are the init containers in order, each with whether it is a sidecar (``restartPolicy: Always``).
    KEP-753: an init container runs beside the sidecars that stand before it.
    """
    total: dict[str, int] = {}
    for needs in containers:
        total = add(total, needs)
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for stays, needs in initial:
        step = add(sidecars, needs)
        if stays:
            total, sidecars = add(total, needs), step
        for name, amount in step.items():
            peak[name] = max(peak.get(name, 0), amount)
    for name, amount in peak.items():
        total[name] = max(total.get(name, 0), amount)
    return total


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's taint; ``effect`` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Toleration:
    """A pod's toleration; an empty ``key`` with Exists tolerates everything, an empty ``effect`` any effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def covers(self, taint: Taint) -> bool:
        """Whether this toleration covers ``taint``, by the rules of the Kubernetes API."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        return bool(self.key) and self.value == taint.value


def tolerated(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> bool:
    """Whether a pod with ``tolerations`` may be placed among ``taints`` (PreferNoSchedule never forbids)."""
    owned = tuple(tolerations)
    return all(
        taint.effect == "PreferNoSchedule" or any(toleration.covers(taint) for toleration in owned) for taint in taints
    )


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement on labels: ``operator`` is In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether ``labels`` meet the requirement; NotIn and DoesNotExist are met by an absent label."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                bound = self.values[0] if self.values else ""
                if value is None or not _INTEGER.fullmatch(value) or not _INTEGER.fullmatch(bound):
                    return False
                return int(value) > int(bound) if self.operator == "Gt" else int(value) < int(bound)
        return False


Requirements = tuple[Requirement, ...]
"""All must be met. Empty is met by everything."""


def selects(requirements: Requirements, labels: Mapping[str, str]) -> bool:
    """Whether ``labels`` meet every requirement."""
    return all(requirement.matches(labels) for requirement in requirements)
