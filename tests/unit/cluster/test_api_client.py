"""The client against a server that really listens: requests as the API wants them, gates, retries, typed errors."""

import asyncio

import aiohttp
import pytest

from berth.cluster.client import ApiClient
from berth.cluster.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    ClusterError,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    NotLeading,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    Unreachable,
    Unreadable,
)
from berth.cluster.kinds import LEASES, NODES, POD_GROUPS, PODS, TRAINING_JOBS
from berth.cluster.ratelimit import TokenBucket
from berth.cluster.session import Connection
from tests.unit.cluster.fakes import FakeClock, Server, answer, client_of, eventually, failure, hang_up

POD = {"metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "3"}}


def client(server: Server, clock: FakeClock, **settings: object) -> ApiClient:
    return client_of(server.connection, clock, **settings)


async def test_a_dry_run_says_so(server: Server, hasty: FakeClock):
    server.script = [answer(201, POD)]
    made = await client(server, hasty).create(PODS, {"spec": {}}, "n", dry_run=True)
    assert (made.metadata.name, server.seen[0].method, server.seen[0].query) == ("p", "POST", {"dryRun": "All"})
    assert server.seen[0].path == "/api/v1/namespaces/n/pods"


async def test_apply_names_its_manager(server: Server, hasty: FakeClock):
    await client(server, hasty).apply(TRAINING_JOBS, "j", {"status": {}}, "n", manager="berth", subresource="status")
    seen = server.seen[0]
    assert (seen.method, seen.query) == (
        "PATCH",
        {"fieldManager": "berth", "force": "true", "fieldValidation": "Ignore"},
    )
    assert seen.headers["Content-Type"] == "application/apply-patch+yaml"
    assert seen.path.endswith("/namespaces/n/trainingjobs/j/status")


async def test_a_delete_names_what_it_means(server: Server, hasty: FakeClock):
    assert await client(server, hasty).delete(PODS, "p", "n", uid="u", resource_version="3", grace_seconds=0)
    assert server.seen[0].json == {
        "preconditions": {"uid": "u", "resourceVersion": "3"},
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Background",
    }


async def test_deleting_what_is_gone_is_no_failure(server: Server, hasty: FakeClock):
    server.script = [failure(404, "NotFound")]
    assert not await client(server, hasty).delete(PODS, "p", "n", uid="u")


async def test_a_long_list_comes_in_pages(server: Server, hasty: FakeClock):
    server.script = [
        answer(200, {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [POD]}),
        answer(200, {"metadata": {"resourceVersion": "9"}, "items": [POD]}),
    ]
    listing = await client(server, hasty).list(PODS, label_selector="a=b", limit=1)
    assert (len(listing.items), listing.resource_version) == (2, "9")
    assert [seen.query.get("continue") for seen in server.seen] == [None, "more"]
    assert {seen.query["labelSelector"] for seen in server.seen} == {"a=b"}


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (400, "BadRequest", BadRequest),
        (401, "Unauthorized", Unauthorized),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (409, "AlreadyExists", AlreadyExists),
        (409, "Conflict", Conflict),
        (410, "Expired", Expired),
        (410, "Gone", Expired),
        (418, "", ApiError),
        (422, "Invalid", Invalid),
        (429, "TooManyRequests", TooManyRequests),
        (503, "ServiceUnavailable", Unavailable),
    ],
)
async def test_failures_have_types(server: Server, hasty: FakeClock, status: int, reason: str, kind: type[ApiError]):
    server.script = [failure(status, reason, "the server's words")]
    with pytest.raises(ClusterError) as caught:
        await client(server, hasty).get(NODES, "x")
    assert type(caught.value) is kind
    assert caught.value.message == "the server's words"


async def test_causes_name_the_fields(server: Server, hasty: FakeClock):
    causes = [{"reason": "FieldValueInvalid", "message": "must be positive", "field": "spec.workers"}]
    server.script = [answer(422, {"kind": "Status", "reason": "Invalid", "details": {"causes": causes}})]
    with pytest.raises(Invalid) as caught:
        await client(server, hasty).create(TRAINING_JOBS, {}, "n")
    assert caught.value.causes[0].field == "spec.workers"


async def test_a_create_in_a_dying_namespace_is_told_apart(server: Server, hasty: FakeClock):
    details = {
        "causes": [{"reason": "NamespaceTerminating", "message": "being deleted", "field": "metadata.namespace"}]
    }
    server.script = [answer(403, {"kind": "Status", "reason": "Forbidden", "details": details})]
    with pytest.raises(Forbidden) as caught:
        await client(server, hasty).create(PODS, {}, "n")
    assert caught.value.caused_by("NamespaceTerminating")


async def test_a_page_of_a_proxy_becomes_the_message(server: Server, hasty: FakeClock):
    async def page(_: aiohttp.web.Request) -> aiohttp.web.Response:
        return aiohttp.web.Response(status=502, text="<h1>bad gateway</h1>")

    server.script = [page]
    with pytest.raises(Unavailable, match="bad gateway"):
        await client(server, hasty, attempts=1).get(NODES, "x")


async def test_an_answer_that_is_no_object_is_unreadable(server: Server, hasty: FakeClock):
    server.script = [answer(200, ["surprise"])]
    with pytest.raises(Unreadable):
        await client(server, hasty).get(NODES, "x")


async def test_a_read_survives_a_bad_moment(server: Server, hasty: FakeClock):
    server.script = [hang_up, failure(500, "InternalError"), answer(200, POD)]
    assert (await client(server, hasty).get(PODS, "p", "n")).metadata.name == "p"


async def test_attempts_are_bounded(server: Server, hasty: FakeClock):
    server.script = [failure(503, "ServiceUnavailable")]
    with pytest.raises(Unavailable):
        await client(server, hasty, attempts=3).apply(PODS, "p", {}, "n", manager="berth")
    assert len(server.seen) == 3


@pytest.mark.parametrize("broken", [hang_up, failure(500, "InternalError")])
async def test_a_create_without_an_answer_is_not_repeated(server: Server, hasty: FakeClock, broken):
    server.script = [broken]
    with pytest.raises((Unreachable, Unavailable)):
        await client(server, hasty).create(PODS, {}, "n")
    assert len(server.seen) == 1


async def test_a_create_that_never_left_is_repeated(hasty: FakeClock, unused_tcp_port: int):
    nobody = Connection(f"http://127.0.0.1:{unused_tcp_port}")
    with pytest.raises(Unreachable) as caught:
        await client_of(nobody, hasty, attempts=3).create(PODS, {}, "n")
    assert caught.value.unsent
    assert len(hasty.slept) == 2
    await nobody.close()


async def test_retry_after_is_honoured(server: Server, hasty: FakeClock):
    """nolar/kopf#963, #1229: a 429 neither kills nor starts a storm."""
    server.script = [failure(429, "TooManyRequests", Retry_After="7"), answer(201, POD)]
    await client(server, hasty).create(PODS, {}, "n")
    assert 7.0 in hasty.slept


async def test_a_refusal_slows_every_caller(server: Server, clock: FakeClock):
    server.script = [failure(429, "TooManyRequests", Retry_After="7"), answer(200, POD)]
    shared = client(server, clock)
    first = asyncio.create_task(shared.get(PODS, "p", "n"))
    await eventually(lambda: clock.slept)
    second = asyncio.create_task(shared.get(PODS, "p", "n"))
    await clock.advance(6.9)
    assert len(server.seen) == 1
    await clock.advance(0.2)
    await asyncio.gather(first, second)


async def test_a_wait_beyond_reason_is_left_to_the_caller(server: Server, hasty: FakeClock):
    server.script = [failure(429, "TooManyRequests", Retry_After="3600")]
    with pytest.raises(TooManyRequests) as caught:
        await client(server, hasty).get(PODS, "p", "n")
    assert caught.value.retry_after == 3600


async def test_requests_wait_for_tokens(server: Server, clock: FakeClock):
    limited = client(server, clock, limiter=TokenBucket(1.0, 2, clock))
    calls = [asyncio.create_task(limited.get(PODS, "p", "n")) for _ in range(4)]
    await eventually(lambda: len(server.seen) == 2)
    assert len(clock.slept) == 2
    await clock.advance(2.0)
    await asyncio.gather(*calls)
    assert clock.slept == [1.0, 2.0]


async def test_requests_in_flight_are_bounded(server: Server, hasty: FakeClock):
    gate = asyncio.Event()

    async def wait(_: aiohttp.web.Request) -> aiohttp.web.Response:
        await gate.wait()
        return aiohttp.web.json_response(POD)

    server.script = [wait]
    narrow = client(server, hasty, in_flight=2)
    calls = [asyncio.create_task(narrow.get(PODS, "p", "n")) for _ in range(5)]
    await eventually(lambda: len(server.seen) == 2)
    gate.set()
    await asyncio.gather(*calls)
    assert len(server.seen) == 5


async def test_the_fence_stops_writes_but_neither_reads_nor_the_lease(server: Server, hasty: FakeClock):
    """nolar/kopf#1266: the gate is at the writer, not at the watcher."""

    def fence() -> None:
        raise NotLeading("no")

    fenced = client(server, hasty, fence=fence)
    for write in (
        fenced.create(PODS, {}, "n"),
        fenced.apply(PODS, "p", {}, "n", manager="berth"),
        fenced.patch(PODS, "p", {}, "n"),
        fenced.update(PODS, "p", {}, "n"),
        fenced.delete(PODS, "p", "n", uid="u"),
    ):
        with pytest.raises(NotLeading):
            await write
    assert server.seen == []
    await fenced.get(PODS, "p", "n")
    await fenced.update(LEASES, "l", {}, "n", urgent=True)


async def test_the_lease_waits_for_nothing(server: Server, clock: FakeClock):
    bucket = TokenBucket(1.0, 1, clock)
    bucket.reserve()
    await client(server, clock, limiter=bucket, in_flight=1).update(LEASES, "l", {}, "n", urgent=True)
    server.script = [failure(503, "ServiceUnavailable")]
    with pytest.raises(Unavailable):
        await client(server, clock).update(LEASES, "l", {}, "n", urgent=True)
    assert clock.slept == []


async def test_a_session_closed_by_somebody_else_is_replaced(server: Server, hasty: FakeClock):
    """nolar/kopf#1031, #1109: kopf closes the shared session when it logs in again or ends."""
    calls = client(server, hasty)
    await calls.get(PODS, "p", "n")
    await server.connection.session().close()
    await calls.create(PODS, {}, "n")


async def test_a_session_closed_under_a_read_is_survived(server: Server, hasty: FakeClock):
    arrived = asyncio.Event()

    async def stall(_: aiohttp.web.Request) -> aiohttp.web.Response:
        arrived.set()
        await asyncio.sleep(60)
        return aiohttp.web.Response()

    server.script = [stall, answer(200, POD)]
    call = asyncio.create_task(client(server, hasty).get(PODS, "p", "n"))
    await arrived.wait()
    await server.connection.session().close()
    assert (await call).metadata.name == "p"


async def test_every_call_is_reported_as_rbac_names_it(server: Server, hasty: FakeClock):
    calls: list[tuple[str, str, str]] = []
    told = client(server, hasty, on_call=lambda verb, resource, outcome, _: calls.append((verb, resource, outcome)))
    await told.apply(TRAINING_JOBS, "j", {}, "n", manager="berth", subresource="status")
    server.script = [failure(404, "NotFound")]
    assert await told.find(NODES, "x") is None
    server.script = [hang_up]
    with pytest.raises(Unreachable):
        await told.create(PODS, {}, "n")
    assert calls == [
        ("patch", "trainingjobs/status", "200"),
        ("get", "nodes", "404"),
        ("create", "pods", "unreachable"),
    ]


async def test_groups_that_users_name_are_no_resource_of_a_report(server: Server, hasty: FakeClock):
    resources: set[str] = set()
    told = client(server, hasty, on_call=lambda verb, resource, outcome, _: resources.add(resource))
    for group in ("a.example.com", "b.example.com"):
        server.script = [failure(404, "NotFound")]
        assert await told.versions(group) == ()
        server.script = [failure(404, "NotFound")]
        assert await told.kinds(group, "v1") == ()
    assert len(resources) == 1


async def test_what_is_not_served_is_not_there(server: Server, hasty: FakeClock):
    server.script = [answer(200, {"resources": [{"name": "podgroups"}, {"name": "podgroups/status"}]})]
    assert await client(server, hasty).serves(POD_GROUPS)
    assert server.seen[0].path == "/apis/scheduling.k8s.io/v1beta1"
    server.script = [failure(404, "NotFound")]
    assert not await client(server, hasty).serves(POD_GROUPS)
