"""Jobs that no node can ever take: said with the field, and nobody waits behind them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.fleet.fleet import Fleet
from berth.inference.room import fits
from berth.training.explain import explain
from berth.training.placement import place, usable_rows
from berth.training.records import GangRequest, Placement, Refusal
from berth.values import Requirement, Taint
from tests.builders.fleet import make_claim, make_fleet, make_node, make_pool, make_tree
from tests.unit.training.test_queue import decide, expect_placed, make_waiting

RDMA = {"rdma/ib": 8}


def refused(fleet: Fleet, workers: int = 1, devices: int = 8, **wishes: Any) -> Refusal:
    """Refused, also with an explanation, and keeps no node."""
    request = GangRequest(workers, devices, **wishes)
    refusal = place(fleet, request)
    assert isinstance(refusal, Refusal)
    assert usable_rows(fleet, request) == {}
    return explain(fleet, request, refusal, [])


@pytest.mark.parametrize(
    ("needs", "message"),
    [
        (
            {"cpu": 9_000_000},
            "A worker asks for 9000 cpu (spec.template.spec: resources), and no node of p has more than 190 cpu beside "
            "its daemons; ask for less",
        ),
        (
            {"rdma/ibb": 1},
            "A worker asks for 1 rdma/ibb (spec.template.spec: resources), and no node of p has any to give; correct "
            "the name or take it out",
        ),
        ({"rdma/ib": 9}, "A worker asks for 9 rdma/ib (spec.template.spec: resources), and no node of p has more"),
        ({"ephemeral-storage": 100 << 40}, "A worker asks for 100Ti of ephemeral-storage"),
        ({"cpu": 2**63}, "A worker asks for 9.00719925474e+12 cpu"),
        ({"memory": 10**300}, "A worker asks for 8Pi of memory"),
    ],
)  # fmt: skip
def test_what_no_node_has_is_named_with_its_field(needs: dict[str, int], message: str) -> None:
    daemons = [make_claim("d", "n", 0, cpu=2, daemon=True, amounts={"rdma/ib": 1})]
    refusal = refused(make_fleet([make_node("n", allocatable=RDMA)], claims=daemons), per_worker=needs)
    assert refusal.reason == "TooLarge"
    assert refusal.message.startswith(message)


def test_a_node_of_which_daemons_take_every_pod_takes_no_worker() -> None:
    daemons = [make_claim(f"d{number}", "n", 0, daemon=True) for number in range(4)]
    fleet = make_fleet([make_node("n", allocatable={"pods": 4})], claims=daemons)
    assert refused(fleet).message.startswith("A worker asks for 1 pods")


@pytest.mark.parametrize(
    ("wishes", "reason", "message"),
    [
        ({"devices": 16}, "NoPool", "spec.accelerators.perWorker: no node for training has 16 accelerators, the largest"
                                    " has 8; ask for at most 8"),
        ({"types": ("L4",)}, "NoPool", "spec.accelerators.types: no pool for training has L4; pools for training have "
                                       "H100: name one of these in spec.accelerators.types, or add Training to "
                                       "spec.roles of AcceleratorPool small"),
        ({"workers": 2, "memory_bytes": 105 * 80 * 10**9}, "MemoryUnsatisfied",
         "No pool of accelerators holds the gang: spec.model needs 105 H100, and 2 workers of 8 are 16; "
         "set spec.workers to 14 or more"),
        ({"workers": 4, "slice_workers": 4, "memory_bytes": 105 * 80 * 10**9}, "MemoryUnsatisfied",
         "No pool of accelerators holds the gang: spec.model needs 105 H100, and 4 workers of 8 are 32; "
         "set spec.workers to 16 or more"),
        ({"node_terms": ((Requirement("team", "Exists"),),)}, "TooLarge",
         "No node of p may take a worker: 1 node outside spec.template.spec (nodeSelector, affinity)"),
    ],
    ids=["devices", "role", "memory", "memory of slices", "selector"],
)  # fmt: skip
def test_a_refusal_names_the_field_and_what_would_do(wishes: dict[str, Any], reason: str, message: str) -> None:
    nodes = [make_node("n"), make_node("l", pool="small")]
    pools = [make_pool(), make_pool("small", accelerator="L4", roles=("Inference",))]
    refusal = refused(make_fleet(nodes, pools=pools), **wishes)
    assert refusal.reason == reason
    assert refusal.message.startswith(message)


def test_without_any_pool_for_training_it_says_how_there_would_be_one() -> None:
    message = refused(make_fleet([make_node("n")], pools=[])).message
    assert message.endswith("give nodes with accelerators to an AcceleratorPool with roles: [Training]")


def test_nodes_without_a_level_s_label_are_named_with_it_outermost_level_first() -> None:
    nodes = [
        make_node("whole", block="b", rack="r"),
        make_node("lost", block=None, rack="r"),
        make_node("loose", block="b", rack=None),
    ]
    message = refused(make_fleet(nodes), 2, required_level="rack").message
    block, rack = (message.index(f"nodes lack the label topology.berth.dev/{level} of level") for level in
                   ("block", "rack"))  # fmt: skip
    assert block < rack
    assert "label" not in refused(make_fleet(make_tree({"b": {"r": 1}})), 2, required_level="rack").message


def test_nodes_that_are_barred_are_told_where_they_would_be_missed() -> None:
    nodes = [
        make_node("n"), make_node("off", ready=False), make_node("full", unschedulable=True),
        make_node("theirs", taints=[Taint("team")]),
    ]  # fmt: skip
    message = refused(make_fleet(nodes), 2).message
    assert "not counted: 1 node NotReady, 1 node Unschedulable, 1 node tainted team" in message
    failed = refused(make_fleet([make_node("n")]), excluded_nodes=frozenset({"n"})).message
    assert failed == "No node of p may take a worker: 1 node avoided for now, where this job failed"


def test_a_resource_that_runs_out_before_the_devices_is_named() -> None:
    message = refused(make_fleet(make_tree({"b": {"r": 2}})), 4, 4, per_worker={"cpu": 150_000}).message
    assert "150 cpu for each worker (spec.template.spec: resources) leave room for only 1 worker" in message


@pytest.mark.parametrize("needs", [{"rdma/ibb": 1}, {"ephemeral-storage": 100 << 40}, {"cpu": 2**63 - 1}])
def test_nobody_waits_behind_a_job_that_can_never_run(needs: dict[str, int]) -> None:
    fleet = make_fleet(make_tree({"a": {"1": 2}}))
    jobs = (make_waiting("never", created=1, per_worker=needs), make_waiting("good", created=2))
    expect_placed(decide(fleet, *jobs), "good")


ABSURD = st.sampled_from([0, 1, 7, 2**31, 2**53, 2**62, 2**63 - 1, 2**63, 10**24, 10**300])
NAMES = st.sampled_from(["cpu", "memory", "ephemeral-storage", "example.com/x", "pods", "rdma/ib"])


@settings(max_examples=150, deadline=None)
@given(
    st.builds(
        GangRequest,
        workers=st.sampled_from([1, 2, 9, 25_000]),
        accelerators_per_worker=st.sampled_from([1, 8, 256]),
        per_worker=st.dictionaries(NAMES, ABSURD, max_size=3),
        required_level=st.sampled_from([None, "rack", "host", "zone", "nope"]),
        memory_bytes=ABSURD,
    )
)
def test_no_request_however_absurd_breaks_the_search(request_: GangRequest) -> None:
    nodes = [*make_tree({"a": {"r1": 3, "r2": 2}}), make_node("ib", allocatable=RDMA)]
    fleet = make_fleet(nodes, claims=[make_claim("k", "p-a-r1-0000", 4, amounts=dict(request_.per_worker))])
    outcome = place(fleet, request_)
    usable_rows(fleet, request_)
    if isinstance(outcome, Refusal):
        explain(fleet, request_, outcome, [])
    else:
        assert isinstance(outcome, Placement)
    pool = fleet.pools["p"]
    assert (fits(pool, pool.usable, request_.per_worker) >= 0).all()
