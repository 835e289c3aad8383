"""Engines start with what the candidate was sized by, and find their weights wherever these lie."""

from __future__ import annotations

from typing import Any

import pytest

from berth.inference.capacity import concurrency, memory_share
from berth.inference.request import service_request
from berth.render.service.plan import DeploymentPlan, ServicePlan
from berth.render.service.pod import pod_template
from berth.render.service.weights import model_cache_label, unreadable
from tests.builders.services import CATALOGUE, make_plan, make_service, make_variant

ACCELERATOR = CATALOGUE.accelerators["H100"]


def server(plan: DeploymentPlan) -> dict[str, Any]:
    container: dict[str, Any] = pod_template(plan)["spec"]["containers"][0]
    return container


def environment(plan: DeploymentPlan) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in server(plan)["env"]}


def volume(plan: DeploymentPlan, name: str) -> Any:
    return next((entry for entry in pod_template(plan)["spec"]["volumes"] if entry["name"] == name), None)


def mount(plan: DeploymentPlan, name: str) -> Any:
    return next((entry for entry in server(plan)["volumeMounts"] if entry["name"] == name), None)


def held(service: ServicePlan, devices: int) -> int:
    model = service_request("chat", service.spec, {}, CATALOGUE).model
    assert model is not None
    return concurrency(ACCELERATOR, model, devices, 256)


def test_vllm_runs_with_what_was_planned():
    service = make_service(args=("--enable-prefix-caching",))
    container = server(make_plan(service, make_variant("H100", devices=2)))
    assert container["image"] == CATALOGUE.serving.engines["vLLM"].images["CUDA"]
    assert container["command"] == ["vllm", "serve"]
    assert container["args"] == [
        "meta/llama-3-8b",
        "--served-model-name=llama-3-8b",
        "--host=0.0.0.0",
        "--port=8000",
        "--tensor-parallel-size=2",
        "--max-model-len=8192",
        f"--max-num-seqs={held(service, 2)}",
        f"--gpu-memory-utilization={memory_share(ACCELERATOR):.2f}",
        "--enable-prefix-caching",
    ]


def test_tensorrt_llm_batches_and_keeps_its_cache_as_planned():
    service = make_service("TensorRT-LLM")
    words = server(make_plan(service, make_variant("H100")))["args"]
    flags = dict(zip(words[1::2], words[2::2], strict=True))
    assert flags["--tp_size"] == "1"
    assert flags["--max_seq_len"] == "8192"
    assert flags["--max_batch_size"] == str(held(service, 1))
    assert 0.5 < float(flags["--kv_cache_free_gpu_memory_fraction"]) <= 0.95


def test_triton_serves_the_model_repository_and_its_metrics_beside():
    container = server(make_plan(make_service("Triton", model={"uri": "s3://models/llama"})))
    assert container["args"] == ["--model-repository=s3://models/llama", "--http-port=8000", "--metrics-port=8002"]
    assert [(port["name"], port["containerPort"]) for port in container["ports"]] == [("http", 8000), ("metrics", 8002)]


@pytest.mark.parametrize(
    ("engine", "own", "once"),
    [
        ("vLLM", ("--max-num-seqs=8",), "--max-num-seqs"),
        ("vLLM", ("--max_model_len", "4096"), "--max-model-len"),
        ("TensorRT-LLM", ("--max_batch_size", "8"), "--max_batch_size"),
    ],
)
def test_an_argument_of_the_user_s_stands_in_place_of_ours(engine: str, own: tuple[str, ...], once: str):
    words = server(make_plan(make_service(engine, args=own)))["args"]
    assert words[-len(own) :] == list(own)
    assert sum(word.split("=")[0].replace("_", "-") == once.replace("_", "-") for word in words) == 1


@pytest.mark.parametrize("model", [{"parameters": None}, {"kvBytesPerToken": None}, {"contextTokens": None}])
def test_what_is_not_known_is_left_to_the_engine(model: dict[str, None]):
    sized = {"accelerators": {"perReplica": 1}} if "parameters" in model else {}
    words = " ".join(server(make_plan(make_service(model=model, **sized)))["args"])
    assert "{" not in words
    assert "None" not in words
    assert ("--max-model-len" in words) == ("contextTokens" not in model)


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("hf://meta/llama", ["meta/llama"]),
        ("hf://meta/llama@v1/x", ["meta/llama", "--revision=v1/x"]),
        ("s3://models/llama", ["s3://models/llama", "--load-format=runai_streamer"]),
        ("pvc://weights/llama/8b", ["/models/llama/8b"]),
        ("pvc://weights", ["/models"]),
        ("oci://registry.example/llama:1", ["/models"]),
    ],
)
def test_the_engine_is_told_where_the_weights_are(uri: str, words: list[str]):
    plan = make_plan(make_service(model={"uri": uri}))
    assert set(words) <= set(server(plan)["args"])
    assert server(plan)["args"][0] == words[0]
    assert environment(plan)["BERTH_MODEL_URI"] == uri


@pytest.mark.parametrize(
    ("uri", "source"),
    [
        ("pvc://weights/llama", {"persistentVolumeClaim": {"claimName": "weights", "readOnly": True}}),
        ("oci://reg.example/llama:1", {"image": {"reference": "reg.example/llama:1", "pullPolicy": "IfNotPresent"}}),
    ],
)
def test_weights_on_a_claim_or_in_an_image_are_mounted_and_nobody_can_change_them(uri: str, source: Any):
    plan = make_plan(make_service(model={"uri": uri}, coldStart={"modelCache": "NVMe"}))
    assert volume(plan, "berth-model") == {"name": "berth-model", **source}
    assert mount(plan, "berth-model")["readOnly"] is True
    assert environment(plan)["BERTH_MODEL_PATH"].startswith("/models")
    assert volume(plan, "berth-model-cache") is None, "what is mounted needs no copy"


def test_credentials_are_read_from_the_secret_and_stand_in_no_argument():
    container = server(make_plan(make_service(model={"secretRef": {"name": "store"}})))
    assert container["envFrom"] == [{"secretRef": {"name": "store"}}]
    assert not any("store" in word for word in container["args"])
    pulled = make_plan(make_service(model={"uri": "oci://reg.example/m:1", "secretRef": {"name": "store"}}))
    assert pod_template(pulled)["spec"]["imagePullSecrets"] == [{"name": "store"}]
    assert "envFrom" not in server(pulled)


def test_a_model_cache_lies_on_the_node_s_disk_unless_the_operator_names_another_place():
    service = make_service(coldStart={"modelCache": "NVMe"})
    assert volume(make_plan(service), "berth-model-cache") == {"name": "berth-model-cache", "emptyDir": {}}
    hosted = {"hostPath": {"path": "/mnt/nvme/models", "type": "DirectoryOrCreate"}}
    assert volume(make_plan(service, cache=hosted), "berth-model-cache") == {"name": "berth-model-cache", **hosted}
    assert environment(make_plan(service))["HF_HOME"] == mount(make_plan(service), "berth-model-cache")["mountPath"]
    assert volume(make_plan(), "berth-model-cache") is None


def test_nodes_that_hold_the_model_are_named_by_the_model_alone():
    label = model_cache_label("hf://meta/llama")
    assert label == model_cache_label("hf://meta/llama") != model_cache_label("hf://meta/llama@v2")
    assert len(label.partition("/")[2]) <= 63


@pytest.mark.parametrize(
    ("engine", "uri", "says"),
    [
        ("vLLM", "az://store/llama", "vLLM reads no az:// by itself; use one of gs, hf, oci, pvc, s3, or fetch"),
        ("TensorRT-LLM", "s3://models/llama", "TensorRT-LLM reads no s3:// by itself; use one of hf, oci, pvc, or"),
        ("vLLM", "s3://models/llama", ""),
        ("TensorRT-LLM", "oci://reg.example/llama:1", ""),
        ("Custom", "az://store/llama", ""),
    ],
)
def test_a_uri_that_the_engine_cannot_fetch_is_refused_with_what_would_do(engine: str, uri: str, says: str):
    found = unreadable(make_service(engine, model={"uri": uri}))
    assert found.startswith(says)
    assert bool(found) == bool(says)


def test_whoever_gives_the_server_its_own_arguments_may_fetch_as_they_like():
    template = {"spec": {"containers": [{"name": "server", "args": ["/weights"]}]}}
    assert unreadable(make_service(model={"uri": "az://store/llama"}, template=template)) == ""


def test_an_engine_may_do_next_to_nothing_and_still_has_a_home():
    plan = make_plan()
    assert server(plan)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "runAsGroup": 1000,
    }
    spec = pod_template(plan)["spec"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    home = environment(plan)["HOME"]
    assert mount(plan, "berth-scratch")["mountPath"] == home
    assert environment(plan)["USER"], "libraries look the user up, whom no image knows"


def test_tensor_parallel_processes_share_memory():
    plan = make_plan()
    assert volume(plan, "berth-shared-memory")["emptyDir"] == {"medium": "Memory"}
    assert mount(plan, "berth-shared-memory")["mountPath"] == "/dev/shm"
