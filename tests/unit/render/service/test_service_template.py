"""The user's template is laid over ours; what must hold holds whatever it says."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from berth.render.service.overlay import overlaid
from berth.render.service.plan import same_templates
from berth.render.service.pod import pod_template
from berth.values import Requirement, Toleration
from tests.builders.services import make_plan, make_service, make_variant

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def with_server(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "server", **fields}]}}


def server(template: dict[str, Any], engine: str = "vLLM") -> dict[str, Any]:
    spec = pod_template(make_plan(make_service(engine, template=template)))["spec"]
    container: dict[str, Any] = next(entry for entry in spec["containers"] if entry["name"] == "server")
    return container


def spec_of(**fields: Any) -> dict[str, Any]:
    spec: dict[str, Any] = pod_template(make_plan(make_service(template={"spec": fields})))["spec"]
    return spec


@pytest.mark.parametrize(
    ("ours", "own", "merged"),
    [
        ({"a": 1, "b": {"c": 2}}, {"b": {"d": 3}}, {"a": 1, "b": {"c": 2, "d": 3}}),
        ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
        ({"args": ["x"]}, {"args": ["y"]}, {"args": ["y"]}),
        (
            {"httpGet": {"path": "/a", "port": 1}, "periodSeconds": 5},
            {"exec": {"command": ["t"]}},
            {"exec": {"command": ["t"]}, "periodSeconds": 5},
        ),
        (
            {"httpGet": {"path": "/a", "port": 1}, "periodSeconds": 5},
            {"httpGet": {"path": "/b"}, "periodSeconds": 9},
            {"httpGet": {"path": "/b", "port": 1}, "periodSeconds": 9},
        ),
        (
            {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
            {"env": [{"name": "A", "valueFrom": {"x": 1}}]},
            {"env": [{"name": "B", "value": "2"}, {"name": "A", "valueFrom": {"x": 1}}]},
        ),
        (
            {"volumes": [{"name": "v", "emptyDir": {}}]},
            {"volumes": [{"name": "v", "csi": {"driver": "d"}}]},
            {"volumes": [{"name": "v", "csi": {"driver": "d"}}]},
        ),
        (
            {"volumeMounts": [{"name": "v", "mountPath": "/dev/shm"}]},
            {"volumeMounts": [{"name": "w", "mountPath": "/dev/shm"}]},
            {"volumeMounts": [{"name": "w", "mountPath": "/dev/shm"}]},
        ),
        (
            {"ports": [{"name": "http", "containerPort": 8000, "protocol": "TCP"}]},
            {"ports": [{"name": "http", "containerPort": 9000}, {"containerPort": 9100}]},
            {"ports": [{"name": "http", "containerPort": 9000, "protocol": "TCP"}, {"containerPort": 9100}]},
        ),
        (
            {"ports": [{"name": "http", "containerPort": 8000}]},
            {"ports": [{"containerPort": 8000, "hostIP": "::"}]},
            {"ports": [{"name": "http", "containerPort": 8000, "hostIP": "::"}]},
        ),
    ],
    ids=["objects", "null", "list", "handler", "timing", "env", "volume", "mount", "port", "numbered port"],
)
def test_parts_are_laid_over_each_other(ours: Any, own: Any, merged: Any):
    before = copy.deepcopy((ours, own))
    assert overlaid(ours, own) == merged
    assert (ours, own) == before


def test_containers_are_matched_by_name_and_others_stand_beside():
    template = {"spec": {"containers": [{"name": "logger", "image": "log:1"}, {"name": "server", "image": "mine:1"}]}}
    spec = pod_template(make_plan(make_service(template=template)))["spec"]
    assert [entry["name"] for entry in spec["containers"]] == ["server", "logger"]
    assert spec["containers"][1] == {"name": "logger", "image": "log:1"}
    assert spec["containers"][0]["image"] == "mine:1"
    assert spec["containers"][0]["command"] == ["vllm", "serve"]


def test_the_user_s_metadata_stays_and_the_labels_of_children_hold():
    metadata = {"labels": {"team": "nlp", "berth.dev/pool": "lie"}, "annotations": {"note": "x"}, "name": "odd"}
    found = pod_template(make_plan(make_service(template={"metadata": metadata})))["metadata"]
    assert found["labels"]["team"] == "nlp"
    assert found["labels"]["berth.dev/pool"] == "l4"
    assert found["annotations"] == {"note": "x"}
    assert "name" not in found


def test_devices_and_priority_are_the_plan_s():
    resources = {"limits": {"nvidia.com/gpu": 8, "memory": "64Gi"}}
    found = server(with_server(resources=resources))["resources"]
    assert found["limits"] == {"nvidia.com/gpu": "1", "memory": "64Gi"}
    assert found["requests"] == {"nvidia.com/gpu": "1"}
    assert spec_of(containers=[])["priorityClassName"] == "berth-inference"


def test_the_pool_s_nodes_are_in_every_term_of_the_template_s():
    zone, disk = ({"key": key, "operator": "Exists"} for key in ("zone", "disk"))
    own = {
        "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [zone]}, {"matchExpressions": [disk]}]}},
        "podAntiAffinity": {"x": 1},
    }
    nodes = ((Requirement("pool", "In", ("l4",)), Requirement("spot", "DoesNotExist")),)
    plan = make_plan(make_service(template={"spec": {"affinity": own}}), nodes=nodes)
    found = pod_template(plan)["spec"]["affinity"]
    mine = [{"key": "pool", "operator": "In", "values": ["l4"]}, {"key": "spot", "operator": "DoesNotExist"}]
    terms = [term["matchExpressions"] for term in found["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]]
    assert terms == [[zone, *mine], [disk, *mine]]
    assert found["podAntiAffinity"] == {"x": 1}


def test_nodes_are_chosen_by_labels_never_by_name_and_those_with_the_weights_come_first():
    service = make_service(coldStart={"modelCache": "NVMe"})
    nodes = ((Requirement("a", "In", ("x",)),), (Requirement("b", "Exists"),))
    found = pod_template(make_plan(service, nodes=nodes))["spec"]["affinity"]["nodeAffinity"]
    assert [term["matchExpressions"][0]["key"] for term in found[REQUIRED]["nodeSelectorTerms"]] == ["a", "b"]
    preferred = found["preferredDuringSchedulingIgnoredDuringExecution"]
    assert preferred[0]["preference"]["matchExpressions"][0]["key"].startswith("berth.dev/model-cache-")
    assert "matchFields" not in str(found)
    assert "affinity" not in pod_template(make_plan())["spec"]


def test_replicas_of_all_variants_spread_over_zones_and_hosts_without_holding_a_start_up():
    found = pod_template(make_plan())["spec"]["topologySpreadConstraints"]
    assert [entry["topologyKey"] for entry in found] == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
    for entry in found:
        assert entry["whenUnsatisfiable"] == "ScheduleAnyway"
        assert entry["labelSelector"] == {"matchLabels": {"berth.dev/service-name": "chat"}}
    assert "topologySpreadConstraints" not in spec_of(topologySpreadConstraints=[])


def test_taints_of_the_device_of_the_plan_and_of_the_user_are_tolerated():
    service = make_service(template={"spec": {"tolerations": [{"key": "team", "operator": "Exists"}]}})
    plan = make_plan(service, make_variant(capacity_type="Spot"), tolerations=(Toleration("spot", "Equal", "true"),))
    assert pod_template(plan)["spec"]["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists"},
        {"key": "spot", "operator": "Equal", "value": "true"},
        {"key": "team", "operator": "Exists"},
    ]


@pytest.mark.parametrize(("grace", "drain"), [(300, 60), (45, 30), (10, None)])
def test_draining_ends_before_the_user_s_own_grace(grace: int, drain: int | None):
    spec = spec_of(terminationGracePeriodSeconds=grace)
    assert spec["terminationGracePeriodSeconds"] == grace
    hook = spec["containers"][0].get("lifecycle", {}).get("preStop")
    assert hook == (None if drain is None else {"sleep": {"seconds": drain}})


def test_a_hook_of_the_user_s_stays():
    hook = {"exec": {"command": ["drain"]}}
    assert server(with_server(lifecycle={"preStop": hook}))["lifecycle"] == {"preStop": hook}


def test_a_volume_in_whose_place_another_is_mounted_goes():
    template = with_server(volumeMounts=[{"name": "shm", "mountPath": "/dev/shm"}])
    template["spec"]["volumes"] = [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}]
    spec = pod_template(make_plan(make_service(template=template)))["spec"]
    assert [volume["name"] for volume in spec["volumes"]] == ["berth-scratch", "shm"]


def test_the_identity_that_the_template_gives_the_pod_is_the_server_s():
    spec = spec_of(securityContext={"runAsUser": 2000})
    assert spec["securityContext"]["runAsUser"] == 2000
    assert "runAsUser" not in spec["containers"][0]["securityContext"]
    assert spec["containers"][0]["securityContext"]["runAsNonRoot"] is True


def test_a_privileged_server_is_the_user_s_choice():
    security = server(with_server(securityContext={"privileged": True}))["securityContext"]
    assert security["privileged"] is True
    assert "allowPrivilegeEscalation" not in security, "the API server refuses both"


@pytest.mark.parametrize("token", [None, True])
def test_a_service_account_of_the_user_s_brings_its_token(token: bool | None):
    stated = {} if token is None else {"automountServiceAccountToken": token}
    assert spec_of(serviceAccountName="models", **stated).get("automountServiceAccountToken") is token
    assert spec_of()["automountServiceAccountToken"] is False


def test_an_engine_of_the_user_s_own_is_left_as_it_is():
    own = {"name": "server", "image": "own:1", "command": ["serve"], "args": ["--fast"]}
    found = server({"spec": {"containers": [own]}}, engine="Custom")
    assert found.items() >= own.items()
    assert "readinessProbe" not in found
    assert "startupProbe" not in found
    assert found["securityContext"] == {"allowPrivilegeEscalation": False}
    names = {entry["name"] for entry in found["env"]}
    assert {"BERTH_MODEL_NAME", "BERTH_MODEL_URI", "BERTH_DEVICES"} <= names
    assert "HOME" not in names


@pytest.mark.parametrize("kind", ["readinessProbe", "livenessProbe"])
def test_probes_of_the_user_s_own_engine_wait_for_its_start(kind: str):
    probe = {"tcpSocket": {"port": 9000}, "periodSeconds": 1}
    found = server(with_server(image="own:1", **{kind: probe}), engine="Custom")
    assert found[kind] == probe
    startup = found["startupProbe"]
    assert startup["tcpSocket"] == {"port": 9000}
    assert startup["periodSeconds"] * startup["failureThreshold"] == 600


@pytest.mark.parametrize(
    ("edit", "same"),
    [
        ({"replicas": 4}, True),
        ({"scaling": {"minReplicas": 4}}, True),
        ({"spot": {"maxShare": "50%"}}, True),
        ({"rollout": {"maxSurge": 1}}, True),
        ({"accelerators": {"types": ["L4"]}}, True),
        ({"mode": "Batch"}, True),
        ({"objective": "Latency"}, True),
        ({"priorityClassName": "high"}, True),
        ({"expose": {"port": 80}}, True),
        ({"accelerators": {"perReplica": 2}}, False),
        ({"slo": {"latency": "90s"}}, False),
        ({"model": {"contextTokens": 4096}}, False),
        ({"args": ("--seed=1",)}, False),
        ({"coldStart": {"modelCache": "NVMe"}}, False),
        ({"template": {"spec": {"nodeName": "n"}}}, False),
    ],
)
def test_edits_that_reach_templates_are_told_from_those_that_do_not(edit: Any, same: bool):
    before, after = make_service(), make_service(**edit)
    assert same_templates(before.spec, after.spec) is same
    devices = edit.get("accelerators", {}).get("perReplica", 1)
    plans = make_plan(before), make_plan(after, make_variant(devices=devices))
    assert (pod_template(plans[0]) == pod_template(plans[1])) is same
