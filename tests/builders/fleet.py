"""Nodes, pools, claims and fleets in a line each, for every test of decisions.

The defaults are a node with eight H100s in its own pool ``p``; a test states only what it is about. CPU in cores and
memory in GiB here, because that is how people speak of nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import cache

from berth.catalogue.load import load
from berth.catalogue.records import Catalogue
from berth.fleet.fleet import Fleet
from berth.fleet.records import Claim, Fabric, Level, NodeFacts, PoolSpec
from berth.values import Requirement, Role, Taint

ZONE = "topology.kubernetes.io/zone"
BLOCK = "topology.berth.dev/block"
RACK = "topology.berth.dev/rack"
CLIQUE = "nvidia.com/gpu.clique"
HOST = "kubernetes.io/hostname"
POOL = "example.com/pool"
GPU = "nvidia.com/gpu"
GIB = 1 << 30

LEVELS = (
    Level("zone", ZONE, "Site"),
    Level("block", BLOCK),
    Level("rack", RACK),
    Level("nvlink", CLIQUE, "NVLinkDomain"),
    Level("host", HOST),
)
TREE = tuple(level for level in LEVELS if level.name != "nvlink")


@cache
def catalogue() -> Catalogue:
    """The catalogue as shipped."""
    return load()


def some_levels(*names: str) -> tuple[Level, ...]:
    """The levels of those names, with the host at the end."""
    return tuple(level for level in LEVELS if level.name in (*names, "host"))


def make_node(
    name: str,
    *,
    pool: str | None = "p",
    zone: str | None = "z1",
    block: str | None = None,
    rack: str | None = None,
    clique: str | None = None,
    host: str | None = "",
    devices: int = 8,
    resource: str = GPU,
    cpu: int = 192,
    memory: int = 2048,
    pods: int = 110,
    labels: Mapping[str, str] | None = None,
    allocatable: Mapping[str, int] | None = None,
    taints: Iterable[Taint] = (),
    unschedulable: bool = False,
    ready: bool = True,
    uid: str = "",
) -> NodeFacts:
    """A node; ``None`` leaves the label out, ``host`` "" is the node's name, ``pool`` the label that pools select."""
    own = {POOL: pool, ZONE: zone, BLOCK: block, RACK: rack, CLIQUE: clique, HOST: name if host == "" else host}
    room = {"cpu": cpu * 1000, "memory": memory * GIB, "pods": pods}
    if devices:
        room[resource] = devices
    return NodeFacts(
        name=name,
        uid=uid or f"uid-of-{name}",
        labels={**{key: value for key, value in own.items() if value is not None}, **(labels or {})},
        allocatable={**room, **(allocatable or {})},
        taints=tuple(taints),
        unschedulable=unschedulable,
        ready=ready,
    )


def make_pool(
    name: str = "p",
    *,
    accelerator: str = "H100",
    selects: str | Mapping[str, str] | None = None,
    roles: tuple[Role, ...] = ("Training",),
    levels: tuple[Level, ...] = TREE,
    fabric: Fabric | None = None,
    usd: str | None = None,
    created: float = 0.0,
) -> PoolSpec:
    """A pool that selects the nodes whose pool label is its name, ``selects``, or all of the labels ``selects``."""
    wanted = selects if isinstance(selects, Mapping) else {POOL: selects or name}
    return PoolSpec(
        name=name,
        selector=tuple(Requirement(key, "In", (value,)) for key, value in wanted.items()),
        accelerator=accelerator,
        roles=roles,
        levels=levels,
        fabric=fabric,
        usd_per_accelerator_hour=None if usd is None else Decimal(usd),
        created=created,
    )


def make_claim(
    key: str,
    node: str,
    devices: int = 8,
    *,
    cpu: int = 0,
    memory: int = 0,
    role: Role | None = "Training",
    daemon: bool = False,
    owner: str = "ns/job",
    resource: str = GPU,
    amounts: Mapping[str, int] | None = None,
) -> Claim:
    """A claim on ``node``; one with ``daemon`` has no role."""
    own = {"cpu": cpu * 1000, "memory": memory * GIB, resource: devices, **(amounts or {})}
    return Claim(
        key=key,
        node=node,
        amounts={name: amount for name, amount in own.items() if amount},
        owner=owner,
        role=None if daemon else role,
        daemon=daemon,
    )


def make_fleet(
    nodes: Iterable[NodeFacts] = (),
    *,
    pools: Iterable[PoolSpec] | None = None,
    claims: Iterable[Claim] = (),
) -> Fleet:
    """A fleet of ``nodes``; with ``pools`` left out, of one pool ``p``."""
    fleet = Fleet(catalogue())
    fleet.set_pools((make_pool(),) if pools is None else pools)
    for node in nodes:
        fleet.set_node(node)
    fleet.claim(claims)
    return fleet


def make_tree(shape: Mapping[str, Mapping[str, int]], *, zone: str = "z1", pool: str = "p") -> list[NodeFacts]:
    """Nodes by block and rack: ``{"a": {"r1": 2}}`` is block a with a rack r1 of two nodes."""
    return [
        make_node(f"{pool}-{block}-{rack}-{number:04d}", zone=zone, block=block, rack=rack, pool=pool)
        for block, racks in shape.items()
        for rack, nodes in racks.items()
        for number in range(nodes)
    ]
