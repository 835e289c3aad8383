"""Whoever listens to a cache: each hears all, none harms another, and indexes agree with what is cached."""

from __future__ import annotations

import time

import pytest

from tests.unit.cluster.caches import changes_of, expect_names, watching
from tests.unit.cluster.fakes import ApiServer, eventually


async def test_a_subscriber_that_fails_stops_nobody(pods: ApiServer, caplog: pytest.LogCaptureFixture):
    async with watching(pods) as cache:
        cache.subscribe(lambda old, new: 1 / 0)
        changes = changes_of(cache)
        pods.add("a")
        await eventually(lambda: changes)
        assert "a subscriber failed on n/a" in caplog.text


async def test_a_slow_subscriber_loses_nothing(pods: ApiServer):
    seen: list[str] = []
    async with watching(pods) as cache:
        await cache.synced.wait()
        cache.subscribe(lambda old, new: (time.sleep(0.001), seen.append(new.metadata.name)))
        for number in range(200):
            pods.add(f"p{number}")
        await eventually(lambda: len(seen) == 200)
        assert seen == [f"p{number}" for number in range(200)]


async def test_a_subscriber_can_leave(pods: ApiServer):
    async with watching(pods) as cache:
        seen: list[object] = []
        leave = cache.subscribe(lambda old, new: seen.append(new))
        leave()
        pods.add("a")
        await expect_names(cache, "a")
        assert seen == []


async def test_an_index_follows_every_change(pods: ApiServer):
    pods.add("a", job="1")
    async with watching(pods) as cache:
        by_job = cache.index(lambda each: each.metadata.labels.get("job"))
        await expect_names(cache, "a")
        pods.add("b", job="1")
        pods.add("c")
        await expect_names(cache, "a", "b", "c")
        assert set(by_job.get("1")) == {("n", "a"), ("n", "b")}
        pods.add("a", job="2")
        pods.delete("b")
        await eventually(lambda: not by_job.get("1"))
        assert (list(by_job.keys()), set(by_job.get("2"))) == (["2"], {("n", "a")})
        late = cache.index(lambda each: each.metadata.labels.get("job"))
        assert dict(late.get("2")) == dict(by_job.get("2"))
