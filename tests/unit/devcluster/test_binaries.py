"""Which programs are used, how the module that builds them reads, and what a broken build says."""

from __future__ import annotations

import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from berth.devcluster import binaries, build, gomodule, kind, tools
from berth.devcluster.components import START_ORDER, Features, Layout, command_lines
from berth.devcluster.problems import BuildFailed, ToolMissing
from berth.devcluster.process import quiet

TRIO = ("kube-apiserver", "kube-scheduler", "kube-controller-manager")


def program(path: Path, says: str = "", code: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\nexit {code}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def programs(folder: Path, version: str, names: tuple[str, ...] = START_ORDER) -> Path:
    for name in names:
        program(folder / name, f"Kubernetes {version}")
    return folder


# -- finding -----------------------------------------------------------------------------------------------------------


def test_assets_come_before_path_before_cache(tmp_path: Path) -> None:
    assets, path, cache = (programs(tmp_path / name, "v1.37.2") for name in ("assets", "path", "cache"))
    assert set(binaries.find(str(assets), str(path), [cache]).values()) == {assets / name for name in START_ORDER}
    assert set(binaries.find("", str(path), [cache]).values()) == {path / name for name in START_ORDER}
    assert set(binaries.find("", "", [cache]).values()) == {cache / name for name in START_ORDER}


@pytest.mark.parametrize(
    "present",
    [
        {"kube-apiserver": "v1.36.1"},
        {"kube-apiserver": "v1.36.1", "kube-scheduler": "v1.36.1", "kube-controller-manager": "v1.35.0"},
        dict.fromkeys(TRIO, "v1.29.3"),
        dict.fromkeys(TRIO, "unknown"),
    ],
    ids=["only the API server, as envtest has", "two versions", "too old", "no version"],
)
def test_the_three_of_kubernetes_come_from_one_place_or_from_the_cache(tmp_path: Path, present: dict[str, str]) -> None:
    for name, version in present.items():
        program(tmp_path / "assets" / name, f"Kubernetes {version}")
    program(tmp_path / "assets" / "etcd", "etcd Version: 3.6.0")
    cache = programs(tmp_path / "cache", "v1.37.2")
    found = binaries.find(str(tmp_path / "assets"), "", [cache])
    assert {name: found[name].parent for name in TRIO} == dict.fromkeys(TRIO, cache)
    assert found["etcd"] == tmp_path / "assets" / "etcd"


def test_what_is_nowhere_is_left_out(tmp_path: Path) -> None:
    assert binaries.find("", "", [programs(tmp_path, "v1.37.2", ("etcd",))]) == {"etcd": tmp_path / "etcd"}


def test_a_cache_belongs_to_versions_and_machine() -> None:
    keys = gomodule.cache_keys("Linux", "x86_64")
    assert keys == ("kubernetes-1.37.2_etcd-3.7.0_linux-x86_64", "kwok-0.8.0_linux-x86_64")


# -- building ----------------------------------------------------------------------------------------------------------

KUBERNETES_GO_MOD = """
module k8s.io/kubernetes

require (
	k8s.io/api v0.0.0
	k8s.io/client-go v0.0.0
)

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/client-go => ./staging/src/k8s.io/client-go
)
"""


def test_staging_modules_become_the_published_ones() -> None:
    text = gomodule.control_plane(KUBERNETES_GO_MOD)
    assert "\tk8s.io/api => k8s.io/api v0.37.2\n" in text
    assert "\tk8s.io/client-go => k8s.io/client-go v0.37.2\n" in text
    assert "require k8s.io/kubernetes v1.37.2\n" in text
    for tool in ("go.etcd.io/etcd/server/v3", *(f"k8s.io/kubernetes/cmd/{name}" for name in TRIO)):
        assert f"\t{tool}\n" in text.split("tool (")[1]


def test_a_go_mod_without_staging_is_not_built() -> None:
    with pytest.raises(BuildFailed, match="names no staging modules"):
        gomodule.control_plane("module k8s.io/kubernetes")


def test_binaries_say_which_version_they_are() -> None:
    assert "-X k8s.io/component-base/version.gitVersion=v1.37.2" in gomodule.link_flags()


@pytest.mark.parametrize(
    ("says", "version"),
    [("go1.26.8", (1, 26)), ("go1.27rc1", (1, 27)), ("devel +abc", (0, 0)), ("", (0, 0))],
)
def test_a_go_is_asked_for_its_version(tmp_path: Path, says: str, version: tuple[int, int]) -> None:
    assert build.go_version(program(tmp_path / "go", says)) == version


def test_a_failed_build_leaves_nothing_and_shows_its_last_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "bin" / "go"
    program(go, "go1.26.8")
    go.write_text('#!/bin/sh\n[ "$1" = env ] && echo go1.26.8 && exit 0\necho "no such host" >&2\nexit 1\n')
    monkeypatch.setenv("PATH", f"{go.parent}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(BuildFailed, match=r"go mod download .*kwok.* failed:\nno such host"):
        build.kwok(binaries.cache_folders()[1], quiet)
    assert not binaries.cache_folders()[1].exists()
    assert not list(binaries.cache_folders()[1].parent.glob(".build-*"))


def test_what_failed_is_not_lost_among_the_packages_built_after_it(tmp_path: Path) -> None:
    go = program(tmp_path / "go")
    go.write_text(
        '#!/bin/sh\n[ "$1" = list ] && exit\n'
        'echo "# k8s.io/api" >&2; echo "compile: no space left on device" >&2\n'
        "for i in $(seq 100); do echo k8s.io/other/$i >&2; done; exit 1\n"
    )
    with pytest.raises(BuildFailed, match=r"failed:\n# k8s.io/api\ncompile: no space left on device$"):
        build.Go(go, quiet).build(tmp_path, "control plane", "tool", "out", "")


def test_only_what_is_missing_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    monkeypatch.setattr(build, "kwok", lambda folder, _: built.append(folder.name) or programs(folder, "", ("kwok",)))
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(programs(tmp_path / "assets", "v1.37.2", (*TRIO, "etcd"))))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert binaries.Binaries.ensure().components.keys() == set(START_ORDER)
    assert built == [binaries.cache_folders()[1].name]


def test_progress_counts_what_was_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = tmp_path / "seen"
    go = program(tmp_path / "go")
    go.write_text(
        '#!/bin/sh\n[ "$1" = list ] && printf "a\\nb\\nc\\n" && exit\n'
        f'echo a >&2; echo b >&2; until [ -e "{seen}" ]; do sleep 0.05; done\n'
    )
    monkeypatch.setattr(build, "_REPORT_SECONDS", 0.05)

    def progress(line: str) -> None:
        if "kwok: compiling and linking: 2 of at most 3 packages" in line:
            seen.touch()

    build.Go(go, progress).build(tmp_path, "kwok", "./cmd", "out", "")
    assert seen.exists()


# -- kubectl and helm --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "says", "enough"),
    [
        ("kubectl", "Client Version: v1.37.1", True),
        ("kubectl", "Client Version: v1.32.4-dispatcher", False),
        ("kubectl", "not what you think", False),
        ("helm", "v4.3.1+gc0d08d0", True),
        ("helm", "v3.18.0+gabc", False),
    ],
)
def test_an_old_tool_is_not_used(tmp_path: Path, name: str, says: str, enough: bool) -> None:
    assert tools.new_enough(name, program(tmp_path / name, says)) is enough


def test_the_tools_are_found_inside_the_wheel(tmp_path: Path) -> None:
    layer = tmp_path / "layer.zip"
    with zipfile.ZipFile(layer, "w") as archive:
        archive.writestr("helm/helm", "helm itself")
    package = tmp_path / "package.tgz"
    with tarfile.open(package, "w:gz") as tar:
        tar.add(layer, "package/lib/layer.zip")
    wheel = tmp_path / "some.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(package, "aws_cdk/_jsii/layer@2.0.0.jsii.tgz")
    assert tools.layer(wheel).read("helm/helm") == b"helm itself"


# -- command lines -----------------------------------------------------------------------------------------------------

PORTS = {name: 20000 + index for index, name in enumerate(
    ("etcd", "etcd-peer", "apiserver", "scheduler", "controller-manager", "kwok"))}  # fmt: skip


def commands(features: Features) -> dict[str, list[str]]:
    return command_lines(Layout(Path("/c"), PORTS), features, {name: Path(name) for name in START_ORDER})


def test_native_gangs_need_the_gate_on_all_three() -> None:
    plain, native = commands(Features()), commands(Features(native_gangs=True))
    for name in TRIO:
        assert "--feature-gates=GenericWorkload=true" in native[name]
        assert not any("feature-gates" in argument for argument in plain[name])
    assert "--runtime-config=scheduling.k8s.io/v1beta1=true" in native["kube-apiserver"]


def test_nodes_without_leases_are_given_an_hour() -> None:
    grace = "--node-monitor-grace-period=1h"
    assert grace in commands(Features())["kube-controller-manager"]
    assert grace not in commands(Features(node_leases=True))["kube-controller-manager"]


def test_everything_listens_on_the_loopback_address_only() -> None:
    for name, command in commands(Features()).items():
        listens = [argument for argument in command if "bind-address" in argument or "listen" in argument]
        assert name == "kwok" or listens
        assert all("127.0.0.1" in argument for argument in listens)


def test_kind_is_told_the_same_features() -> None:
    config = kind.cluster_config("one", Features(native_gangs=True))
    assert config["featureGates"] == {"GenericWorkload": True}
    assert config["runtimeConfig"] == {"scheduling.k8s.io/v1beta1": "true"}
    assert "featureGates" not in kind.cluster_config("one", Features())


def test_without_kind_the_other_engine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ToolMissing, match=r"kind is not on PATH.*or use --engine local"):
        kind.provider()
