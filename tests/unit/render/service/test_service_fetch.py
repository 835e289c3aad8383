"""Whether nodes keep the weights of a service, and the pod that brings them there ahead of a replica."""

from __future__ import annotations

from typing import Any

import pytest

from berth.api.names import LABEL_SERVICE_NAME
from berth.render.service.fetch import fetch_pod, keeping, unfetchable
from berth.render.service.plan import DeploymentPlan
from berth.render.service.pod import pod_template
from berth.render.service.weights import model_cache_label
from tests.builders.services import MODEL, OWN, make_plan, make_service, make_variant

NVME = {"modelCache": "NVMe"}
HOST = {"name": "berth-model-cache", "hostPath": {"path": "/nvme/models", "type": "DirectoryOrCreate"}}
OCI = {"uri": "oci://registry.example/models/llama:1"}
LOADER = {
    "name": "load",
    "image": "registry.example/loader:1",
    "args": ["$(BERTH_MODEL_URI)"],
    "volumeMounts": [{"name": "berth-model-cache", "mountPath": "/cache"}],
}


def plan(engine: str = "vLLM", *, uri: str | None = MODEL["uri"], cache: Any = NVME, **template: Any) -> DeploymentPlan:
    spec = {"volumes": [HOST], **template}
    if engine == "Custom":
        spec = {**OWN["spec"], **spec}
    return make_plan(make_service(engine, model={"uri": uri}, coldStart=cache, template={"spec": spec}))


def loaded(engine: str = "vLLM", **fields: Any) -> DeploymentPlan:
    return plan(engine, uri="s3://models/llama", initContainers=[{**LOADER, **fields}])


@pytest.mark.parametrize(
    ("made", "kept"),
    [
        (plan(), True),
        (plan(volumes=[{"name": "berth-model-cache", "csi": {"driver": "cache.example"}}]), True),
        (plan("Custom"), True),
        (make_plan(make_service(model=OCI)), True),
        (loaded(), True),
        (plan(volumes=[]), False),
        (plan(volumes=[{"name": "berth-model-cache", "persistentVolumeClaim": {"claimName": "all"}}]), False),
        (plan(uri="s3://models/llama"), False),
        (plan(uri="pvc://claim/llama"), False),
    ],
    ids=["a folder", "csi", "own engine", "image", "init container", "emptyDir", "claim", "streamed", "mounted"],
)
def test_nodes_keep_what_outlives_the_pod(made: DeploymentPlan, kept: bool) -> None:
    found = keeping(made)
    assert found is not None
    assert bool(found.label) is kept
    assert bool(found.why) is not kept


def test_the_label_is_the_one_that_replicas_prefer() -> None:
    made = plan()
    found = keeping(made)
    assert found is not None
    preferred = pod_template(made)["spec"]["affinity"]["nodeAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    assert [entry["key"] for term in preferred for entry in term["preference"]["matchExpressions"]] == [found.label]
    assert found.label == model_cache_label(MODEL["uri"])


@pytest.mark.parametrize("made", [plan(cache=None), plan(uri=None)], ids=["no cache asked for", "no weights named"])
def test_nothing_is_kept_where_nobody_asked(made: DeploymentPlan) -> None:
    assert keeping(made) is None


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (plan(), ""),
        (make_plan(make_service(model=OCI)), ""),
        (loaded(), ""),
        (loaded("Custom"), ""),
        (plan("Custom"), "fetch them in an init container"),
        (plan(containers=[{"name": "server", "args": ["other/model"]}]), "states its own command"),
        (loaded(resources={"limits": {"nvidia.com/gpu": 1}}), "load asks for devices"),
        (make_plan(make_service(model=OCI), make_variant("Gaudi3")), "no image for Gaudi3"),
    ],
)
def test_how_weights_are_fetched_is_known_or_said_to_be_unknown(made: DeploymentPlan, says: str) -> None:
    sentence = unfetchable(made)
    assert (says in sentence) if says else not sentence


def test_the_fetching_pod_is_one_command_of_the_engine_on_that_node() -> None:
    made = fetch_pod(plan(uri="hf://meta/llama@v2"), "node-7")
    spec = made["spec"]
    (fetcher,) = spec["containers"]
    assert "initContainers" not in spec
    assert fetcher["command"][-2:] == ["meta/llama", "v2"]
    assert not {"args", "ports", "readinessProbe", "livenessProbe", "startupProbe", "lifecycle"} & fetcher.keys()
    assert {"name": "HF_HOME", "value": "/var/cache/berth"} in fetcher["env"]
    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "In", "values": ["node-7"]}]
    assert spec["restartPolicy"] == "Never"
    assert HOST in spec["volumes"]


def test_an_image_is_fetched_by_mounting_it() -> None:
    spec = fetch_pod(make_plan(make_service(model=OCI)), "n")["spec"]
    assert any("image" in volume for volume in spec["volumes"])
    assert spec["containers"][0]["command"] == ["true"]


def test_init_containers_that_fill_the_cache_are_the_fetching_pod() -> None:
    second = {**LOADER, "name": "check"}
    other = {"name": "sysctl", "image": "registry.example/tool:1"}
    made = plan("Custom", initContainers=[other, LOADER, second])
    spec = fetch_pod(made, "n")["spec"]
    assert [entry["name"] for entry in spec["initContainers"]] == ["load"]
    assert [entry["name"] for entry in spec["containers"]] == ["check"]
    assert [volume["name"] for volume in spec["volumes"]] == ["berth-model-cache"]


@pytest.mark.parametrize("made", [plan(), loaded(), make_plan(make_service(model=OCI))], ids=["hf", "init", "oci"])
def test_a_fetching_pod_is_no_replica(made: DeploymentPlan) -> None:
    pod = fetch_pod(made, "n")
    assert LABEL_SERVICE_NAME not in pod["metadata"]["labels"]
    assert pod["metadata"]["ownerReferences"][0]["name"] == "chat"
    assert pod["spec"]["priorityClassName"] == "berth-prefetch"
    asked = [str(entry.get("resources")) for entry in pod["spec"]["containers"]]
    assert not any("nvidia.com" in text for text in asked)


@pytest.mark.parametrize("made", [plan(volumes=[]), make_plan(make_service(model=OCI))], ids=["folder", "image"])
def test_a_fetching_pod_needs_no_privilege(made: DeploymentPlan) -> None:
    spec = fetch_pod(made, "n")["spec"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    security = spec["containers"][0]["securityContext"]
    assert security["runAsNonRoot"]
    assert security["readOnlyRootFilesystem"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert spec["automountServiceAccountToken"] is False


def test_each_node_has_its_own_name_that_fits() -> None:
    names = {fetch_pod(plan(), node)["metadata"]["name"] for node in ("a", "b", "x" * 200)}
    assert len(names) == 3
    assert max(map(len, names)) <= 63
