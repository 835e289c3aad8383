"""The contract as a real API server enforces it: what it accepts, what it shows, what it refuses and in which words."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any

import pytest

from berth.api import names
from berth.api.crd import crd_objects
from berth.api.trainingjob_status import encode_ranks
from berth.devcluster.api import APPLY, Api, Json
from berth.devcluster.problems import ApiRefused
from berth.devcluster.process import wait_until
from tests.contract import tables

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("crds")]

Kubectl = Callable[..., str]

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = f"/apis/{names.API_VERSION}"
UNCHECKED = (
    ", <nil>: Invalid value: null: some validation rules were not checked because the object was invalid;"
    " correct the existing errors to complete validation]"
)
"""What the server itself adds to a list of errors when a required field, a type or an enumeration is wrong."""


@pytest.fixture(scope="module")
def crds(api: Api) -> Iterator[None]:
    """The CRDs, taken away again where they were not there before: the cluster is shared."""
    ours = [crd for crd in crd_objects() if not api.exists(f"{CRDS}/{crd['metadata']['name']}")]
    for crd in ours:
        api.create(crd)
    kinds = {kind.kind for kind in names.KINDS}
    assert wait_until(lambda: kinds <= served(api), 30), "the API server does not serve the kinds"
    yield
    for crd in ours:
        api.delete(f"{CRDS}/{crd['metadata']['name']}")
    assert wait_until(lambda: not any(api.exists(f"{CRDS}/{crd['metadata']['name']}") for crd in ours), 30)


def served(api: Api) -> set[str]:
    try:
        return {resource["kind"] for resource in api.get(GROUP)["resources"]}
    except ApiRefused:
        return set()


@pytest.fixture
def pool_name(api: Api, namespace: str) -> Iterator[str]:
    """A name for an AcceleratorPool, which has no namespace to go with."""
    name = f"pool-{namespace}"
    yield name
    if api.exists(f"{GROUP}/acceleratorpools/{name}"):
        api.delete(f"{GROUP}/acceleratorpools/{name}")


def placed(kind: str, manifest: Json, namespace: str) -> Json:
    """``manifest`` in the test's namespace; a pool gets a name of the test's own."""
    manifest = copy.deepcopy(manifest)
    if kind == "acceleratorpool":
        manifest["metadata"]["name"] = f"pool-{namespace}"
    else:
        manifest["metadata"]["namespace"] = namespace
    return manifest


def expect_refused(message: str | list[str], call: Any, *arguments: Any, **query: Any) -> None:
    """The call is refused with ``message``, or with all of several in any order."""
    with pytest.raises(ApiRefused) as refusal:
        call(*arguments, **query)
    if isinstance(message, str):
        assert said(refusal.value.message) == message
    else:
        assert said(refusal.value.message) in {", ".join(order) for order in permutations(message)}


def said(message: str) -> str:
    """The server's words without the object's name before them, brackets, and the server's own note behind them."""
    errors = message.partition(" is invalid: ")[2] or message
    return errors.removesuffix(UNCHECKED).removeprefix("[").removesuffix("]") if errors.startswith("[") else errors


def cases(entries: list[Json]) -> Any:
    return pytest.mark.parametrize("case", [pytest.param(entry, id=entry["name"]) for entry in entries])


# -- the definitions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", names.KINDS, ids=lambda kind: kind.kind)
def test_crd_is_established_structural_and_unrenamed(api: Api, kind: names.KindNames) -> None:
    crd = api.get(f"{CRDS}/{kind.crd_name}")
    conditions = {condition["type"]: condition["status"] for condition in crd["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    accepted = crd["status"]["acceptedNames"]
    assert (accepted["shortNames"], accepted["categories"]) == (list(kind.short_names), ["berth"])


@pytest.mark.parametrize("kind", tables.KINDS)
def test_minimal_manifest_is_accepted(api: Api, namespace: str, kind: str) -> None:
    manifest = placed(kind, tables.minimal(kind), namespace)
    assert api.create(manifest, dryRun="All", fieldValidation="Strict")["spec"].items() >= manifest["spec"].items()


@pytest.mark.parametrize("kind", tables.KINDS)
def test_contract_example_round_trips_with_its_status(api: Api, namespace: str, pool_name: str, kind: str) -> None:
    wanted = placed(kind, tables.example(kind), namespace)
    status = wanted.pop("status")
    created = api.create(wanted, fieldValidation="Strict")
    assert created["spec"] == wanted["spec"]

    head = {"apiVersion": wanted["apiVersion"], "kind": wanted["kind"], "metadata": wanted["metadata"]}
    path = api.path_of(wanted)
    api.patch(
        f"{path}/status",
        {**head, "status": status},
        APPLY,
        fieldManager=names.FIELD_MANAGER,
        force="true",
        fieldValidation="Strict",
    )
    stored = api.get(path)
    assert stored["status"] == status
    assert stored["spec"] == wanted["spec"]
    assert stored["metadata"]["generation"] == 1, "a status write must not count as a change of the spec"


DEFAULTS = {
    "trainingjob": {"framework": "None", "suspend": False},
    "inferenceservice": {"replicas": 1, "mode": "Interactive", "objective": "Cost"},
    "acceleratorpool": {},
}


@pytest.mark.parametrize("kind", tables.KINDS)
def test_only_defaults_that_never_change_enter_an_object(api: Api, namespace: str, kind: str) -> None:
    manifest = placed(kind, tables.minimal(kind), namespace)
    created = api.create(manifest, dryRun="All")
    assert created["spec"] == manifest["spec"] | DEFAULTS[kind]


# -- what is refused -----------------------------------------------------------------------------------------------


@cases(tables.bad_manifests("trainingjob"))
def test_bad_training_job_is_refused_with_words(api: Api, case: Json) -> None:
    expect_bad(api, "trainingjob", case)


@cases(tables.bad_manifests("inferenceservice"))
def test_bad_inference_service_is_refused_with_words(api: Api, case: Json) -> None:
    expect_bad(api, "inferenceservice", case)


@cases(tables.bad_manifests("acceleratorpool"))
def test_bad_accelerator_pool_is_refused_with_words(api: Api, case: Json) -> None:
    expect_bad(api, "acceleratorpool", case)


def expect_bad(api: Api, kind: str, case: Json) -> None:
    manifest = tables.merged(tables.minimal(kind), case["patch"])
    expect_refused(case["message"], api.create, manifest, dryRun="All", fieldValidation="Strict")


@cases(tables.edits())
def test_edit_of_a_live_training_job(api: Api, namespace: str, case: Json) -> None:
    manifest = tables.merged(tables.minimal("trainingjob"), case.get("with", {}))
    manifest["metadata"]["namespace"] = namespace
    api.create(manifest)
    path = api.path_of(manifest)
    if "attempt" in case:
        api.patch(f"{path}/status", {"status": {"phase": case.get("phase", "Running"), "attempt": case["attempt"]}})
    if "message" in case:
        expect_refused(case["message"], api.patch, path, case["patch"])
    else:
        edited = api.patch(path, case["patch"], fieldValidation="Strict")
        assert edited["spec"] == tables.merged(edited["spec"], case["patch"]["spec"])


# -- how it is shown, selected, scaled and merged --------------------------------------------------------------------

COLUMNS = {
    "trainingjob": {
        "NAME": "llama-70b", "PHASE": "Running", "WORKERS": "64", "READY": "64", "POOL": "h200-ib", "ATTEMPT": "2",
    },
    "inferenceservice": {
        "NAME": "chat-8b", "PHASE": "Ready", "READY": "11", "REPLICAS": "12", "MIN": "2", "MAX": "40", "USD/H": "14.20",
    },
    "acceleratorpool": {
        "NAME": "", "ACCELERATOR": "H200", "ROLES": '["Training"]', "CAPACITY": "karpenter.sh/capacity-type",
        "NODES": "64", "ACCELERATORS": "512", "FREE": "128", "READY": "True",
    },
}  # fmt: skip
WIDE = {
    "trainingjob": {"QUEUE": "research", "POSITION": "3", "MESSAGE": "all is well"},
    "inferenceservice": {"METHOD": "SeasonalNaive", "MESSAGE": "all is well"},
    "acceleratorpool": {},
}


@pytest.mark.parametrize("kind", tables.KINDS)
def test_kubectl_get_shows_the_columns_of_the_contract(
    api: Api, kubectl: Kubectl, namespace: str, pool_name: str, kind: str
) -> None:
    manifest = placed(kind, tables.example(kind), namespace)
    if kind != "acceleratorpool":
        manifest["status"]["message"] = "all is well"
    created_with_status(api, manifest)
    name = manifest["metadata"]["name"]
    short = {"trainingjob": "tj", "inferenceservice": "bisvc", "acceleratorpool": "apool"}[kind]
    shown = columns(kubectl("get", short, name, "-n", namespace))
    assert shown.pop("AGE")
    assert shown == COLUMNS[kind] | {"NAME": name}
    wide = columns(kubectl("get", short, name, "-n", namespace, "-o", "wide"))
    assert {title: wide[title] for title in wide if title not in {*shown, "AGE"}} == WIDE[kind]


def columns(output: str) -> dict[str, str]:
    """The only row of what kubectl printed, by title; cells may be empty or hold spaces."""
    titles, row = output.splitlines()
    starts = [(match.group(), match.start()) for match in re.finditer(r"\S+", titles)]
    ends = [start for _, start in starts[1:]] + [None]
    return {title: row[start:end].strip() for (title, start), end in zip(starts, ends, strict=True)}


def test_category_lists_all_three_kinds(api: Api, kubectl: Kubectl, namespace: str) -> None:
    for kind in ("trainingjob", "inferenceservice"):
        api.create(placed(kind, tables.minimal(kind), namespace))
    listed = kubectl("get", names.CATEGORY, "-n", namespace, "-o", "name").split()
    assert {"trainingjob.berth.dev/llama", "inferenceservice.berth.dev/chat"} <= set(listed)


def test_jobs_are_selected_by_phase_and_queue(api: Api, namespace: str) -> None:
    created_with_status(api, placed("trainingjob", tables.example("trainingjob"), namespace))
    other = placed("trainingjob", tables.minimal("trainingjob"), namespace)
    api.create(other)
    jobs = f"{GROUP}/namespaces/{namespace}/trainingjobs"
    for selector in ("status.phase=Running", "spec.queueName=research", "status.phase!="):
        found = [item["metadata"]["name"] for item in api.list(jobs, fieldSelector=selector)]
        assert found == ["llama-70b"], selector


def test_scale_reads_and_writes_replicas(api: Api, namespace: str) -> None:
    path = created_with_status(api, placed("inferenceservice", tables.example("inferenceservice"), namespace))
    scale = api.get(f"{path}/scale")
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 12, "selector": "berth.dev/service-name=chat-8b"}
    api.patch(f"{path}/scale", {"spec": {"replicas": 7}})
    assert api.get(path)["spec"]["replicas"] == 7


def test_scale_is_readable_before_anything_is_said(api: Api, namespace: str) -> None:
    manifest = placed("inferenceservice", tables.minimal("inferenceservice"), namespace)
    api.create(manifest)
    assert api.get(f"{api.path_of(manifest)}/scale")["spec"] == {"replicas": 1}


def test_two_appliers_share_a_template_by_container_name(api: Api, namespace: str) -> None:
    manifest = placed("trainingjob", tables.minimal("trainingjob"), namespace)
    path = api.path_of(manifest)
    api.patch(path, manifest, APPLY, fieldManager="team")
    sidecar = {
        **{key: manifest[key] for key in ("apiVersion", "kind", "metadata")},
        "spec": {"template": {"spec": {"containers": [{"name": "logs", "image": "registry.example/logs:1"}]}}},
    }
    merged = api.patch(path, sidecar, APPLY, fieldManager="platform")
    assert [container["name"] for container in merged["spec"]["template"]["spec"]["containers"]] == ["worker", "logs"]


def test_status_apply_leaves_the_placement_of_its_own_manager(api: Api, namespace: str) -> None:
    manifest = placed("trainingjob", tables.minimal("trainingjob"), namespace)
    api.create(manifest)
    path = api.path_of(manifest)
    head = {key: manifest[key] for key in ("apiVersion", "kind", "metadata")}
    ranks = encode_ranks([f"ip-10-0-{node // 250}-{node % 250}.eu-west-1.compute.internal" for node in range(25_000)])
    placement = {"attempt": 1, "pool": "h200", "certificate": "Optimal", "ranks": ranks}
    for manager, status in (
        (names.PLACEMENT_MANAGER, {"placement": placement}),
        (names.FIELD_MANAGER, {"phase": "Starting"}),
    ):
        for _ in range(2):
            api.patch(f"{path}/status", {**head, "status": status}, APPLY, fieldManager=manager)
    assert api.get(path)["status"] == {"placement": placement, "phase": "Starting"}


def created_with_status(api: Api, manifest: Json) -> str:
    status = manifest.pop("status")
    api.create(manifest)
    path = api.path_of(manifest)
    api.patch(f"{path}/status", {"status": status})
    return path
