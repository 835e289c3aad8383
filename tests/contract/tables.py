"""The contract's examples and the tables of what the API server refuses, read from the YAML files beside this one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]

HERE = Path(__file__).parent
KINDS = ("trainingjob", "inferenceservice", "acceleratorpool")


def example(kind: str) -> Json:
    """Every field of a kind, spec and status."""
    return _read(f"examples/{kind}.yaml")


def minimal(kind: str) -> Json:
    """The least that the API server accepts of a kind."""
    return _read(f"minimal/{kind}.yaml")


def bad_manifests(kind: str) -> list[Json]:
    """``{name, patch, message}`` on the minimal manifest; several messages come in any order."""
    return _read(f"bad/{kind}.yaml")


def edits() -> list[Json]:
    """``{name, attempt?, phase?, with?, patch, message?}`` of a live TrainingJob; without a message it is accepted."""
    return _read("edits/trainingjob.yaml")


def merged(target: Any, patch: Any) -> Any:
    """A JSON merge patch applied, RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def _read(path: str) -> Any:
    return yaml.safe_load((HERE / path).read_text(encoding="utf-8"))
