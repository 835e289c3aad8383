"""A quota that has no room for the whole gang makes it wait, in the server's words, charged with nothing."""

from __future__ import annotations

from itertools import pairwise

import pytest

from berth.cluster.errors import ClusterError, Forbidden
from berth.values import parse_resource, pod_needs
from tests.builders.fleet import GPU
from tests.unit.controllers.harness import Json, Operator, Server, make_server

PERMISSION = 'pods is forbidden: User "system:serviceaccount:berth:berth" cannot create resource "pods" in API group ""'


def requested(body: Json) -> dict[str, int]:
    containers = [container.get("resources", {}).get("requests", {}) for container in body["spec"]["containers"]]
    return pod_needs([{name: parse_resource(name, text) for name, text in one.items()} for one in containers], [])


def set_quota(server: Server, name: str, hard: int) -> None:
    """A ResourceQuota on one resource, as the API server's admission counts it; pods that have ended are free."""

    def admit(body: Json) -> ClusterError | None:
        if "containers" not in body["spec"]:
            return None
        live = [pod for pod in server.pods().values() if pod.get("status", {}).get("phase") != "Failed"]
        used, more = sum(requested(pod).get(name, 0) for pod in live), requested(body).get(name, 0)
        words = f"exceeded quota: small, requested: {name}={more}, used: {name}={used}, limited: {name}={hard}"
        subject = f'pods "{body["metadata"]["name"]}" is forbidden: '
        return Forbidden(403, "Forbidden", subject + words) if used + more > hard else None

    server.admit = admit


def condition(server: Server, kind: str) -> tuple[str, str]:
    found = next(entry for entry in server.status()["conditions"] if entry["type"] == kind)
    return found["status"], found["reason"]


async def wait(operator: Operator, seconds: int, step: int = 5) -> list[float]:
    """Look every few seconds; at what times an attempt began."""
    begun = []
    for _ in range(0, seconds, step):
        attempt = operator.server.status().get("attempt", 0)
        await operator.server.clock.advance(step)
        await operator.look()
        operator.server.kubelets()
        if operator.server.status().get("attempt", 0) > attempt:
            begun.append(operator.server.now())
    return begun


async def test_a_quota_smaller_than_the_gang_makes_it_wait_and_never_fails_it() -> None:
    server = make_server(maxStartAttempts=1)
    set_quota(server, GPU, 8)
    operator = Operator(server)
    await wait(operator, 7200)
    status = server.status()
    assert status["phase"] == "Queued"
    assert "exceeded quota: small, requested: nvidia.com/gpu=16" in status["message"]
    assert condition(server, "QuotaReserved") == ("False", "QuotaExceeded")
    assert condition(server, "Placed")[0] == "False"
    assert "startAttempts" not in status
    assert set(status["restarts"].values()) == {0}
    assert [entry["cause"] for entry in status["attempts"]] == ["Quota"], "a trial of the whole gang tells from then on"
    assert "Rejected" in operator.told.reasons
    assert server.pods() == {}
    set_quota(server, GPU, 16)
    await wait(operator, 90)
    server.bind()
    await operator.look()
    assert server.status()["phase"] == "Running"
    assert condition(server, "QuotaReserved") == ("True", "Admitted")


async def test_another_gang_of_the_namespace_is_asked_for_as_a_whole_from_the_first() -> None:
    server = make_server()
    set_quota(server, GPU, 8)
    operator = Operator(server)
    operator.judge.quota_was_short("research")
    await wait(operator, 60)
    assert condition(server, "QuotaReserved") == ("False", "QuotaExceeded")
    assert not server.log or ("create", "pods", "llm-1-0") not in server.log


async def test_a_quota_that_no_trial_can_see_is_tried_again_ever_more_seldom() -> None:
    server = make_server()
    set_quota(server, "pods", 1)
    begun = await wait(Operator(server), 3600)
    waits = [round(after - before) for before, after in pairwise(begun)]
    assert len(begun) < 20
    assert waits == sorted(waits)
    assert 30 <= waits[0] <= 50
    assert 300 <= waits[-1] <= 460
    assert server.status()["phase"] == "Queued"


async def test_a_new_operator_goes_on_waiting() -> None:
    server = make_server()
    set_quota(server, "pods", 1)
    await wait(Operator(server), 600)
    attempt = server.status()["attempt"]
    assert await wait(Operator(server), 60) == []
    assert server.status()["attempt"] == attempt


@pytest.mark.parametrize("verb", ["dry run", "create"])
async def test_our_own_lack_of_permission_is_no_fault_of_the_job(verb: str) -> None:
    server = make_server()

    def refuse(_: str, plural: str, name: str) -> ClusterError | None:
        wanted = name == "berth-check" if verb == "dry run" else name.startswith("llm-")
        return Forbidden(403, "Forbidden", PERMISSION) if plural == "pods" and wanted else None

    server.refuse = refuse
    operator = Operator(server)
    for _ in range(3):
        with pytest.raises(Forbidden):
            await operator.look()
    assert server.status().get("phase") in (None, "Starting")
    assert "Rejected" not in operator.told.reasons
    server.refuse = lambda verb, plural, name: None
    await operator.look(2)
    server.bind()
    await operator.look()
    assert server.status()["phase"] == "Running"


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ('pods "p" is forbidden: exceeded quota: q, requested: pods=1', "QuotaReserved"),
        ('pods "p" is forbidden: status unknown for quota: q, resources: pods', "QuotaReserved"),
        ('pods "p" is forbidden: failed quota: q: must specify limits.memory for: worker', "Accepted"),
        ('pods "p" is forbidden: violates PodSecurity "restricted:latest": quota-reader', "Accepted"),
    ],
)
async def test_a_refusal_is_of_a_quota_where_its_error_says_so(words: str, kind: str) -> None:
    server = make_server()
    server.admit = lambda body: Forbidden(403, "Forbidden", words)
    operator = Operator(server)
    await wait(operator, 15)
    assert condition(server, kind)[0] == "False"
    assert words.partition("forbidden: ")[2] in server.status()["message"]


async def test_a_quota_on_cpu_does_not_refuse_a_job_that_leaves_its_cpu_to_berth() -> None:
    server = make_server()

    def admit(body: Json) -> ClusterError | None:
        named = requested(body).get("cpu", 0) if "containers" in body["spec"] else 1
        return None if named else Forbidden(403, "Forbidden", "failed quota: q: must specify requests.cpu for: worker")

    server.admit = admit
    operator = Operator(server)
    await operator.look(2)
    server.bind()
    await operator.look()
    assert server.status()["phase"] == "Running"
