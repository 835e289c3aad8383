"""A running service whose accelerators may be used no more goes on running, and says so."""

from __future__ import annotations

from typing import Any

import pytest

from berth.catalogue.load import load
from berth.controllers.services.former import closed_offers
from berth.controllers.services.plans import pod_facts
from berth.controllers.services.supply import Market
from berth.inference.room import Rooms
from tests.builders.fleet import make_fleet, make_node, make_pool
from tests.unit.controllers.services.test_service_refusals import KEY, MANUAL, Desk, Json
from tests.unit.controllers.services.views import make_view

NO_L4 = [("overlay", "accelerators: {L4: null}")]


async def running(**spec: Any) -> Desk:
    """Four replicas on L4."""
    desk = Desk()
    await desk.look(replicas=4, **spec)
    assert desk.deployment["spec"]["replicas"] == 4
    return desk


def placed(status: Json) -> tuple[str, str, str]:
    (found,) = (entry for entry in status["conditions"] if entry["type"] == "Placed")
    return found["status"], found["reason"], found["message"]


async def without_l4(desk: Desk) -> Json:
    desk.loop.observer.caches.deployments.observe(await desk.read_deployment())
    desk.loop.planner._market._fleet.set_catalogue(load(NO_L4))
    desk.loop.observer.reread()
    return await desk.look(replicas=4)


async def test_what_an_overlay_takes_out_of_the_catalogue_runs_on() -> None:
    desk = await running()
    template = desk.deployment["spec"]["template"]
    status = await without_l4(desk)
    assert placed(status)[:2] == ("False", "NoCandidate")
    assert "L4: not in the catalogue" in placed(status)[2]
    assert "4 running replicas kept" in placed(status)[2]
    assert (desk.deployment["spec"]["replicas"], desk.deployment["spec"]["template"]) == (4, template)
    assert [entry["accelerator"] for entry in status["variants"]] == ["L4"]


@pytest.mark.parametrize("replicas", [0, 2])
async def test_and_is_no_more_than_the_user_asks_for(replicas: int) -> None:
    desk = await running()
    await without_l4(desk)
    await desk.look(replicas=replicas)
    assert desk.deployment["spec"]["replicas"] == replicas


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ({"accelerators": {"types": ["L44"], "perReplica": 1}}, "L44: not in the catalogue"),
        ({"accelerators": {"types": ["H100"], "perReplica": 1}}, "H100: no pool has it"),
        ({"accelerators": {"types": ["L4"], "perReplica": 8}}, "L4"),
        ({"accelerators": {"types": ["L4"]}, "model": {"parameters": "700B"}}, "L4"),
        ({"spot": {"mode": "Only"}}, "L4: no spot nodes"),
    ],
    ids=["a slip of the pen", "another type", "more devices than a node has", "a model too large", "spot only"],
)
async def test_an_edit_that_nothing_can_follow_ends_nothing(edit: Json, words: str) -> None:
    desk = await running()
    desk.loop.observer.caches.deployments.observe(await desk.read_deployment())
    status = await desk.look(replicas=4, **edit)
    assert placed(status)[:2] == ("False", "NoCandidate")
    assert words in placed(status)[2]
    assert desk.deployment["spec"]["replicas"] == 4
    healed = await desk.look(replicas=3, **MANUAL)
    assert placed(healed)[:2] == ("True", "VariantsChosen")
    assert desk.deployment["spec"]["replicas"] == 3


async def test_a_leader_that_comes_later_keeps_them_too() -> None:
    desk = await running()
    await without_l4(desk)
    view = desk.loop.observer.view(KEY)
    assert view is not None
    view.former = {}
    desk.loop.observer.resume(lambda pods: set())
    desk.loop.planner._market.forget(view.uid)
    status = await desk.look(replicas=4)
    assert desk.deployment["spec"]["replicas"] == 4
    assert status["variants"][0]["accelerator"] == "L4"


@pytest.mark.parametrize("spec", [{}, {"slo": {"itl": "20ms"}}], ids=["keeps the promise", "cannot keep it"])
def test_a_leader_that_comes_later_takes_small_devices_for_small(spec: Json) -> None:
    pools = [make_pool("h100", accelerator="H100", roles=("Inference",))]
    fleet = make_fleet([make_node("n", pool="h100", devices=8)], pools=pools)
    view = make_view(**spec)
    view.persisted = {"variants": [{"name": "chat-l4", "accelerator": "L4"}, {"name": "chat-x", "accelerator": "X"}]}
    market = Market(fleet, Rooms(fleet), pod_facts(fleet))
    choice = market.choice(view)
    offers = closed_offers(view, choice, {"chat-l4": 9, "chat-x": 1}, {}, fleet.catalogue)
    small, unknown = (offer.variant.capacity for offer in offers)
    assert 0 < small < 0.2
    assert unknown == 1.0, "as the weakest candidate"
