"""Children that have lost their owner are taken over; what belongs to somebody else is named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from berth.cluster.kinds import DEPLOYMENTS, SERVICES
from tests.unit.controllers.services.test_service_children import watched, woken
from tests.unit.controllers.services.test_service_refusals import KEY, Desk, Json, accepted

FORMER = {"apiVersion": "berth.dev/v1alpha1", "kind": "InferenceService", "name": "chat", "uid": "of-before",
          "controller": True}  # fmt: skip
OTHER = {"apiVersion": "apps/v1", "kind": "Rollout", "name": "boss", "uid": "of-boss", "controller": True}
NAMESAKE = FORMER | {"apiVersion": "serving.example/v1", "uid": "of-theirs"}
READER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "reader", "uid": "of-reader"}
LOST = [pytest.param([], id="no owner"), pytest.param([FORMER], id="the service before it")]


def hear(desk: Desk) -> None:
    """The operator hears of the Deployment as the server has it."""
    desk.loop.caches.deployments.observe(DEPLOYMENTS.decode(json.dumps(desk.deployment).encode()))


async def left(desk: Desk, owners: list[Json], **spec: Any) -> None:
    """A running service whose children have ``owners``, seen by an operator that knows nothing else of them."""
    await desk.look(**spec)
    for (kind, _), body in desk.server.objects.items():
        if kind != "InferenceService":
            body["metadata"]["ownerReferences"] = owners
    desk.server.written.append("by somebody")
    desk.deployment["metadata"]["resourceVersion"] = str(len(desk.server.written) + 10)
    view = desk.loop.observer.view(KEY)
    assert view is not None
    view.applied.clear()
    view.checked.clear()
    view.plan = None
    hear(desk)


def owners(desk: Desk) -> dict[str, set[str]]:
    return {
        kind: {owner["uid"] for owner in body["metadata"]["ownerReferences"]}
        for (kind, _), body in desk.server.objects.items()
        if kind != "InferenceService"
    }


@pytest.mark.parametrize("before", LOST)
async def test_children_that_lost_their_owner_are_taken_over_with_the_replicas_there_are(before: list[Json]) -> None:
    desk = Desk()
    await left(desk, [*before, READER], replicas=3)
    view = desk.loop.observer.view(KEY)
    assert view is not None
    assert sum(desk.loop.observer.wanted(view).values()) == 3, "they count before the first plan"
    assert accepted(await desk.look(replicas=3))[0] == "Valid"
    assert owners(desk) == {kind: {view.uid, "of-reader"} for kind in ("Service", "PodDisruptionBudget", "Deployment")}
    again = len(desk.server.written)
    hear(desk)
    await desk.loop.services.reconcile(KEY)
    assert set(desk.server.written[again:]) <= {"status"}


@pytest.mark.parametrize(("owner", "named"), [(OTHER, "Rollout boss"), (NAMESAKE, "InferenceService chat")])
async def test_what_another_controller_owns_is_left_alone_and_named(owner: Json, named: str) -> None:
    desk = Desk()
    await left(desk, [owner], replicas=3)
    before = dict(desk.deployment["metadata"])
    reason, message = accepted(await desk.look(replicas=2))
    assert reason == "NameTaken"
    assert f"{named} controls it; rename the service or remove it" in message
    assert desk.deployment["metadata"] == before
    assert desk.deployment["spec"]["replicas"] == 3


async def test_a_name_without_our_labels_is_not_taken_over() -> None:
    desk = Desk()
    await left(desk, [], replicas=1)
    desk.server.objects["Service", "chat"]["metadata"]["labels"] = {"app": "theirs"}
    reason, message = accepted(await desk.look(replicas=1))
    assert reason == "NameTaken"
    assert "Service chat exists" in message
    assert "berth.dev/service-name" in message


async def test_a_child_that_loses_its_owner_is_looked_at() -> None:
    desk = Desk()
    await desk.look()
    desk.loop.leading = True
    cache = watched(desk, SERVICES)
    await woken(desk)
    body = desk.server.objects["Service", "chat"]
    body["metadata"] |= {"ownerReferences": [], "resourceVersion": "999"}
    cache.observe(SERVICES.decode(json.dumps(body).encode()))
    assert await woken(desk)
    await desk.loop.services.reconcile(KEY)
    assert owners(desk)["Service"] == {"uid-of-chat"}
