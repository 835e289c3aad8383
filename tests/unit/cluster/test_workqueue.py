"""The queue keeps each key once, hands it to one worker, and remembers when to look again."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.cluster.queue import QueueClosed, WorkQueue
from tests.unit.cluster.fakes import FakeClock, settle


@pytest.fixture
def queue(clock: FakeClock) -> WorkQueue[str]:
    return WorkQueue(clock)


async def expect_next(queue: WorkQueue[str], *keys: str) -> None:
    assert [await asyncio.wait_for(queue.get(), 60) for _ in keys] == list(keys)


async def expect_nothing(queue: WorkQueue[str]) -> None:
    waiting = asyncio.create_task(queue.get())
    await settle()
    assert not waiting.done()
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting


async def test_a_key_waits_once(queue: WorkQueue[str]):
    for _ in range(3):
        queue.add("a")
    assert queue.depth == 1
    await expect_next(queue, "a")
    await expect_nothing(queue)


async def test_priority_then_age(queue: WorkQueue[str]):
    for key, priority in (("a", 0), ("b", 5), ("c", 0), ("d", 5)):
        queue.add(key, priority)
    await expect_next(queue, "b", "d", "a", "c")


async def test_priority_can_rise_but_not_fall(queue: WorkQueue[str]):
    for key, priority in (("a", 1), ("b", 2), ("a", 3), ("b", 0)):
        queue.add(key, priority)
    await expect_next(queue, "a", "b")
    await expect_nothing(queue)


async def test_one_worker_for_a_key(queue: WorkQueue[str]):
    """nolar/kopf#1178: what changes while it is worked on is looked at again, afterwards."""
    queue.add("a")
    await expect_next(queue, "a")
    queue.add("a")
    queue.add("a", 7)
    queue.add("b", 3)
    await expect_next(queue, "b")
    await expect_nothing(queue)
    queue.done("a")
    await expect_next(queue, "a")
    queue.done("a")
    await expect_nothing(queue)


async def test_later_is_later(queue: WorkQueue[str], clock: FakeClock):
    queue.add_after("b", 20)
    queue.add_after("a", 10)
    assert (queue.depth, queue.planned) == (0, 2)
    await clock.advance(9.9)
    await expect_nothing(queue)
    await clock.advance(0.1)
    await expect_next(queue, "a")
    await clock.advance(10)
    await expect_next(queue, "b")


@pytest.mark.parametrize(("first", "second"), [(10, 30), (30, 10)])
async def test_of_two_plans_the_earlier_counts(queue: WorkQueue[str], clock: FakeClock, first: int, second: int):
    queue.add_after("a", first)
    queue.add_after("a", second)
    await clock.advance(10)
    await expect_next(queue, "a")
    queue.done("a")
    await clock.advance(60)
    await expect_nothing(queue)


async def test_a_look_makes_a_planned_look_void(queue: WorkQueue[str], clock: FakeClock):
    queue.add_after("a", 10)
    queue.add("a")
    await expect_next(queue, "a")
    queue.done("a")
    await clock.advance(60)
    await expect_nothing(queue)


async def test_a_plan_made_while_worked_on_holds(queue: WorkQueue[str], clock: FakeClock):
    queue.add("a")
    await expect_next(queue, "a")
    queue.add_after("a", 10)
    queue.done("a")
    await clock.advance(10)
    await expect_next(queue, "a")


async def test_failures_double_the_wait_until_forgotten(queue: WorkQueue[str], clock: FakeClock):
    delays = []
    for _ in range(20):
        queue.add("a")
        await expect_next(queue, "a")
        delays.append(queue.retry("a"))
        queue.done("a")
        await clock.advance(delays[-1])
        await expect_next(queue, "a")
        queue.done("a")
    assert delays[:4] == [0.005, 0.01, 0.02, 0.04]
    assert delays[-1] == 960
    assert queue.failures("a") == 20
    queue.forget("a")
    assert (queue.failures("a"), queue.retry("a")) == (0, 0.005)


async def test_the_oldest_tells_how_far_behind_we_are(queue: WorkQueue[str], clock: FakeClock):
    assert queue.oldest() == 0
    queue.add("a")
    await clock.advance(5)
    queue.add("b")
    assert queue.oldest() == 5
    await expect_next(queue, "a")
    assert (queue.oldest(), queue.working) == (0, 1)


async def test_workers_share_the_keys(queue: WorkQueue[str]):
    workers = [asyncio.create_task(queue.get()) for _ in range(3)]
    await settle()
    for key in "abc":
        queue.add(key)
    assert sorted(await asyncio.gather(*workers)) == ["a", "b", "c"]


async def test_a_worker_that_was_called_and_cancelled_calls_another(queue: WorkQueue[str]):
    first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    await settle()
    queue.add("a")
    first.cancel()
    assert await asyncio.wait_for(second, 60) == "a"


async def test_closing_sends_everybody_home(queue: WorkQueue[str]):
    workers = [asyncio.create_task(queue.get()) for _ in range(3)]
    await settle()
    queue.add_after("a", 10)
    queue.close()
    for worker in workers:
        with pytest.raises(QueueClosed):
            await worker
    queue.add("a")
    assert (queue.depth, queue.planned) == (0, 0)
    with pytest.raises(QueueClosed):
        await queue.get()


async def test_replaced_plans_do_not_pile_up(queue: WorkQueue[str]):
    for _ in range(10_000):
        queue.add_after("a", 600)
        queue.add("a")
        queue.done(await queue.get())
    assert len(queue._plan) < 200
    assert len(queue._heap) == 0


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["add", "later", "get", "done", "retry", "wait"]), st.sampled_from("abc"), st.integers(0, 3)
    ),
    max_size=60,
)


@settings(max_examples=100, deadline=None)
@given(OPERATIONS)
def test_no_key_is_lost_or_worked_on_twice(operations: list[tuple[str, str, int]]):
    asyncio.run(_keeps_its_promises(operations))


async def _keeps_its_promises(operations: list[tuple[str, str, int]]) -> None:
    clock = FakeClock()
    queue: WorkQueue[str] = WorkQueue(clock)
    owed: set[str] = set()  # asked for and not handed out since
    mine: set[str] = set()
    for operation, key, number in operations:
        match operation:
            case "add":
                queue.add(key, number)
                owed.add(key)
            case "later":
                queue.add_after(key, float(number))
                owed.add(key)
            case "get" if queue.depth:
                got = await queue.get()
                assert got not in mine
                mine.add(got)
                owed.discard(got)
            case "done" if key in mine:
                queue.done(key)
                mine.discard(key)
            case "retry" if key in mine:
                queue.retry(key)
                owed.add(key)
            case "wait":
                await clock.advance(number)
    for key in mine:
        queue.done(key)
    await clock.advance(2000)
    handed = {await queue.get() for _ in range(queue.depth)}
    assert owed <= handed
