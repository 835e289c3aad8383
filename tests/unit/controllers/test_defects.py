"""What Berth does when it fails itself: on one object, or because it does not lead any more."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from berth.cluster import kinds
from berth.cluster.errors import NotLeading
from berth.controllers.app import App, CannotLead
from tests.builders.services import MODEL
from tests.unit.cluster.fakes import eventually
from tests.unit.controllers.harness import JOB, Json, Server, make_server
from tests.unit.controllers.test_app import going, make_app, sample

CHAT = ("serving", "chat")
PARTS: dict[str, tuple[Callable[[App], Any], tuple[str, str]]] = {
    "job": (lambda app: (app.queue, app.jobs), JOB),
    "service": (lambda app: (app.services.queue, app.services.services), CHAT),
}


def add_service(server: Server, app: App, name: str = "chat") -> None:
    """An InferenceService that the operator sees."""
    spec = {"model": MODEL, "runtime": {"engine": "vLLM"}}
    body = server.put(kinds.INFERENCE_SERVICES, {"metadata": {"name": name, "namespace": "serving"}, "spec": spec})
    app.services.caches.services.observe(kinds.INFERENCE_SERVICES.decode(json.dumps(body).encode()))


def raising(problem: Exception) -> Callable[..., Any]:
    async def reconcile(key: object) -> None:
        raise problem

    return reconcile


def accepted(server: Server, kind: str, key: tuple[str, str]) -> Json:
    found = server.objects[kind, *key].get("status", {}).get("conditions", [])
    return next((entry for entry in found if entry["type"] == "Accepted"), {})


@pytest.mark.parametrize("part", PARTS)
async def test_a_write_refused_for_want_of_the_lease_ends_all_of_the_leader(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def caught_up() -> None:
        """Nothing is listed here."""

    app = make_app(make_server())
    find, key = PARTS[part]
    queue, reconciler = find(app)
    monkeypatch.setattr(app, "_catch_up", caught_up)
    monkeypatch.setattr(reconciler, "reconcile", raising(NotLeading("not ours")))
    queue.add(key)
    with pytest.raises(CannotLead, match="lease was not held"):
        await app.lead()
    assert not app.leading


@pytest.mark.parametrize(("part", "kind"), [("job", "trainingjobs"), ("service", "inferenceservices")])
async def test_a_defect_is_told_in_the_status_and_traced_once(
    part: str, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server()
    app = make_app(server)
    add_service(server, app)
    find, key = PARTS[part]
    queue, reconciler = find(app)
    monkeypatch.setattr(reconciler, "reconcile", raising(TypeError("a defect")))
    queue.add(key)
    async with going((app if part == "job" else app.services)._work()):
        for _ in range(3):
            await server.clock.advance(1)
        await eventually(lambda: accepted(server, kind, key))
    assert (accepted(server, kind, key)["status"], accepted(server, kind, key)["reason"]) == ("False", "InternalError")
    assert "TypeError('a defect')" in accepted(server, kind, key)["message"]
    assert queue.failures(key) > 2
    assert caplog.text.count("Traceback") == 1
    writes = [entry for entry in server.log if entry[1] == f"{kind}/status"]
    assert len(writes) == 1
    assert sample(app, "berth_reconciles_total", controller=kind.removesuffix("s"), outcome="error") == queue.failures(
        key
    )


async def test_a_service_of_which_nothing_can_be_known_stops_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server()
    app = make_app(server)
    for name in ("bad", "chat"):
        add_service(server, app, name)
    planner = app.services.planner
    choice = planner._market.choice

    def choosing(view: Any) -> Any:
        if view.key[1] == "bad":
            raise OverflowError("too large for C")
        return choice(view)

    monkeypatch.setattr(planner._market, "choice", choosing)
    for _ in range(3):
        assert await planner.decide_all() == 1
    plans = {view.key[1]: view.plan for view in app.services.observer.views.values()}
    assert plans["chat"] is not None
    assert plans["bad"] is None
    assert caplog.text.count("Traceback") == 1
    assert app.services.queue.depth >= 1
