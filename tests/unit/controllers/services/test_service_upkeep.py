"""A child that was changed by hand is put right, by who holds its fields; nobody is fought over it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from berth.api.names import FIELD_MANAGER
from berth.cluster import wire
from berth.cluster.kinds import DISRUPTION_BUDGETS, SERVICES, Kind
from berth.controllers.services.upkeep import AGAIN_SECONDS, MENDS, Mends, lost
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
    ],
)  # fmt: skip
def test_a_field_that_others_have_set_is_found(fields: tuple[wire.ManagedFields, ...], field: str) -> None:
    assert lost(BODY, fields, FIELD_MANAGER) == field


def changed(desk: Desk, kind: Kind[Any], field: str, value: Any) -> None:
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
    changed(desk, kind, field, value)
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
        changed(desk, SERVICES, "type", "NodePort")
        await desk.loop.services.reconcile(KEY)
    assert desk.server.written.count("Service") == 1 + MENDS


def test_a_child_is_put_right_ever_again_though_seldom() -> None:
    mends, key = Mends(), ("uid", "Service")
    for at in range(MENDS):
        assert not mends.waits(key, float(at))
        mends.done(key, float(at))
    assert mends.waits(key, MENDS + 0.0)
    assert not mends.waits(key, AGAIN_SECONDS + MENDS)
    mends.forget("uid")
    assert not mends.waits(key, MENDS + 0.0)


def test_what_is_read_of_a_child_says_who_has_set_it() -> None:
    body = {"metadata": {"managedFields": [{"manager": "m", "operation": "Apply", "fieldsV1": {"f:spec": {}}}]}}
    (entry,) = SERVICES.written().decode(json.dumps(body).encode()).metadata.managed_fields
    assert (entry.manager, entry.operation, entry.fields_v1) == ("m", "Apply", {"f:spec": {}})
