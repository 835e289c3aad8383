"""Engines, spot priors, cold starts, reclaim signals, sizing constants and rules of choice, as data."""

from __future__ import annotations

import re

import pytest

from berth.catalogue.load import load
from berth.values import ConfigProblem

SERVING = load().serving


def expect_problem(text: str, message: str) -> None:
    with pytest.raises(ConfigProblem) as caught:
        load([("site.yaml", text)])
    assert str(caught.value) == message


@pytest.mark.parametrize("engine", ["vLLM", "TensorRT-LLM", "Triton"])
def test_every_engine_of_the_contract_starts_and_answers(engine: str):
    entry = SERVING.engines[engine]
    words = entry.arguments({"model": "/models/m", "name": "m", "devices": "2", "context": "8192"})
    assert any("/models/m" in word for word in words)
    assert not any("{" in word for word in words)
    assert entry.images["CUDA"]
    assert entry.ready.startswith("/")


def test_a_group_of_words_is_left_out_where_something_it_names_is_unknown():
    words = SERVING.engines["TensorRT-LLM"].arguments({"model": "m", "devices": "4"})
    assert words == ("m", "--host", "0.0.0.0", "--port", "8000", "--tp_size", "4")


@pytest.mark.parametrize(
    ("args", "speculates"),
    [(["--speculative-config", "{}"], True), (['--speculative-config={"a": 1}'], True), (["--seed=1"], False)],
)
def test_speculation_is_seen_in_the_arguments_of_the_user(args: list[str], speculates: bool):
    assert SERVING.engines["vLLM"].speculates(args) is speculates


@pytest.mark.parametrize(
    ("labels", "provider"),
    [
        ({"topology.k8s.aws/zone-id": "use1-az1"}, "AWS"),
        ({"cloud.google.com/gke-spot": "true"}, "GCP"),
        ({"kubernetes.azure.com/scalesetpriority": "spot"}, "Azure"),
        ({}, "Other"),
    ],
)
def test_the_spot_prior_is_that_of_the_provider(labels: dict[str, str], provider: str):
    assert SERVING.spot_prior(labels).name == provider


@pytest.mark.parametrize(
    ("signal", "on_spot", "on_demand"),
    [("aws-spot", 120, 120), ("karpenter", 120, None), ("gke", 15, 15), ("aks-preempt", 30, 30)],
)
def test_a_signal_says_what_pods_have_left(signal: str, on_spot: int, on_demand: int | None):
    entry = next(entry for entry in SERVING.reclaims if entry.name == signal)
    assert (entry.seconds(spot=True), entry.seconds(spot=False)) == (on_spot, on_demand)


def test_a_warm_node_reads_weights_faster():
    phase = SERVING.cold_start["Weights"]
    assert phase.reading(15 * 10**9, cached=True) < phase.reading(15 * 10**9, cached=False) == 15


def test_a_trait_is_what_the_annotation_says_or_the_default():
    read = SERVING.read_traits({"berth.dev/architecture": "New", "berth.dev/modality": "Smell"})
    assert (read["architecture"], read["modality"], read["compiledFor"]) == ("New", "Text", "")


def test_every_entry_has_a_source_and_a_date():
    entries = [
        *SERVING.engines.values(), *SERVING.spot, *SERVING.cold_start.values(), *SERVING.reclaims,
        *SERVING.traits.values(), *SERVING.rules,
        *(entry.compute for entry in load().accelerators.values() if entry.compute.bf16),
    ]  # fmt: skip
    assert all(entry.source and re.fullmatch(r"20\d\d-\d\d-\d\d", entry.as_of) for entry in entries)


def test_an_overlay_changes_a_constant_a_rule_and_an_image():
    serving = load([
        ("site.yaml", "sizing: {outputTokens: {value: 128}}\nrules: {low-latency: null}\n"
                      "engines: {vLLM: {images: {SynapseAI: example.com/vllm:1}}}\n")
    ]).serving  # fmt: skip
    assert serving.sizing.output_tokens == 128
    assert "low-latency" not in {rule.name for rule in serving.rules}
    assert set(serving.engines["vLLM"].images) == {"SynapseAI", "CUDA", "ROCm", "CPU"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("engines:\n  vLLM:\n    args:\n      - ['--x={modell}']\n",
         "site.yaml:4: engines.vLLM.args[0][0]: {modell} stands for nothing; did you mean model?"),
        ("engines: {vLLM: {ready: health}}\n",
         "site.yaml:1: engines.vLLM.ready: 'health' is not a path; write for example /health"),
        ("spot: {Other: null}\n",
         "inference.yaml:6: spot: needs exactly one entry without the field match, for all other nodes"),
        ("spot: {AWS: {discount: 60}}\n",
         "site.yaml:1: spot.AWS.discount: '60' is not a fraction above 0 and up to 1"),
        ("coldStart: {Engine: {p90: 5}}\n", "site.yaml:1: coldStart.Engine.p90: must be at least p50"),
        ("reclaims: {gke: {condition: X}}\n",
         "site.yaml:1: reclaims.gke.condition: one of the fields taint and condition must be there, not both"),
        ("sizing: {leastRequests: {value: 0}}\n", "site.yaml:1: sizing.leastRequests.value: must be above 0"),
        ("sizing: {outputToken: {value: 1}}\n",
         "site.yaml:1: sizing.outputToken: is not a field; did you mean outputTokens?"),
        ("traits: {modality: {default: Smell}}\n",
         "site.yaml:1: traits.modality.default: must be one of Text, Multimodal"),
        ("rules: {interactive: {when: {traits: {architectures: [New]}}}}\n",
         "site.yaml:1: rules.interactive.when.traits.architectures: is not a trait; did you mean architecture?"),
        ("rules: {interactive: {rank: first}}\n",
         "site.yaml:1: rules.interactive.rank: 'first' is not a whole number"),
        ("accelerators: {L4: {compute: {fp8: much}}}\n",
         "site.yaml:1: accelerators.L4.compute.fp8: 'much' is not a quantity; write for example 500m, 4, 16Gi or 840G"),
    ],
)  # fmt: skip
def test_an_error_names_file_line_and_field(text: str, message: str):
    expect_problem(text, message)
