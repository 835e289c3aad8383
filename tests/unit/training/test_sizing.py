"""How much CPU and how many rails a rank gets where the template leaves it open."""

from __future__ import annotations

import pytest

from berth.fleet.fleet import Fleet
from berth.fleet.records import Claim, Fabric, NodeFacts
from berth.training.records import GangRequest
from berth.training.sizing import worker_amounts, worker_cpu, worker_rdma
from tests.builders.fleet import GPU, catalogue, make_claim, make_fleet, make_node, make_pool

KINDS = catalogue().fabrics
INFINIBAND = Fabric("InfiniBand", gbps=400, rails=8)


def cpu(nodes: list[NodeFacts], *claims: Claim, devices: int = 8, on: tuple[str, ...] = ()) -> int:
    fleet = make_fleet(nodes, claims=claims)
    names = on or tuple(node.name for node in nodes)
    return worker_cpu(fleet.pools["p"], GangRequest(len(names), devices), names)


@pytest.mark.parametrize(
    ("cores", "on_node", "per_worker", "expected"),
    [
        (192, 8, 8, 192_000),
        (192, 8, 4, 96_000),
        (192, 8, 1, 24_000),
        (512, 8, 8, 256_000),  # never more than 32 cores an accelerator
        (10, 3, 1, 3_333),
    ],
)
def test_a_worker_gets_its_devices_share_of_the_node(cores: int, on_node: int, per_worker: int, expected: int) -> None:
    assert cpu([make_node("n1", cpu=cores, devices=on_node)], devices=per_worker) == expected


def test_daemons_are_served_first() -> None:
    daemon = make_claim("daemon", "n1", 0, cpu=32, daemon=True)
    assert cpu([make_node("n1", cpu=192)], daemon) == 160_000


def test_the_poorest_node_of_the_gang_decides_for_all() -> None:
    nodes = [make_node("rich", cpu=192), make_node("poor", cpu=96)]
    assert cpu(nodes) == 96_000
    assert cpu(nodes, on=("rich",)) == 192_000


def test_what_others_hold_is_not_promised_again() -> None:
    guest = make_claim("guest", "n1", 0, cpu=100, role=None)
    assert cpu([make_node("n1", cpu=192)], guest) == 92_000
    half = make_claim("neighbour", "n1", 4, cpu=100)
    assert cpu([make_node("n1", cpu=192)], half, devices=4) == 92_000


@pytest.mark.parametrize("per_worker", [1, 2, 4])
def test_all_workers_of_a_node_fit_on_it_together(per_worker: int) -> None:
    node = make_node("n1", cpu=100)
    each = cpu([node], devices=per_worker, on=("n1",) * (8 // per_worker))
    assert each * (8 // per_worker) <= 100_000


def test_a_node_without_any_cpu_left_gives_none() -> None:
    assert cpu([make_node("n1", cpu=16)], make_claim("guest", "n1", 0, cpu=20, role=None)) == 0


def test_nodes_that_have_gone_meanwhile_decide_nothing() -> None:
    assert cpu([make_node("n1")], on=("gone",)) == 0
    assert cpu([make_node("n1")], on=("gone", "n1")) == 192_000


def test_a_rank_holds_the_template_s_needs_its_devices_and_its_cpu() -> None:
    request = GangRequest(2, 8, per_worker={"memory": 5, "pods": 1})
    pool = make_fleet([make_node("n1")]).pools["p"]
    assert worker_amounts(request, pool, 4000) == {
        "memory": 5,
        "pods": 1,
        GPU: 8,
        "cpu": 4000,
    }
    assert worker_amounts(request, None, 0) == {"memory": 5, "pods": 1}


def rdma(
    *nodes: NodeFacts, workers: int = 2, devices: int = 8, fabric: Fabric | None = INFINIBAND, kind: str = "InfiniBand"
) -> dict[str, int]:
    fleet: Fleet = make_fleet(nodes, pools=[make_pool(fabric=fabric)])
    names = tuple(node.name for node in nodes)
    return worker_rdma(fleet.pools["p"], KINDS[kind], GangRequest(workers, devices), names)


def ib_node(name: str, resource: str = "rdma/ib", count: int = 8) -> NodeFacts:
    return make_node(name, allocatable={resource: count})


OFFERED = KINDS["InfiniBand"].rdma_resources[0].name


@pytest.mark.parametrize(("devices", "rails"), [(8, 8), (4, 4), (1, 1)])
def test_a_worker_gets_its_share_of_the_rails(devices: int, rails: int) -> None:
    found = rdma(ib_node("a", OFFERED), ib_node("b", OFFERED), devices=devices)
    assert found == KINDS["InfiniBand"].request(rails, {OFFERED})
    assert found


def test_a_share_below_one_rail_is_none() -> None:
    assert rdma(ib_node("a", OFFERED), fabric=Fabric("InfiniBand", rails=4), devices=1) == {}


def test_only_a_resource_that_every_node_offers_is_asked_for() -> None:
    assert rdma(ib_node("a", OFFERED), make_node("b")) == {}


def test_a_gang_of_one_needs_no_network() -> None:
    assert rdma(ib_node("a", OFFERED), workers=1) == {}


def test_a_fabric_without_rdma_or_a_pool_without_a_fabric_asks_for_nothing() -> None:
    plain = next(name for name, kind in sorted(KINDS.items()) if not kind.rdma)
    assert rdma(ib_node("a", OFFERED), fabric=Fabric(plain), kind=plain) == {}
    assert rdma(ib_node("a", OFFERED), fabric=None) == {}
