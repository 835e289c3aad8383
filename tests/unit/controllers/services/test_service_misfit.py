"""A template that fits no node is told where people look, and other pools are used where it fits."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders.fleet import make_node
from tests.unit.controllers.services.test_service_former import placed, running
from tests.unit.controllers.services.test_service_refusals import KEY, Desk

HUGE = {"containers": [{"name": "server", "resources": {"requests": {"memory": "1Ei"}}}]}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (HUGE, "asks for at least 8Pi of memory (spec.template.spec: resources)"),
        ({"nodeSelector": {"disk": "nvme"}}, "disk In nvme"),
    ],
    ids=["resources", "nodeSelector"],
)
async def test_a_template_that_fits_no_node_is_told(spec: dict[str, Any], words: str) -> None:
    desk = Desk()
    status = await desk.look(template={"spec": spec})
    assert placed(status)[:2] == ("False", "TemplateFitsNoNode")
    assert words in placed(status)[2]
    assert "L4 in pool l4: " in status["message"]
    assert status["message"].startswith("The template fits no node")
    (limited,) = (entry for entry in status["conditions"] if entry["type"] == "CapacityAvailable")
    assert words in limited["message"]
    status = await desk.look(replicas=1)
    assert placed(status)[:2] == ("True", "VariantsChosen")
    assert "fits no node" not in status["message"]


async def test_a_running_service_whose_new_template_fits_no_node_runs_on() -> None:
    desk = await running()
    desk.loop.observer.caches.deployments.observe(await desk.read_deployment())
    template = desk.deployment["spec"]["template"]
    status = await desk.look(replicas=4, template={"spec": {"nodeSelector": {"disk": "nvme"}}})
    assert placed(status)[:2] == ("False", "TemplateFitsNoNode")
    assert (desk.deployment["spec"]["replicas"], desk.deployment["spec"]["template"]) == (4, template)
    healed = await desk.look(replicas=4, template={"spec": {"terminationGracePeriodSeconds": 900}})
    assert placed(healed)[:2] == ("True", "VariantsChosen")
    assert desk.deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 900


async def test_what_runs_where_a_new_template_fits_no_node_may_be_used_no_more() -> None:
    desk = await running()
    desk.loop.observer.caches.deployments.observe(await desk.read_deployment())
    desk.user_applies(replicas=4, template={"spec": {"nodeSelector": {"disk": "nvme"}}})
    view = desk.loop.observer.view(KEY)
    assert view is not None
    market = desk.loop.planner._market
    (offer,) = market.offers(view, market.choice(view), desk.loop.observer.wanted(view), lambda name: False)
    assert (offer.room, offer.growth, offer.closed) == (4, 0, True)


async def test_a_template_that_fits_some_nodes_has_their_room_and_the_plan_says_so() -> None:
    desk = Desk()
    desk.fleet.set_node(make_node("fast", pool="l4", devices=4, labels={"disk": "nvme"}))
    status = await desk.look(replicas=6, template={"spec": {"nodeSelector": {"disk": "nvme"}}})
    assert desk.deployment["spec"]["replicas"] == 4
    (limited,) = (entry for entry in status["conditions"] if entry["type"] == "CapacityAvailable")
    assert (limited["status"], limited["reason"]) == ("False", "CapacityLimited")
    assert "2 of at least 6 replicas find no place" in limited["message"]
    assert "L4 in pool l4: 1 of its 2 nodes meets spec.template.spec (nodeSelector, affinity)" in limited["message"]
    pool = desk.fleet.pools["l4"]
    assert [int(pool.free_devices[pool.row[name]]) for name in ("fast", "n-l4")] == [0, 4]
    healed = await desk.look(replicas=6)
    assert desk.deployment["spec"]["replicas"] == 6
    assert "True" in [entry["status"] for entry in healed["conditions"] if entry["type"] == "CapacityAvailable"]
