"""Questions about whether something that was started is up, each answered yes or no."""

from __future__ import annotations

import ssl
import urllib.request
from collections.abc import Callable
from typing import Any

from berth.devcluster.api import Api
from berth.devcluster.problems import ApiRefused


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


def ready_nodes(api: Api) -> int:
    """How many nodes are Ready and carry no taint that only a fresh or lost node has."""
    return sum(
        any(entry["type"] == "Ready" and entry["status"] == "True" for entry in node["status"].get("conditions", []))
        and not any(taint["key"].startswith("node.kubernetes.io/not-") for taint in node["spec"].get("taints", []))
        for node in api.list("/api/v1/nodes", resourceVersion="0")
    )
