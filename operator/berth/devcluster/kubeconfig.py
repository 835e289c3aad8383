"""Kubeconfig files that hold everything inline, so that each can be copied anywhere."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import yaml


def write(
    path: Path, server: str, authority: bytes, user: dict[str, Any], *, name: str = "berth", namespace: str = "default"
) -> None:
    """Write a kubeconfig (mode 0600) with one context called ``name`` for the credentials in ``user``."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": name, "cluster": {"server": server, "certificate-authority-data": encode(authority)}},
        ],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}}],
        "current-context": name,
    }
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as output:
        yaml.safe_dump(config, output, sort_keys=False)


def encode(content: bytes) -> str:
    """Base64 as kubeconfig files have it."""
    return base64.b64encode(content).decode()
