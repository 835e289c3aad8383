"""Where replicas are asked for their metrics: once their server has started, whether they are ready or not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from berth.cluster import wire
from berth.cluster.kinds import PODS
from berth.controllers.services.endpoints import endpoint
from berth.telemetry.scrape import Endpoint
from tests.builders.services import CATALOGUE, OWN
from tests.unit.controllers.services.views import make_view

OWNER = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "v-h", "uid": "u", "controller": True}]
SERVER = {"name": "server", "started": True, "ready": False}


def replica(owners: Any = OWNER, deleted: str | None = None, **status: Any) -> wire.Pod:
    meta = {
        "name": "p",
        "namespace": "serving",
        "labels": {"berth.dev/service-name": "chat", "berth.dev/variant": "v", "pod-template-hash": "h"},
        "ownerReferences": owners,
    }
    whole = {"podIP": "10.0.0.7", "containerStatuses": [SERVER], **status}
    body = {"metadata": {**meta, "deletionTimestamp": deleted}, "status": whole}
    found: wire.Pod = PODS.decode(json.dumps(body).encode())
    return found


def found(pod: wire.Pod | None, **spec: Any) -> Endpoint | None:
    return endpoint(pod, lambda key: make_view(**spec) if key == ("serving", "chat") else None, CATALOGUE)


@pytest.mark.parametrize(
    "pod",
    [
        None,
        replica(podIP=""),
        replica(containerStatuses=[{**SERVER, "started": False}]),
        replica(containerStatuses=[{**SERVER, "name": "sidecar"}]),
        replica(deleted="2026-12-01T10:00:00Z"),
        replica(owners=[]),
        replica(owners=[{**OWNER[0], "name": "copy-h"}]),
    ],
    ids=[
        "gone",
        "no address",
        "starting",
        "another container",
        "ending",
        "not a replica",
        "of a copied Deployment",
    ],
)
def test_there_is_nothing_to_ask_yet(pod: wire.Pod | None) -> None:
    assert found(pod) is None


def test_an_engine_is_asked_where_the_catalogue_says() -> None:
    engine = CATALOGUE.serving.engines["Triton"]
    asked = found(replica(), runtime={"engine": "Triton", "args": []})
    assert asked == Endpoint("10.0.0.7", engine.metrics_port, engine.metrics_path)


@pytest.mark.parametrize(("expose", "port"), [({"port": 9000}, 9000), ({}, 8000)])
def test_an_engine_of_the_users_own_is_asked_where_it_serves(expose: dict[str, int], port: int) -> None:
    own = {"runtime": {"engine": "Custom", "args": []}, "template": OWN, "expose": expose}
    assert found(replica(), **own) == Endpoint("10.0.0.7", port)
