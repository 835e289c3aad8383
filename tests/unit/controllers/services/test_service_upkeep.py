"""A child that was changed by hand is put right, by who holds its fields; nobody is fought over it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from berth.api.names import FIELD_MANAGER
from berth.cluster import wire
from berth.cluster.kinds import DISRUPTION_BUDGETS, SERVICES, Kind
from berth.controllers.services.upkeep import AGAIN_SECONDS, MENDS, WINDOW_SECONDS, Lost, Mends, changed, lost
from tests.unit.controllers.services.rolling import NAME, Rolling
from tests.unit.controllers.services.test_service_children import watched, woken
from tests.unit.controllers.services.test_service_refusals import KEY, Desk, Json

PORTS: Json = {
    "f:selector": {},
    "f:type": {},
    "f:ports": {
        'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}, "f:protocol": {}, "f:name": {}},
        'k:{"port":9}': {},
    },
}
BODY: Json = {
    "spec": {"selector": {"a": "b"}, "type": "ClusterIP", "ports": [{"port": 80, "protocol": "TCP", "name": "http"}]}
}


def held(spec: Json, manager: str = FIELD_MANAGER, operation: str = "Apply") -> tuple[wire.ManagedFields, ...]:
    return (wire.ManagedFields(manager, operation, "", {"f:metadata": {}, "f:spec": spec}),)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        pytest.param(held(PORTS), "", id="all is ours"),
        pytest.param(held({**PORTS, "f:more": {}}), "", id="and more"),
        pytest.param(held({**PORTS, "f:ports": {}}), "", id="a list as a whole"),
        pytest.param(held({key: PORTS[key] for key in ("f:type", "f:ports")}), "spec.selector", id="one was changed"),
        pytest.param(held({**PORTS, "f:ports": {'k:{"port":80,"protocol":"TCP"}': {"f:port": {}, "f:protocol": {}}}}),
                     "spec.ports[0].name", id="one of an item"),
        pytest.param(held({**PORTS, "f:ports": {'k:{"port":81}': {}}}), "spec.ports[0]", id="an item"),
        pytest.param(held(PORTS, "kubectl-edit"), "spec", id="all was taken"),
        pytest.param(held(PORTS, operation="Update"), "spec", id="not applied"),
        pytest.param((), "spec", id="nobody's"),
        pytest.param(held({**PORTS, "f:ports": {'k:{"port":80,"protocol":"TCP","more":"by default"}': {}}}), "",
                     id="a key by default"),
    ],
)  # fmt: skip
def test_a_field_that_others_have_set_is_found(fields: tuple[wire.ManagedFields, ...], field: str) -> None:
    gone = lost(BODY, fields, FIELD_MANAGER)
    assert (gone.field if gone is not None else "") == field


@pytest.mark.parametrize(
    ("spec", "tree", "field"),
    [
        ({"paused": False, "none": None, "env": ""}, {}, ""),
        ({"names": ["a", "b"]}, {"f:names": {'v:"a"': {}, 'v:"b"': {}}}, ""),
        ({"names": ["a", "b"]}, {"f:names": {'v:"a"': {}}}, "spec.names[1]"),
        ({"tolerations": [{"key": "a"}]}, {"f:tolerations": {}}, ""),
    ],
    ids=["what is not stored", "a set", "one of a set", "a list as a whole"],
)
def test_what_a_template_may_state(spec: Json, tree: Json, field: str) -> None:
    gone = lost({"spec": spec}, held({"f:type": {}, **tree}), FIELD_MANAGER)
    assert (gone.field if gone is not None else "") == field


def test_whoever_holds_the_field_is_named_and_nobody_is_accused_of_what_is_not_on_record() -> None:
    fields = (*held({"f:type": {}}, "kubectl-edit"), *held({"f:clusterIP": {}}, "mesh"), *held({"f:selector": {}}))
    meta = wire.WrittenMeta(name="chat", managed_fields=fields)
    ours = (FIELD_MANAGER,)
    said = changed("Service", meta, Lost("spec.type", ("f:spec", "f:type")), ours)
    assert said.startswith("spec.type of Service chat was changed by kubectl-edit and is put right; change the ")
    said = changed("Service", meta, Lost("spec.ports", ("f:spec", "f:ports")), ours)
    assert said.startswith("spec.ports of Service chat was taken out and is put right")


def edited_child(desk: Desk, kind: Kind[Any], field: str, value: Any) -> None:
    """Somebody sets a field of a child, whose labels stay; the operator hears of it."""
    body = desk.server.objects[kind.kind, "chat"]
    desk.server.written.append("by hand")
    body["spec"][field] = value
    body["metadata"]["generation"] = body["metadata"].get("generation", 1) + 1
    body["metadata"]["resourceVersion"] = str(len(desk.server.written) + 10)
    for entry in body["metadata"]["managedFields"]:
        entry["fieldsV1"]["f:spec"].pop(f"f:{field}", None)
    watched(desk, kind)


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        pytest.param(SERVICES, "selector", {"app": "other"}, id="Service"),
        pytest.param(DISRUPTION_BUDGETS, "maxUnavailable", 0, id="PodDisruptionBudget"),
    ],
)
async def test_a_child_that_was_changed_by_hand_is_put_right_at_once_and_then_left(
    kind: Kind[Any], field: str, value: Any
) -> None:
    desk = Desk()
    await desk.look()
    desk.loop.leading = True
    watched(desk, kind)
    await woken(desk)
    before = desk.server.objects[kind.kind, "chat"]["spec"][field]
    edited_child(desk, kind, field, value)
    assert await woken(desk)
    await desk.loop.services.reconcile(KEY)
    assert desk.server.objects[kind.kind, "chat"]["spec"][field] == before
    again = len(desk.server.written)
    watched(desk, kind)
    await woken(desk)
    await desk.loop.services.reconcile(KEY)
    assert kind.kind not in desk.server.written[again:]


async def test_a_program_that_changes_a_child_again_and_again_is_not_fought() -> None:
    desk = Desk()
    await desk.look()
    watched(desk, SERVICES)
    desk.loop.leading = True
    for _ in range(2 * MENDS):
        edited_child(desk, SERVICES, "type", "NodePort")
        await desk.loop.services.reconcile(KEY)
    assert desk.server.written.count("Service") == 1 + MENDS
    assert desk.told.count("ChildChanged") == 1


def test_a_child_is_put_right_ever_again_though_seldom() -> None:
    mends, key = Mends(), ("uid", "Service")
    for at in range(MENDS):
        assert not mends.waits(key, float(at))
        mends.done(key, float(at))
    assert mends.waits(key, MENDS + 0.0)
    assert not mends.waits(key, AGAIN_SECONDS + MENDS)
    at = MENDS - 1.0
    for gap in (AGAIN_SECONDS, 2 * AGAIN_SECONDS, 4 * AGAIN_SECONDS, WINDOW_SECONDS, WINDOW_SECONDS):
        assert mends.waits(key, at + gap - 1)
        at += gap
        assert not mends.waits(key, at)
        mends.done(key, at, "words")
    assert mends.told("uid", at + WINDOW_SECONDS) == "words"
    at += 3 * WINDOW_SECONDS
    assert mends.told("uid", at) == ""
    mends.done(key, at)
    assert not mends.waits(key, at + 1), "who stopped for so long begins anew"
    mends.forget("uid")
    assert not mends.waits(key, MENDS + 0.0)


IMAGE: Json = {"spec": {"containers": [{"name": "server", "image": "example.com/other:2"}]}}


def taken(world: Rolling, field: str, manager: str = "kubectl-edit") -> None:
    """The server's record says that ``manager`` has set ``field`` of the spec, and we the rest."""
    spec = world.server.applied[0]["spec"]
    ours = {f"f:{key}": {} for key in spec if key != field}
    world.server.managers = [
        {"manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": {"f:spec": ours}},
        {"manager": manager, "operation": "Update", "fieldsV1": {"f:spec": {f"f:{field}": {}}}},
    ]


async def test_a_template_that_was_changed_by_hand_is_put_right_without_touching_the_count() -> None:
    world = Rolling()
    await world.found(2)
    before = world.server.objects["Deployment", NAME]["spec"]["template"]
    world.edited(template=IMAGE)
    taken(world, "template")
    await world.look(world.plan(2))
    spec = world.server.objects["Deployment", NAME]["spec"]
    assert (spec["template"], spec["replicas"]) == (before, 2)
    assert "replicas" not in world.server.applied[-1]["spec"]


async def test_nothing_is_asked_of_a_template_that_only_we_have_written() -> None:
    world = Rolling()
    await world.found(2)
    for count in (3, 5, 5, 2):
        await world.look(world.plan(count))
        world.settle()
    world.respec(slo={"latency": "60s"})
    await world.look(world.plan(2))
    world.settle()
    await world.look(world.plan(2))
    assert world.server.finds == 0
    world.edited(minReadySeconds=5)
    taken(world, "minReadySeconds")
    writes = len(world.server.applied)
    for count in (2, 3, 3):
        await world.look(world.plan(count))
    assert (world.server.finds, len(world.server.applied)) == (1, writes + 1), "nor again of what is not ours"


async def test_a_rollout_that_was_paused_by_hand_goes_on() -> None:
    world = Rolling()
    await world.found(2)
    world.edited(paused=True)
    taken(world, "minReadySeconds")
    await world.look(world.plan(2))
    assert world.server.objects["Deployment", NAME]["spec"]["paused"] is False


async def test_a_program_that_changes_a_template_again_and_again_is_not_fought() -> None:
    world = Rolling()
    await world.found(2)
    writes = len(world.server.applied)
    taken(world, "template")
    for _ in range(3 * MENDS):
        world.edited(template=IMAGE)
        await world.look(world.plan(2))
        world.now += 15
    templates = [body for body in world.server.applied[writes:] if "template" in body["spec"]]
    assert len(templates) == MENDS
    await world.look(world.plan(4))
    assert world.known.spec.replicas == 4, "while the count goes on"
    world.now += AGAIN_SECONDS
    await world.look(world.plan(4))
    assert world.server.objects["Deployment", NAME]["spec"]["template"] != IMAGE


def test_what_is_read_of_a_child_says_who_has_set_it() -> None:
    body = {"metadata": {"managedFields": [{"manager": "m", "operation": "Apply", "fieldsV1": {"f:spec": {}}}]}}
    (entry,) = SERVICES.written().decode(json.dumps(body).encode()).metadata.managed_fields
    assert (entry.manager, entry.operation, entry.fields_v1) == ("m", "Apply", {"f:spec": {}})
