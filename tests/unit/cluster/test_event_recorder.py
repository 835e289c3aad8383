"""Events tell people what happened, at the lowest price, and never get in the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from berth.cluster.bookkeeping import ObjectReference
from berth.cluster.events import EventRecorder, about
from berth.cluster.kinds import TRAINING_JOBS
from berth.cluster.wire import Meta
from tests.unit.cluster.fakes import FakeClock, Server, answer, client_of, eventually, failure

SUPERSEDES = {"Started": {"Accepted", "Placed"}, "Placed": {"Accepted"}}


def job(name: str = "llama", uid: str = "u1") -> ObjectReference:
    return about(TRAINING_JOBS, Meta(name=name, namespace="research", uid=uid))


@pytest.fixture
async def recorder(server: Server, clock: FakeClock) -> AsyncIterator[EventRecorder]:
    client = client_of(server.connection, clock, attempts=1)
    recorder = EventRecorder(client, "berth.dev/operator", "pod-1", supersedes=SUPERSEDES, capacity=50)
    task = asyncio.create_task(recorder.run())
    yield recorder
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def told(server: Server) -> list[tuple[str, str]]:
    """(type, reason) of what was created."""
    return [(seen.json["type"], seen.json["reason"]) for seen in server.seen if seen.method == "POST"]


def series(server: Server) -> list[int]:
    """The counts of what was patched."""
    return [seen.json["series"]["count"] for seen in server.seen if seen.method == "PATCH"]


async def expect_told(server: Server, *expected: tuple[str, str]) -> None:
    await eventually(lambda: len(told(server)) >= len(expected))
    assert told(server) == list(expected)


async def test_an_event_has_what_the_api_asks_for(server: Server, recorder: EventRecorder):
    recorder.warning(job(), "NodeLost", "node gpu-1 is gone", "Restart")
    await eventually(lambda: server.seen)
    assert server.seen[0].path == "/apis/events.k8s.io/v1/namespaces/research/events"
    sent = server.seen[0].json
    assert sent.pop("metadata")["name"].startswith("llama.")
    assert sent == {
        "eventTime": "2026-12-01T10:00:00.000000Z",
        "reportingController": "berth.dev/operator",
        "reportingInstance": "pod-1",
        "action": "Restart",
        "reason": "NodeLost",
        "regarding": {
            "apiVersion": "berth.dev/v1alpha1",
            "kind": "TrainingJob",
            "namespace": "research",
            "name": "llama",
            "uid": "u1",
        },
        "note": "node gpu-1 is gone",
        "type": "Warning",
    }


async def test_a_quick_start_is_one_event(server: Server, clock: FakeClock, recorder: EventRecorder):
    recorder.normal(job(), "Accepted", "fits")
    await clock.advance(1)
    recorder.normal(job(), "Placed", "on h200-ib")
    await clock.advance(2.5)
    recorder.normal(job(), "Started", "64 workers run")
    await clock.advance(10)
    await expect_told(server, ("Normal", "Started"))
    assert (recorder.counts.folded, recorder.counts.written, recorder.pending) == (2, 1, 0)


async def test_what_a_later_event_will_say_is_not_told_before(
    server: Server, clock: FakeClock, recorder: EventRecorder
):
    recorder.normal(job(), "Placed", "on h100")
    recorder.normal(job("other", "u2"), "Placed", "on h100")
    recorder.supersede(job(), "Started")
    await clock.advance(10)
    await expect_told(server, ("Normal", "Placed"))
    assert server.seen[0].json["regarding"]["name"] == "other"
    assert recorder.counts.folded == 1


async def test_a_slow_start_tells_each_step(server: Server, clock: FakeClock, recorder: EventRecorder):
    for reason in ("Accepted", "Placed", "Started"):
        recorder.normal(job(), reason, "")
        await clock.advance(4)
    await expect_told(server, ("Normal", "Accepted"), ("Normal", "Placed"), ("Normal", "Started"))


async def test_only_the_same_object_is_folded(server: Server, clock: FakeClock, recorder: EventRecorder):
    recorder.normal(job(), "Placed", "")
    recorder.normal(job("other", "u2"), "Started", "")
    await clock.advance(4)
    await eventually(lambda: len(told(server)) == 2)
    assert recorder.counts.folded == 0


async def test_a_warning_does_not_wait(server: Server, clock: FakeClock, recorder: EventRecorder):
    recorder.normal(job(), "Placed", "")
    recorder.warning(job(), "WorkerFailed", "rank 3 exited with 1")
    await expect_told(server, ("Warning", "WorkerFailed"))
    await clock.advance(3)
    await expect_told(server, ("Warning", "WorkerFailed"), ("Normal", "Placed"))


async def test_the_same_again_is_a_count(server: Server, clock: FakeClock, recorder: EventRecorder):
    """nolar/kopf#1212, #1258: a reconciler that repeats itself costs one write in five minutes."""
    for _ in range(100):
        recorder.warning(job(), "NodeLost", "node gpu-1 is gone")
        await clock.advance(1)
    assert (told(server), series(server)) == ([("Warning", "NodeLost")], [])
    await clock.advance(300)
    await eventually(lambda: series(server))
    assert series(server) == [100]
    await clock.advance(900)
    assert series(server) == [100]


async def test_a_series_whose_event_is_gone_is_told_anew(server: Server, clock: FakeClock, recorder: EventRecorder):
    recorder.warning(job(), "NodeLost", "")
    await expect_told(server, ("Warning", "NodeLost"))
    recorder.warning(job(), "NodeLost", "")
    server.script = [failure(404, "NotFound"), answer(201)]
    await clock.advance(300)
    await eventually(lambda: len(told(server)) == 2)
    assert server.seen[-1].json["series"]["count"] == 2


async def test_the_same_much_later_is_news(server: Server, clock: FakeClock, recorder: EventRecorder):
    recorder.warning(job(), "NodeLost", "")
    await clock.advance(3600)
    recorder.warning(job(), "NodeLost", "")
    await eventually(lambda: len(told(server)) == 2)


async def test_another_note_is_another_event(server: Server, recorder: EventRecorder):
    recorder.warning(job(), "WorkerFailed", "rank 1")
    recorder.warning(job(), "WorkerFailed", "rank 2")
    await eventually(lambda: len(told(server)) == 2)


async def test_an_object_that_talks_too_much_is_cut_short(server: Server, clock: FakeClock, recorder: EventRecorder):
    for number in range(40):
        recorder.warning(job(), "WorkerFailed", f"rank {number}")
    recorder.warning(job("other", "u2"), "WorkerFailed", "rank 1")
    await eventually(lambda: len(told(server)) == 26)
    assert recorder.counts.dropped == 15


async def test_a_full_queue_drops_and_counts(server: Server, clock: FakeClock, recorder: EventRecorder):
    for number in range(60):
        recorder.normal(job(f"j{number}", f"u{number}"), "Placed", "")
    assert (recorder.pending, recorder.counts.dropped) == (50, 10)


async def test_callers_never_notice_a_failing_server(server: Server, clock: FakeClock, recorder: EventRecorder):
    server.script = [failure(500, "InternalError")]
    recorder.warning(job(), "NodeLost", "")
    await eventually(lambda: len(server.seen) == 1)
    await eventually(lambda: clock.slept)
    await clock.advance(1)
    await eventually(lambda: len(server.seen) == 2)
    server.script = [answer(201)]
    await clock.advance(2)
    await eventually(lambda: recorder.counts.written == 1)


async def test_a_namespace_that_goes_away_takes_its_events_along(server: Server, recorder: EventRecorder):
    server.script = [failure(403, "Forbidden", "being terminated")]
    recorder.warning(job(), "NodeLost", "")
    await eventually(lambda: recorder.counts.failed == 1)
    assert len(server.seen) == 1


async def test_an_answer_that_got_lost_is_not_a_second_event(server: Server, recorder: EventRecorder):
    server.script = [failure(409, "AlreadyExists")]
    recorder.warning(job(), "NodeLost", "")
    await eventually(lambda: recorder.counts.written == 1)


async def test_a_clean_stop_writes_what_is_held(server: Server, clock: FakeClock, recorder: EventRecorder):
    recorder.normal(job(), "Placed", "")
    recorder.warning(job(), "NodeLost", "")
    await eventually(lambda: told(server))
    recorder.warning(job(), "NodeLost", "")
    await recorder.flush()
    assert (sorted(told(server)), series(server)) == ([("Normal", "Placed"), ("Warning", "NodeLost")], [2])
    await clock.advance(600)
    assert len(server.seen) == 3


async def test_a_clean_stop_does_not_wait_for_ever(server: Server, recorder: EventRecorder):
    async def stall(_: object) -> None:
        await asyncio.sleep(60)

    server.script = [stall]
    for number in range(3):
        recorder.normal(job(f"j{number}", f"u{number}"), "Placed", "")
    await recorder.flush(within=0.05)
    assert recorder.counts.dropped == 3


async def test_a_note_is_cut_to_what_the_api_takes(server: Server, recorder: EventRecorder):
    recorder.warning(job(), "Failed", "é" * 2000)
    await eventually(lambda: server.seen)
    assert server.seen[0].json["note"] == "é" * 512


async def test_events_of_cluster_scoped_objects_have_a_home(server: Server, recorder: EventRecorder):
    recorder.warning(ObjectReference(kind="AcceleratorPool", name="h100", uid="p"), "NodesShared", "")
    await eventually(lambda: server.seen)
    assert server.seen[0].path.endswith("/namespaces/default/events")
