"""Any interleaving of what the operator observes and decides keeps the fleet what its nodes, pools and claims make.

The model beside the fleet is three dictionaries. After every step the fleet is compared with one built from scratch
(:meth:`Fleet.check`) and, for what is sold, with sums over the model.
"""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule

from berth.fleet.audit import picture
from berth.fleet.fleet import Fleet
from berth.values import Requirement, Taint, selects
from tests.builders.fleet import (
    GPU,
    LEVELS,
    TREE,
    catalogue,
    make_claim,
    make_fleet,
    make_node,
    make_pool,
    some_levels,
)

NODES = [f"n{i}" for i in range(7)]
KEYS = [f"k{i}" for i in range(8)]
PRODUCTS = [None, "NVIDIA-H100-80GB-HBM3", "NVIDIA-H200", "NVIDIA-H200-SHARED"]
POOLS = [
    make_pool("p", levels=TREE, created=2),
    make_pool("p", levels=LEVELS, created=2, usd="2.5"),
    make_pool("q", levels=some_levels("rack"), created=1),
    make_pool("h200", selects="p", accelerator="H200", levels=some_levels("block"), created=1),
    make_pool("unknown", selects="q", accelerator="H9000", created=0),
]
TERMS = ((Requirement("example.com/odd", "In", ("1",)),), (Requirement(GPU, "Exists"),))

maybe = lambda values: st.sampled_from([None, *values])  # noqa: E731

nodes = st.builds(
    make_node,
    st.sampled_from(NODES),
    pool=st.sampled_from(["p", "p", "q", None]),
    zone=st.sampled_from(["z1", "z1", None]),
    block=st.sampled_from(["a", "b", "b", None]),
    rack=maybe(["1", "2"]),
    clique=maybe(["c"]),
    host=st.sampled_from(["", "", "same", None]),
    devices=st.sampled_from([8, 8, 4, 0]),
    labels=st.builds(
        lambda product, odd: {"example.com/odd": odd, **({"nvidia.com/gpu.product": product} if product else {})},
        st.sampled_from(PRODUCTS),
        st.sampled_from("01"),
    ),
    allocatable=st.sampled_from([{}, {"rdma/ib": 8}]),
    taints=st.lists(st.builds(Taint, st.sampled_from(["a", GPU])), max_size=2),
    unschedulable=st.sampled_from([False, False, False, True]),
    ready=st.sampled_from([True, True, True, False]),
)
claims = st.builds(
    make_claim,
    st.sampled_from(KEYS),
    st.sampled_from([*NODES, "elsewhere"]),
    st.integers(0, 8),
    cpu=st.integers(0, 9),
    memory=st.integers(0, 9),
    role=st.sampled_from(["Training", "Inference", None]),
    daemon=st.booleans(),
    amounts=st.sampled_from([{}, {"rdma/ib": 2}]),
)
pool_sets = st.lists(st.sampled_from(POOLS), unique_by=lambda spec: spec.name)


class FleetMachine(RuleBasedStateMachine):
    undos = Bundle("undos")

    @initialize(crowd=st.lists(nodes, max_size=len(NODES)), specs=pool_sets)
    def start(self, crowd, specs):
        self.fleet = Fleet(catalogue())
        self.nodes, self.claims = {}, {}
        self.last = None  # the latest undo with what it must bring back, while nothing else was said
        self.fleet.set_pools(specs)
        for node in crowd:
            self.set_node(node)

    @rule(node=nodes)
    def set_node(self, node):
        assert self.fleet.set_node(node) is (self.nodes.get(node.name) != node)
        self.nodes[node.name], self.last = node, None

    @precondition(lambda self: self.nodes)
    @rule(data=st.data())
    def remove_node(self, data):
        name = data.draw(st.sampled_from(sorted(self.nodes)))
        assert self.fleet.remove_node(name)
        del self.nodes[name]
        self.last = None

    @rule(specs=pool_sets)
    def set_pools(self, specs):
        self.fleet.set_pools(specs)
        self.last = None

    @rule(target=undos, wanted=st.lists(claims, min_size=1, max_size=4))
    def claim(self, wanted):
        return self.change([(claim.key, claim) for claim in wanted], self.fleet.claim, wanted)

    @rule(target=undos, keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=3))
    def release(self, keys):
        return self.change([(key, None) for key in keys], self.fleet.release, keys)

    @precondition(lambda self: self.last)
    @rule()
    def undo_at_once(self):
        undo, (arrays, held), changes = self.last
        undo()
        changes.clear()  # it has no second effect
        self.claims = dict(held)
        assert self.state() == (arrays, held)
        self.last = None

    @rule(entry=consumes(undos))
    def undo_later(self, entry):
        undo, _, changes = entry
        undo()
        for key, before, after in reversed(changes):
            if self.claims.get(key) is after:
                self.put(key, before)
        self.last = None

    @rule(wanted=st.lists(claims, max_size=4), keys=st.lists(st.sampled_from(KEYS), max_size=3))
    def try_out(self, wanted, keys):
        before = (self.state(), self.fleet.version)
        with self.fleet.trial():
            self.fleet.claim(wanted)
            self.fleet.release(keys)
            self.fleet.claim(reversed(wanted))
        assert (self.state(), self.fleet.version) == before

    @rule()
    def ask(self):
        for pool in self.fleet.pools.values():
            pool.free_of("rdma/ib")
            pool.bare_of("rdma/ib")
            pool.matching(TERMS)
            self.fleet.report(pool.spec.name)

    @invariant()
    def the_fleet_is_what_it_is_made_of(self):
        assert self.fleet.check() == []
        assert self.fleet.nodes == self.nodes
        assert dict(self.fleet.claims) == self.claims

    @invariant()
    def no_node_is_sold_twice(self):
        rows = Counter(name for pool in self.fleet.pools.values() for name in pool.row)
        assert all(count == 1 for count in rows.values())
        assert rows.keys() <= self.nodes.keys()

    @invariant()
    def room_is_what_claims_leave(self):
        for pool in self.fleet.pools.values():
            for name, row in pool.row.items():
                there = [claim for claim in self.claims.values() if claim.node == name]
                held = [claim.amounts for claim in there]
                daemons = [claim.amounts for claim in there if claim.daemon]
                pods = self.nodes[name].allocatable["pods"]
                assert (pool.free_of("pods")[row], pool.bare_of("pods")[row]) == (pods - len(held), pods - len(daemons))
                for resource in ("cpu", "memory", pool.resource, "rdma/ib"):
                    room = self.nodes[name].allocatable.get(resource, 0) if resource else 0
                    used = sum(amounts.get(resource, 0) for amounts in held) if resource else 0
                    assert int(pool.free_of(resource)[row]) == room - used
                    kept = sum(amounts.get(resource, 0) for amounts in daemons) if resource else 0
                    assert int(pool.bare_of(resource)[row]) == room - kept
            rows = [
                bool(name) and any(selects(t, pool.labels[row]) for t in TERMS) for row, name in enumerate(pool.names)
            ]
            assert pool.matching(TERMS).tolist() == rows

    def change(self, wanted, act, argument):
        before, changes = self.state(), []
        for key, claim in wanted:
            if self.claims.get(key) != claim:
                changes.append((key, self.claims.get(key), claim))
                self.put(key, claim)
        self.last = (act(argument), before, changes)
        return self.last

    def put(self, key, claim):
        self.claims.pop(key, None)
        if claim is not None:
            self.claims[key] = claim

    def state(self):
        return {name: picture(pool) for name, pool in self.fleet.pools.items()}, dict(self.fleet.claims)


TestFleetMachine = FleetMachine.TestCase
TestFleetMachine.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


def test_check_notices_what_does_not_follow_from_nodes_and_claims():
    fleet = make_fleet([make_node("a"), make_node("b")], claims=[make_claim("k", "a", 3)])
    assert fleet.check() == []
    fleet.pools["p"].free_devices[0] += 1
    fleet.pools["p"].usable[1] = False
    assert fleet.check() == [
        "pool p: node a: free_devices is 6, should be 5",
        "pool p: node b: usable is False, should be True",
    ]


def test_a_fleet_of_many_changes_is_the_fleet_built_at_once():
    order = random.Random(7)
    fleet = make_fleet(pools=[make_pool()])
    for _ in range(300):
        name = f"n{order.randrange(40)}"
        if order.random() < 0.2:
            fleet.remove_node(name)
        else:
            fleet.set_node(
                make_node(name, block=order.choice("ab"), rack=order.choice("123"), ready=order.random() < 0.8)
            )
        fleet.claim([make_claim(f"k{order.randrange(60)}", f"n{order.randrange(50)}", order.randrange(4))])
    assert fleet.check() == []
    assert len(fleet.pools["p"]) <= 40
