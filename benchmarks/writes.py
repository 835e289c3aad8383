"""What was written to the API server, and by whom.

The server's own metrics count writes by verb and resource but not by user; its audit log names the user. So writes of
the operator come from an audit policy that records nothing but the metadata of that one account's writes (a line per
write, no bodies), and the totals of everybody from the metrics.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from berth.devcluster.binaries import Binaries

_REQUESTS = "apiserver_request_total{"
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_WRITES = {"POST": "create", "PUT": "update", "PATCH": "patch", "APPLY": "patch", "DELETE": "delete"}


@dataclass(frozen=True, slots=True)
class Write:
    """A successful write: ``verb`` is create, update, patch, delete or deletecollection; ``subresource`` often ""."""

    verb: str
    resource: str
    subresource: str = ""
    dry_run: bool = False

    def __str__(self) -> str:
        name = f"{self.verb} {self.resource}{'/' if self.subresource else ''}{self.subresource}"
        return name + (" (dry run)" if self.dry_run else "")


Counts = Counter[Write]


def from_metrics(text: str) -> Counts:
    """Successful writes that an API server has served since its start, from its /metrics page."""
    counts: Counts = Counter()
    for line in text.splitlines():
        if not line.startswith(_REQUESTS):
            continue
        labels = dict(_LABEL.findall(line))
        verb = _WRITES.get(labels["verb"]) or ("deletecollection" if labels["verb"] == "DELETECOLLECTION" else "")
        if verb and labels["code"].startswith("2"):
            write = Write(verb, labels["resource"], labels.get("subresource", ""), bool(labels.get("dry_run")))
            counts[write] += int(float(line.rsplit(" ", 1)[1]))
    return counts


def policy(group: str, *, reads: bool = False) -> dict[str, Any]:
    """An audit policy that records the metadata of writes by users in ``group``, of reads where ``reads``; no more."""
    verbs = ["create", "update", "patch", "delete", "deletecollection", *(["get", "list", "watch"] if reads else [])]
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "omitManagedFields": True,
        "rules": [{"level": "Metadata", "userGroups": [group], "verbs": verbs}, {"level": "None"}],
    }


def from_audit(lines: Iterable[str]) -> Iterator[tuple[Write, Mapping[str, Any]]]:
    """Each successful write in an audit log, with its whole record."""
    for line in lines:
        record = json.loads(line)
        target = record.get("objectRef") or {}
        if record.get("stage") == "ResponseComplete" and 200 <= record.get("responseStatus", {}).get("code", 0) < 300:
            dry = "dryRun=" in record.get("requestURI", "")
            yield Write(record["verb"], target.get("resource", ""), target.get("subresource", ""), dry), record


@dataclass(frozen=True, slots=True)
class Access:
    """What an account asked for, in the words of a role, and whether its roles allow it."""

    verb: str
    group: str
    resource: str
    allowed: bool

    def __str__(self) -> str:
        return f"{self.verb} {self.group or 'core'}/{self.resource}"


def accesses(lines: Iterable[str]) -> Iterator[Access]:
    """The accesses in an audit log; requests that are not about resources, such as /version, are left out."""
    for line in lines:
        record = json.loads(line)
        if target := record.get("objectRef"):
            name = "/".join(target[part] for part in ("resource", "subresource") if target.get(part))
            allowed = record.get("annotations", {}).get("authorization.k8s.io/decision") != "forbid"
            yield Access(record["verb"], target.get("apiGroup", ""), name, allowed)


class AuditLog:
    """The audit log of one API server, read on from where the last reading ended.

    ``kept_by`` makes the server keep it: started by a script that adds the two flags, so that whoever starts the
    server need not know of audits.
    """

    def __init__(self, folder: Path, group: str, *, reads: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path, self._policy, self._offset = folder / "audit.log", folder / "audit-policy.yaml", 0
        self._policy.write_text(yaml.safe_dump(policy(group, reads=reads)))
        self._folder = folder

    def kept_by(self, binaries: Binaries) -> Binaries:
        """``binaries`` whose API server keeps this audit log."""
        server = self.wrapped(binaries.components["kube-apiserver"])
        return replace(binaries, components={**binaries.components, "kube-apiserver": server})

    def wrapped(self, server: Path) -> Path:
        """A program that is the API server ``server`` with this audit log."""
        script = self._folder / "kube-apiserver"
        flags = f'--audit-policy-file="{self._policy}" --audit-log-path="{self.path}" --audit-log-mode=blocking'
        script.write_text(f'#!/bin/sh\nexec "{server}" "$@" {flags}\n')
        script.chmod(0o755)
        return script

    def read(self) -> list[tuple[Write, Mapping[str, Any]]]:
        """The writes recorded since the last call."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as log:
            log.seek(self._offset, os.SEEK_SET)
            content = log.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._offset += len(whole)
        return list(from_audit(whole.decode().splitlines()))

    def counts(self) -> Counts:
        """The same, counted."""
        return Counter(write for write, _ in self.read())

    def accesses(self) -> set[Access]:
        """All that was asked for since the server's start."""
        with self.path.open(encoding="utf-8") as log:
            return set(accesses(line for line in log if line.endswith("\n")))


def expected_of_gangs(counts: Counts, pods: int, gangs: int) -> dict[str, float]:
    """The three figures of a budget: pod creates and patches per worker pod, everything else per gang.

    Dry runs change nothing and leases are the operator's own pulse; neither counts. Deletes count.
    """
    real = Counter({write: n for write, n in counts.items() if not write.dry_run and write.resource != "leases"})
    creates = real[Write("create", "pods")]
    patches = sum(n for write, n in real.items() if write.resource == "pods" and write.verb in ("patch", "update"))
    return {
        "creates_per_pod": round(creates / pods, 4),
        "patches_per_pod": round(patches / pods, 4),
        "other_writes_per_gang": round((sum(real.values()) - creates - patches) / gangs, 3),
    }
