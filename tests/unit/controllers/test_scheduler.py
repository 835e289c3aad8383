"""The scheduling loop: passes that stop early go on, and what people are told counts what is free now."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from berth.cluster import kinds
from berth.controllers import scheduler as scheduler_module
from berth.training.queue import Waiting
from berth.training.records import Refusal
from tests.builders.fleet import make_claim
from tests.unit.cluster.fakes import eventually
from tests.unit.controllers.harness import JOB, Operator, Server, make_server


def add_job(server: Server, name: str, **spec: Any) -> None:
    body = {**server.objects["trainingjobs", *JOB]["spec"], **spec}
    server.put(kinds.TRAINING_JOBS, {"metadata": {"name": name, "namespace": JOB[0]}, "spec": body})


def want_all(operator: Operator) -> dict[str, str]:
    """Every job waits; uids by name."""
    for view in operator.observer.views.values():
        assert view.request is not None
        operator.scheduler.want(Waiting(view.name, view.uid, 1, view.request))
    return {view.key[1]: view.uid for view in operator.observer.views.values()}


async def test_a_pass_that_stops_early_is_followed_by_others_until_everybody_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduler_module, "searches_per_pass", lambda fleet: 1)
    server = make_server(nodes=2, workers=3)
    for workers in range(4, 9):
        add_job(server, f"of-{workers}", workers=workers)
    add_job(server, "small", workers=1)
    operator = Operator(server)
    uids = want_all(operator)
    loop = asyncio.create_task(operator.scheduler.run())
    try:
        await eventually(lambda: uids["small"] in operator.observer.promises)
    finally:
        loop.cancel()
        with suppress(asyncio.CancelledError):
            await loop
    refused = [operator.scheduler.why(uid).refusal for name, uid in uids.items() if name != "small"]
    assert all(isinstance(refusal, Refusal) and refusal.reason == "TooLarge" for refusal in refused)


async def test_an_explanation_counts_what_is_free_when_it_is_given() -> None:
    server = make_server(nodes=4, workers=4)
    operator = Operator(server)
    operator.fleet.claim([make_claim("guest", "n0", 8)])
    (uid,) = want_all(operator).values()
    operator.scheduler.decide()
    operator.fleet.claim([make_claim("another", "n1", 8)])
    operator.scheduler.decide()
    await server.clock.advance(2)
    operator.scheduler._explain(operator.scheduler._waiting[uid])
    told = operator.scheduler.why(uid)
    assert told.explained
    assert told.refusal is not None
    assert "it has 2" in told.refusal.message
    assert "2 more free nodes" in told.refusal.message


async def test_a_defect_ends_neither_the_loop_nor_the_jobs_beside_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server(nodes=2, workers=1)
    add_job(server, "bad", workers=1)
    operator = Operator(server)
    choose = operator.observer.choose_share

    def choosing(view: Any, placement: Any) -> Any:
        if view.key[1] == "bad":
            raise OverflowError("too large for C")
        return choose(view, placement)

    monkeypatch.setattr(operator.observer, "choose_share", choosing)
    uids = want_all(operator)
    for _ in range(3):
        operator.scheduler.decide()
    assert list(operator.observer.promises) == [uids[JOB[1]]]
    told = operator.scheduler.why(uids["bad"]).refusal
    assert told is not None
    assert told.reason == "InternalError"
    assert caplog.text.count("Traceback") == 1
    assert "trainingjob research/bad: no decision" in caplog.text
    monkeypatch.setattr(scheduler_module, "place", choosing)
    operator.scheduler._explain_guarded(operator.scheduler._waiting[uids["bad"]])
    assert operator.scheduler.why(uids["bad"]).explained


async def test_a_pass_that_fails_as_a_whole_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_module, "AFTER_DEFECT_SECONDS", 0.0)
    operator = Operator(make_server(nodes=2))
    (uid,) = want_all(operator).values()
    decide, failures = operator.scheduler.decide, [RuntimeError("a defect")]

    def failing() -> Any:
        if failures:
            raise failures.pop()
        return decide()

    monkeypatch.setattr(operator.scheduler, "decide", failing)
    loop = asyncio.create_task(operator.scheduler.run())
    try:
        await eventually(lambda: uid in operator.observer.promises)
    finally:
        loop.cancel()
        with suppress(asyncio.CancelledError):
            await loop


async def test_a_job_whose_spec_has_become_unreadable_is_not_decided_on() -> None:
    server = make_server(nodes=2)
    operator = Operator(server)
    (uid,) = want_all(operator).values()
    server.edit(accelerators={"perWorker": 8, "types": ["H9000"]})
    operator.see()
    assert operator.scheduler.decide() == []
    assert uid not in operator.observer.promises


@pytest.mark.parametrize(
    ("spec", "free", "words"),
    [
        ({"workers": 1}, 3, "Behind research/llm in the queue"),
        ({"workers": 1, "topology": {"required": "blok"}}, 3, "blok"),
        ({"workers": 1, "topology": {"required": "blok"}}, 0, "blok"),
        ({"workers": 1, "accelerators": {"perWorker": 16}}, 0, "16"),
        ({"workers": 2}, 1, "it has 1"),
    ],
    ids=["kept for the head", "no such level", "no such level, none free", "too many devices", "short by itself"],
)
async def test_a_job_behind_the_head_is_told_its_own_reason(spec: dict[str, Any], free: int, words: str) -> None:
    server = make_server(nodes=4, workers=4)
    add_job(server, "other", **spec)
    operator = Operator(server)
    operator.fleet.claim([make_claim(f"guest-{number}", f"n{number}", 8) for number in range(4 - free)])
    uids = {}
    for created, view in enumerate(sorted(operator.observer.views.values(), key=lambda view: view.key)):
        assert view.request is not None
        uids[view.key[1]] = view.uid
        operator.scheduler.want(Waiting(view.name, view.uid, 1, view.request, created=float(created)))
    operator.scheduler.decide()
    await server.clock.advance(2)
    operator.scheduler._explain(operator.scheduler._waiting[uids["other"]])
    refusal = operator.scheduler.why(uids["other"]).refusal
    assert refusal is not None
    assert words in refusal.message
    assert ("Behind" in refusal.message) == words.startswith("Behind")


def test_a_pass_waits_longer_the_more_are_refused() -> None:
    waits = [scheduler_module.gather_seconds(refused) for refused in (0, 50, 100, 200, 5000)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (scheduler_module.GATHER_SECONDS, scheduler_module.CROWD_GATHER_SECONDS)
    assert waits[-2] == waits[-1] > waits[1]
