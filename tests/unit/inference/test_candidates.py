"""Which accelerators may carry a service, and the sentence for each that may not."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.api.inferenceservice import parse_spec
from berth.catalogue.load import load
from berth.catalogue.sizing import ServedModel
from berth.inference.candidates import Candidates, candidates
from berth.inference.capacity import Promise
from berth.inference.request import ServiceRequest, service_request
from berth.inference.supply import Place, Supply
from berth.inference.variants import variant_name

CATALOGUE = load()
LLAMA = ServedModel(8 * 10**9, 16, 131_072, 8_192)
LARGE = ServedModel(70 * 10**9, 16, 327_680, 8_192)
CHAT = ServiceRequest("chat", LLAMA, Promise(99, 1.0, 0.1), engine=CATALOGUE.serving.engines["vLLM"])
BACKLOG = replace(
    CHAT, mode="Batch", promise=Promise(), own_image=True,
    traits=CATALOGUE.serving.read_traits({}), compiled_for=frozenset({"Inferentia2"}),
)  # fmt: skip
ZONES = {"Spot": ("a", "b")}


def pool(accelerator: str, *roles: str, kinds: str = "OnDemand", devices: int = 8, **more: object) -> Supply:
    places = tuple(Place(kind, zone, devices, 4) for kind in kinds.split() for zone in ZONES.get(kind, ("",)))
    return Supply(accelerator.lower(), accelerator, roles or ("Inference",), places, **more)


FLEET = [
    pool("H100", "Training"), pool("L40S"), pool("L4", devices=1), pool("MI300X"), pool("Inferentia2", devices=12),
    pool("GroqLPU"), pool("CPU"), pool("CS-2", "Training"), pool("Gaudi2"),
]  # fmt: skip


def sentence(found: Candidates, accelerator: str) -> str:
    return next((entry.sentence for entry in found.excluded if entry.accelerator == accelerator), "")


def names(found: Candidates) -> set[str]:
    return {candidate.variant.accelerator for candidate in found.found}


@pytest.mark.parametrize(
    ("wanted", "accelerator", "says"),
    [
        (CHAT, "H100", "H100: role Training only"),
        (replace(CHAT, promise=Promise(99, 1.0, 0.05)), "L4",
         "L4: a token takes 69 ms with nothing else to do, and 50 ms are promised"),
        (replace(CHAT, model=replace(LLAMA, context_tokens=16_384)), "L4",
         "L4: 16 GB of weights leave 4.5 GB for KV, 2 requests"),
        (replace(CHAT, model=LARGE), "L4",
         "L4: a replica takes 8 devices to hold 140 GB of weights, and its nodes have 1"),
        (CHAT, "Inferentia2", "Inferentia2: takes batch work only, and the service is Interactive"),
        (replace(BACKLOG, compiled_for=frozenset()), "Inferentia2",
         "Inferentia2: the model is not compiled for it; once it is, name Inferentia2 in the annotation "
         "berth.dev/compiled-for"),
        (CHAT, "GroqLPU", "GroqLPU: used only where accelerators.types names it"),
        (CHAT, "CPU", "CPU: used only where accelerators.types names it"),
        (replace(CHAT, types=("CPU",)), "CPU", "CPU takes models below 7B parameters; this one has 8B"),
        (replace(CHAT, types=("CS-2",)), "CS-2", "CS-2: does not serve, only FineTuning and Training"),
        (replace(CHAT, types=("H300",)), "H300", "H300: not in the catalogue; did you mean H200?"),
        (replace(CHAT, types=("H200",)), "H200", "H200: no pool has it"),
        (CHAT, "Gaudi2", "Gaudi2: vLLM has no image for SynapseAI here; name one in template or an overlay"),
        (replace(BACKLOG, types=("GroqLPU",), compiled_for=frozenset({"GroqLPU"})), "GroqLPU",
         "GroqLPU: the catalogue knows no device resource for it; state it in an overlay"),
        (replace(CHAT, spot="Only"), "L40S", "L40S: no spot nodes, and spot.mode is Only"),
        (replace(CHAT, devices=16), "L40S", "L40S: a replica takes 16 devices, and its nodes have 8"),
    ],
)  # fmt: skip
def test_every_exclusion_has_its_sentence(wanted: ServiceRequest, accelerator: str, says: str):
    found = candidates(wanted, FLEET, CATALOGUE)
    assert sentence(found, accelerator) == says
    assert accelerator not in names(found)


@pytest.mark.parametrize(
    ("annotation", "value", "objective", "says"),
    [
        ("", "", "Cost", ""),
        ("architecture", "New", "Cost", "a new architecture wants a GPU"),
        ("fine-tuning", "Continual", "Cost", "would need a compilation for every fine-tuned version"),
        ("modality", "Multimodal", "Cost", "multimodal ones want a GPU"),
        ("", "", "Latency", "is for throughput"),
        ("", "", "Flexibility", "runs compiled models only"),
    ],
)
def test_batch_work_goes_to_an_asic_unless_a_rule_wants_a_gpu(annotation: str, value: str, objective, says: str):
    traits = CATALOGUE.serving.read_traits({f"berth.dev/{annotation}": value} if annotation else {})
    found = candidates(replace(BACKLOG, traits=traits, objective=objective), FLEET, CATALOGUE)
    assert ("Inferentia2" in names(found)) == (not says)
    assert says in sentence(found, "Inferentia2")
    assert "L40S" in names(found)


@pytest.mark.parametrize(("billions", "served"), [(6.9, True), (7, False)])
def test_a_cpu_serves_small_models_where_it_is_named(billions: float, served: bool):
    wanted = replace(CHAT, types=("CPU",), model=ServedModel(int(billions * 10**9), 16))
    assert bool(candidates(wanted, FLEET, CATALOGUE).found) is served


def test_training_pools_are_used_only_where_allowed():
    assert "H100" in names(candidates(replace(CHAT, training_pools=True), FLEET, CATALOGUE))


def test_a_tie_leaves_the_training_hardware_alone():
    found = candidates(replace(CHAT, types=("H100", "MI300X")), [pool("H100"), pool("MI300X")], CATALOGUE).found
    unit = [candidate.variant.usd_per_hour / candidate.variant.capacity for candidate in found]
    assert unit[0] == pytest.approx(unit[1])
    assert [candidate.variant.accelerator for candidate in found] == ["MI300X", "H100"]
    assert found[0].basis == "PricePerformance"


def test_devices_grow_until_the_promise_is_kept():
    found = candidates(replace(CHAT, promise=Promise(99, 1.0, 0.02)), [pool("L40S")], CATALOGUE).found
    assert [candidate.variant.devices for candidate in found] == [2]


@pytest.mark.parametrize(("model", "devices"), [(LLAMA, 1), (LARGE, 4)])
def test_a_replica_takes_the_fewest_devices(model: ServedModel, devices: int):
    found = candidates(replace(CHAT, model=model), [pool("L40S")], CATALOGUE).found
    assert [candidate.variant.devices for candidate in found] == [devices]


def test_variants_are_pool_by_capacity_type_and_on_spot_zone():
    fleet = [pool("L40S", kinds="OnDemand Reserved Spot", spot_discount=0.6)]
    found = candidates(replace(CHAT, spot="Mixed"), fleet, CATALOGUE).found
    prices = {(entry.variant.capacity_type, entry.variant.zone): entry.variant.usd_per_hour for entry in found}
    assert prices == pytest.approx(
        {("OnDemand", ""): 1.861, ("Reserved", ""): 1.861, ("Spot", "a"): 0.7444, ("Spot", "b"): 0.7444}
    )
    assert len({entry.variant.name for entry in found}) == 4


def test_a_pool_states_its_own_price_and_what_has_none_is_used_last():
    fleet = [pool("L40S", usd_per_device_hour=Decimal("0.90")), pool("Gaudi2"), pool("L4")]
    found = candidates(replace(CHAT, own_image=True), fleet, CATALOGUE).found
    prices = {entry.variant.accelerator: (entry.basis, entry.variant.usd_per_hour) for entry in found}
    assert prices["L40S"] == ("Pool", 0.9)
    assert prices["Gaudi2"][0] == "Unknown"
    unit = {entry.variant.accelerator: entry.variant.usd_per_hour / entry.variant.capacity for entry in found}
    assert unit["Gaudi2"] == pytest.approx(max(unit.values()))


def test_the_reference_carries_one_and_stays_while_it_can():
    first = candidates(CHAT, FLEET, CATALOGUE)
    other = candidates(CHAT, FLEET, CATALOGUE, reference="L40S")
    for found in (first, other):
        assert {entry.variant.capacity for entry in found.found if entry.variant.accelerator == found.reference} == {1}
    assert (first.reference, other.reference) == ("MI300X", "L40S")
    assert candidates(CHAT, FLEET, CATALOGUE, reference="H100").reference == first.reference


def test_with_the_objective_latency_slow_replicas_count_as_dearer():
    found = candidates(replace(CHAT, objective="Latency"), [pool("L40S"), pool("MI300X")], CATALOGUE).found
    preferences = {candidate.variant.accelerator: candidate.preference for candidate in found}
    assert min(preferences.values()) == 1.0
    assert preferences["L40S"] != preferences["MI300X"]


def test_without_parameters_capacity_goes_by_bandwidth():
    wanted = replace(CHAT, model=None, devices=2)
    found = candidates(wanted, [pool("L40S"), pool("MI300X")], CATALOGUE, reference="L40S").found
    capacities = {candidate.variant.accelerator: candidate.variant.capacity for candidate in found}
    assert capacities["MI300X"] == pytest.approx(5300 / 864)


def test_a_service_that_nothing_carries_says_why():
    found = candidates(CHAT, [pool("H100", "Training")], CATALOGUE)
    assert found.why_none() == "H100: role Training only"
    assert candidates(replace(CHAT, types=("L4",)), [], CATALOGUE).why_none() == "L4: no pool has it"


def test_the_request_comes_from_the_spec_and_annotations():
    spec = parse_spec({
        "model": {"parameters": "8B", "contextTokens": 8192, "kvBytesPerToken": 131072},
        "runtime": {"engine": "vLLM", "args": ["--speculative-config={}"]},
        "accelerators": {"types": ["L4", "L40S"]},
        "slo": {"percentile": 95, "ttft": "500ms"},
        "spot": {"mode": "Mixed"},
    })  # fmt: skip
    wanted = service_request("chat", spec, {"berth.dev/compiled-for": "TPU-v5e, L4"}, CATALOGUE)
    assert wanted.model == LLAMA
    assert (wanted.types, wanted.spot, wanted.speculates) == (("L4", "L40S"), "Mixed", True)
    assert wanted.promise == Promise(95, ttft=0.5)
    assert wanted.compiled_for == {"TPU-v5e", "L4"}


@pytest.mark.parametrize(("image", "own"), [({"image": "example.com/vllm:1"}, True), ({}, False)])
def test_an_image_in_the_template_is_the_services_own(image: dict[str, str], own: bool):
    spec = parse_spec({
        "model": {"parameters": "8B"},
        "runtime": {"engine": "vLLM"},
        "template": {"spec": {"containers": [{"name": "server", **image}]}},
    })  # fmt: skip
    assert service_request("chat", spec, {}, CATALOGUE).own_image is own


def test_an_interactive_service_without_a_promise_of_time_is_held_to_the_usual_one():
    spec = parse_spec({"model": {"parameters": "8B"}, "runtime": {"engine": "vLLM"}})
    sizing = CATALOGUE.serving.sizing
    wanted = service_request("chat", spec, {}, CATALOGUE)
    assert (wanted.promise.ttft, wanted.promise.itl) == (sizing.ttft_seconds, sizing.itl_seconds)


@given(
    st.from_regex(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?", fullmatch=True),
    st.sampled_from(sorted(CATALOGUE.accelerators)),
    st.sampled_from(["OnDemand", "Spot", "Reserved"]),
    st.text(min_size=1, max_size=253),
    st.text(max_size=63),
)
def test_names_are_labels_and_a_function_of_what_the_variant_is(service, accelerator, kind, pool_name, zone):
    name = variant_name(service, accelerator, kind, pool_name, zone)
    assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", name)
    assert len(name) <= 63
    assert name == variant_name(service, accelerator, kind, pool_name, zone)
    assert name != variant_name(service, accelerator, kind, pool_name + "x", zone)
