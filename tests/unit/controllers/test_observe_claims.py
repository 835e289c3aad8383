"""Room is a function of what there is: whichever way the caches got there, the same claims stand in the ledger."""

from __future__ import annotations

import copy
import json
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from berth.cluster import kinds
from berth.fleet.records import Claim, gang_key
from tests.builders.fleet import GPU
from tests.unit.controllers.harness import JOB, Operator, Server, add_node, make_server

ACTIONS = (
    "look", "look", "look", "bind", "bind", "kubelets", "fail", "succeed", "lose node", "add node", "suspend", "resume",
    "delete pod", "guest", "guest ends", "delete job", "new job", "relist", "wait", "relabel", "disown",
)  # fmt: skip


def act(server: Server, operator: Operator, what: str, pick: int) -> None:
    """Something happens to the cluster; what is not possible now does not."""
    pods = sorted(server.pods())
    job = server.objects.get(("trainingjobs", *JOB))
    ours = [name for name in pods if name.startswith("llm")]
    name = ours[pick % len(ours)] if ours else ""
    match what:
        case "bind":
            server.bind()
        case "kubelets":
            server.kubelets()
        case "fail" | "succeed" if name:
            server.change_pod(name, phase="Failed" if what == "fail" else "Succeeded", conditions=[])
        case "lose node":
            server.objects.pop(("nodes", "", f"n{pick}"), None)
        case "add node":
            add_node(server, f"n{pick}")
        case "suspend" | "resume" if job is not None:
            server.edit(suspend=what == "suspend")
        case "delete pod" if name:
            del server.objects["pods", JOB[0], name]
        case "relabel" if name:
            pod = copy.deepcopy(server.objects["pods", JOB[0], name])
            label = ("berth.dev/job-uid", "berth.dev/rank", "berth.dev/attempt")[pick % 3]
            pod["metadata"]["labels"].update({label: str(pick)})
            if pick < 2:
                del pod["metadata"]["labels"][label]
            server.put(kinds.PODS, pod)
        case "disown" if name:
            pod = copy.deepcopy(server.objects["pods", JOB[0], name])
            pod["metadata"]["ownerReferences"] = []
            server.put(kinds.PODS, pod)
        case "guest":
            resources = {"requests": {"cpu": "7", GPU: "1"}}
            spec = {"nodeName": f"n{pick}", "containers": [{"name": "c", "resources": resources}]}
            meta = {"name": f"guest-{pick}", "namespace": JOB[0]}
            server.put(kinds.PODS, {"metadata": meta, "spec": spec, "status": {"phase": "Running"}})
        case "guest ends":
            server.objects.pop(("pods", JOB[0], f"guest-{pick}"), None)
        case "delete job" if job is not None:
            del server.objects["trainingjobs", *JOB]
            server.owners.clear()
        case "new job" if job is None:
            spec = copy.deepcopy(TEMPLATE)
            server.put(kinds.TRAINING_JOBS, {"metadata": {"name": JOB[1], "namespace": JOB[0]}, "spec": spec})
        case "wait":
            server.clock.at += 61


TEMPLATE: dict[str, Any] = make_server().objects["trainingjobs", *JOB]["spec"]


def expect_the_same_claims(operator: Operator) -> None:
    """As an operator that starts now and reads the caches in another order."""
    operator.see()
    if operator.observer.promises:
        return
    fresh = Operator(operator.server)
    seen = {
        gang_key(view.uid, view.state.attempt, rank)
        for view in operator.observer.views.values()
        for rank in operator.observer.finished(view, view.state.attempt)
    }  # finished and gone, which the status says a moment later
    found = {key: claim for key, claim in claims_of(fresh).items() if key not in seen}
    assert claims_of(operator) == found
    assert operator.fleet.check() == []


def claims_of(operator: Operator) -> dict[str, Claim]:
    """All claims, without the CPU that Berth chose where no pod of the attempt is left that would tell it."""
    held = dict(operator.fleet.claims)
    for view in operator.observer.views.values():
        told = any(worker.attempt == view.state.attempt for worker in operator.observer.workers(view.uid))
        for key in view.held if not told else ():
            amounts = {name: amount for name, amount in held[key].amounts.items() if name != "cpu"}
            held[key] = replace(held[key], amounts=amounts)
    return held


async def tell(story: list[tuple[str, int]]) -> None:
    server = make_server()
    operator = Operator(server)
    for what, pick in story:
        if what == "look":
            await operator.look()
        else:
            act(server, operator, what, pick)
        if pick % 2:
            operator.see()
        expect_the_same_claims(operator)


@settings(max_examples=30, deadline=None)
@given(st.booleans(), st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 4)), max_size=25))
@example(True, [("fail", 0), ("relabel", 2), ("look", 0), ("kubelets", 0), ("look", 0)])
@example(True, [("succeed", 0), ("look", 1), ("delete pod", 0), ("look", 1), ("wait", 0), ("look", 1)])
async def test_any_story_leaves_the_claims_that_a_fresh_look_finds(running: bool, story: list[tuple[str, int]]) -> None:
    await tell([("look", 0), ("bind", 0), ("look", 0), *story] if running else story)


def started() -> Server:
    """A gang of two half-way through its start: one pod bound, one not made yet, and a guest that holds CPU."""
    server = make_server()
    add_node(server, "n9")
    meta = {"name": "guest", "namespace": JOB[0]}
    guest = {"nodeName": "n0", "containers": [{"name": "c", "resources": {"requests": {"cpu": "100"}}}]}
    server.put(kinds.PODS, {"metadata": meta, "spec": guest, "status": {"phase": "Running"}})
    return server


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False))
async def test_the_order_in_which_caches_fill_does_not_matter(order: random.Random) -> None:
    server = started()
    first = Operator(server)
    await first.look()
    server.bind()
    del server.objects["pods", JOB[0], "llm-1-1"]
    first.see()
    late = Operator(Server())
    objects = list(server.objects.items())
    order.shuffle(objects)
    for key, body in objects:
        cache = next(cache for cache in late.caches.every() if cache.kind.plural == key[0])
        cache.observe(cache.kind.decode(json.dumps(body).encode()))
    late.observer.settle()
    assert dict(late.fleet.claims) == dict(first.fleet.claims)
    claim = late.fleet.claims[f"{server.objects['trainingjobs', *JOB]['metadata']['uid']}/1/1"]
    assert claim.amounts[GPU] == 8
    assert claim.amounts["cpu"] > 0


@pytest.mark.parametrize("beside", [0, 12])
async def test_ranks_of_a_pool_of_cpus_hold_their_cores_and_what_runs_beside_them(beside: int) -> None:
    containers: list[dict[str, object]] = [{"name": "worker", "image": "i"}]
    if beside:
        containers.append({"name": "feeder", "image": "f", "resources": {"requests": {"cpu": str(beside)}}})
    asked = {"perWorker": 26, "types": ["CPU"]}
    server = make_server(nodes=0, workers=2, accelerators=asked, template={"spec": {"containers": containers}})
    labels = {"kubernetes.io/hostname": "c0", "example.com/cpu": "y"}
    room = {"cpu": "64", "memory": "512Gi", "pods": "110"}
    status = {"allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]}
    server.put(kinds.NODES, {"metadata": {"name": "c0", "labels": labels}, "spec": {}, "status": status})
    chosen = {"nodeSelector": {"matchLabels": {"example.com/cpu": "y"}}, "accelerator": "CPU", "roles": ["Training"]}
    server.put(kinds.ACCELERATOR_POOLS, {"metadata": {"name": "cpus"}, "spec": chosen})
    operator = Operator(server)
    await operator.look(2)
    held = [claim.amounts["cpu"] for claim in operator.fleet.claims.values()]
    assert held == ([26_000, 26_000] if not beside else [])  # 2 x 38 cores are more than the node has
    again = Operator(server)
    await again.look()
    assert [claim.amounts["cpu"] for claim in again.fleet.claims.values()] == held
