"""The development cluster: a real control plane whose nodes and pods are simulated."""

from __future__ import annotations

import pytest

from berth.devcluster.api import Api
from berth.devcluster.process import wait_until

pytestmark = pytest.mark.cluster


def pod(name: str, **annotations: str) -> dict[str, object]:
    return {
        "metadata": {
            "name": name,
            "annotations": {f"berth.dev/sim-{key}": value for key, value in annotations.items()},
        },
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.com/train:1"}]},
    }


def test_a_pod_is_bound_and_runs(api: Api, namespace: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    api.post(pods, pod("one"))
    assert wait_until(lambda: api.get(f"{pods}/one")["status"]["phase"] == "Running", 30)
    assert api.get(f"{pods}/one")["spec"]["nodeName"]
