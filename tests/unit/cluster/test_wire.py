"""Objects keep the fields that decisions need, share what repeats, and hold on to nothing else."""

import json
import tracemalloc

import msgspec
import pytest

from berth.cluster.kinds import ACCELERATOR_POOLS, LEASES, NODES, PODS, TRAINING_JOBS, Kind
from berth.cluster.wire import condition, encode

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "job-1-0",
        "namespace": "research",
        "uid": "u1",
        "resourceVersion": "42",
        "creationTimestamp": "2026-12-01T10:00:00Z",
        "deletionTimestamp": "2026-12-01T11:00:00Z",
        "labels": {"berth.dev/rank": "0"},
        "annotations": {"never": "input"},
        "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}],
        "ownerReferences": [
            {"apiVersion": "berth.dev/v1alpha1", "kind": "TrainingJob", "name": "job", "uid": "j1", "controller": True}
        ],
    },
    "spec": {
        "nodeName": "gpu-1",
        "containers": [
            {"name": "w", "image": "i", "resources": {"requests": {"cpu": "500m"}, "limits": {"nvidia.com/gpu": "8"}}}
        ],
        "initContainers": [{"name": "i", "restartPolicy": "Always"}],
        "overhead": {"memory": "1Gi"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
    },
    "status": {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}],
        "containerStatuses": [
            {
                "name": "w",
                "imageID": "sha256:1",
                "restartCount": 0,
                "ready": False,
                "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}},
                "lastState": {"terminated": {"exitCode": 137, "signal": 9, "reason": "OOMKilled"}},
            }
        ],
    },
}  # fmt: skip


def test_a_pod_keeps_what_decisions_read():
    pod = PODS.decode(json.dumps(POD).encode())
    assert (pod.metadata.key, pod.metadata.version, pod.metadata.deleting) == (("research", "job-1-0"), 42, True)
    assert pod.metadata.created == 1796119200.0
    assert pod.metadata.controller().uid == "j1"
    assert pod.spec.containers[0].resources.limits == {"nvidia.com/gpu": "8"}
    assert pod.spec.init_containers[0].restart_policy == "Always"
    assert condition(pod.status.conditions, "PodScheduled").reason == "Unschedulable"
    status = pod.status.container_statuses[0]
    assert (status.image_id, status.state.waiting.reason) == ("sha256:1", "ImagePullBackOff")
    assert status.last_state.terminated.exit_code == 137


def test_an_object_with_nothing_but_a_version_is_readable():
    for kind in (PODS, NODES, TRAINING_JOBS, LEASES):
        event = kind.decode_event(b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}')
        assert event.object.metadata.version == 7


def test_texts_that_repeat_are_shared():
    one, two = (PODS.decode(json.dumps(POD).encode()) for _ in range(2))
    assert one.spec.node_name is two.spec.node_name
    assert next(iter(one.metadata.labels)) is next(iter(two.metadata.labels))
    assert one.status.phase is two.status.phase


def test_amounts_tolerations_and_times_are_one_object_for_all():
    one, two = (PODS.decode(json.dumps(POD).encode()) for _ in range(2))
    assert one.spec.containers[0].resources.limits is two.spec.containers[0].resources.limits
    assert one.spec.tolerations is two.spec.tolerations
    assert PODS.decode(b"{}").spec.overhead is PODS.decode(b'{"spec":{}}').spec.overhead


def test_a_pod_costs_two_kilobytes_and_nothing_once_replaced():
    """Memory is the number of pods that exist, not the number of changes that were seen (nolar/kopf#953)."""
    text = json.dumps(POD)
    kept = {}

    def see(version: int) -> int:
        for number in range(500):
            body = (
                text.replace("job-1-0", f"job-{number}-0").replace('"42"', f'"{version}"').replace("u1", f"u{number}")
            )
            kept[number] = PODS.decode(body.encode())
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        first = see(100)
        later = [see(version) for version in range(101, 106)][-1]
    finally:
        tracemalloc.stop()
    assert (first - before) / 500 < 2500
    assert later - first < 50_000


def test_our_kinds_keep_spec_and_status_as_text_of_their_own():
    page = b'{"metadata":{},"items":[{"metadata":{"name":"a"},"spec":{"workers":4}}' + b" " * 100_000 + b"]}"
    job = TRAINING_JOBS.decode_page(page).items[0]
    assert bytes(job.spec) == b'{"workers":4}'
    assert bytes(job.status) == b""
    assert len(memoryview(job.spec).obj) < 1000, "the page would live as long as the job"


def test_a_list_without_items_may_say_null():
    assert PODS.decode_page(b'{"metadata":{"resourceVersion":"1"},"items":null}').items is None


def test_node_readiness():
    for status, ready in (("True", True), ("False", False), ("Unknown", False)):
        node = NODES.decode(json.dumps({"status": {"conditions": [{"type": "Ready", "status": status}]}}).encode())
        assert node.ready is ready
    assert not NODES.decode(b"{}").ready


@pytest.mark.parametrize(
    ("kind", "namespace", "name", "subresource", "path"),
    [
        (PODS, None, "", "", "/api/v1/pods"),
        (PODS, "n", "p", "", "/api/v1/namespaces/n/pods/p"),
        (NODES, None, "g", "", "/api/v1/nodes/g"),
        (TRAINING_JOBS, "n", "j", "status", "/apis/berth.dev/v1alpha1/namespaces/n/trainingjobs/j/status"),
        (ACCELERATOR_POOLS, None, "", "", "/apis/berth.dev/v1alpha1/acceleratorpools"),
    ],
)
def test_paths(kind: Kind, namespace: str | None, name: str, subresource: str, path: str):
    assert kind.path(namespace, name, subresource) == path


@pytest.mark.parametrize(("kind", "namespace", "name"), [(PODS, None, "p"), (NODES, "n", "g")])
def test_a_path_that_cannot_exist_is_refused(kind: Kind, namespace: str | None, name: str):
    with pytest.raises(ValueError, match="namespace"):
        kind.path(namespace, name)


def test_bodies_are_encoded_once():
    assert encode(b'{"a":1}') == b'{"a":1}'
    assert encode({"a": msgspec.Raw(b'{"b":2}')}) == b'{"a":{"b":2}}'
