"""What the invariants read from API objects: plain records made from the JSON that a watch delivers.

Read anew here, not with the operator's own code: what checks the operator must not share its mistakes. Only the
meaning of quantities and the catalogue's tables of labels are shared, being data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from berth.catalogue.records import Catalogue, FabricFacts
from berth.values import PODS, Requirement, parse_duration, parse_resource, selects

Json = Mapping[str, Any]

JOB_NAME, JOB_UID = "berth.dev/job-name", "berth.dev/job-uid"
ATTEMPT, RANK, POOL = "berth.dev/attempt", "berth.dev/rank", "berth.dev/pool"
HOSTNAME = "kubernetes.io/hostname"
START_TIMEOUT_SECONDS = 600.0

_amount = lru_cache(maxsize=4096)(parse_resource)


@dataclass(frozen=True, slots=True)
class PodFacts:
    """A pod. ``gang`` is (job uid, attempt) of a gang's member, else ``None``; ``pin`` the node it may only run on."""

    uid: str
    name: str
    job: str = ""
    gang: tuple[str, int] | None = None
    rank: int = 0
    pool: str = ""
    node: str = ""
    pin: str = ""
    requests: Mapping[str, int] = field(default_factory=dict)
    phase: str = "Pending"
    terminating: bool = False
    preempted: bool = False

    @property
    def ended(self) -> bool:
        """Whether it has given its room back while its object is still there."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def running(self) -> bool:
        """Whether it runs and nobody has asked it to stop."""
        return self.phase == "Running" and not self.terminating


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node's labels and allocatable amounts, in the units of :mod:`berth.values`."""

    name: str
    labels: Mapping[str, str]
    allocatable: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What a TrainingJob asks for. ``placed_pools`` maps an attempt to the pool its status records."""

    key: str
    workers: int
    size_of_attempt: Mapping[int, int]
    start_timeout: float = START_TIMEOUT_SECONDS
    required: str = ""
    types: tuple[str, ...] = ()
    fabric_kinds: tuple[str, ...] = ()
    min_gbps: int = 0
    min_rails: int = 0
    placed_pools: Mapping[int, str] = field(default_factory=dict)

    def size(self, attempt: int) -> int:
        """Workers of ``attempt``: what status says of it, else the full gang."""
        return self.size_of_attempt.get(attempt, self.workers)


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """An AcceleratorPool. ``levels`` are (name, label, role), outermost first; empty ``fabric`` when it states none."""

    name: str
    selector: tuple[Requirement, ...]
    accelerator: str
    levels: tuple[tuple[str, str, str], ...]
    fabric: FabricFacts | None = None

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with ``labels`` belongs to the pool."""
        return selects(self.selector, labels)


def key_of(thing: Json) -> str:
    """``namespace/name``, or the name where there is no namespace."""
    meta = thing["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


def read_pod(pod: Json) -> PodFacts:
    """The facts of a pod object."""
    meta, spec, status = pod["metadata"], pod.get("spec", {}), pod.get("status", {})
    labels = meta.get("labels") or {}
    member = JOB_UID in labels and ATTEMPT in labels and RANK in labels
    return PodFacts(
        uid=meta["uid"],
        name=key_of(pod),
        job=f"{meta.get('namespace', '')}/{labels.get(JOB_NAME, '')}" if member else "",
        gang=(labels[JOB_UID], int(labels[ATTEMPT])) if member else None,
        rank=int(labels[RANK]) if member else 0,
        pool=labels.get(POOL, ""),
        node=spec.get("nodeName", ""),
        pin=_pin(spec),
        requests=pod_requests(spec),
        phase=status.get("phase", "Pending"),
        terminating="deletionTimestamp" in meta,
        preempted=any(
            condition.get("type") == "DisruptionTarget"
            and condition.get("status") == "True"
            and condition.get("reason") == "PreemptionByScheduler"
            for condition in status.get("conditions") or ()
        ),
    )


def pod_requests(spec: Json) -> dict[str, int]:
    """What the scheduler charges a node for a pod, by the rule of KEP-753 (sidecars) and KEP-2837 (pod level)."""
    total = _sum(_requests(container) for container in spec.get("containers") or ())
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        own = _requests(container)
        if container.get("restartPolicy") == "Always":
            sidecars = _sum((sidecars, own))
            peak = _max(peak, sidecars)
        else:
            peak = _max(peak, _sum((sidecars, own)))
    total = _max(_sum((total, sidecars)), peak)
    total |= _requests(spec)
    return _sum((total, _amounts(spec.get("overhead") or {}), {PODS: 1}))


def read_node(node: Json) -> NodeView:
    """The facts of a node object."""
    meta = node["metadata"]
    return NodeView(meta["name"], meta.get("labels") or {}, _amounts(node.get("status", {}).get("allocatable") or {}))


def read_job(job: Json) -> JobFacts:
    """The facts of a TrainingJob object."""
    spec, status = job["spec"], job.get("status") or {}
    topology, fabric = spec.get("topology") or {}, spec.get("fabric") or {}
    placement, attempt = status.get("placement") or {}, status.get("attempt")
    placed = "attempt" in placement and "pool" in placement
    return JobFacts(
        key=key_of(job),
        workers=spec["workers"],
        size_of_attempt={attempt: status["workers"]} if attempt and status.get("workers") else {},
        start_timeout=parse_duration(spec["startTimeout"]) if "startTimeout" in spec else START_TIMEOUT_SECONDS,
        required=topology.get("required", ""),
        types=tuple((spec.get("accelerators") or {}).get("types") or ()),
        fabric_kinds=tuple(fabric.get("kinds") or ()),
        min_gbps=fabric.get("minGbps", 0),
        min_rails=fabric.get("minRails", 0),
        placed_pools={placement["attempt"]: placement["pool"]} if placed else {},
    )


def read_pool(pool: Json) -> PoolFacts:
    """The facts of an AcceleratorPool object."""
    spec = pool["spec"]
    selector, fabric = spec.get("nodeSelector") or {}, spec.get("fabric")
    levels = [(level["name"], level["nodeLabel"], level.get("role", "")) for level in spec.get("topology") or ()]
    if not any(label == HOSTNAME for _, label, _ in levels):
        levels.append(("host", HOSTNAME, ""))
    return PoolFacts(
        name=pool["metadata"]["name"],
        selector=(
            *(Requirement(key, "In", (value,)) for key, value in (selector.get("matchLabels") or {}).items()),
            *(
                Requirement(term["key"], term["operator"], tuple(term.get("values") or ()))
                for term in selector.get("matchExpressions") or ()
            ),
        ),
        accelerator=spec.get("accelerator", ""),
        levels=tuple(levels),
        fabric=FabricFacts(fabric["kind"], fabric.get("gbps", 0), fabric.get("rails", 1)) if fabric else None,
    )


def discovered_levels(catalogue: Catalogue, nodes: Sequence[NodeView]) -> tuple[tuple[str, str, str], ...]:
    """The levels that nodes of no AcceleratorPool show by their labels, as :attr:`PoolFacts.levels`."""
    occurring = {label for node in nodes for label in node.labels}
    return tuple((level.name, level.label, level.role) for level in catalogue.labels.levels(occurring))


def domain_path(node: NodeView, levels: Sequence[tuple[str, str, str]], name: str) -> tuple[str, ...] | None:
    """The domain of ``node`` at level ``name`` as the path from the top; ``None`` when there is no such level.

    A node without a level's label is alone there.
    """
    path: list[str] = []
    for level, label, _ in levels:
        path.append(node.labels.get(label, f"only {node.name}"))
        if level == name:
            return tuple(path)
    return None


def _pin(spec: Json) -> str:
    """The one node that every required node-affinity term allows, "" when there is none."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or ()
    pins = {
        tuple(field["values"])
        for term in terms
        for field in term.get("matchFields") or ({"key": "metadata.name", "operator": "In", "values": ()},)
        if field["key"] == "metadata.name" and field["operator"] == "In"
    }
    only = pins.pop() if len(pins) == 1 else ()
    return only[0] if len(only) == 1 else ""


def _requests(holder: Json) -> dict[str, int]:
    resources = holder.get("resources") or {}
    return _amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _amounts(texts: Mapping[str, str]) -> dict[str, int]:
    return {name: _amount(name, text) for name, text in texts.items()}


def _sum(parts: Any) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def _max(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in {**left, **right}}
