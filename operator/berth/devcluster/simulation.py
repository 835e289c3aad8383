"""kwok's one configuration file: options, and the stages that say how simulated nodes and pods live."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from berth.devcluster.problems import DevClusterProblem

_DATA = resources.files("berth.devcluster") / "data"


def options(*, node_leases: bool) -> dict[str, Any]:
    """The KwokConfiguration document: every node is simulated, each by as many workers as two cores can use."""
    return {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokConfiguration",
        "options": {
            "manageAllNodes": True,
            "nodeLeaseDurationSeconds": 40 if node_leases else 0,
            "nodeLeaseParallelism": 4,
            "nodePlayStageParallelism": 8,
            "podPlayStageParallelism": 16,
        },
    }


def kwok_config(*, node_leases: bool = False, stages: Path | None = None) -> str:
    """The whole file. ``stages`` replaces our own stages; options that it states itself replace ours.

    Raises: DevClusterProblem when ``stages`` cannot be read or holds no Stage.
    """
    if stages is None:
        texts = [(_DATA / "stages" / name).read_text() for name in ("nodes.yaml", "pods.yaml")]
    else:
        try:
            texts = [stages.read_text()]
            documents = [document for document in yaml.safe_load_all(texts[0]) if document]
        except (OSError, yaml.YAMLError) as problem:
            raise DevClusterProblem(f"stage file {stages}: {problem}") from problem
        kinds = {document.get("kind") for document in documents if isinstance(document, dict)}
        if "Stage" not in kinds:
            raise DevClusterProblem(f"stage file {stages}: holds no kwok Stage")
        if "KwokConfiguration" in kinds:
            return texts[0]
    head = yaml.safe_dump(options(node_leases=node_leases), sort_keys=False)
    return "---\n".join([head, *texts])


def access_manifests() -> list[dict[str, Any]]:
    """The ClusterRole, its binding and the FlowSchema of the user that kwok runs as."""
    return list(yaml.safe_load_all((_DATA / "kwok-access.yaml").read_text()))
