"""The Go module that turns four commands of other projects into four binaries, as text.

`k8s.io/kubernetes` points at its staging modules by relative path, which only works inside its own tree. Outside,
each needs a `replace` with the version that was published from the same commit: v1.37.2 there is v0.37.2 here.
"""

from __future__ import annotations

import re
from typing import Final

from berth.devcluster.problems import BuildFailed

KUBERNETES: Final = "1.37.2"
ETCD: Final = "3.7.0"
KWOK: Final = "0.8.0"
PROMETHEUS: Final = "0.316.0"
GO: Final = (1, 26)
GO_WHEEL: Final = "1.27.3"

ETCD_MODULE: Final = "go.etcd.io/etcd/server/v3"
KWOK_MODULE: Final = "sigs.k8s.io/kwok"
GATEWAY_API: Final = "1.5.0"
GATEWAY_API_MODULE: Final = "sigs.k8s.io/gateway-api"
KUBERNETES_MODULE: Final = "k8s.io/kubernetes"
PROMETHEUS_MODULE: Final = "github.com/prometheus/prometheus"
PROMETHEUS_TAGS: Final = "netgo,remove_all_sd"
"""Without the finders of targets at a score of clouds, and (no ``builtinassets``) without pages made by npm."""
COMMANDS: Final = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")

_STAGING = re.compile(r"^\s*(?:replace\s+)?(k8s\.io/[\w.-]+) => \./staging/", re.MULTILINE)
_VERSION_PACKAGES = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


def cache_keys(system: str, machine: str) -> tuple[str, str]:
    """Folder names of the control plane's programs and of kwok's: everything that they are a function of."""
    platform = f"{system}-{machine}".lower()
    return f"kubernetes-{KUBERNETES}_etcd-{ETCD}_{platform}", f"kwok-{KWOK}_{platform}"


def control_plane(kubernetes_go_mod: str) -> str:
    """The text of our go.mod, given that of `k8s.io/kubernetes`. Raises: BuildFailed when that names no staging."""
    staging = sorted(set(_STAGING.findall(kubernetes_go_mod)))
    if not staging:
        raise BuildFailed(f"the go.mod of {KUBERNETES_MODULE} v{KUBERNETES} names no staging modules")
    published = "0." + KUBERNETES.split(".", 1)[1]
    go = ".".join(map(str, GO))
    return "\n".join(
        [
            "module berth.dev/controlplane",
            f"go {go}.0",
            f"godebug default=go{go}",
            f"require {KUBERNETES_MODULE} v{KUBERNETES}",
            f"require {ETCD_MODULE} v{ETCD}",
            "replace (",
            *(f"\t{module} => {module} v{published}" for module in staging),
            ")",
            "tool (",
            f"\t{ETCD_MODULE}",
            *(f"\t{KUBERNETES_MODULE}/cmd/{command}" for command in COMMANDS),
            ")",
            "",
        ]
    )


def link_flags() -> str:
    """``-ldflags`` that strip the binaries and let them say which version they are."""
    major, minor, _ = KUBERNETES.split(".")
    facts = {"gitVersion": f"v{KUBERNETES}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    stamps = [f"-X {package}.{key}={value}" for package in _VERSION_PACKAGES for key, value in facts.items()]
    return " ".join(["-s", "-w", *stamps])
