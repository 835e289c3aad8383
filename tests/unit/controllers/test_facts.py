"""What API objects mean for decisions: workers, claims and the states of nodes, by table."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from berth.cluster import wire
from berth.controllers import facts
from berth.training.state import NodeState, Worker
from berth.values import Taint, Toleration

GPU = "nvidia.com/gpu"
OWNER = {"apiVersion": "berth.dev/v1alpha1", "kind": "TrainingJob", "name": "llm", "uid": "job-1", "controller": True}
LABELS = {"berth.dev/job-uid": "job-1", "berth.dev/attempt": "2", "berth.dev/rank": "3"}
NOON = "2026-12-01T12:00:00Z"
NOON_SECONDS = 1796126400.0


def make_pod(
    spec: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    *,
    name: str = "llm-2-3",
    labels: dict[str, str] | None = None,
    owners: tuple[dict[str, Any], ...] = (OWNER,),
    **meta: Any,
) -> wire.Pod:
    """A pod of rank 3 in attempt 2 of job llm, bound to n1 and running."""
    body = {
        "metadata": {
            "name": name,
            "namespace": "research",
            "uid": "pod-1",
            "labels": LABELS if labels is None else labels,
            "ownerReferences": list(owners),
            **meta,
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "worker"}], **(spec or {})},
        "status": {"phase": "Running", **(status or {})},
    }
    return msgspec.convert(body, wire.Pod)


def make_worker(status: dict[str, Any] | None = None, spec: dict[str, Any] | None = None, **meta: Any) -> Worker:
    found = facts.worker(make_pod(spec, status, **meta))
    assert found is not None
    return found


def stated(kind: str, status: str = "True", reason: str = "", message: str = "") -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": status, "reason": reason, "message": message}]}


def containers(*states: dict[str, Any], init: bool = False) -> dict[str, Any]:
    names = ("worker", "logger") if not init else ("fetch", "proxy")
    entries = [{"name": name, "state": state} for name, state in zip(names, states, strict=False)]
    return {"initContainerStatuses" if init else "containerStatuses": entries}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def ended(code: int, reason: str = "", signal: int = 0) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "signal": signal}}


def test_a_running_pod_is_the_worker_that_its_labels_say() -> None:
    found = make_worker(stated("Ready"))
    assert (found.name, found.uid, found.attempt, found.rank, found.node) == ("llm-2-3", "pod-1", 2, 3, "n1")
    assert found.bound
    assert found.started
    assert found.deleting_since is None


def test_a_worker_s_image_is_that_of_its_first_container() -> None:
    images = [{"name": "logger", "imageID": "log@sha256:1"}, {"name": "worker", "imageID": "llm@sha256:0a"}]
    assert make_worker({"containerStatuses": images}).image_id == "llm@sha256:0a"
    assert make_worker().image_id == ""


@pytest.mark.parametrize("name", ["llm", "llm-2", "llm-2-x", "llm--2-3", "other-2-3", "llm-2-3-4", "llm-2-٣"])
def test_a_pod_whose_name_is_no_rank_s_is_no_worker(name: str) -> None:
    assert facts.gang_rank(make_pod(name=name)) is None


@pytest.mark.parametrize(
    "labels", [{}, LABELS, {**LABELS, "berth.dev/rank": "x"}, {**LABELS, "berth.dev/attempt": "7"}]
)
def test_labels_do_not_change_which_rank_a_pod_is(labels: dict[str, str]) -> None:
    assert facts.gang_rank(make_pod(labels=labels)) == ("job-1", 2, 3)


@pytest.mark.parametrize(
    ("owners", "uid"),
    [
        ((OWNER,), "job-1"),
        ((), ""),
        (({**OWNER, "kind": "Job", "apiVersion": "batch/v1"},), ""),
        (({**OWNER, "controller": False},), ""),
    ],
    ids=["ours", "orphan", "of another kind", "not its controller"],
)
def test_a_pod_is_of_the_job_that_controls_it(owners: tuple[dict[str, Any], ...], uid: str) -> None:
    assert facts.job_uid(make_pod(owners=owners)) == uid


@pytest.mark.parametrize(
    ("status", "phase", "started"),
    [
        ({"phase": "Pending"}, "Pending", False),
        ({"phase": ""}, "Pending", False),
        ({"phase": "Running"}, "Running", False),
        ({"phase": "Running", **stated("Ready", "False")}, "Running", False),
        ({"phase": "Running", **stated("Ready")}, "Running", True),
        ({"phase": "Succeeded"}, "Succeeded", True),
        ({"phase": "Failed"}, "Failed", False),
    ],
)
def test_a_worker_has_started_when_it_is_ready_or_done(status: dict[str, Any], phase: str, started: bool) -> None:
    found = make_worker(status)
    assert (found.phase, found.started) == (phase, started)


def test_deletion_is_counted_from_when_it_was_asked_for() -> None:
    found = make_worker(deletionTimestamp=NOON, deletionGracePeriodSeconds=90)
    assert (found.deleting_since, found.forced) == (NOON_SECONDS - 90, False)


def test_a_deletion_without_grace_cannot_be_forced_any_further() -> None:
    found = make_worker(deletionTimestamp=NOON, deletionGracePeriodSeconds=0)
    assert (found.deleting_since, found.forced) == (NOON_SECONDS, True)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (stated("PodScheduled", "False", "Unschedulable", "0/1 nodes are available"), "0/1 nodes are available"),
        (stated("PodScheduled", "False", "Unschedulable"), "unschedulable"),
        (stated("PodScheduled", "False", "SchedulingGated", "waits"), ""),
        (stated("PodScheduled", "True"), ""),
        ({}, ""),
    ],
)
def test_what_kube_scheduler_says_of_a_pod_that_it_will_not_bind(status: dict[str, Any], words: str) -> None:
    assert make_worker({"phase": "Pending", **status}, {"nodeName": ""}).refused == words


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (containers(waiting("ErrImagePull", "not  found\n")), "container worker: ErrImagePull: not found"),
        (containers({}, waiting("ImagePullBackOff")), "container logger: ImagePullBackOff"),
        (containers(waiting("CreateContainerConfigError", 'secret "x" not found')),
         'container worker: CreateContainerConfigError: secret "x" not found'),
        (containers(waiting("CrashLoopBackOff"), init=True), "init container fetch: CrashLoopBackOff"),
        (containers(waiting("ContainerCreating")), ""),
        (containers(waiting("PodInitializing")), ""),
        (containers({"running": {}}), ""),
    ],
)  # fmt: skip
def test_what_keeps_a_container_from_starting(status: dict[str, Any], words: str) -> None:
    assert make_worker({"phase": "Pending", **status}).problem == words


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (stated("DisruptionTarget", "True", "EvictionByEvictionAPI", "evicting"), "EvictionByEvictionAPI: evicting"),
        (stated("DisruptionTarget", "True", "DeletionByTaintManager"), "DeletionByTaintManager"),
        (stated("DisruptionTarget", "False", "EvictionByEvictionAPI"), ""),
        ({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}, "Evicted: low on memory"),
        ({"phase": "Failed", "reason": "OutOfcpu"}, "OutOfcpu"),
        ({"phase": "Failed", "reason": "OutOfnvidia.com/gpu", "message": "m"}, "OutOfnvidia.com/gpu: m"),
        ({"phase": "Failed", "reason": "UnexpectedAdmissionError"}, "UnexpectedAdmissionError"),
        ({"phase": "Failed", "reason": "NodeShutdown"}, "NodeShutdown"),
        ({"phase": "Failed", "reason": "Terminated"}, "Terminated"),
        ({"phase": "Failed", "reason": "NodeLost"}, "NodeLost"),
        ({"phase": "Failed", "reason": "NodeAffinity"}, "NodeAffinity"),
        ({"phase": "Failed", "reason": "DeadlineExceeded"}, ""),
        ({"phase": "Failed"}, ""),
    ],
)
def test_what_the_infrastructure_did_to_a_pod(status: dict[str, Any], words: str) -> None:
    assert make_worker(status).disrupted == words


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        ({"phase": "Failed", **containers(ended(1, "Error"))}, 1, "container worker ended with exit code 1"),
        ({"phase": "Failed", **containers(ended(137, "OOMKilled"))}, 137,
         "container worker ended with exit code 137 (OOMKilled)"),
        ({"phase": "Failed", **containers(ended(0), ended(2, "Error"))}, 2, "container logger ended with exit code 2"),
        ({"phase": "Failed", **containers(ended(139, "Error", 11))}, 139, "container worker ended with signal 11"),
        ({"phase": "Failed", **containers(ended(9, "Error"), init=True)}, 9, "container fetch ended with exit code 9"),
        ({"phase": "Failed", "reason": "DeadlineExceeded", "message": "too long"}, None, "DeadlineExceeded: too long"),
        ({"phase": "Succeeded", **containers(ended(0, "Completed"))}, None, ""),
        ({"phase": "Running"}, None, ""),
    ],
)  # fmt: skip
def test_how_a_worker_failed(status: dict[str, Any], code: int | None, words: str) -> None:
    found = make_worker(status)
    assert (found.exit_code, found.failure) == (code, words)


def test_every_container_s_end_is_told_to_the_rules() -> None:
    status = {"phase": "Failed", **containers(ended(3), ended(0)), **containers(ended(0), init=True)}
    assert make_worker(status).exits == (("worker", 3), ("logger", 0), ("fetch", 0))


def test_a_worker_failed_when_its_first_container_did() -> None:
    def ended(name: str, code: int, second: int) -> dict[str, Any]:
        return {"name": name, "state": {"terminated": {"exitCode": code, "finishedAt": f"1970-01-01T00:00:{second}Z"}}}

    status = {"containerStatuses": [ended("worker", 143, 30), ended("logger", 1, 20), ended("done", 0, 10)]}
    assert make_worker(status).failed_at == 20
    assert make_worker({"containerStatuses": [ended("done", 0, 10)]}).failed_at is None


def test_the_worker_s_own_end_is_told_apart_from_its_companions() -> None:
    spec = {"containers": [{"name": "worker"}, {"name": "logger"}]}
    assert make_worker({"phase": "Running", **containers(ended(1), {"running": {}})}, spec).worker_exit == 1
    assert make_worker({"phase": "Running", **containers({"running": {}}, ended(1))}, spec).worker_exit is None


def test_how_a_sidecar_ended_says_nothing_of_the_worker() -> None:
    """KEP-753: sidecars are stopped after the worker, with a signal, and never decide the pod's phase."""
    spec = {"initContainers": [{"name": "fetch"}, {"name": "proxy", "restartPolicy": "Always"}]}
    status = {"phase": "Succeeded", **containers(ended(0)), **containers(ended(0), ended(143, "Error"), init=True)}
    found = make_worker(status, spec)
    assert (found.exits, found.exit_code, found.failure) == ((("worker", 0), ("fetch", 0)), None, "")


def test_conditions_are_told_to_the_rules() -> None:
    assert make_worker(stated("example.com/Stalled", "True")).conditions == (("example.com/Stalled", "True"),)


def test_a_long_text_is_cut_to_one_short_line() -> None:
    assert facts.shorten("a\n b\tc") == "a b c"
    assert len(facts.shorten("x" * 1000)) == 300


def container(restart: str = "", limits: dict[str, str] | None = None, **requests: str) -> dict[str, Any]:
    body: dict[str, Any] = {"name": "c", "resources": {"requests": requests, "limits": limits or {}}}
    return {**body, "restartPolicy": restart} if restart else body


@pytest.mark.parametrize(
    ("main", "init", "cpu"),
    [
        ([container(cpu="1"), container(cpu="2")], [], 3000),
        ([container(cpu="1")], [container(cpu="4")], 4000),
        ([container(cpu="3")], [container(cpu="2"), container(cpu="1")], 3000),
        ([container(cpu="1")], [container("Always", cpu="2")], 3000),
        ([container(cpu="1")], [container("Always", cpu="2"), container(cpu="5")], 7000),
        ([container(cpu="1")], [container(cpu="5"), container("Always", cpu="2")], 5000),
        ([container(cpu="1")], [container("Always", cpu="2"), container("Always", cpu="3")], 6000),
        ([container(limits={"cpu": "2"})], [], 2000),
        ([container(limits={"cpu": "2"}, cpu="1")], [], 1000),
    ],
    ids=["containers add up", "the largest init step", "init below main", "a sidecar stays", "init beside a sidecar",
         "init before a sidecar", "sidecars add up", "a limit stands in", "a request wins"],
)  # fmt: skip
def test_what_a_pod_holds(main: list[dict[str, Any]], init: list[dict[str, Any]], cpu: int) -> None:
    assert facts.pod_needs(make_pod({"containers": main, "initContainers": init})) == {"cpu": cpu, "pods": 1}


def test_pod_level_requests_and_overhead_count() -> None:
    spec = {"containers": [container(cpu="1")], "resources": {"requests": {"cpu": "4"}}, "overhead": {"cpu": "250m"}}
    assert facts.pod_needs(make_pod(spec)) == {"cpu": 4250, "pods": 1}


def test_a_pod_of_a_bookmark_has_no_containers_and_holds_a_pod() -> None:
    assert facts.pod_needs(make_pod({"containers": None})) == {"pods": 1}


def test_a_worker_s_claim_is_keyed_by_job_attempt_and_rank() -> None:
    claim = facts.pod_claim(make_pod({"containers": [container(limits={GPU: "8"})]}))
    assert claim is not None
    assert (claim.key, claim.node, claim.owner, claim.role) == ("job-1/2/3", "n1", "research/llm", "Training")
    assert claim.amounts == {GPU: 8, "pods": 1}
    assert not claim.daemon


@pytest.mark.parametrize(
    ("spec", "status", "meta", "holds"),
    [
        ({}, {}, {}, True),
        ({}, {"phase": "Pending"}, {}, True),
        ({}, {}, {"deletionTimestamp": NOON, "deletionGracePeriodSeconds": 30}, True),
        ({}, {"phase": "Succeeded"}, {}, False),
        ({}, {"phase": "Failed"}, {}, False),
        ({"nodeName": ""}, {"phase": "Pending"}, {}, False),
    ],
    ids=["runs", "bound", "terminating", "succeeded", "failed", "not bound"],
)
def test_a_pod_holds_room_from_its_binding_until_it_has_ended(
    spec: dict[str, Any], status: dict[str, Any], meta: dict[str, Any], holds: bool
) -> None:
    assert (facts.pod_claim(make_pod(spec, status, **meta)) is not None) == holds


@pytest.mark.parametrize(
    ("labels", "owners", "role", "daemon", "owner"),
    [
        ({}, ({"kind": "DaemonSet", "name": "dcgm", "uid": "d", "controller": True},), None, True, "research/dcgm"),
        ({}, (), None, False, "research/llm-2-3"),
        ({"berth.dev/service-name": "chat"}, ({"kind": "ReplicaSet", "name": "chat-7f", "uid": "r",
                                               "controller": True},), "Inference", False, "research/chat-7f"),
        (LABELS, (), None, False, "research/llm-2-3"),
    ],
    ids=["daemon", "bare pod", "service", "a pod that only looks like ours"],
)  # fmt: skip
def test_other_pods_are_keyed_by_their_uid(
    labels: dict[str, str], owners: tuple[dict[str, Any], ...], role: str | None, daemon: bool, owner: str
) -> None:
    claim = facts.pod_claim(make_pod(labels=labels, owners=owners))
    assert claim is not None
    assert (claim.key, claim.role, claim.daemon, claim.owner) == ("pod-1", role, daemon, owner)


def make_node(taints: tuple[Taint, ...] = (), *, ready: str = "True", unschedulable: bool = False) -> wire.Node:
    body = {
        "metadata": {"name": "n1", "uid": "node-1", "labels": {"zone": "a"}},
        "spec": {
            "unschedulable": unschedulable,
            "taints": [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in taints],
        },
        "status": {"allocatable": {"cpu": "7910m", "memory": "1Gi", GPU: "8", "pods": "110"}, **stated("Ready", ready)},
    }
    return msgspec.convert(body, wire.Node)


OUT = Taint("node.kubernetes.io/out-of-service", "nodeshutdown", "NoExecute")
AWAY = Taint("node.kubernetes.io/unreachable", "", "NoExecute")
TEAM = Taint("example.com/team", "b")
GPUS = Taint(GPU, "present")


@pytest.mark.parametrize(
    ("node", "state"),
    [
        (None, NodeState.GONE),
        (make_node(), NodeState.OK),
        (make_node((OUT,)), NodeState.GONE),
        (make_node((OUT, AWAY), ready="Unknown"), NodeState.GONE),
        (make_node((AWAY,)), NodeState.UNREACHABLE),
        (make_node(ready="Unknown"), NodeState.UNREACHABLE),
        (make_node(ready="False"), NodeState.UNREACHABLE),
        (make_node(unschedulable=True), NodeState.BARRED),
        (make_node(unschedulable=True, ready="False"), NodeState.UNREACHABLE),
        (make_node((TEAM,)), NodeState.BARRED),
        (make_node((Taint("example.com/team", "b", "NoExecute"),)), NodeState.BARRED),
        (make_node((Taint("example.com/team", "b", "PreferNoSchedule"),)), NodeState.OK),
        (make_node((GPUS,)), NodeState.OK),
    ],
    ids=lambda value: str(value) if isinstance(value, NodeState) else "",
)
def test_what_a_node_means_to_a_gang_that_tolerates_its_accelerators(node: wire.Node | None, state: NodeState) -> None:
    assert facts.node_state(node, (Toleration(GPU, "Exists"),)) == state


def test_a_taint_that_the_gang_tolerates_bars_nothing() -> None:
    assert facts.node_state(make_node((TEAM,)), (Toleration("example.com/team", "Equal", "b"),)) == NodeState.OK


def test_a_node_as_decisions_see_it() -> None:
    found = facts.node_facts(make_node((TEAM,), ready="False", unschedulable=True))
    assert (found.name, found.uid, found.labels, found.taints) == ("n1", "node-1", {"zone": "a"}, (TEAM,))
    assert found.allocatable == {"cpu": 7910, "memory": 1 << 30, GPU: 8, "pods": 110}
    assert (found.ready, found.unschedulable) == (False, True)
