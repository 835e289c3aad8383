"""What the chart installs: properties that hold whatever the values are."""

from __future__ import annotations

import pytest
import yaml

from berth.main import main as operate
from tests.unit.chart.rendered import (
    CHART,
    CRDS,
    EVERYTHING,
    Manifest,
    expect_refused,
    notes,
    of_kind,
    only,
    pod_specs,
    render,
    text,
)

VARIANTS = pytest.mark.parametrize("settings", [(), EVERYTHING, ("replicaCount=0",)], ids=["default", "all", "none"])


def operator(*settings: str) -> Manifest:
    spec: Manifest = only(render(*settings), "Deployment")["spec"]
    return spec


def container(*settings: str) -> Manifest:
    first: Manifest = operator(*settings)["template"]["spec"]["containers"][0]
    return first


# -- safety ----------------------------------------------------------------------------------------------------------


@VARIANTS
def test_every_pod_runs_without_privileges(settings: tuple[str, ...]) -> None:
    specs = pod_specs(render(*settings))
    assert set(specs) == {"Deployment/berth", "Pod/berth-selftest"}
    for spec in specs.values():
        pod = spec["securityContext"]
        assert (pod["runAsNonRoot"], pod["runAsUser"], pod["seccompProfile"]) == (
            True,
            65532,
            {"type": "RuntimeDefault"},
        )
        for each in spec["containers"]:
            assert each["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert each["resources"]["requests"]
            assert each["resources"]["limits"]["memory"]
        assert not any("hostPath" in volume for volume in spec["volumes"])
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)


@VARIANTS
def test_no_role_has_a_wildcard_or_reaches_secrets(settings: tuple[str, ...]) -> None:
    manifests = render(*settings)
    roles = [*of_kind(manifests, "ClusterRole").values(), *of_kind(manifests, "Role").values()]
    assert roles
    for rule in (rule for role in roles for rule in role["rules"]):
        for field in ("apiGroups", "resources", "verbs"):
            assert "*" not in rule[field], rule
        assert "secrets" not in rule["resources"]
    assert not of_kind(manifests, "Secret")


@VARIANTS
def test_everything_namespaced_goes_to_the_namespace_of_the_release(settings: tuple[str, ...]) -> None:
    cluster_scoped = {"CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "PriorityClass"}
    for manifest in render(*settings):
        expected = None if manifest["kind"] in cluster_scoped else "berth-system"
        assert manifest["metadata"].get("namespace") == expected, manifest["kind"]


def test_rendering_twice_gives_the_same_text_so_that_an_upgrade_rolls_nothing() -> None:
    first = text(*EVERYTHING)
    text.cache_clear()
    assert text(*EVERYTHING) == first


# -- definitions -----------------------------------------------------------------------------------------------------


def test_the_chart_carries_the_generated_definitions_byte_for_byte() -> None:
    generated = {path.name: path.read_bytes() for path in CRDS.glob("*.yaml")}
    assert len(generated) == 3
    assert {path.name: path.read_bytes() for path in (CHART / "files" / "crds").iterdir()} == generated


@pytest.mark.parametrize("keep", [True, False])
def test_definitions_are_rendered_unchanged_but_for_the_order_to_keep_them(keep: bool) -> None:
    rendered = of_kind(render(f"crds.keep={str(keep).lower()}"), "CustomResourceDefinition")
    for path in CRDS.glob("*.yaml"):
        expected = yaml.safe_load(path.read_text())
        if keep:
            expected["metadata"]["annotations"] = {"helm.sh/resource-policy": "keep"}
        assert rendered.pop(expected["metadata"]["name"]) == expected
    assert not rendered


def test_definitions_can_be_left_out() -> None:
    assert not of_kind(render("crds.install=false"), "CustomResourceDefinition")


# -- the operator's pods -----------------------------------------------------------------------------------------------


def test_two_replicas_are_rolled_one_by_one_and_kept_apart() -> None:
    spec = operator()
    assert spec["replicas"] == 2
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    (spread,) = spec["template"]["spec"]["topologySpreadConstraints"]
    assert spread["topologyKey"] == "kubernetes.io/hostname"
    assert spread["labelSelector"]["matchLabels"] == spec["selector"]["matchLabels"]
    budget = only(render(), "PodDisruptionBudget")["spec"]
    assert (budget["maxUnavailable"], budget["selector"]) == (1, spec["selector"])


def test_probes_ask_the_health_port() -> None:
    ports = {port["name"]: port["containerPort"] for port in container("health.port=9000")["ports"]}
    assert ports == {"metrics": 8080, "health": 9000}
    for probe, path in (("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert container()[probe]["httpGet"] == {"path": path, "port": "health"}


@pytest.mark.parametrize(
    ("settings", "argument"),
    [
        ((), "--namespace=$(POD_NAMESPACE)"),
        ((), "--lease-name=berth"),
        ((), "--native-gangs=auto"),
        ((), "--qps=300"),
        ((), "--log-format=json"),
        (("operator.nativeGangs=false",), "--native-gangs=off"),
        (("operator.leaseName=mine",), "--lease-name=mine"),
        (("metrics.port=9090",), "--metrics-port=9090"),
        (("operator.logLevel=DEBUG",), "--log-level=DEBUG"),
        (("operator.extraArgs[0]=--identity=me",), "--identity=me"),
        (("catalogue.existingConfigMap=ours",), "--catalogue-overlay=/etc/berth/catalogue"),
    ],
)
def test_values_become_arguments(settings: tuple[str, ...], argument: str) -> None:
    assert argument in container(*settings)["args"]


@VARIANTS
def test_the_operator_understands_its_arguments(settings: tuple[str, ...]) -> None:
    arguments = container(*settings)["args"]
    options = operate.make_context("berth", list(arguments)).params
    assert options["lease_name"] == "berth"
    assert options["log_format"] == "json"


SECURED = ("prometheus.url=https://prometheus:9090", "prometheus.existingSecret=monitoring", "prometheus.caFile=ca.crt")


@pytest.mark.parametrize(
    ("settings", "files"),
    [
        pytest.param(SECURED, {"token-file": "token", "ca-file": "ca.crt"}, id="a token and an authority"),
        pytest.param((*SECURED, "prometheus.tokenKey="), {"ca-file": "ca.crt"}, id="an authority alone"),
    ],
)
def test_prometheus_is_asked_with_what_the_secret_holds(settings: tuple[str, ...], files: dict[str, str]) -> None:
    begin, folder = "--prometheus-", "/etc/berth/prometheus/"
    pairs = [arg.removeprefix(begin).split("=") for arg in container(*settings)["args"] if arg.startswith(begin)]
    assert {name: path.removeprefix(folder) for name, path in pairs if name != "url"} == files


def test_volumes_of_yours_are_mounted_beside_those_of_the_chart() -> None:
    settings = (
        "operator.extraVolumes[0].name=bundle",
        "operator.extraVolumes[0].configMap.name=ours",
        "operator.extraVolumeMounts[0].name=bundle",
        "operator.extraVolumeMounts[0].mountPath=/etc/ssl/ours",
    )
    volumes = only(render(*settings), "Deployment")["spec"]["template"]["spec"]["volumes"]
    assert {"name": "bundle", "configMap": {"name": "ours"}} in volumes
    assert [mount["name"] for mount in container(*settings)["volumeMounts"]] == ["tmp", "bundle"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        pytest.param((), "is published nowhere", id="no image"),
        pytest.param((), "prometheus.url is empty", id="no Prometheus"),
        pytest.param(("networkPolicy.egress.restrict=true",), "networkPolicy.egress.extra empty", id="no way out"),
        pytest.param(("replicaCount=0",), "replicaCount is 0", id="no replica"),
    ],
)
def test_the_notes_tell_what_is_missing(settings: tuple[str, ...], said: str) -> None:
    assert said in notes(*settings)


def test_the_notes_of_a_whole_installation_ask_for_nothing() -> None:
    told = notes("image.repository=registry.example/berth", "prometheus.url=http://prometheus:9090")
    assert "empty" not in told
    assert "published" not in told


def test_the_pod_knows_its_name_and_namespace() -> None:
    fields = {entry["name"]: entry["valueFrom"]["fieldRef"]["fieldPath"] for entry in container()["env"]}
    assert fields == {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace"}


def test_only_tmp_can_be_written() -> None:
    writable = [m["mountPath"] for m in container(*EVERYTHING)["volumeMounts"] if not m.get("readOnly")]
    assert writable == ["/tmp"]


def test_an_overlay_is_mounted_as_a_folder_so_that_changes_arrive() -> None:
    overlay = r"catalogue.overlay.prices\.yaml=accelerators: []"
    assert only(render(overlay), "ConfigMap")["data"] == {"prices.yaml": "accelerators: []"}
    volumes = operator(overlay)["template"]["spec"]["volumes"]
    assert {"name": "catalogue", "configMap": {"name": "berth-catalogue"}} in volumes
    (mount,) = (m for m in container(overlay)["volumeMounts"] if m["name"] == "catalogue")
    assert "subPath" not in mount
    assert not any(argument.startswith("--catalogue-overlay") for argument in container()["args"])


@pytest.mark.parametrize(
    ("settings", "image"),
    [
        ((), "berth:0.1.0"),
        (("image.repository=registry.example/berth", "image.tag=v1"), "registry.example/berth:v1"),
        (("image.tag=v1", "image.digest=sha256:" + "a" * 64), "berth@sha256:" + "a" * 64),
    ],
)
def test_a_digest_wins_over_a_tag(settings: tuple[str, ...], image: str) -> None:
    for spec in pod_specs(render(*settings)).values():
        assert [each["image"] for each in spec["containers"]] == [image]


# -- around it ---------------------------------------------------------------------------------------------------------


def test_the_priority_classes_of_gangs_and_services_never_preempt() -> None:
    classes = of_kind(render(), "PriorityClass")
    assert set(classes) == {"berth-training", "berth-inference"}
    assert {each["preemptionPolicy"] for each in classes.values()} == {"Never"}
    assert not any(each["globalDefault"] for each in classes.values())
    assert classes["berth-inference"]["value"] > classes["berth-training"]["value"] > 0


@pytest.mark.parametrize("keep", [True, False])
def test_the_priority_classes_of_what_runs_on_outlive_the_release(keep: bool) -> None:
    """Without its class no pod is admitted in place of one that ends."""
    classes = of_kind(render(f"priorityClasses.keep={str(keep).lower()}", "prefetch.enabled=true"), "PriorityClass")
    policies = {
        name: (entry["metadata"].get("annotations") or {}).get("helm.sh/resource-policy")
        for name, entry in classes.items()
    }
    kept = "keep" if keep else None
    assert policies == {"berth-training": kept, "berth-inference": kept, "berth-prefetch": None}


def test_fetching_weights_gives_way_to_every_other_pod() -> None:
    known = of_kind(render("prefetch.enabled=true"), "PriorityClass")["berth-prefetch"]
    assert known["value"] < 0
    assert known["preemptionPolicy"] == "Never"


def test_weights_are_fetched_ahead_only_where_that_is_switched_on() -> None:
    def flags(*settings: str) -> list[str]:
        return [argument for argument in container(*settings)["args"] if argument.startswith("--prefetch")]

    assert flags() == []
    assert flags("prefetch.enabled=true", "prefetch.concurrent=5") == ["--prefetch=5"]


def test_the_network_is_closed_inwards_and_outwards_on_request() -> None:
    default = only(render(), "NetworkPolicy")["spec"]
    assert default["policyTypes"] == ["Ingress"]
    assert sorted(port["port"] for rule in default["ingress"] for port in rule["ports"]) == [8080, 8081]
    strict = only(render("networkPolicy.egress.restrict=true"), "NetworkPolicy")["spec"]
    assert strict["policyTypes"] == ["Ingress", "Egress"]
    assert {port["port"] for rule in strict["egress"] for port in rule["ports"]} == {53, 443, 6443}
    assert not of_kind(render("networkPolicy.enabled=false"), "NetworkPolicy")
    guarded = only(render("networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.team=sre"), "NetworkPolicy")
    limited = {rule["ports"][0]["port"]: "from" in rule for rule in guarded["spec"]["ingress"]}
    assert limited == {8081: False, 8080: True}
    expect_refused("health.port=8080", "must differ")


def test_monitoring_objects_need_to_be_asked_for() -> None:
    assert not {"ServiceMonitor", "PrometheusRule"} & {manifest["kind"] for manifest in render()}
    asked = render(*EVERYTHING)
    service = only(asked, "Service")
    monitor = only(asked, "ServiceMonitor")["spec"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["endpoints"][0]["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert all(rule["expr"] for group in only(asked, "PrometheusRule")["spec"]["groups"] for rule in group["rules"])


def test_users_get_the_kinds_through_the_roles_they_have() -> None:
    roles = of_kind(render(), "ClusterRole")
    for role in ("view", "edit", "admin"):
        assert roles[f"berth-{role}"]["metadata"]["labels"][f"rbac.authorization.k8s.io/aggregate-to-{role}"] == "true"
    assert {verb for rule in roles["berth-view"]["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}
    writable = {resource for rule in roles["berth-edit"]["rules"] for resource in rule["resources"]}
    assert writable == {"trainingjobs", "inferenceservices", "inferenceservices/scale"}
