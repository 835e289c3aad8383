"""A placement is written to the job that it was made for, and its promise does not outlive a write that cannot be."""

from __future__ import annotations

import pytest

from berth.cluster.errors import ClusterError, Forbidden, Invalid, TooManyRequests, Unavailable, Unreachable
from tests.unit.controllers.harness import JOB, Operator, Server, add_node, make_server, show
from tests.unit.controllers.test_app import going, make_app


async def promised(server: Server) -> Operator:
    """An operator that has decided on a placement and has written nothing of it."""
    operator = Operator(server)
    operator.see()
    await operator.jobs.reconcile(JOB)
    assert operator.scheduler.decide()
    assert operator.observer.promises
    return operator


async def test_an_edit_under_a_placement_is_placed_anew_as_it_was_edited() -> None:
    server = make_server(nodes=4)
    operator = await promised(server)
    server.edit(workers=3)
    await operator.jobs.reconcile(JOB)
    assert "placement" not in server.status()
    assert not operator.observer.promises
    assert not operator.fleet.claims
    await operator.look(2)
    assert sorted(server.pods()) == ["llm-1-0", "llm-1-1", "llm-1-2"]
    assert len(server.status()["placement"]["ranks"].split(",")) == server.status()["workers"] == 3


@pytest.mark.parametrize("decided_again", [False, True])
async def test_an_edit_that_is_seen_before_its_placement_is_recorded_ends_the_promise(decided_again: bool) -> None:
    server = make_server(nodes=4)
    operator = await promised(server)
    if decided_again:
        operator.observer.retract(next(iter(operator.observer.promises)))
        await operator.jobs.reconcile(JOB)  # it waits again
    server.edit(workers=4)
    operator.see()
    if decided_again:
        operator.scheduler.decide()  # the queue does not know of the edit yet
    assert not operator.observer.promises
    assert not operator.fleet.claims
    await operator.look(2)
    assert sorted(server.pods()) == ["llm-1-0", "llm-1-1", "llm-1-2", "llm-1-3"]
    assert len(server.status()["placement"]["ranks"].split(",")) == 4


async def test_a_write_that_came_through_though_nobody_heard_is_taken_up() -> None:
    """Its room must not be given away between the refused second try and the watch that tells of the first."""
    server = make_server(nodes=2)
    operator = await promised(server)
    hear = server.apply

    async def apply_unheard(*args: object, **fields: object) -> None:
        await hear(*args, **fields)  # type: ignore[arg-type]
        raise Unreachable("timed out")

    server.apply = apply_unheard  # type: ignore[method-assign]
    with pytest.raises(Unreachable):
        await operator.jobs.reconcile(JOB)
    server.apply = hear  # type: ignore[method-assign]
    held = set(operator.fleet.claims)
    await operator.jobs.reconcile(JOB)
    assert set(operator.fleet.claims) == held
    assert not operator.observer.promises
    await operator.jobs.reconcile(JOB)
    assert sorted(server.pods()) == ["llm-1-0", "llm-1-1"]
    assert server.status()["attempt"] == 1


@pytest.mark.parametrize(
    ("problem", "kept"),
    [
        (Unavailable(503, "", "no"), True),
        (TooManyRequests(429, "", "later"), True),
        (Unreachable("timed out"), True),
        (Invalid(422, "Invalid", "no"), False),
        (Forbidden(403, "Forbidden", "no"), False),
    ],
    ids=["503", "429", "timeout", "422", "403"],
)
async def test_a_promise_is_kept_where_the_same_write_may_yet_succeed(problem: ClusterError, kept: bool) -> None:
    server = make_server()
    operator = await promised(server)
    server.refuse = lambda verb, plural, name: problem if name == "berth-placement" else None
    with pytest.raises(type(problem)):
        await operator.jobs.reconcile(JOB)
    assert bool(operator.observer.promises) == bool(operator.fleet.claims) == kept
    server.refuse = lambda verb, plural, name: None
    await operator.look(2)
    assert sorted(server.pods()) == ["llm-1-0", "llm-1-1"]


async def test_what_the_status_says_is_told_and_counted_whatever_becomes_of_the_pods() -> None:
    server = make_server()
    operator = Operator(server)
    no_pods = Unavailable(503, "", "no")
    server.refuse = lambda verb, plural, name: no_pods if name.startswith("llm-") else None
    with pytest.raises(Unavailable):
        await operator.look()
    assert operator.told.reasons == ["Placed"]
    server.refuse = lambda verb, plural, name: None
    await operator.look()
    server.bind()
    await operator.look()
    server.change_pod("llm-1-1", phase="Failed", conditions=[])
    server.refuse = lambda verb, plural, name: no_pods if (verb, plural) == ("delete", "pods") else None
    with pytest.raises(Unavailable):
        await operator.look()
    assert operator.told.reasons == ["Placed", "Started", "WorkerFailed", "Restarting"]
    assert operator.metrics.restarts.labels("Failure")._value.get() == 1
    server.refuse = lambda verb, plural, name: None
    await operator.look(2)
    assert operator.told.reasons.count("Restarting") == 1
    assert operator.metrics.restarts.labels("Failure")._value.get() == 1


async def test_a_job_that_was_changed_when_its_time_came_is_looked_at_again() -> None:
    server = make_server(ttlSecondsAfterFinished=60)
    operator = Operator(server)
    await operator.look()
    server.bind()
    await operator.look()
    for name in list(server.pods()):
        server.change_pod(name, phase="Succeeded", conditions=[])
    await operator.look()
    await server.clock.advance(61)
    operator.see()
    server.edit(ttlSecondsAfterFinished=3600)
    await operator.jobs.reconcile(JOB)
    assert ("trainingjobs", *JOB) in server.objects
    assert operator.queue.planned + operator.queue.depth == 1
    await operator.look(2)
    assert ("trainingjobs", *JOB) in server.objects
    await server.clock.advance(3600)
    await operator.look()
    assert ("trainingjobs", *JOB) not in server.objects


async def test_a_placement_refused_for_good_is_tried_with_growing_pauses_and_at_once_when_the_job_changes() -> None:
    server, refused = make_server(), list[float]()
    app = make_app(server)

    def deny(verb: str, plural: str, name: str) -> ClusterError | None:
        if name != "berth-placement":
            return None
        refused.append(server.clock.now())
        return Forbidden(403, "Forbidden", "label team is missing")

    async def pass_time(steps: int) -> None:
        for _ in range(steps):
            await server.clock.advance(0.05)
            if app.scheduler.waiting:
                app.scheduler.decide()

    server.refuse = deny
    app.queue.add(JOB)
    async with going(app._work()):
        await pass_time(400)
        assert 5 < len(refused) < 15
        assert not app.fleet.claims
        server.refuse = lambda verb, plural, name: None
        server.edit(maxStartAttempts=9)
        show(server, app.caches)
        app.queue.add(JOB)
        await pass_time(2)
        assert server.status()["attempt"] == 1
        assert app.queue.failures(JOB) == 0


async def test_a_job_whose_placement_cannot_be_recorded_says_why() -> None:
    server = make_server(nodes=1)
    operator = Operator(server)
    await operator.look()
    await server.clock.advance(10)
    await operator.look()
    server.refuse = lambda verb, plural, name: (
        Forbidden(403, "Forbidden", "label team is missing") if name == "berth-placement" else None
    )
    add_node(server, "n9")
    with pytest.raises(Forbidden):
        await operator.look()
    await server.clock.advance(60)
    with pytest.raises(Forbidden):
        await operator.look()
    (placed,) = (entry for entry in server.status()["conditions"] if entry["type"] == "Placed")
    assert placed["reason"] == "WriteRefused"
    assert "label team is missing" in server.status()["message"]
