"""Nodes that a pool of another name has now: their replicas stay where they are, under the name that they have."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from berth.cluster.kinds import DEPLOYMENTS, INFERENCE_SERVICES, Kind
from berth.controllers.services.supply import start_key
from berth.controllers.services.view import ServiceView
from berth.fleet.records import PoolSpec
from tests.builders.fleet import make_claim, make_node, make_pool
from tests.unit.controllers.services.test_service_former import placed
from tests.unit.controllers.services.test_service_places_lost import READY, pod
from tests.unit.controllers.services.test_service_refusals import KEY, Desk, Json

PRODUCT = "nvidia.com/gpu.product"
TEAM = "example.com/team"
L4 = {PRODUCT: "NVIDIA-L4"}
DISCOVERED = "l4"


def serving(name: str, **fields: Any) -> PoolSpec:
    selects = fields.pop("selects", L4)
    return replace(make_pool(name, accelerator="L4", roles=("Inference",), selects=selects), **fields)


def node(name: str, team: str = "red", **labels: str) -> Any:
    return make_node(name, pool=None, devices=4, labels={**L4, TEAM: team, **labels})


class Site(Desk):
    """The service ``chat`` on two nodes of L4s, one of each team, that nobody has described."""

    def __init__(self, *pools: PoolSpec) -> None:
        super().__init__()
        self.server.delete = self.delete
        self.begun = 0
        self.market = self.loop.planner._market
        self.fleet = self.market._fleet
        for name in list(self.fleet.nodes):
            self.fleet.remove_node(name)
        self.fleet.set_pools(pools)
        for name, team in (("n1", "red"), ("n2", "blue")):
            self.fleet.set_node(node(name, team))

    async def delete(self, kind: Kind[Any], name: str, namespace: str, *, uid: str) -> None:
        self.loop.caches.deployments.remove(await self.server.find(kind, name, namespace))
        del self.server.objects[kind.kind, name]

    @property
    def view(self) -> ServiceView:
        found = self.loop.observer.view(KEY)
        assert found is not None
        return found

    async def declare(self, *pools: PoolSpec) -> Json:
        """The AcceleratorPools are these; the service is looked at."""
        self.fleet.set_pools(pools)
        return await self.again()

    async def again(self) -> Json:
        """What is written is heard, and a round of decisions goes by."""
        for name in self.deployments:
            found = await self.server.find(DEPLOYMENTS, name, "serving")
            self.loop.observer.caches.deployments.observe(found)
        self.view.plan_state = None
        await self.reconcile()
        status: Json = self.server.objects["InferenceService", "chat"]["status"]
        return status

    async def lead_anew(self) -> None:
        """Another process leads, which has read what is written."""
        body = self.server.objects["InferenceService", "chat"]
        version = {"resourceVersion": str(10**6 + len(self.server.written))}
        written = {**body, "metadata": {**body["metadata"], **version}}
        self.loop.caches.services.observe(INFERENCE_SERVICES.decode(json.dumps(written).encode()))
        self.market.forget(self.view.uid)
        self.view.former = {}
        self.loop.observer.resume(lambda pods: set())

    def serve(self, *nodes: str) -> None:
        """The replicas there are run on these nodes, and hold a device each."""
        (name,) = self.deployments
        for number, on in enumerate(nodes):
            made = pod(f"p{number}", on, conditions=READY)
            labels = {"berth.dev/service-name": "chat", "berth.dev/variant": name, "pod-template-hash": "h"}
            owner = msgspec.structs.replace(made.metadata.owner_references[0], name=f"{name}-h")
            meta = msgspec.structs.replace(made.metadata, labels=labels, owner_references=(owner,))
            self.pods.observe(msgspec.structs.replace(made, metadata=meta))
            self.fleet.claim([make_claim(f"p{number}", on, 1, role="Inference")])

    @property
    def deployments(self) -> dict[str, Json]:
        return {name: body for (kind, name), body in self.server.objects.items() if kind == "Deployment"}

    def wanted(self) -> dict[str, int]:
        return {name: body["spec"]["replicas"] for name, body in self.deployments.items()}


async def running(*pools: PoolSpec, **spec: Any) -> Site:
    """Four replicas."""
    site = Site(*pools)
    await site.look(replicas=4, **spec)
    assert list(site.wanted().values()) == [4]
    await site.again()
    site.begun = len(site.server.written)
    return site


DECLARED = serving("mine")
RENAMED = serving("ours")


@pytest.mark.parametrize(
    ("first", "steps"),
    [
        ((), [(DECLARED,)]),
        ((), [(DECLARED,), (), (DECLARED,), (RENAMED,), ()]),
        ((DECLARED,), [()]),
        ((DECLARED,), [(RENAMED,)]),
        ((DECLARED,), [(DECLARED, RENAMED), (RENAMED,), (serving(DISCOVERED),)]),
    ],
    ids=["declared", "declared, deleted, declared again, renamed", "deleted", "renamed", "renamed by way of both"],
)
@pytest.mark.parametrize("own", [{}, {"template": {"spec": {"nodeSelector": {PRODUCT: "NVIDIA-L4"}}}}])
async def test_another_name_of_the_pool_writes_no_deployment(first: Any, steps: Any, own: Json) -> None:
    site = await running(*first, **own)
    before = site.deployments
    for pools in steps:
        status = await site.declare(*pools)
        named = pools[0].name if pools else DISCOVERED
        assert [(entry["name"], entry["pool"]) for entry in status["variants"]] == [(*before, named)]
        assert placed(status)[:2] == ("True", "VariantsChosen")
    assert site.deployments == before
    assert set(site.server.written[site.begun :]) <= {"status"}


async def test_own_terms_of_the_template_are_told_from_those_of_the_pool() -> None:
    terms = [{"matchExpressions": [{"key": TEAM, "operator": "In", "values": [team]}]} for team in ("red", "blue")]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    site = await running(template={"spec": {"affinity": {"nodeAffinity": required}}})
    before = site.deployments
    await site.declare(DECLARED)
    assert site.deployments == before


async def test_a_leader_that_comes_later_moves_nothing_either() -> None:
    site = await running()
    before = site.deployments
    await site.declare(DECLARED)
    await site.lead_anew()
    await site.again()
    await site.lead_anew()
    await site.declare(RENAMED)
    assert site.deployments == before


async def test_more_and_fewer_are_asked_of_the_same_deployment_in_the_room_of_the_new_pool() -> None:
    site = await running()
    (name,) = site.wanted()
    await site.declare(DECLARED)
    for count in (7, 3):
        await site.look(replicas=count)
        await site.again()
        assert site.wanted() == {name: count}
    variant = site.market.choice(site.view).variants[name]
    assert variant.pool == "mine"
    held = {claim.node for claim in site.fleet.claims.values()}
    assert held <= set(site.fleet.pools["mine"].row)


async def test_the_users_next_change_takes_the_pools_own_nodes_and_keeps_the_name() -> None:
    site = await running()
    (name,) = site.wanted()
    await site.declare(DECLARED)
    await site.look(replicas=4, slo={"latency": "60s"})
    await site.again()
    (body,) = site.deployments.values()
    assert (body["metadata"]["name"], body["spec"]["replicas"]) == (name, 4)
    assert body["spec"]["template"]["metadata"]["labels"]["berth.dev/pool"] == "mine"
    await site.declare()
    assert site.deployments == {name: body}


async def test_at_zero_the_next_replica_is_made_under_the_variants_own_name() -> None:
    site = await running()
    (name,) = site.wanted()
    await site.declare(DECLARED)
    await site.look(replicas=0)
    await site.again()
    await site.look(replicas=1)
    fresh = {other: count for other, count in site.wanted().items() if other != name}
    assert list(fresh.values()) == [1]


async def test_a_pool_that_is_split_has_its_replicas_moved_and_says_why() -> None:
    site = await running(DECLARED)
    site.serve("n1", "n1", "n2", "n2")
    (name,) = site.wanted()
    status = await site.declare(serving("red", selects={TEAM: "red"}), serving("blue", selects={TEAM: "blue"}))
    assert site.wanted()[name] == 4, "others first"
    assert sum(site.wanted().values()) > 4
    assert f"the nodes of {name} are in the pools blue and red now" in placed(status)[2]


async def test_a_pool_for_training_only_has_its_replicas_moved_and_says_why() -> None:
    site = await running()
    site.serve("n1", "n1", "n2", "n2")
    (name,) = site.wanted()
    site.fleet.set_node(make_node("n3", pool="other", devices=4))
    status = await site.declare(serving("mine", roles=("Training",)), serving("other", selects="other"))
    assert site.wanted()[name] == 4, "others first"
    assert sum(site.wanted().values()) == 8
    assert "in pool mine now, whose roles are Training" in placed(status)[2]


async def test_a_pool_for_training_only_without_another_keeps_what_serves() -> None:
    site = await running()
    before = site.deployments
    status = await site.declare(serving("mine", roles=("Training",)))
    assert placed(status)[:2] == ("False", "NoCandidate")
    assert "role Training only" in placed(status)[2]
    assert site.deployments == before


async def test_a_node_under_the_old_name_is_another_variants() -> None:
    """It is on sale beside them, and takes none of their Deployment's replicas away."""
    site = Site()
    site.fleet.set_node(node("n3", "green"))
    for name in ("n1", "n2"):
        site.fleet.remove_node(name)
    await site.look(replicas=4, template={"spec": {"nodeSelector": {TEAM: "green"}}})
    await site.again()
    before = site.deployments
    (name,) = before
    await site.declare(serving("mine", selects={TEAM: "green"}))
    site.fleet.set_node(node("n4", "red"))
    await site.again()
    assert site.deployments == before
    found = {variant.pool: key for key, variant in site.market.choice(site.view).variants.items()}
    assert found == {"mine": name, DISCOVERED: f"{name}-2"}


async def test_what_was_learned_of_starts_goes_along() -> None:
    site = await running()
    (name,) = site.wanted()

    def learned() -> list[float]:
        variant = site.market.choice(site.view).variants[name]
        return site.view.starts.samples.get(start_key(site.view, variant, cached=False), [])

    for pools, seconds in ([(DECLARED,), 100.0], [(), 200.0], [(RENAMED,), 300.0]):
        variant = site.market.choice(site.view).variants[name]
        site.view.starts.observe(start_key(site.view, variant, cached=False), seconds)  # type: ignore[arg-type]
        await site.declare(*pools)  # type: ignore[misc]
    assert learned() == [100.0, 200.0, 300.0]
    assert {key.node_class for key in site.view.starts.samples} == {"", "ours"}
    await site.lead_anew()
    site.fleet.set_pools([])
    assert learned() == [100.0, 200.0, 300.0]


async def test_a_replica_that_waits_though_the_pool_has_other_nodes_gets_its_template() -> None:
    site = await running()
    (name,) = site.wanted()
    site.fleet.set_node(make_node("n3", pool=None, devices=4, labels={TEAM: "red"}))
    for each in ("n1", "n2"):
        site.fleet.set_node(node(each))
    before = site.deployments
    wide = serving("mine", selects={TEAM: "red"})
    await site.declare(wide)
    assert site.deployments == before, "while all have a node"
    site.loop.observer.unplaced = lambda view, seconds: {name: 1}  # type: ignore[method-assign]
    await site.declare(wide)
    (body,) = site.deployments.values()
    assert body["metadata"]["name"] == name
    assert body["spec"]["template"]["metadata"]["labels"]["berth.dev/pool"] == "mine"
