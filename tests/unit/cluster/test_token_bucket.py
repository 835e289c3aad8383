"""The bucket lets a burst pass, then a rate, and holds still when the server asks."""

from __future__ import annotations

import asyncio

from berth.cluster.ratelimit import TokenBucket
from tests.unit.cluster.fakes import FakeClock


def waits(bucket: TokenBucket, count: int) -> list[float]:
    return [round(bucket.reserve(), 6) for _ in range(count)]


def test_a_burst_and_then_the_rate(clock: FakeClock):
    assert waits(TokenBucket(10, 3, clock), 6) == [0, 0, 0, 0.1, 0.2, 0.3]


def test_tokens_come_back_but_no_more_than_the_burst(clock: FakeClock):
    bucket = TokenBucket(10, 3, clock)
    waits(bucket, 3)
    clock.at += 0.2
    assert waits(bucket, 3) == [0, 0, 0.1]
    clock.at += 3600
    assert waits(bucket, 4) == [0, 0, 0, 0.1]


def test_a_hold_delays_everybody_and_saves_nothing_up(clock: FakeClock):
    bucket = TokenBucket(10, 2, clock)
    waits(bucket, 2)
    bucket.hold(5)
    bucket.hold(3)
    assert waits(bucket, 1) == [5.1]
    clock.at += 5
    assert waits(bucket, 1) == [0.2]


def test_looking_takes_nothing(clock: FakeClock):
    bucket = TokenBucket(1, 1, clock)
    assert [bucket.ready(), bucket.ready(), bucket.reserve()] == [0, 0, 0]
    assert bucket.ready() == 1


def test_some_may_be_left_to_others(clock: FakeClock):
    bucket = TokenBucket(10, 3, clock)
    bucket.reserve()
    assert [round(bucket.ready(count), 6) for count in (1, 2, 3)] == [0, 0, 0.1]


def test_without_a_rate_only_a_hold_counts(clock: FakeClock):
    bucket = TokenBucket(0, 1, clock)
    assert waits(bucket, 100) == [0] * 100
    bucket.hold(2)
    assert (bucket.reserve(), bucket.ready()) == (2, 2)


async def test_takers_are_served_in_order(clock: FakeClock):
    bucket, served = TokenBucket(1, 1, clock), list[int]()

    async def take(number: int) -> None:
        await bucket.take()
        served.append(number)

    tasks = [asyncio.create_task(take(number)) for number in range(4)]
    await clock.advance(2)
    assert served == [0, 1, 2]
    await clock.advance(1)
    await asyncio.gather(*tasks)
    assert served == [0, 1, 2, 3]
