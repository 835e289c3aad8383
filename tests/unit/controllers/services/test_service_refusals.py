"""What keeps replicas from being there is known before it does harm, and said where people look."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from berth.cluster.cache import Cache
from berth.cluster.errors import ApiError, Forbidden, Invalid
from berth.cluster.kinds import DEPLOYMENTS, INFERENCE_SERVICES, NODES, PODS, PRIORITY_CLASSES, Kind
from berth.controllers.services.judge import REFUSED_SECONDS
from berth.controllers.services.loop import ServiceLoop
from berth.controllers.services.troubles import told, trouble
from berth.inference.service import Memory, Phase, Plan, Verdict
from berth.telemetry.metrics import Metrics
from berth.telemetry.sources import NO_SOURCE
from tests.builders.fleet import make_fleet, make_node, make_pool
from tests.unit.cluster.fakes import FakeClock
from tests.unit.controllers.services.views import make_pod, make_view

Json = dict[str, Any]
KEY = ("serving", "chat")
WORDS = 'pods "berth-check" is forbidden: violates PodSecurity "restricted:latest": privileged'
MANUAL = {"scaling": {"mode": "Manual"}, "accelerators": {"types": ["L4"], "perReplica": 1}}


class Server:
    """Merges what is applied; ``refuses`` dry runs of pods as it is told to."""

    def __init__(self) -> None:
        self.transport = SimpleNamespace(clock=FakeClock())
        self.objects: dict[tuple[str, str], Json] = {}
        self.written: list[str] = []
        self.trials = 0
        self.refuses: ApiError | None = None

    async def create(self, kind: Kind[Any], body: Json, namespace: str, *, dry_run: bool) -> None:
        assert dry_run
        self.trials += 1
        if self.refuses is not None:
            raise self.refuses

    async def find(self, kind: Kind[Any], name: str, namespace: str) -> Any:
        known = self.objects.get((kind.kind, name))
        return kind.decode(json.dumps(known).encode()) if known is not None else None

    async def patch(self, kind: Kind[Any], name: str, body: Json, namespace: str) -> Any:
        self.written.append(kind.kind)
        meta = self.objects[kind.kind, name]["metadata"]
        meta |= {**body["metadata"], "resourceVersion": str(len(self.written) + 10)}
        return await self.find(kind, name, namespace)

    async def apply(
        self, kind: Kind[Any], name: str, body: Json, namespace: str, *, manager: str, subresource: str = ""
    ) -> Any:
        self.written.append(subresource or kind.kind)
        old = self.objects.get((kind.kind, name), {})
        meta = {"uid": f"uid-of-{name}", **old.get("metadata", {}), **body.get("metadata", {})}
        meta["resourceVersion"] = str(len(self.written) + 10)
        fields = {"f:spec": {f"f:{name}": {} for name in body.get("spec", ())}}
        meta["managedFields"] = [{"manager": manager, "operation": "Apply", "fieldsV1": fields}]
        parts = {part: {**old.get(part, {}), **body.get(part, {})} for part in ("spec", "status")}
        self.objects[kind.kind, name] = {**old, "metadata": meta, **parts}
        return await self.find(kind, name, namespace)


class Desk:
    """The service ``chat`` on pools of L4s, one node each."""

    def __init__(self, *names: str) -> None:
        self.server: Any = Server()
        pools = [make_pool(name, accelerator="L4", roles=("Inference",)) for name in names or ("l4",)]
        nodes = [make_node(f"n-{pool.name}", pool=pool.name, devices=4) for pool in pools]
        fleet = self.fleet = make_fleet(nodes, pools=pools)
        self.told: list[str] = []
        self.unclassed: dict[str, str] = {}
        recorder: Any = SimpleNamespace(
            normal=lambda target, reason, words: self.told.append(reason),
            warning=lambda target, reason, words: self.told.append(reason),
        )
        self.pods = Cache(self.server, PODS)
        self.loop = ServiceLoop(
            self.server, fleet, self.pods, Cache(self.server, NODES), recorder, Metrics(), NO_SOURCE,
            priority=lambda name: 0, unclassed=lambda name: self.unclassed.get(name, ""),
        )  # fmt: skip
        self.generation = 0

    async def look(self, **spec: Any) -> Json:
        """The user applies ``spec``, and the service is looked at; its status."""
        self.user_applies(**spec)
        await self.reconcile()
        status: Json = self.server.objects["InferenceService", "chat"].get("status", {})
        return status

    def user_applies(self, **spec: Any) -> None:
        """The spec is another one."""
        self.generation += 1
        made = make_view(**{**MANUAL, **spec}).object
        known = self.server.objects.get(("InferenceService", "chat"), {})
        meta = {"name": "chat", "namespace": "serving", "uid": made.metadata.uid, "generation": self.generation,
                "resourceVersion": str(1000 * self.generation)}  # fmt: skip
        body = {**known, "metadata": meta, "spec": json.loads(bytes(made.spec))}
        self.server.objects["InferenceService", "chat"] = body
        self.loop.caches.services.observe(INFERENCE_SERVICES.decode(json.dumps(body).encode()))

    async def reconcile(self) -> None:
        """The service is looked at."""
        view = self.loop.observer.view(KEY)
        assert view is not None
        self.loop.planner.refresh(view)
        await self.loop.services.reconcile(KEY)

    async def read_deployment(self) -> Any:
        """The Deployment as the server has it."""
        return await self.server.find(DEPLOYMENTS, self.deployment["metadata"]["name"], "serving")

    @property
    def deployment(self) -> Json:
        (found,) = (body for (kind, _), body in self.server.objects.items() if kind == "Deployment")
        return found


def accepted(status: Json) -> tuple[str, str]:
    (found,) = (entry for entry in status["conditions"] if entry["type"] == "Accepted")
    return found["reason"], found["message"]


async def test_a_template_is_tried_once_and_what_it_follows_from_is_on_record_before_it_is_applied() -> None:
    desk = Desk()
    status = await desk.look()
    assert accepted(status) == ("Valid", "")
    assert desk.server.written.index("status") < desk.server.written.index("Deployment")
    await desk.look(replicas=2)
    await desk.look(replicas=3)
    assert desk.server.trials == 1
    assert desk.deployment["spec"]["replicas"] == 3


async def test_a_refused_service_gets_no_deployment_and_says_why_in_the_servers_words() -> None:
    desk = Desk()
    desk.server.refuses = Forbidden(403, "Forbidden", WORDS)
    status = await desk.look()
    assert (status["phase"], accepted(status)[0]) == ("Failed", "TemplateRefused")
    assert WORDS in accepted(status)[1]
    assert WORDS in status["message"]
    assert "Deployment" not in desk.server.written
    assert desk.told == ["Rejected"], "nothing was accepted, nor scaled"


async def test_a_refused_change_begins_no_rollout_while_what_runs_is_scaled_on() -> None:
    desk = Desk()
    await desk.look()
    before = desk.deployment["spec"]["template"]
    desk.server.refuses = Invalid(422, "Invalid", "spec.containers[0].image: Required value")
    status = await desk.look(replicas=3, runtime={"engine": "vLLM", "args": ["--other"]})
    assert accepted(status)[0] == "TemplateRefused"
    assert desk.deployment["spec"]["template"] == before
    assert desk.deployment["spec"]["replicas"] == 3
    assert "Rejected" in desk.told


@pytest.mark.parametrize("moment", ["create", "apply", "find"])
async def test_no_template_is_applied_that_was_not_tried(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    desk, edits = Desk(), [{"slo": {"latency": "60s"}}]
    call = getattr(desk.server, moment)

    async def edited(*arguments: Any, **more: Any) -> Any:
        answer = await call(*arguments, **more)
        if edits and (moment != "apply" or arguments[0] is INFERENCE_SERVICES):
            desk.server.refuses = Forbidden(403, "Forbidden", WORDS)
            desk.user_applies(**edits.pop())
        return answer

    monkeypatch.setattr(desk.server, moment, edited)
    desk.user_applies()
    for _ in range(3):
        await desk.reconcile()
    assert "Deployment" not in desk.server.written
    assert accepted(desk.server.objects["InferenceService", "chat"]["status"])[0] == "TemplateRefused"


async def test_a_refused_template_is_tried_again_and_taken_when_the_server_takes_it() -> None:
    desk = Desk()
    desk.server.refuses = Forbidden(403, "Forbidden", WORDS)
    await desk.look()
    desk.server.refuses = None
    judge = desk.loop.services._judge
    judge._clock = lambda: 1e9 + REFUSED_SECONDS
    status = await desk.look()
    assert accepted(status)[0] == "Valid"
    assert "Deployment" in desk.server.written


SOMEBODYS = {"metadata": {"name": "chat", "namespace": "serving", "uid": "other", "resourceVersion": "7"}}


async def test_a_name_that_somebody_took_is_told_and_a_running_service_is_scaled_on() -> None:
    desk = Desk()
    await desk.look(replicas=1)
    desk.server.objects["Service", "chat"] = SOMEBODYS
    view = desk.loop.observer.view(KEY)
    assert view is not None
    view.applied.pop("Service")
    status = await desk.look(replicas=3)
    assert accepted(status)[0] == "NameTaken"
    assert desk.deployment["spec"]["replicas"] == 3
    assert desk.server.objects["Service", "chat"] == SOMEBODYS


async def test_a_new_service_whose_name_is_taken_starts_nothing() -> None:
    desk = Desk()
    desk.server.objects["Service", "chat"] = SOMEBODYS
    assert accepted(await desk.look())[0] == "NameTaken"
    assert "Deployment" not in desk.server.written


async def test_a_priority_class_that_is_not_there_is_told_ends_nothing_and_heals() -> None:
    desk = Desk()
    await desk.look(replicas=1, priorityClassName="urgent")
    desk.unclassed["urgent"] = "spec.priorityClassName: there is no PriorityClass urgent; create it"
    status = await desk.look(replicas=2, priorityClassName="urgent")
    assert accepted(status)[0] == "UnknownPriorityClass"
    assert "there is no PriorityClass urgent" in accepted(status)[1]
    assert desk.deployment["spec"]["replicas"] == 2
    assert desk.told.count("Rejected") == 1
    del desk.unclassed["urgent"]
    desk.loop.leading = True
    found = PRIORITY_CLASSES.decode(json.dumps({"metadata": {"name": "urgent"}, "value": 7}).encode())
    while desk.loop.queue.depth:
        desk.loop.queue.done(await desk.loop.queue.get())
    desk.loop.reclass(None, found)
    await desk.server.transport.clock.advance(1)
    assert desk.loop.queue.depth, "whoever names it is looked at"
    await desk.loop.services.reconcile(KEY)
    assert accepted(desk.server.objects["InferenceService", "chat"]["status"])[0] == "Valid"


async def test_a_short_quota_is_no_matter_of_the_template() -> None:
    desk = Desk()
    desk.server.refuses = Forbidden(403, "Forbidden", 'pods "berth-check" is forbidden: exceeded quota: gpus')
    assert accepted(await desk.look())[0] == "Valid"


def waits(reason: str, message: str = "", *, name: str = "p", last: Json | None = None) -> Any:
    state = {"name": "server", "state": {"waiting": {"reason": reason, "message": message}}}
    return make_pod(name, containerStatuses=[{**state, **({"lastState": {"terminated": last}} if last else {})}])


def unplaced(seconds: float) -> Any:
    since = datetime.fromtimestamp(1000.0 - seconds, UTC).isoformat()
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": since,
            "message": "0/3 nodes are available: 3 Insufficient memory."}  # fmt: skip
    return make_pod(node="", conditions=[said])


def failing(message: str) -> Any:
    stated = [{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message}]
    return DEPLOYMENTS.decode(json.dumps({"metadata": {"name": "d"}, "status": {"conditions": stated}}).encode())


@pytest.mark.parametrize(
    ("pods", "deployments", "reason", "words"),
    [
        ([unplaced(61)], {}, "Unschedulable", "0/3 nodes are available: 3 Insufficient memory."),
        ([waits("ImagePullBackOff", 'Back-off pulling image "x": ErrImagePull: not found')], {}, "ImagePullBackOff",
         "1 replica of , container server: ImagePullBackOff: not found"),
        ([waits("ErrImagePull", "not found"), waits("ErrImagePull", "not found", name="q")], {}, "ImagePullBackOff",
         "2 replicas of , container server: ImagePullBackOff: not found"),
        ([waits("CreateContainerConfigError", 'secret "key" not found')], {}, "CreateContainerConfigError", "secret"),
        ([waits("CrashLoopBackOff", "back-off 20s", last={"reason": "OOMKilled", "exitCode": 137})], {},
         "CrashLoopBackOff", "it ends with OOMKilled, exit code 137"),
        ([waits("2 of 3: provider's quota!", "no more")], {}, "of3providersquota", "no more"),
        ([waits("…", "no more")], {}, "ContainerWaiting", "no more"),
        ([waits("ContainerCreating"), waits("ImagePullBackOff", "x")], {"v": failing('pods "v-5f-xyz" is forbidden')},
         "ReplicaFailure", "the server takes no pod of v: pods is forbidden"),
    ],
    ids=["no node", "image", "the same while it tries", "a secret", "a crash", "not one word", "no word", "the server"],
)  # fmt: skip
def test_what_keeps_replicas_from_starting_is_said(pods: Any, deployments: Any, reason: str, words: str) -> None:
    found = trouble(pods, deployments, now=1000.0)
    assert found is not None
    assert found.reason == reason
    assert words in found.sentence
    plan = Plan({"v": 1}, Memory(), Phase.STARTING, "1 replica starts", {"Ready": Verdict(False, "NotReady", "none")})
    said = told(plan, {}, found)
    assert said.conditions["Ready"] == Verdict(False, reason, f"none; {found.sentence}")
    assert said.message.endswith(found.sentence)


@pytest.mark.parametrize("pods", [[], [waits("ContainerCreating")], [waits("PodInitializing")], [unplaced(59)]])
def test_what_is_on_its_way_is_no_trouble(pods: Any) -> None:
    assert trouble(pods, {}, now=1000.0) is None


def taken(desk: Desk) -> int:
    """Replicas that room is held for after the next decision."""
    view = desk.loop.observer.view(KEY)
    assert view is not None
    desk.loop.planner.decide(view)
    return len(desk.loop.planner._market._fleet.claims)


async def test_what_is_refused_holds_no_room() -> None:
    desk = Desk()
    desk.user_applies(replicas=2)
    assert taken(desk) == 2, "before the server was asked"
    desk.server.refuses = Forbidden(403, "Forbidden", WORDS)
    await desk.reconcile()
    assert taken(desk) == 0
    desk.server.refuses = None
    await desk.look(replicas=2, slo={"latency": "60s"})
    assert taken(desk) == 2
    own = {"metadata": {"name": "chat", "uid": "u", "ownerReferences": []}}
    elsewhere = Desk()
    elsewhere.server.objects["Service", "chat"] = own
    await elsewhere.look(replicas=2)
    assert taken(elsewhere) == 0, "its name is taken"


async def test_pods_that_the_server_does_not_take_hold_no_room() -> None:
    desk = Desk()
    await desk.look(replicas=2)
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"}
    desk.deployment["status"] = {"conditions": [failure]}
    desk.deployment["metadata"]["resourceVersion"] = "99999"
    desk.loop.caches.deployments.put(await desk.read_deployment())
    assert taken(desk) == 0
