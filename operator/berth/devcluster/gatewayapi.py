"""The definitions of the Gateway API, which no control plane serves by itself, out of their Go module."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from berth.devcluster import build, gomodule
from berth.devcluster.api import Api
from berth.devcluster.process import Progress, quiet, wait_until

_FOLDER: Final = Path("config/crd/standard")
_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_SECONDS: Final = 30.0


def definitions(progress: Progress = quiet) -> list[dict[str, Any]]:
    """The CustomResourceDefinitions of the standard channel.

    Raises:
        ToolMissing: there is no Go to fetch the module with.
        BuildFailed: it could not be fetched.
    """
    go = build.Go(build.find_go(progress), progress)
    folder = Path(go.download(gomodule.GATEWAY_API_MODULE, gomodule.GATEWAY_API)["Dir"]) / _FOLDER
    documents = [entry for path in sorted(folder.glob("*.yaml")) for entry in yaml.safe_load_all(path.read_text())]
    return [entry for entry in documents if entry and entry["kind"] == "CustomResourceDefinition"]


def install(api: Api, manifests: list[dict[str, Any]]) -> None:
    """Create definitions, these or any others, and return when the API server serves them."""
    for manifest in manifests:
        api.apply(manifest)
    names = [manifest["metadata"]["name"] for manifest in manifests]

    def established(name: str) -> bool:
        conditions = api.get(f"{_CRDS}/{name}").get("status", {}).get("conditions", [])
        return any(entry["type"] == "Established" and entry["status"] == "True" for entry in conditions)

    wait_until(lambda: all(established(name) for name in names), _SECONDS)


def remove(api: Api, manifests: list[dict[str, Any]]) -> None:
    """Delete definitions and with them every object of theirs."""
    for manifest in manifests:
        api.delete(f"{_CRDS}/{manifest['metadata']['name']}")
