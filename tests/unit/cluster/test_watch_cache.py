"""The cache through everything that a watch goes through, against a server that really listens."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest
from aiohttp import web

from berth.cluster.errors import Expired, Forbidden, TooManyRequests, Unavailable, Unreachable
from berth.cluster.kinds import PODS
from tests.unit.cluster.caches import changes_of, expect_names, names, pod, watching
from tests.unit.cluster.fakes import ApiServer, FakeClock, eventually, failure, settle


async def test_a_list_in_pages_and_then_changes(pods: ApiServer):
    for number in range(5):
        pods.add(f"p{number}")
    async with watching(pods, page=2, label_selector="a=b") as cache:
        await cache.synced.wait()
        assert len(pods.lists()) == 3
        assert {seen.query["labelSelector"] for seen in pods.seen} == {"a=b"}
        pods.add("p5")
        pods.delete("p0")
        await expect_names(cache, "p1", "p2", "p3", "p4", "p5")
        assert cache.get("p5", "n").metadata.uid == "uid-p5"


async def test_it_is_not_synced_before_the_last_page(pods: ApiServer):
    pods.refuse = failure(503, "ServiceUnavailable")
    async with watching(pods) as cache:
        await eventually(lambda: len(pods.lists()) > 2)
        assert not cache.synced.is_set()
        pods.refuse = None
        await cache.synced.wait()


async def test_a_broken_stream_resumes_without_a_list(pods: ApiServer):
    pods.add("a")
    async with watching(pods) as cache:
        await expect_names(cache, "a")
        await eventually(lambda: pods.streams)
        pods.cut()
        pods.add("b")
        await expect_names(cache, "a", "b")
    assert len(pods.lists()) == 1


async def test_bookmarks_move_the_point_to_resume_from(pods: ApiServer):
    async with watching(pods) as cache:
        changes = changes_of(cache)
        await cache.synced.wait()
        pods.version = 99
        pods.bookmark()
        await eventually(lambda: cache.version == 99)
        pods.cut()
        await eventually(lambda: len(pods.watches()) == 2)
        assert pods.watches()[1].query["resourceVersion"] == "99"
        assert changes == []


async def test_deletions_that_nobody_watched_are_found(pods: ApiServer):
    """dotnet-operator-sdk#675, NVSentinel#1542, kopf: no phantoms after an expired watch."""
    for name in ("a", "b", "c"):
        pods.add(name)
    async with watching(pods) as cache:
        await expect_names(cache, "a", "b", "c")
        changes = changes_of(cache)
        await eventually(lambda: pods.streams)
        pods.cut()
        pods.delete("a")
        pods.delete("c")
        pods.forget()
        await expect_names(cache, "b")
        assert sorted(changes) == [("uid-a", None), ("uid-c", None)]


async def test_listing_again_without_news_is_silent(pods: ApiServer):
    """zalando-incubator/kopf#223, #241: a re-list is a normal input."""
    pods.add("a")
    async with watching(pods) as cache:
        await expect_names(cache, "a")
        changes = changes_of(cache)
        await eventually(lambda: pods.streams)
        pods.version += 5
        pods.forget()
        pods.cut()
        await eventually(lambda: cache.relists == 2)
        assert changes == []


async def test_a_storm_of_expiries_backs_off(pods: ApiServer):
    pods.add("a")
    pods.expire = True
    clock = FakeClock(hasty=True)
    async with watching(pods, clock) as cache:
        await eventually(lambda: len(clock.slept) >= 12)
        assert isinstance(cache.last_error, Expired)
        assert all(0.25 <= wait <= 30 for wait in clock.slept)
        assert max(clock.slept) >= 15
        pods.expire = False
        pods.add("b")
        await expect_names(cache, "a", "b")
        pods.bookmark()
        await eventually(lambda: cache.last_error is None)


async def test_a_page_token_that_expires_leads_to_one_whole_list(pods: ApiServer):
    for number in range(4):
        pods.add(f"p{number}")
    whole = pods.answer

    async def aged(request: aiohttp.web.Request) -> aiohttp.web.StreamResponse:
        return await (failure(410, "Expired")(request) if "continue" in request.query else whole(request))

    pods.answer = aged  # type: ignore[method-assign]
    async with watching(pods, page=2) as cache:
        await expect_names(cache, "p0", "p1", "p2", "p3")
        assert cache.synced.is_set()
    assert [seen.query.get("limit") for seen in pods.lists()] == ["2", "2", None]


async def test_a_silent_connection_is_replaced(pods: ApiServer):
    """nolar/kopf#955, #698, kubernetes-client/python#801: TCP that died without saying so."""
    pods.add("a")
    pods.silent = True
    async with watching(pods, silence=0.1) as cache:
        await cache.synced.wait()
        pods.add("b")
        await eventually(lambda: len(pods.watches()) >= 3)
        assert isinstance(cache.last_error, Unreachable)
        pods.silent = False
        await expect_names(cache, "a", "b")
    assert len(pods.lists()) == 1


async def test_a_refresh_shows_what_is_now_even_through_a_dead_connection(pods: ApiServer):
    """Stale state after a takeover: a watch that died in silence shows what was."""
    pods.add("a")
    pods.silent = True
    async with watching(pods) as cache:
        await expect_names(cache, "a")
        await eventually(lambda: pods.streams)
        pods.add("b")
        pods.delete("a")
        assert names(cache) == {"a"}
        await cache.refresh()
        assert names(cache) == {"b"}
        pods.silent = False
        pods.add("c")
        await expect_names(cache, "b", "c")
        await asyncio.gather(cache.refresh(), cache.refresh())


async def test_a_refresh_waits_for_the_server(pods: ApiServer):
    async with watching(pods) as cache:
        await cache.synced.wait()
        pods.refuse = failure(503, "ServiceUnavailable")
        refresh = asyncio.create_task(cache.refresh())
        await eventually(lambda: isinstance(cache.last_error, Unavailable))
        assert not refresh.done()
        pods.refuse = None
        await refresh


async def test_a_refresh_does_not_wait_out_the_back_off_of_an_error_that_is_over(pods: ApiServer, clock: FakeClock):
    pods.refuse = failure(503, "ServiceUnavailable", Retry_After="900")
    async with watching(pods, clock) as cache:
        await eventually(lambda: clock.slept)
        pods.refuse = None
        async with asyncio.timeout(60):
            await cache.refresh()
        assert clock.slept == [900.0]


async def test_a_refresh_that_comes_just_when_a_turn_has_failed_is_not_slept_over(
    pods: ApiServer, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    async with watching(pods, clock) as cache:
        await eventually(lambda: pods.streams)
        wait_after, refreshes = cache._wait_after, []

        def then_refresh(*args):
            if not refreshes:
                refreshes.append(cache.refresh())
                refreshes[0].send(None)  # as far as it goes before it waits
            return wait_after(*args)

        monkeypatch.setattr(cache, "_wait_after", then_refresh)
        pods.forget()
        pods.cut()
        await eventually(lambda: len(pods.lists()) == 2)
        assert clock.slept == []
        refreshes[0].close()


async def test_while_a_refresh_waits_a_failing_server_is_asked_every_second(pods: ApiServer):
    clock = FakeClock(hasty=True)
    async with watching(pods, clock) as cache:
        await cache.synced.wait()
        pods.refuse = failure(500, "InternalError")
        pods.cut()
        await eventually(lambda: max(clock.slept, default=0) > 10)
        before = len(clock.slept)
        refresh = asyncio.create_task(cache.refresh())
        await eventually(lambda: len(clock.slept) > before + 12)
        assert max(clock.slept[before + 1 :]) <= 1.0
        pods.refuse = None
        await refresh


async def test_a_list_that_never_gets_past_its_first_page_looks_stale(pods: ApiServer):
    for name in "abcd":
        pods.add(name)
    clock = FakeClock(hasty=True)
    async with watching(pods, clock, page=2) as cache:
        await cache.synced.wait()
        whole = pods.answer

        async def broken(request: web.Request) -> web.StreamResponse:
            return await (failure(500, "InternalError")(request) if "continue" in request.query else whole(request))

        pods.answer = broken
        refresh = asyncio.create_task(cache.refresh())
        await eventually(lambda: cache.staleness() > 60)
        pods.answer = whole
        await refresh
        assert cache.staleness() < 60


async def test_a_refresh_whose_cancellation_is_swallowed_is_answered_at_the_next_event(pods: ApiServer):
    async with watching(pods) as cache:
        await eventually(lambda: pods.streams)
        cache._turn = None  # nothing that a cancellation could reach
        refresh = asyncio.create_task(cache.refresh())
        await settle()
        assert not refresh.done()
        pods.bookmark()
        async with asyncio.timeout(60):
            await refresh
        assert len(pods.lists()) == 2


async def test_only_a_list_that_began_after_the_call_answers_a_refresh(pods: ApiServer):
    async with watching(pods) as cache:
        await cache.synced.wait()
        lists = len(pods.lists())
        first, second = asyncio.create_task(cache.refresh()), asyncio.create_task(cache.refresh())
        await asyncio.gather(first, second)
        pods.add("late")
        await cache.refresh()
        assert names(cache) == {"late"}
        assert len(pods.lists()) >= lists + 2


@pytest.mark.parametrize(
    ("refusal", "kind"),
    [
        (failure(403, "Forbidden"), Forbidden),
        (failure(500, "InternalError"), Unavailable),
        (failure(429, "TooManyRequests", Retry_After="9"), TooManyRequests),
    ],
)
async def test_no_answer_of_the_server_is_fatal(pods: ApiServer, refusal, kind):
    """nolar/kopf#1131, #787, #1276: visible in last_error and staleness, and over when the server is back."""
    clock = FakeClock(hasty=True)
    pods.add("a")
    async with watching(pods, clock) as cache:
        await expect_names(cache, "a")
        await eventually(lambda: pods.streams)
        pods.refuse = refusal
        pods.cut()
        await eventually(lambda: isinstance(cache.last_error, kind))
        await eventually(lambda: cache.staleness() > 60)
        pods.refuse = None
        pods.add("b")
        await expect_names(cache, "a", "b")
        assert (cache.last_error, cache.staleness() < 60) == (None, True)


async def test_retry_after_is_honoured(pods: ApiServer):
    clock = FakeClock(hasty=True)
    pods.refuse = failure(429, "TooManyRequests", Retry_After="40")
    async with watching(pods, clock):
        await eventually(lambda: clock.slept.count(40.0) >= 2)


async def test_a_line_of_any_length_is_read(pods: ApiServer):
    """zalando-incubator/kopf#275: one object of 1.5 MB, larger than any buffer of the stream."""
    async with watching(pods) as cache:
        await cache.synced.wait()
        pods.add("big", filler="x" * 1_500_000)
        pods.add("small")
        await expect_names(cache, "big", "small")
        assert len(cache.get("big", "n").metadata.labels["filler"]) == 1_500_000


async def test_another_object_of_the_same_name(pods: ApiServer):
    """rabbitmq/cluster-operator#648: a namesake is a removal and an addition, whether watched or listed."""
    pods.add("a", uid="first")
    async with watching(pods) as cache:
        await expect_names(cache, "a")
        changes = changes_of(cache)
        await eventually(lambda: pods.streams)
        pods.delete("a")
        pods.add("a", uid="second")
        await eventually(lambda: len(changes) == 2)
        pods.cut()
        pods.delete("a")
        pods.add("a", uid="third")
        pods.forget()
        await eventually(lambda: len(changes) == 4)
        assert changes == [("first", None), (None, "second"), ("second", None), (None, "third")]


async def test_what_we_wrote_is_seen_at_once_and_not_undone(pods: ApiServer):
    old = pods.add("a")
    async with watching(pods) as cache:
        await expect_names(cache, "a")
        changes = changes_of(cache)
        written = pod("a", pods.version + 1)
        assert cache.put(written)
        assert not cache.put(PODS.decode(json.dumps(old).encode()))
        assert cache.get("a", "n") is written
        pods.add("a", changed="yes")
        await eventually(lambda: cache.version == pods.version)
        assert cache.get("a", "n") is written, "the watch brought nothing newer"
        assert len(changes) == 1


async def test_what_was_deleted_since_is_not_put_back(pods: ApiServer):
    pods.add("a")
    late = pod("a", pods.version)
    async with watching(pods) as cache:
        await expect_names(cache, "a")
        pods.delete("a")
        await expect_names(cache)
        assert not cache.put(late)
        assert names(cache) == set()


async def test_what_is_newer_than_a_list_survives_it(pods: ApiServer):
    pods.add("a")
    async with watching(pods) as cache:
        await expect_names(cache, "a")
        await eventually(lambda: pods.streams)
        cache.put(pod("ours", pods.version + 50))
        pods.version += 5
        pods.forget()
        pods.cut()
        await eventually(lambda: cache.relists == 2)
        assert names(cache) == {"a", "ours"}


async def test_a_history_that_went_back_is_noticed(pods: ApiServer):
    """A backup of etcd was restored: newer versions in memory are worth nothing."""
    pods.version = 500
    pods.add("a")
    pods.add("lost")
    async with watching(pods) as cache:
        await expect_names(cache, "a", "lost")
        await eventually(lambda: pods.streams)
        pods.version, pods.history, pods.pods = 50, [], {}
        pods.add("a", restored="yes")
        pods.oldest = 10_000
        pods.cut()
        await eventually(lambda: cache.relists >= 2)
        assert names(cache) == {"a"}
        assert cache.get("a", "n").metadata.labels == {"restored": "yes"}
