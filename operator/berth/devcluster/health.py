"""Questions about whether something that was started is up, each answered yes or no."""

from __future__ import annotations

import ssl
import urllib.request
from collections.abc import Callable
from typing import Any

from berth.devcluster.api import Api, Json
from berth.devcluster.problems import ApiRefused
from berth.devcluster.process import wait_until


def answers(request: Callable[[], Any]) -> bool:
    """Whether ``request`` succeeds; a server that is still starting refuses or resets."""
    try:
        request()
    except (OSError, ApiRefused, ValueError):
        return False
    return True


def healthy(url: str) -> bool:
    """Whether a component on the loopback address answers its health page; its self-signed certificate is accepted."""
    insecure = ssl._create_unverified_context()  # noqa: S323
    return answers(lambda: urllib.request.urlopen(url, timeout=2, context=insecure).read())  # noqa: S310


def is_ready(thing: Json) -> bool:
    """Whether the condition Ready of a pod or a node is True."""
    conditions = (thing.get("status") or {}).get("conditions") or ()
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)


def make_namespace(api: Api, name: str, seconds: float) -> bool:
    """Create a namespace; whether its default ServiceAccount, without which no pod is let in, came in time."""
    api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    return wait_until(lambda: api.exists(f"/api/v1/namespaces/{name}/serviceaccounts/default"), seconds)


def ready_nodes(api: Api) -> int:
    """How many nodes are Ready and carry no taint that only a fresh or lost node has."""
    return sum(
        is_ready(node)
        and not any(taint["key"].startswith("node.kubernetes.io/not-") for taint in node["spec"].get("taints", []))
        for node in api.list("/api/v1/nodes", resourceVersion="0")
    )
