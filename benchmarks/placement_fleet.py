"""Fragmented fleets for the placement benchmark, from a seed.

Zones of blocks of racks of 8-GPU hosts, filled the way shared clusters are: some racks crowded and some quiet, most
jobs on whole hosts, the rest on one, two or four GPUs of a host, and a few hosts out of service. Names are numbered
without padding, labels are those of a real node.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from berth.catalogue.load import load
from berth.fleet.fleet import Fleet
from berth.fleet.records import Claim, Fabric, Level, NodeFacts, PoolSpec
from berth.values import CPU, MEMORY, PODS, Requirement

GPU = "nvidia.com/gpu"
DEVICES = 8
ZONE, BLOCK, RACK = "topology.kubernetes.io/zone", "topology.berth.dev/block", "topology.berth.dev/rack"
HOST, PRODUCT = "kubernetes.io/hostname", "nvidia.com/gpu.product"
LEVELS = (Level("zone", ZONE, "Site"), Level("block", BLOCK), Level("rack", RACK), Level("host", HOST))
HOSTS_PER_RACK, RACKS_PER_BLOCK, ZONES = 32, 16, 4
GIB = 1 << 30


def node(number: int, rack: int, block: int, zone: int) -> NodeFacts:
    """An H200 host."""
    labels = {
        ZONE: f"zone-{zone}",
        BLOCK: f"block-{block}",
        RACK: f"rack-{rack}",
        HOST: f"gpu-{number}",
        PRODUCT: "NVIDIA-H200",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "nvidia.com/gpu.count": str(DEVICES),
    }
    room = {CPU: 192_000, MEMORY: 2048 * GIB, PODS: 110, GPU: DEVICES}
    return NodeFacts(f"gpu-{number}", f"uid-{number}", labels, room)


def pool() -> PoolSpec:
    """The one pool of all hosts."""
    return PoolSpec(
        "h200-ib",
        (Requirement(PRODUCT, "In", ("NVIDIA-H200",)),),
        "H200",
        ("Training",),
        LEVELS,
        fabric=Fabric("InfiniBand", 400, 8),
    )


def make(nodes: int, rng: random.Random) -> Fleet:
    """``nodes`` hosts, about half of their devices in use."""
    fleet = Fleet(load())
    fleet.set_pools([pool()])
    per_rack = HOSTS_PER_RACK if nodes >= 2048 else 16
    for number in range(nodes):
        rack = number // per_rack
        block = rack // RACKS_PER_BLOCK if nodes >= 2048 else rack // 10
        fleet.set_node(node(number, rack, block, block % ZONES))
    crowded = {rack: rng.betavariate(1.5, 1.5) for rack in range(-(-nodes // per_rack))}
    for number in range(nodes):
        fleet.claim(_busy(number, crowded[number // per_rack], rng))
        if rng.random() < 0.01:
            facts = fleet.nodes[f"gpu-{number}"]
            fleet.set_node(replace(facts, unschedulable=True))
    return fleet


def _busy(number: int, load_: float, rng: random.Random) -> Iterator[Claim]:
    """What is on one host: a worker that has all of it, smaller ones, or nothing."""
    if rng.random() < load_ * 0.7:
        yield _claim(f"whole-{number}", number, DEVICES)
        return
    left, count = DEVICES, 0
    while rng.random() < load_ * 0.6 and left:
        devices = min(rng.choice((1, 1, 2, 4)), left)
        yield _claim(f"part-{number}-{count}", number, devices)
        left, count = left - devices, count + 1


def _claim(key: str, number: int, devices: int) -> Claim:
    amounts = {GPU: devices, CPU: devices * 8000, MEMORY: devices * 64 * GIB}
    return Claim(key, f"gpu-{number}", amounts, "ns/job", "Training")
