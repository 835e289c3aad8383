"""kwok's one configuration file: options, and the stages that say how simulated nodes and pods live."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from berth.devcluster.problems import DevClusterProblem

KWOK_USER = "berth:kwok"
MARK = {"kwok.x-k8s.io/node": "fake"}
"""The annotation of every node of our fleets, by which kwok knows them among real ones."""

_DATA = resources.files("berth.devcluster") / "data"


def options(*, node_leases: bool, only_marked: bool = False) -> dict[str, Any]:
    """The KwokConfiguration document, with as many workers as two cores can use.

    kwok plays every node, or only those with the annotation :data:`MARK`.
    """
    mark = next(f"{key}={value}" for key, value in MARK.items())
    return {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokConfiguration",
        "options": {
            **({"manageNodesWithAnnotationSelector": mark} if only_marked else {"manageAllNodes": True}),
            "nodeLeaseDurationSeconds": 40 if node_leases else 0,
            "nodeLeaseParallelism": 4,
            "nodePlayStageParallelism": 8,
            "podPlayStageParallelism": 16,
        },
    }


def kwok_config(*, node_leases: bool = False, stages: Path | None = None, only_marked: bool = False) -> str:
    """The whole file. ``stages`` replaces our own stages; options that it states replace ours, but for which nodes.

    Raises: DevClusterProblem when ``stages`` cannot be read or holds no Stage.
    """
    head = options(node_leases=node_leases, only_marked=only_marked)
    if stages is None:
        texts = [(_DATA / "stages" / name).read_text() for name in ("nodes.yaml", "pods.yaml")]
        return "---\n".join([yaml.safe_dump(head, sort_keys=False), *texts])
    try:
        documents = [document for document in yaml.safe_load_all(stages.read_text()) if isinstance(document, dict)]
    except (OSError, yaml.YAMLError) as problem:
        raise DevClusterProblem(f"stage file {stages}: {problem}") from problem
    if not any(document.get("kind") == "Stage" for document in documents):
        raise DevClusterProblem(f"stage file {stages}: holds no kwok Stage")
    for document in documents:
        if document.get("kind") == "KwokConfiguration":
            own = {key: value for key, value in document.get("options", {}).items() if not key.startswith("manage")}
            head["options"] |= own
    rest = [document for document in documents if document.get("kind") != "KwokConfiguration"]
    return yaml.safe_dump_all([head, *rest], sort_keys=False)


def access_manifests() -> list[dict[str, Any]]:
    """The ClusterRole, its binding and the FlowSchema of the user that kwok runs as."""
    return list(yaml.safe_load_all((_DATA / "kwok-access.yaml").read_text()))
