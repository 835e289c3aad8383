"""A pod template follows from what the user, the catalogue and Berth say: nodes that come and go roll no replica."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.controllers.services.places import seen_requirements
from berth.controllers.services.plans import deployment_plan, freeze
from berth.controllers.services.view import ServiceView
from berth.fleet.fleet import Fleet
from berth.fleet.records import Growth
from berth.inference.records import Variant
from berth.render.service.deployment import deployment_template, template_hash
from tests.builders.fleet import make_fleet, make_node, make_pool
from tests.builders.services import make_variant
from tests.unit.controllers.services.views import make_view

TYPE, SPOT = "node.kubernetes.io/instance-type", "karpenter.sh/capacity-type"
SMALL, LARGE = {TYPE: "g6.xlarge"}, {TYPE: "g6.48xlarge"}
LABELS = [SMALL, LARGE, {"nvidia.com/gpu.product": "NVIDIA-L4"}, {"nvidia.com/gpu.product": "NVIDIA-L4-SHARED"},
          {"cloud.google.com/gke-accelerator": "nvidia-l4"}, {"example.com/none": "of these"}]  # fmt: skip
"""By which a node may be known to have L4s, and a node that has none."""
NAME = "chat-l4-od-x"


class Running:
    """A service with a Deployment of one variant, which gets every template at once."""

    def __init__(self, fleet: Fleet, *, capacity_type: Any = "OnDemand", zone: str = "") -> None:
        self.fleet, self.view = fleet, make_view()
        paid = {pool.spec.capacity_type: name for name, pool in fleet.pools.items()}
        pool = paid[capacity_type if capacity_type in paid else None]
        self.variant: Variant = make_variant(pool=pool, capacity_type=capacity_type, zone=zone, name=NAME)
        self.template = ""
        self.rolls = 0
        self.look()

    def look(self, view: ServiceView | None = None) -> None:
        """What every look does before anything is applied; ``view``: a fresh one, of another process."""
        if view is not None:
            self.view = view
        live = {NAME: self.template} if self.template else {}
        freeze(self.view, {NAME: 2}, {NAME: self.variant}, live, self.fleet)
        made = template_hash(deployment_plan(self.view, self.variant, self.fleet))
        self.rolls += bool(self.template) and made != self.template
        self.template = made

    def cores(self) -> str | None:
        """What a replica asks for."""
        pod = deployment_template(deployment_plan(self.view, self.variant, self.fleet))["spec"]["template"]["spec"]
        found: str | None = pod["containers"][0]["resources"]["requests"].get("cpu")
        return found

    def respec(self, **spec: Any) -> None:
        """The user changes something."""
        self.view.spec = make_view(**spec).spec


def node(name: str, labels: Mapping[str, str] = SMALL, paid: str = "on-demand") -> Any:
    return make_node(name, pool=None, zone="a", devices=4, labels={**labels, SPOT: paid})


def growing(devices: int = 0, cpu: int = 0, nodes: int = 0) -> Running:
    """In a pool that may grow, and what it says that a node which joins would hold."""
    pool = make_pool("l4", accelerator="L4", roles=("Inference",))
    stated = replace(pool, growth=Growth("Karpenter", "l4", 9, devices, cpu))
    return Running(make_fleet([make_node(f"n{n}", pool="l4", devices=4) for n in range(nodes)], pools=[stated]))


def make_running(**own: Any) -> Running:
    return Running(make_fleet([node("first"), node("spot", paid="spot")], pools=()), **own)


STEPS = st.tuples(
    st.integers(0, 9), st.sampled_from(LABELS), st.sampled_from(["on-demand", "spot", "reserved"]), st.booleans()
)


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=40), st.sampled_from([("OnDemand", ""), ("Spot", "a")]), st.booleans())
def test_a_day_of_nodes_that_come_and_go_changes_no_template(
    steps: list[tuple[int, Mapping[str, str], str, bool]], place: tuple[Any, str], states_pools: bool
) -> None:
    running = make_running(capacity_type=place[0], zone=place[1])
    for number, labels, paid, there in steps:
        name = f"n{number}"
        if there:
            running.fleet.set_node(node(name, labels, paid))
        else:
            running.fleet.remove_node(name)
        if states_pools:
            running.fleet.set_pools([make_pool(f"own-{number}", accelerator="L4")])
        running.look()
    assert running.rolls == 0


def test_what_was_frozen_is_what_a_fresh_process_goes_by() -> None:
    running = make_running()
    running.fleet.set_node(node("later", LARGE))
    fresh = make_view()
    fresh.places, fresh.cpu = dict(running.view.places), dict(running.view.cpu)
    running.look(fresh)
    assert running.rolls == 0


def test_the_users_change_takes_in_what_is_there_by_then() -> None:
    running = make_running()
    before = running.view.places[NAME]
    running.fleet.set_node(node("later", LARGE))
    running.respec(scaling={"minReplicas": 4})
    running.look()
    assert running.rolls == 0, "of nothing that is in the template"
    running.respec(slo={"latency": "60s"})
    running.look()
    assert running.rolls == 1
    assert running.view.places[NAME] != before
    assert running.view.places[NAME] == seen_requirements(
        running.fleet.pools[running.variant.pool], running.variant, running.fleet
    )
    running.look()
    assert running.rolls == 1


def test_labels_that_no_node_has_any_more_are_given_up_at_once() -> None:
    running = make_running()
    running.fleet.set_node(node("first", LARGE))
    running.fleet.set_node(node("spot", LARGE, "spot"))
    running.look()
    assert running.rolls == 1, "no replica could start"


@pytest.mark.parametrize("names", [["first"], ["first", "spot"]])
def test_a_pool_that_is_gone_changes_no_template(names: list[str]) -> None:
    running = make_running()
    for name in names:
        running.fleet.remove_node(name)
    running.look()
    assert running.rolls == 0


@pytest.mark.parametrize(
    ("stated", "nodes", "cores"),
    [((0, 0), 0, None), ((8, 192_000), 0, "16"), ((8, 47_810), 0, "4"), ((4, 8_000), 1, "1"), ((4, 400_000), 1, "16")],
    ids=["nothing known", "as most may have", "as a node gives", "less than those there are", "more than those"],
)
def test_cores_are_asked_for_by_the_nodes_that_there_are_and_by_those_that_would_join(
    stated: tuple[int, int], nodes: int, cores: str | None
) -> None:
    assert growing(*stated, nodes).cores() == cores


def test_cores_are_chosen_when_a_node_is_known_and_nothing_runs_yet() -> None:
    running = growing()
    running.template = ""
    running.fleet.set_node(make_node("n0", pool="l4", devices=4))
    running.look()
    assert running.cores() == "16"
    assert running.rolls == 0


def test_a_node_that_joins_changes_no_running_template() -> None:
    running = growing()
    running.fleet.set_node(make_node("n0", pool="l4", devices=4))
    running.look()
    assert running.rolls == 0


def test_only_what_is_in_use_is_remembered() -> None:
    running = make_running()
    freeze(running.view, {NAME: 0}, {NAME: running.variant}, {}, running.fleet)
    assert running.view.places == {}
