"""A template that fits no node of a pool is told by its field, with what would fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from berth.fleet.pool import Pool
from berth.fleet.records import Claim
from berth.inference.access import ANYWHERE, Access
from berth.inference.misfit import misfit
from berth.inference.records import Variant
from berth.inference.room import Rooms
from berth.values import CPU, MEMORY, Requirement, Taint, Toleration
from tests.builders.fleet import GPU, make_fleet, make_node

DISK = Requirement("disk", "In", ("nvme",))
NO = Requirement("no", "Exists")
TAINT = Taint("team", "a", "NoSchedule")


def pool(*nodes: Any) -> Pool:
    return make_fleet(nodes).pools["p"]


def why(found: Pool, *, tolerations: tuple[Toleration, ...] = (), terms: Any = (), **needs: int) -> str:
    rows = np.ones(len(found), bool)
    return misfit(found, rows, {GPU: 1, **needs}, Access(tolerations, terms))


HDD = make_node("a", labels={"disk": "hdd"}, cpu=8)
SSD = make_node("b", labels={"disk": "ssd"}, cpu=16)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        pytest.param({MEMORY: 1 << 60}, ["at least 1Ei of memory", "no node has more than 2Ti", "ask for less"],
                     id="memory"),
        pytest.param({CPU: 17_000}, ["asks for 17 cpu", "more than 16 cpu", "spec.template.spec: resources"], id="cpu"),
        pytest.param({"example.com/fpga": 1}, ["1 example.com/fpga", "no node has any to give"], id="a resource"),
        pytest.param({"terms": ((DISK,),)}, ["disk In nvme", "none of its 2 nodes", "they have hdd, ssd there"],
                     id="a label's value"),
        pytest.param({"terms": ((NO,),)}, ["no Exists", "do not have that label"], id="a label"),
        pytest.param({"terms": ((Requirement("disk", "In", ("hdd",)), Requirement("disk", "In", ("ssd",))),)},
                     ["all at once"], id="two labels"),
        pytest.param({"terms": ((DISK,), (Requirement("disk", "Exists"),))}, [], id="one of two terms"),
        pytest.param({CPU: 16_000}, [], id="one node is enough"),
    ],
)  # fmt: skip
def test_the_field_that_shuts_a_pool_out_is_named(asked: dict[str, Any], words: list[str]) -> None:
    said = why(pool(HDD, SSD), **asked)
    assert bool(said) == bool(words)
    assert all(word in said for word in words), said


@pytest.mark.parametrize(
    ("tolerations", "words"),
    [
        ((), "tainted team, which spec.template.spec.tolerations does not tolerate"),
        ((Toleration("team", "Exists"),), ""),
    ],
)
def test_taints_that_nothing_tolerates_are_named(tolerations: tuple[Toleration, ...], words: str) -> None:
    said = why(pool(make_node("a", taints=[TAINT])), tolerations=tolerations)
    assert words in said
    assert bool(said) == bool(words)


def test_a_place_without_nodes_is_no_matter_of_the_template() -> None:
    found = pool(HDD)
    assert misfit(found, np.zeros(len(found), bool), {MEMORY: 1 << 60}, Access((), ((DISK,),))) == ""


def test_an_answer_about_a_place_lasts_until_its_nodes_or_their_daemons_change() -> None:
    fleet = make_fleet([HDD])
    place, needs = Variant("chat", "H100", "OnDemand", "p", 1, 1.0, 1.0), {GPU: 1, CPU: 8_000}
    rooms = Rooms(fleet)
    assert rooms.misfit(place, needs, ANYWHERE) == ""
    fleet.claim([Claim("pod", "a", {GPU: 8, CPU: 8_000}, "chat", "Inference")])
    assert rooms.misfit(place, needs, ANYWHERE) == "", "what is taken may come free"
    fleet.claim([Claim("daemon", "a", {CPU: 1_000}, "agent", daemon=True)])
    assert "more than 7 cpu beside its daemons" in rooms.misfit(place, needs, ANYWHERE)
    fleet.set_node(SSD)
    assert rooms.misfit(place, needs, ANYWHERE) == ""
