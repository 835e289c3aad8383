"""Training jobs carried out against an API server: what is written, what is not, and what a restart takes up."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest

from berth.cluster import kinds
from berth.cluster.errors import Forbidden, Invalid, Unavailable, Unreachable
from berth.controllers import observe as observe_module
from tests.unit.controllers.harness import JOB, Operator, Server, add_node, expect_nothing_written, make_server

CHECKPOINT: dict[str, Any] = {
    "model": {"parameters": "70B"},
    "checkpoint": {"uri": "s3://ckpt/llm", "size": "840G", "writeBandwidth": "100G"},
}


async def running(server: Server, **settings: Any) -> Operator:
    """An operator whose job runs."""
    operator = Operator(server, **settings)
    await operator.look()
    server.bind()
    await operator.look()
    assert server.status()["phase"] == "Running", server.status()
    return operator


def conditions(server: Server) -> dict[str, str]:
    return {entry["type"]: entry["status"] for entry in server.status()["conditions"]}


def environment(pod: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in pod["spec"]["containers"][0]["env"]}


async def test_a_gang_costs_one_create_a_pod_and_two_status_writes() -> None:
    server = make_server()
    operator = await running(server)
    assert Counter(server.log) == {
        ("apply", "trainingjobs/status", "berth-placement"): 1,
        ("create", "pods", "llm-1-0"): 1,
        ("create", "pods", "llm-1-1"): 1,
        ("apply", "trainingjobs/status", "berth"): 1,
    }
    assert operator.told.reasons == ["Placed", "Started"]
    await expect_nothing_written(operator)


async def test_a_framework_adds_its_service_and_a_native_gang_its_group() -> None:
    server = make_server(framework="PyTorch")
    await running(server, native_gangs=True)
    made = [entry for entry in server.log if entry[0] == "create"]
    assert made[:2] == [("create", "services", "llm-workers"), ("create", "podgroups", "llm-1")]


async def test_a_job_that_runs_shows_every_condition_that_it_met() -> None:
    server = make_server(**CHECKPOINT)
    await running(server)
    assert conditions(server) == dict.fromkeys(("Accepted", "AllRunning", "MemoryFits", "Placed"), "True")


async def test_the_checkpoint_policy_is_shown_and_handed_to_every_pod() -> None:
    server = make_server(**CHECKPOINT)
    await running(server)
    shown = server.status()["checkpoint"]
    assert shown["size"] == "840G"
    assert shown["stallMilliseconds"] == 8400
    for pod in server.pods().values():
        assert environment(pod)["BERTH_CHECKPOINT_INTERVAL_SECONDS"] == str(shown["intervalSeconds"])


async def test_a_pod_made_after_a_restart_is_the_pod_that_would_have_been_made_before() -> None:
    server = make_server(**CHECKPOINT)
    server.refuse = lambda verb, plural, name: Unavailable(503, "", "no") if name == "llm-1-1" else None
    with pytest.raises(Unavailable):
        await Operator(server).look()
    server.refuse = lambda verb, plural, name: None
    await Operator(server).look()
    reference = make_server(**CHECKPOINT)
    await Operator(reference).look()
    late, planned = server.pods()["llm-1-1"], reference.pods()["llm-1-1"]
    assert late["spec"] == planned["spec"]


async def test_a_restart_writes_nothing_in_any_state() -> None:
    server = make_server()
    await running(server)
    await expect_nothing_written(Operator(server))
    server.edit(suspend=True)
    await Operator(server).look()
    server.kubelets()
    await expect_nothing_written(Operator(server))
    server.edit(suspend=False)
    operator = Operator(server)
    await operator.look(2)
    server.bind()
    await operator.look()
    for name in list(server.pods()):
        server.change_pod(name, phase="Succeeded", conditions=[])
    await operator.look()
    assert server.status()["phase"] == "Succeeded"
    await expect_nothing_written(Operator(server))


async def test_a_job_that_waits_says_so_after_a_moment_and_then_keeps_still() -> None:
    server = make_server(nodes=1)
    operator = Operator(server)
    await operator.look(3)
    assert server.log == []
    await server.clock.advance(30)
    await operator.look(2)
    status = server.status()
    assert (status["phase"], status["queue"]["position"]) == ("Queued", 1)
    assert conditions(server) == {"Accepted": "True", "Placed": "False"}
    assert operator.told.reasons == ["Accepted"]
    await expect_nothing_written(operator)
    await expect_nothing_written(Operator(server))


async def test_a_waiting_job_is_placed_when_nodes_come() -> None:
    server = make_server(nodes=1)
    operator = Operator(server)
    await server.clock.advance(30)
    await operator.look(2)
    add_node(server, "n1")
    await operator.look(2)
    assert sorted(server.pods()) == ["llm-1-0", "llm-1-1"]
    assert "queue" not in server.status() or server.status()["phase"] == "Starting"
    server.bind()
    await operator.look()
    assert "queue" not in server.status()


async def test_room_is_claimed_from_the_promise_to_the_end() -> None:
    server = make_server(nodes=2)
    operator = await running(server)
    pool = next(iter(operator.fleet.pools.values()))
    assert pool.free_devices[pool.usable].tolist() == [0, 0]
    server.change_pod("llm-1-0", phase="Succeeded", conditions=[])
    await operator.look()
    assert sorted(pool.free_devices[pool.usable].tolist()) == [0, 8]
    server.change_pod("llm-1-1", phase="Succeeded", conditions=[])
    await operator.look()
    assert pool.free_devices[pool.usable].tolist() == [8, 8]
    assert not operator.fleet.check()


@pytest.mark.parametrize("refusal", [Forbidden(403, "Forbidden", "exceeded quota: gpus"),
                                     Invalid(422, "Invalid", "spec.containers[0].image: Required value")])  # fmt: skip
async def test_what_the_server_refuses_in_a_dry_run_is_said_in_its_words(refusal: Forbidden | Invalid) -> None:
    server = make_server()
    server.refuse = lambda verb, plural, name: refusal if name == "berth-check" else None
    operator = Operator(server)
    await operator.look()
    await server.clock.advance(10)
    await operator.look(2)
    assert refusal.message in server.status()["message"]
    assert operator.told.reasons == ["Rejected"]
    server.refuse = lambda verb, plural, name: None
    await server.clock.advance(60)
    await operator.look(2)
    assert sorted(server.pods()) == ["llm-1-0", "llm-1-1"]
    server.bind()
    await operator.look()
    assert set(conditions(server).values()) == {"True"}


async def test_a_pod_that_is_refused_after_all_releases_the_gang() -> None:
    server = make_server()
    refusal = Forbidden(403, "Forbidden", "denied by policy")
    server.refuse = lambda verb, plural, name: refusal if name == "llm-1-1" else None
    operator = Operator(server)
    await operator.look(2)
    status = server.status()
    assert (status["phase"], status["startAttempts"]) == ("Restarting", 1)
    assert "denied by policy" in status["message"]
    assert server.pods() == {}


async def test_a_name_that_something_else_has_is_said() -> None:
    server = make_server()
    server.put(kinds.PODS, {"metadata": {"name": "llm-1-0", "namespace": JOB[0]}, "spec": {"containers": []}})
    operator = Operator(server)
    await operator.look(2)
    assert "Pod llm-1-0 exists and belongs to something else" in server.status()["message"]
    assert "llm-1-0" in server.pods()


async def test_a_lost_node_s_pod_is_removed_by_force_and_the_gang_starts_elsewhere() -> None:
    server = make_server(nodes=3)
    operator = await running(server)
    lost = server.pods()["llm-1-1"]["spec"]["nodeName"]
    del server.objects["nodes", "", lost]
    await operator.look()
    assert "llm-1-1" not in server.pods()
    assert server.status()["restarts"]["infrastructure"] == 1
    server.kubelets()
    await operator.look(2)
    server.bind()
    await operator.look()
    assert server.status()["attempt"] == 2
    assert lost not in server.status()["placement"]["ranks"]
    assert operator.told.reasons == ["Placed", "Started", "NodeLost", "Restarting", "Placed", "Started"]


async def test_a_job_made_again_under_its_name_is_another_job() -> None:
    server = make_server()
    operator = await running(server)
    await operator.see_made_again()
    assert server.status()["attempt"] == 1
    assert {pod["metadata"]["labels"]["berth.dev/job-uid"] for pod in server.pods().values()} == {
        server.objects["trainingjobs", *JOB]["metadata"]["uid"]
    }
    assert not operator.fleet.check()


async def test_a_finished_job_is_removed_when_its_time_has_come() -> None:
    server = make_server(ttlSecondsAfterFinished=60)
    operator = await running(server)
    for name in list(server.pods()):
        server.change_pod(name, phase="Succeeded", conditions=[])
    await operator.look()
    await server.clock.advance(61)
    await operator.look()
    assert ("trainingjobs", *JOB) not in server.objects


async def test_a_spec_that_can_never_be_placed_is_refused_once_and_healed_by_an_edit() -> None:
    server = make_server(accelerators={"perWorker": 8, "types": ["H9000"]})
    operator = Operator(server)
    await operator.look(3)
    assert "the catalogue has no H9000" in server.status()["message"]
    assert operator.told.reasons == ["Rejected"]
    await expect_nothing_written(operator)
    server.edit(accelerators={"perWorker": 8, "types": ["H100"]})
    await operator.look(3)
    server.bind()
    await operator.look()
    assert server.status()["phase"] == "Running"


@pytest.mark.parametrize("label", ["job-uid", "rank", "attempt"])
async def test_a_pod_whose_labels_are_taken_off_leaves_no_ghost(label: str) -> None:
    server = make_server(nodes=2)
    operator = await running(server)
    pod = copy.deepcopy(server.pods()["llm-1-0"])
    del pod["metadata"]["labels"][f"berth.dev/{label}"]
    server.put(kinds.PODS, pod)
    operator.see()
    del server.objects["pods", JOB[0], "llm-1-0"]
    await operator.look()
    assert (server.status()["phase"], server.status()["restarts"]["infrastructure"]) == ("Restarting", 1)
    server.kubelets()
    await operator.look(2)
    server.bind()
    await operator.look()
    assert (server.status()["phase"], server.status()["attempt"]) == ("Running", 2)
    for name in list(server.pods()):
        del server.objects["pods", JOB[0], name]
    del server.objects["trainingjobs", *JOB]
    operator.see()
    assert not operator.fleet.claims
    assert not operator.fleet.check()


async def test_a_template_of_odd_form_is_refused_once_and_takes_back_what_waited() -> None:
    server = make_server(nodes=0)
    operator = Operator(server)
    await operator.look()
    assert operator.scheduler.waiting == 1
    server.edit(template={"metadata": "abc", "spec": {"containers": [{"name": "worker", "image": "i"}]}})
    await operator.look(2)
    assert operator.scheduler.waiting == 0
    (accepted,) = [entry for entry in server.status()["conditions"] if entry["type"] == "Accepted"]
    assert (accepted["status"], accepted["reason"]) == ("False", "SpecInvalid")
    assert "spec.template.metadata: 'abc' must be an object" in accepted["message"]
    assert server.status()["phase"] == "Queued"
    await expect_nothing_written(operator)


async def test_a_defect_of_ours_is_told_once_instead_of_nothing() -> None:
    server = make_server()
    operator = Operator(server)
    for attempt in range(3):
        await operator.jobs.tell_defect(JOB, TypeError(f"a defect, seen {attempt}"))
    assert conditions(server)["Accepted"] == "False"
    assert "TypeError('a defect, seen 0')" in server.status()["message"]
    assert operator.told.reasons == ["InternalError"]
    await operator.look(2)
    assert conditions(server)["Accepted"] == "True"
    await operator.jobs.tell_defect(("research", "no-such-job"), TypeError())


async def test_a_spec_that_cannot_be_read_for_a_defect_of_ours_hides_no_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise AttributeError("a defect")

    server = make_server()
    monkeypatch.setattr(observe_module, "gang_request", failing)
    operator = Operator(server)
    await operator.look(2)
    assert "AttributeError('a defect')" in server.status()["message"]
    assert operator.told.reasons == ["Rejected"]


class Life:
    """A job's whole life on two operators' machine: each look may be the last of this operator."""

    def __init__(self) -> None:
        self.server = make_server(nodes=4, framework="JAX", **CHECKPOINT)
        self.told: set[str] = set()

    def world(self) -> None:
        server = self.server
        server.clock.at += 61
        server.kubelets()
        server.bind()
        phase, attempt = server.status().get("phase"), server.status().get("attempt")
        story: dict[tuple[Any, Any], tuple[str, Any]] = {
            ("Running", 1): ("fails", lambda: server.change_pod("llm-1-1", phase="Failed", conditions=[])),
            ("Running", 2): ("node", lambda: server.objects.pop(("nodes", "", self.node_of("llm-2-0")))),
            ("Running", 3): ("done", self.succeed),
        }
        what, act = story.get((phase, attempt), ("", None))
        if act is not None and what not in self.told:
            self.told.add(what)
            act()

    def node_of(self, pod: str) -> str:
        return str(self.server.pods()[pod]["spec"]["nodeName"])

    def succeed(self) -> None:
        for name in list(self.server.pods()):
            if name.startswith("llm-3"):
                self.server.change_pod(name, phase="Succeeded", conditions=[])

    async def live(self, dies_after: int | None = None) -> Life:
        server = self.server
        server.dies_after = dies_after
        operator = Operator(server)
        for _ in range(60):
            self.world()
            try:
                await operator.look()
            except Unreachable:
                server.dies_after, server.dead = None, False
                operator = Operator(server)
            if server.status().get("phase") in ("Succeeded", "Failed"):
                await operator.look(2)
                return self
        raise AssertionError(server.status())

    def picture(self) -> tuple[Any, ...]:
        """The end, without times and versions."""
        status = self.server.status()
        ledger = [(entry["number"], entry["cause"]) for entry in status["attempts"]]
        made = sorted(entry for entry in self.server.log if entry[0] == "create")
        specs = {name: pod["spec"] for name, pod in self.server.pods().items()}
        return status["phase"], ledger, status["restarts"], conditions(self.server), specs, made, status["checkpoint"]


async def test_a_death_before_any_request_changes_nothing_of_the_end() -> None:
    reference = await Life().live()
    picture = reference.picture()
    assert picture[0] == "Succeeded"
    assert picture[1] == [(1, "Failure"), (2, "Infrastructure"), (3, "Completed")]
    requests = reference.server.requests
    assert requests > 15
    for k in range(requests):
        assert (await Life().live(dies_after=k)).picture() == picture, f"a death before request {k}"


async def test_a_preemption_s_signal_is_sent_even_where_no_deadline_is_named() -> None:
    server = make_server(checkpoint={"onPreempt": {"signal": "SIGUSR1"}})
    await Operator(server).look()
    spec = server.pods()["llm-1-0"]["spec"]
    assert spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][-1] == "kill -s USR1 1; exec sleep 30"
    assert spec["terminationGracePeriodSeconds"] == 60
