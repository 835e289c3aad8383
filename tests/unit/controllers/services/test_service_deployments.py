"""A Deployment is brought to its plan: rollouts never wait in vain, counts have one writer, marks are taken back."""

from __future__ import annotations

from typing import Any

import pytest

from berth.api.inferenceservice_parts import Rollout
from berth.api.names import FIELD_MANAGER
from berth.cluster.errors import Conflict
from berth.cluster.kinds import DEPLOYMENTS
from berth.controllers.services.contest import LOSSES
from berth.controllers.services.rollout import IN_VAIN_SECONDS, UNBOUND_SECONDS, YIELD_SECONDS, Space, bounds
from tests.unit.controllers.services.rolling import NAME, Rolling

ROOM, FULL = Space(4), Space(0)
HPA = {"manager": "kube-controller-manager", "subresource": "scale", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
OURS = {"manager": "berth-scale", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
REST = {"manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": {"f:spec": {}}}
STATUS = {"manager": "kubelet", "subresource": "status", "fieldsV1": {"f:status": {}}}


@pytest.mark.parametrize(
    ("rollout", "with_room", "without"),
    [
        ({}, (1, 0), (0, 1)),
        ({"maxSurge": "Auto"}, (1, 0), (0, 1)),
        ({"maxUnavailable": 2}, (1, 2), (0, 2)),
        ({"maxUnavailable": 0}, (1, 0), (0, 1)),
        ({"maxSurge": 1}, (1, 0), (1, 1)),
        ({"maxSurge": "25%"}, ("25%", 0), ("25%", 1)),
        ({"maxSurge": 0}, (0, 1), (0, 1)),
        ({"maxSurge": "0%", "maxUnavailable": "0%"}, ("0%", 1), ("0%", 1)),
        ({"maxSurge": 2, "maxUnavailable": 0}, (2, 0), (2, 0)),
    ],
)
def test_bounds_of_a_rollout(rollout: dict[str, Any], with_room: Any, without: Any) -> None:
    stated = Rollout.model_validate(rollout)
    assert (bounds(stated, surge=True), bounds(stated, surge=False)) == (with_room, without)


def test_bounds_of_a_rollout_that_nothing_is_said_of() -> None:
    assert (bounds(None, surge=True), bounds(None, surge=False)) == ((1, 0), (0, 1))


async def rolling(rollout: dict[str, Any] | None = None, space: Space = ROOM) -> Rolling:
    """A rollout that has begun with ``space``: one new pod of two, for which there is no node yet."""
    world = Rolling(**({"rollout": rollout} if rollout else {}))
    await world.found(2, space.free)
    world.now += 10
    world.respec(slo={"latency": "60s"}, **({"rollout": rollout} if rollout else {}))
    await world.look(world.plan(2), space)
    world.settle(replicas=3, updatedReplicas=1)
    world.pod("old-0")
    world.pod("old-1")
    return world


@pytest.mark.parametrize(
    ("rollout", "space", "age", "expected"),
    [
        (None, FULL, UNBOUND_SECONDS - 5, (1, 0)),
        (None, FULL, UNBOUND_SECONDS + 5, (0, 1)),
        (None, ROOM, UNBOUND_SECONDS + 5, (1, 0)),
        (None, ROOM, IN_VAIN_SECONDS + 5, (0, 1)),
        (None, Space(0, 240.0), UNBOUND_SECONDS + 5, (1, 0)),
        (None, Space(0, 240.0), UNBOUND_SECONDS + 245, (0, 1)),
        ({"maxSurge": 1}, FULL, UNBOUND_SECONDS + 5, (1, 1)),
        ({"maxSurge": 1, "maxUnavailable": 0}, FULL, UNBOUND_SECONDS + 5, (1, 0)),
    ],
    ids=["soon", "room is gone", "room is there", "in vain", "a node joins", "no node joined", "the user's surge",
         "the user's wish"],
)  # fmt: skip
async def test_a_successor_that_gets_no_place_lets_its_predecessor_go(
    rollout: dict[str, Any] | None, space: Space, age: float, expected: tuple[int, int]
) -> None:
    world = await rolling(rollout)
    world.pod("new", node="", age=age)
    await world.look(world.plan(2), space)
    assert world.strategy() == expected
    writes = len(world.server.applied)
    world.settle(replicas=3, updatedReplicas=1)
    await world.look(world.plan(2), space)
    assert len(world.server.applied) == writes, "the same again is no write"


STRICT = {"maxSurge": 1, "maxUnavailable": 0}


@pytest.mark.parametrize(
    ("space", "age", "ready", "expected"),
    [
        (FULL, YIELD_SECONDS + 5, 2, (1, 1)),
        (ROOM, YIELD_SECONDS + 5, 2, (1, 1)),
        (FULL, YIELD_SECONDS + 5, 1, (1, 0)),
        (Space(0, 240.0), YIELD_SECONDS + 235, 2, (1, 0)),
    ],
    ids=["in vain", "though devices are free", "not the only one that serves", "a node may join"],
)
async def test_a_rollout_that_may_miss_none_yields_in_the_end(
    space: Space, age: float, ready: int, expected: tuple[int, int]
) -> None:
    world = await rolling(STRICT)
    world.settle(replicas=3, updatedReplicas=1, readyReplicas=ready)
    world.pod("new", node="", age=age)
    await world.look(world.plan(2), space)
    assert world.strategy() == expected
    assert ("though rollout.maxUnavailable is 0" in world.deployments.yielded(world.view)) == (expected == (1, 1))


async def test_a_rollout_that_has_yielded_does_so_to_its_end_and_the_next_one_waits_anew() -> None:
    world = await rolling(STRICT)
    world.pod("new", node="", age=YIELD_SECONDS + 5)
    await world.look(world.plan(2), FULL)
    world.pod("new")  # it has got the place of its predecessor
    world.settle(replicas=3, updatedReplicas=2)
    await world.look(world.plan(2), FULL)
    assert world.strategy() == (1, 1)
    world.settle()
    await world.look(world.plan(2), FULL)
    assert world.strategy() == (1, 0)
    assert world.deployments.yielded(world.view) == ""


async def test_the_form_of_a_rollout_does_not_follow_the_room() -> None:
    world = await rolling(space=FULL)
    writes = len(world.server.applied)
    for space in (ROOM, FULL, ROOM):
        await world.look(world.plan(2), space)
    assert len(world.server.applied) == writes
    assert world.strategy() == (0, 1)


async def test_replicas_that_wait_without_a_rollout_change_nothing() -> None:
    world = Rolling()
    await world.found(2, free=4)
    world.pod("p", node="", age=1000)
    writes = len(world.server.applied)
    await world.look(world.plan(2), FULL)
    assert len(world.server.applied) == writes


async def test_a_new_template_leaves_the_count() -> None:
    world = await rolling()
    assert world.known.spec.replicas == 2
    assert "replicas" not in world.server.applied[-1]["spec"]


@pytest.mark.parametrize("count", [1, 5])
async def test_counts_are_never_written_to_another_deployment_of_the_name(count: int) -> None:
    world = Rolling()
    await world.found(3)
    world.server.objects["Deployment", NAME]["metadata"]["uid"] = "another"
    with pytest.raises(Conflict):
        await world.look(world.plan(count))


@pytest.mark.parametrize(("count", "refused"), [(1, True), (5, False)])
async def test_a_decrease_meets_only_what_it_was_decided_about(count: int, refused: bool) -> None:
    world = Rolling()
    await world.found(3)
    world.server.put(DEPLOYMENTS, NAME, {"status": {"readyReplicas": 2}})  # the cache has not heard of it
    if refused:
        with pytest.raises(Conflict):
            await world.look(world.plan(count))
    else:
        await world.look(world.plan(count))
        assert world.known.spec.replicas == count


@pytest.mark.parametrize("superseded", [1, 5])
async def test_a_superseded_plan_moves_no_count(superseded: int) -> None:
    world = Rolling()
    await world.found(3)
    old = world.plan(superseded)
    world.plan(3)
    await world.look(old)
    assert world.known.spec.replicas == 3


async def test_a_survivor_is_spared_the_next_time() -> None:
    world = Rolling()
    await world.found(3)
    for name in ("a", "b", "c"):
        world.pod(name)
    await world.look(world.plan(2, "a"))
    assert world.server.patched == [("a", "-1000")]
    world.pod("a", marked=True)
    world.settle(replicas=3)
    await world.look(world.plan(2))
    assert len(world.server.patched) == 1, "the decrease is not through"
    world.settle()
    await world.look(world.plan(2))
    assert world.server.patched[1:] == [("a", None)], "another one has gone"


async def test_whoever_is_to_go_now_keeps_the_mark() -> None:
    world = Rolling()
    await world.found(3)
    world.pod("a", marked=True)
    world.pod("b", marked=True)
    await world.look(world.plan(2, "b"))
    assert world.server.patched == [("a", None), ("b", "-1000")]


async def test_a_count_that_others_set_again_and_again_is_left_and_told_about() -> None:
    world = Rolling()
    world.server.managers = [HPA, OURS, REST, STATUS]
    await world.found(3)
    plan = world.plan(2)
    for _ in range(LOSSES):
        await world.look(plan)
        assert world.known.spec.replicas == 2
        world.settle()
        assert not world.deployments.contested(world.view)
        world.scaled_by_others(3)
        world.settle()
        world.now += 15
    writes = len(world.server.applied)
    for _ in range(10):
        await world.look(plan)
        world.now += 15
    assert len(world.server.applied) == writes, "no fight"
    words = world.deployments.contested(world.view)
    assert "kube-controller-manager (through scale)" in words
    assert "berth" not in words.replace("berth.dev", "")
    await world.look(world.plan(4))
    assert world.known.spec.replicas == 4, "too few replicas are worse than a fight now and then"
    world.now += 7200
    await world.look(world.plan(4))
    assert not world.deployments.contested(world.view)


async def test_a_count_set_by_hand_is_corrected() -> None:
    world = Rolling()
    await world.found(3)
    await world.look(world.plan(2))
    world.scaled_by_others(9)
    await world.look(world.plan(2))
    assert world.known.spec.replicas == 2
    assert not world.deployments.contested(world.view)


@pytest.mark.parametrize(
    ("edit", "budget"),
    [({"scaling": {"minReplicas": 2}}, True), ({"replicas": 3}, True), ({"slo": {"latency": "90s"}}, False)],
)
def test_a_budget_outlasts_edits_that_reach_no_template(edit: Any, budget: bool) -> None:
    world = Rolling()
    world.view.template_changes = False
    world.now += 10
    world.respec(**edit)
    assert world.view.template_changes is not budget
