"""Demand from a Prometheus server, over real sockets: what its answers mean, and what is made of none."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from berth.devcluster.certs import Authority
from berth.telemetry.answers import FIX
from berth.telemetry.prometheus import (
    CUSTOM_PARALLEL,
    MOST_BYTES,
    Prometheus,
    PrometheusSettings,
    PrometheusSource,
)
from berth.telemetry.readings import Reading, SignalQuery
from tests.unit.cluster.fakes import eventually, settle
from tests.unit.telemetry.asking import (
    ENGINE,
    ERROR,
    NOW,
    RUNNING,
    WAITING,
    Wall,
    asking,
    by_metric,
    poll,
    query,
    refusing,
    series,
    success,
)
from tests.unit.telemetry.passing import Passing, in_process
from tests.unit.telemetry.servers import Heard, serving

GATEWAY = SignalQuery("gateway", "Prometheus", "EnvoyGateway")
CUSTOM = SignalQuery("own", "Prometheus", "Custom", "sum(jobs)")


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({RUNNING: [series(3), series(4, pod="chat-2")], WAITING: [series(2)]}, Reading("Value", 9.0, NOW)),
        ({RUNNING: [series(0)], WAITING: [series(0)]}, Reading("Idle", 0.0, NOW)),
        ({}, Reading("Unknown", None, NOW, f"no series of {RUNNING} or {WAITING}")),
        ({RUNNING: [series(3, pod="other-1")]}, Reading("Unknown", None, NOW, f"no series of {RUNNING} or {WAITING}")),
        ({RUNNING: [series(3, namespace="x")]}, Reading("Unknown", None, NOW, f"no series of {RUNNING} or {WAITING}")),
        ({RUNNING: [series("NaN")]}, Reading("Unknown", None, NOW, "the answer is nan")),
        ({RUNNING: [series(3), series("NaN", pod="chat-2")]}, Reading("Unknown", None, NOW, "the answer is nan")),
        ({RUNNING: [series("+Inf")]}, Reading("Unknown", None, NOW, "the answer is inf")),
        ({RUNNING: [series(-3), series(4, pod="chat-2")]}, Reading("Unknown", None, NOW, "the answer is -3.0")),
        ({RUNNING: [series(1e300)] * 2}, Reading("Unknown", None, NOW, "the answer is 1e+300")),
        ({RUNNING: [series(3, model="a\nb"), series(3, model='"} 9')]}, Reading("Value", 6.0, NOW)),
        ({RUNNING: [series(3) | {"value": [NOW * 1e9, "3"]}]}, Reading("Value", 3.0, NOW)),
    ],
    ids=["sum over figures and pods", "zero is idle", "empty is unknown", "another's pod", "another namespace", "NaN",
         "one NaN is enough", "infinity", "less than nothing hides nothing", "beyond all bounds", "odd labels",
         "of the future"],
)  # fmt: skip
async def test_what_an_answer_means(answers: dict[str, list[Any]], expected: Reading) -> None:
    assert (await poll(by_metric(answers))).readings["engine"] == expected


@pytest.mark.parametrize(
    ("then", "pods", "expected"),
    [
        (["a", "b"], ["a", "b", "c"], 2.0),
        (["a"], ["a", "b", "c"], None),
        (["a"], ["a", "new-1", "new-2"], 1.0),
        (["a", "new-1"], ["a", "new-1"], 2.0),
    ],
    ids=["a few are lost", "most are lost", "others have gone, new ones start", "and report"],
)
async def test_pods_that_are_no_longer_reported_are_not_idle(
    then: list[str], pods: list[str], expected: float | None
) -> None:
    shown = ["a", "b", "c"]
    async with asking(by_metric({RUNNING: [series(1, pod=pod) for pod in shown]})) as (source, server, _):
        await source.poll([query(pods=tuple(shown))], {})
        server.answer = by_metric({RUNNING: [series(1, pod=pod) for pod in then]})
        told = await source.poll([query(pods=tuple(pods))], {})
    assert told["serving", "chat"].readings["engine"].load == expected


@pytest.mark.parametrize(
    ("steady", "expected"),
    [("ab", 4.0), ("abc", 6.0), ("abcd", 8.0), ("abcde", None), ("", 4.0)],
    ids=["all are reported", "one is not", "half are not", "most are not", "new ones need not be"],
)
async def test_replicas_that_serve_and_are_not_reported_carry_as_much_as_the_others(
    steady: str, expected: float | None
) -> None:
    async with asking(by_metric({RUNNING: [series(2, pod=pod) for pod in "ab"]})) as (source, _, _):
        asked = replace(query(pods=tuple("abcde")), steady=frozenset(steady))
        told = await source.poll([asked], {})
    reading = told["serving", "chat"].readings["engine"]
    assert reading.load == expected
    assert expected is not None or reading.reason == "3 of 5 replicas are not reported"


async def test_a_counter_that_has_not_begun_is_not_missing_until_it_was_there() -> None:
    requests, loads = SignalQuery("requests", "Prometheus", "Requests"), []
    async with asking(by_metric({})) as (source, server, _):
        asked = replace(query(requests, pods=tuple("abc")), steady=frozenset("abc"))
        for shown in ("a", "abc", "ab"):
            server.answer = by_metric({"http_requests_total": [series(2, pod=pod) for pod in shown]})
            loads.append((await source.poll([asked], {}))[asked.key].readings["requests"].load)
    assert loads == [2.0, 6.0, 6.0]


async def test_the_load_of_each_pod_is_told() -> None:
    answers = {RUNNING: [series(3), series(4, pod="chat-2")], WAITING: [series(2)]}
    found = await poll(by_metric(answers))
    assert (found.in_flight, found.waiting) == ({"chat-1": 5.0, "chat-2": 4.0}, {"chat-1": 2.0})


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (refusing(400, ERROR), "Prometheus refuses the query (400): parse error"),
        (refusing(503, ERROR), "Prometheus refuses the query (503): parse error"),
        (refusing(401, "who are you"), "Prometheus' answer cannot be read (401)"),
        (refusing(502, "<html>"), "Prometheus' answer cannot be read (502)"),
        (refusing(200, []), "Prometheus' answer cannot be read (200)"),
        (refusing(200, {"status": "success"}), "Prometheus' answer cannot be read (no data)"),
        (refusing(200, {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}}]}}),
         "Prometheus' answer cannot be read (200)"),
        (refusing(200, success(series(3)) | {"warnings": ["store a: no such host"]}),
         f"Prometheus' answer is not whole: store a: no such host; {FIX}"),
        (lambda _: "x" * (MOST_BYTES + 1), f"Prometheus' answer is longer than {MOST_BYTES >> 10} KiB"),
        (lambda _: web.Response(status=307, headers={"Location": "http://127.0.0.1:1/"}),
         "Prometheus' answer cannot be read (307)"),
    ],
)  # fmt: skip
async def test_a_server_that_refuses_is_unknown_and_says_how(answer: Callable[[Heard], Any], reason: str) -> None:
    reading = (await poll(answer)).readings["engine"]
    assert (reading.state, reading.load, reading.reason) == ("Unknown", None, reason)


def zipped(size: int) -> Callable[[Heard], Any]:
    body = gzip.compress(b" " * size)
    return lambda _: web.Response(body=body, headers={"Content-Encoding": "gzip"})


async def test_a_small_answer_that_unpacks_to_a_large_one_is_too_long() -> None:
    reading = (await poll(zipped(MOST_BYTES + 1))).readings["engine"]
    assert reading.reason == f"Prometheus' answer is longer than {MOST_BYTES >> 10} KiB"


async def test_a_server_that_is_slow_is_unknown() -> None:
    async with asking(lambda _: asyncio.Event().wait(), timeout_seconds=600.0, round_seconds=3600.0) as (source, at, _):
        polled = asyncio.create_task(source.poll([query()], {}))
        await eventually(lambda: at.heard)
        with Passing() as passing:
            await settle()
            passing.pass_on(600.0)
            await settle()
            assert polled.done()
    assert polled.result()["serving", "chat"].readings["engine"].reason == "Prometheus does not answer (ReadTimeout)"


async def test_a_server_that_is_gone_is_unknown() -> None:
    client = Prometheus(PrometheusSettings("http://127.0.0.1:1"))
    asked = query()
    gone = (await PrometheusSource(client, wall=Wall()).poll([asked], {}))[asked.key]
    assert gone.readings["engine"].reason == "Prometheus does not answer (ConnectError)"
    await client.close()


async def test_a_token_is_read_anew_for_each_request_and_is_never_in_a_reason(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    async with asking(refusing(401, ERROR), token_file=file) as (source, server, _):
        reading = (await source.poll([query()], {}))["serving", "chat"].readings["engine"]
        file.write_text("second\n")
        await source.poll([query()], {})
        said = [heard.headers["Authorization"] for heard in server.heard]
        assert (said[0], said[-1]) == ("Bearer first", "Bearer second")
        assert "first" not in reading.reason
        file.unlink()
        lost = (await source.poll([query()], {}))["serving", "chat"].readings["engine"]
        assert lost.reason == "Prometheus does not answer (FileNotFoundError)"


async def test_an_authority_is_trusted_from_when_its_file_says_so(tmp_path: Path) -> None:
    file, places = tmp_path / "ca.crt", ("serving.pem", "serving.key")
    old, new = Authority("old"), Authority("new")
    pair = new.server()
    for name, text in zip(places, (pair.certificate, pair.key), strict=True):
        (tmp_path / name).write_bytes(text)
    secure = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    secure.load_cert_chain(*(tmp_path / name for name in places))
    async with serving(by_metric({RUNNING: [series(1)]}), secure=secure) as server:
        client = Prometheus(PrometheusSettings(server.url, ca_file=file))
        source, states = PrometheusSource(client, wall=Wall()), []
        for trusted in (None, b"no certificate", old.pair.certificate, new.pair.certificate, old.pair.certificate):
            if trusted is not None:
                file.write_bytes(trusted)
            asked = query()
            states.append((await source.poll([asked], {}))[asked.key].readings["engine"].state)
        await client.close()
    assert states == ["Unknown", "Unknown", "Unknown", "Value", "Unknown"]


@pytest.mark.parametrize(("host", "sees"), [("127.0.0.1", True), ("localhost", False)], ids=["same host", "another"])
async def test_the_token_is_for_its_own_host_and_no_cookie_is_kept(tmp_path: Path, host: str, sees: bool) -> None:
    file = tmp_path / "token"
    file.write_text("secret")

    def answer(_: Heard) -> web.Response:
        return web.json_response(success(series(3)), headers={"Set-Cookie": "who=me"})

    async with serving(answer) as enforcer, serving(answer) as server:
        fields: dict[str, Any] = {"allow_custom": True, "enforcer_url": f"http://{host}:{enforcer.port}"}
        client = Prometheus(PrometheusSettings(server.url, token_file=file, **fields))
        for _ in range(2):
            told = await PrometheusSource(client, wall=Wall()).poll([query(ENGINE, CUSTOM)], {})
        await client.close()
    assert told["serving", "chat"].readings["own"].load == 3.0
    assert ["Authorization" in heard.headers for heard in enforcer.heard] == [sees, sees]
    assert all(heard.headers["Authorization"] == "Bearer secret" for heard in server.heard)
    assert not any("Cookie" in heard.headers for heard in (*enforcer.heard, *server.heard))


INFO, DROPPED = (
    "PromQL info: metric might not be a counter",
    "PromQL warning: encountered a mix of histograms and floats",
)


@pytest.mark.parametrize("notes", [{"infos": [INFO]}, {"warnings": [INFO]}, {"warnings": [DROPPED]}])
async def test_a_note_about_a_query_leaves_its_answer_whole(notes: Any) -> None:
    assert (await poll(lambda _: success(series(3)) | notes)).readings["engine"].load == 6.0


LOST = {"warnings": ["store b: connection refused"]}
BOTH = [series(3), series(4, pod="chat-2")]


@pytest.mark.parametrize(
    ("found", "preset", "load"),
    [(BOTH, "vLLM", 14.0), (BOTH[:1], "vLLM", None), ([], "vLLM", None), (BOTH, "InferenceExtension", None)],
    ids=["all pods are shown", "a pod is missing", "none is shown", "nothing tells what a gateway left out"],
)
async def test_an_answer_without_some_store_stands_for_services_that_it_shows_in_full(
    found: list[Any], preset: str, load: float | None
) -> None:
    labelled = [entry | {"metric": entry["metric"] | {"inference_pool": "chat"}} for entry in found]
    telling = await poll(lambda _: success(*labelled) | LOST, SignalQuery("x", "Prometheus", preset))
    assert telling.readings["x"].load == load
    assert ("store b" in telling.readings["x"].reason) == (load is None)


async def test_a_custom_query_must_be_answered_in_full() -> None:
    for note in (LOST, {"warnings": [DROPPED]}):
        async with serving(lambda _, note=note: success(series(7)) | note) as enforcer:  # type: ignore[misc]
            fields: dict[str, Any] = {"allow_custom": True, "enforcer_url": enforcer.url}
            reading = (await poll(by_metric({}), CUSTOM, **fields)).readings["own"]
        assert reading.state == "Unknown"
        assert note["warnings"][0] in reading.reason


async def test_many_services_are_asked_about_in_one_query_per_figure() -> None:
    services = [query(name=f"s{i}", pods=(f"s{i}-0",)) for i in range(50)]
    answers = {RUNNING: [series(i, pod=f"s{i}-0") for i in range(50)], WAITING: []}
    async with asking(by_metric(answers)) as (source, server, _):
        told = await source.poll(services, {})
        assert sum('"vllm:num_requests' in heard.form["query"] for heard in server.heard) == 2
    loads = [told["serving", f"s{i}"].readings["engine"].load for i in range(50)]
    assert loads == [float(i) for i in range(50)]


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        ("httproute/serving/chat/rule/0", 2.0),
        ("httproute/serving/chat/rule/1", 2.0),
        ("httproute/serving/chatter/rule/0", None),
        ("httproute/other/chat/rule/0", None),
        ("xds_cluster", None),
    ],
)
async def test_a_gateways_series_are_told_by_their_labels(cluster: str, expected: float | None) -> None:
    found = {"metric": {"envoy_cluster_name": cluster}, "value": [NOW, "2"]}
    telling = await poll(by_metric({"envoy_cluster_upstream_rq_total": [found]}), GATEWAY)
    assert telling.readings["gateway"].load == expected
    assert not telling.in_flight


async def test_a_request_that_both_proxies_report_counts_once() -> None:
    place = {"destination_service_namespace": "serving", "destination_service_name": "chat"}
    found = [{"metric": {**place, "reporter": reporter}, "value": [NOW, "2"]} for reporter in ("source", "destination")]
    istio = SignalQuery("gateway", "Prometheus", "Istio")
    telling = await poll(by_metric({"istio_requests_total": found}), istio)
    assert telling.readings["gateway"].load == 2.0


@pytest.mark.parametrize(
    ("pods", "rate", "expected"),
    [((), 0.0, 0.5), ((), None, 0.5), ((), 3.0, 3.0), (("chat-1",), 0.0, 0.0)],
    ids=["rests", "was never asked for", "is asked for often", "serves"],
)
async def test_the_first_request_that_finds_no_replica_is_seen(
    pods: tuple[str, ...], rate: float | None, expected: float
) -> None:
    place = {"destination_service_namespace": "serving", "destination_service_name": "chat", "reporter": "source"}

    def answer(heard: Heard) -> Any:
        value = 0.5 if " unless " in heard.form["query"] else rate
        return success(*([] if value is None else [{"metric": place, "value": [NOW, str(value)]}]))

    async with asking(answer) as (source, server, _):
        asked = query(SignalQuery("gateway", "Prometheus", "Istio"), pods=pods)
        reading = (await source.poll([asked], {}))[asked.key].readings["gateway"]
    assert reading.load == expected
    assert any(" unless " in heard.form["query"] for heard in server.heard) is (not pods)


@pytest.mark.parametrize(
    ("fields", "why"),
    [({}, "switched off"), ({"allow_custom": True}, "need prometheus.custom.enforcerUrl")],
)
async def test_a_custom_query_is_refused_unless_something_binds_it_to_its_namespace(
    fields: dict[str, Any], why: str
) -> None:
    async with asking(by_metric({}), **fields) as (source, server, _):
        reading = (await source.poll([query(CUSTOM)], {}))["serving", "chat"].readings["own"]
        assert reading.state == "Unknown"
        assert why in reading.reason
        assert not server.heard


@pytest.mark.parametrize(
    ("found", "state", "load", "reason"),
    [
        ([series(7)], "Value", 7.0, ""),
        ([series(0)], "Idle", 0.0, ""),
        ([], "Unknown", None, "the query gives 0 series; aggregate it to one"),
        ([series(1), series(2, pod="b")], "Unknown", None, "the query gives 2 series; aggregate it to one"),
        ([series(-1)], "Unknown", None, "the answer is -1.0"),
    ],
)
async def test_a_custom_query_goes_through_the_enforcer_alone(
    found: list[Any], state: str, load: float | None, reason: str
) -> None:
    async with serving(lambda heard: success(*found)) as enforcer:
        fields = {"allow_custom": True, "enforcer_url": enforcer.url}
        async with asking(by_metric({}), **fields) as (source, server, _):
            reading = (await source.poll([query(CUSTOM)], {}))["serving", "chat"].readings["own"]
            assert (reading.state, reading.load, reading.reason) == (state, load, reason)
            assert not server.heard
        assert [heard.form for heard in enforcer.heard] == [{"query": "sum(jobs)", "namespace": "serving"}]


async def test_a_slow_custom_query_keeps_nobody_else_waiting() -> None:
    """More slow ones than may be asked at once, and no answer to them before the round is over."""
    slow = [replace(query(CUSTOM, name=f"slow{i}"), namespace="slow") for i in range(CUSTOM_PARALLEL + 4)]
    others, answered = [query(CUSTOM, name="own"), query(ENGINE)], []

    async def answer(heard: Heard) -> Any:
        if heard.form.get("namespace") == "slow":
            await asyncio.Event().wait()
        answered.append(passing.seconds)
        return success(series(7))

    settings = PrometheusSettings("http://server", allow_custom=True, enforcer_url="http://enforcer")
    source = PrometheusSource(Prometheus(settings, in_process(answer)), round_seconds=30.0, wall=Wall())
    with Passing() as passing:
        told = await passing.until(source.poll([*slow, *others], {}))
    assert (set(answered), passing.seconds) == ({0.0}, 30.0), "nobody else waits at all, nor anybody after the round"
    assert told["serving", "own"].readings["own"].load == 7.0
    assert told["serving", "chat"].readings["engine"].load == 14.0
    assert {told[each.key].readings["own"].reason for each in slow} == {"the query was not answered within 30 s"}


async def test_a_round_ends_in_time_and_asks_nothing_more_of_a_server_that_does_not_tell_loads() -> None:
    heard = []

    async def answer(each: Heard) -> Any:
        heard.append(each.form["query"])
        await asyncio.Event().wait()

    client = Prometheus(PrometheusSettings("http://server"), in_process(answer))
    with Passing() as passing:
        polled = PrometheusSource(client, round_seconds=30.0, wall=Wall()).poll([query()], {})
        told = (await passing.until(polled))["serving", "chat"]
    assert told.readings["engine"].reason == "Prometheus does not answer in time"
    assert (passing.seconds, {"vllm:num_requests" in each for each in heard}) == (30.0, {True})


async def test_generated_tokens_are_summed_over_pods() -> None:
    found = [series(40), series(2, pod="chat-2"), series("NaN", pod="chat-2"), series(9, pod="x")]
    assert (await poll(by_metric({"vllm:generation_tokens_total": found}))).tokens_per_second == 42.0
