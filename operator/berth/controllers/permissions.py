"""What the operator may do at the API server, declared once.

The chart's roles are generated from this table and the end-to-end tests run the operator with the chart's own
service account, so a call that is not declared here is refused there: the table cannot fall behind the code, and
a verb that nobody uses any more is one line to delete. Dry runs need the verb of the real call. There are no
wildcards and no access to Secrets.

Run as a program it writes the chart's template, or with ``--check`` says whether the one there is current.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from berth.values import ConfigProblem

Scope = Literal["cluster", "own"]

_VERBS: Final = frozenset({"get", "list", "watch", "create", "update", "patch", "delete"})
_NAMED_VERBS: Final = frozenset({"get", "update", "patch", "delete"})
_READ: Final = ("get", "list", "watch")
_FOLLOW: Final = ("list", "watch")


@dataclass(frozen=True, slots=True)
class Permission:
    """Verbs on one resource (``pods`` or ``trainingjobs/status``) and the reason for them.

    ``scope`` is ``cluster`` or ``own``: only the operator's namespace. ``named`` narrows the verbs to the
    one object that carries the name of the operator's Lease. ``value``: a switch of the chart without which it is not
    granted, empty: it always is.

    Raises:
        ConfigProblem: a verb is unknown or a wildcard, there is none, no reason is given, or ``named`` comes with
            a verb that cannot be narrowed (create, list, watch).
    """

    group: str
    resource: str
    verbs: tuple[str, ...]
    why: str
    scope: Scope = "cluster"
    named: bool = False
    value: str = ""

    def __post_init__(self) -> None:
        broad = sorted(set(self.verbs) - _NAMED_VERBS) if self.named else []
        problem = f"cannot be narrowed to one object: {', '.join(broad)}" if broad else ""
        if set(self.verbs) - _VERBS or not self.verbs or "*" in self.group + self.resource or not self.why:
            problem = f"names its resource, at least one verb out of {', '.join(sorted(_VERBS))}, and a reason"
        if problem:
            raise ConfigProblem(problem, source="permissions", field=f"{self.group or 'core'}/{self.resource}")


PERMISSIONS: Final[tuple[Permission, ...]] = (
    Permission("", "pods", (*_READ, "create", "delete"), "gangs: free capacity, workers, their release"),
    Permission("", "pods", ("patch",), "services: which replica a decrease takes first"),
    Permission("", "nodes", _FOLLOW, "the fleet: devices, labels, taints, readiness"),
    Permission("", "nodes", ("patch",), "the label of nodes that hold a model's weights", value="prefetch.enabled"),
    Permission("", "namespaces", _FOLLOW, "nothing is created in a namespace that is terminating"),
    Permission("", "services", ("get", "create"), "rendezvous: one headless Service per gang"),
    Permission("", "services", (*_FOLLOW, "patch"), "the address of an InferenceService, back when it is deleted"),
    Permission("apps", "deployments", (*_READ, "create", "patch", "delete"), "one per variant of a service"),
    Permission("policy", "poddisruptionbudgets", (*_READ, "create", "patch"), "a drain takes few replicas at once"),
    Permission("gateway.networking.k8s.io", "gateways", ("get",), "a public route needs a listener that ends TLS"),
    Permission(
        "gateway.networking.k8s.io", "httproutes", ("get", "create", "patch", "delete"), "the route of a public service"
    ),
    Permission("scheduling.k8s.io", "priorityclasses", _FOLLOW, "spec.priorityClassName orders the queue"),
    Permission("scheduling.k8s.io", "podgroups", ("get", "create", "delete"), "gang binding where it is served"),
    Permission("berth.dev", "trainingjobs", (*_READ, "delete"), "what is asked for; ttlSecondsAfterFinished deletes"),
    Permission("berth.dev", "trainingjobs/status", ("patch",), "phase, placement, conditions, attempts"),
    Permission("berth.dev", "acceleratorpools", _FOLLOW, "pools that override discovery"),
    Permission("berth.dev", "acceleratorpools/status", ("patch",), "capacity, overlap, largest gang"),
    Permission("berth.dev", "inferenceservices", _FOLLOW, "models to be served"),
    Permission("berth.dev", "inferenceservices/status", ("patch",), "phase, variants, demand, decisions, cost"),
    Permission("events.k8s.io", "events", ("create", "patch"), "every transition, repeats folded"),
    Permission("coordination.k8s.io", "leases", ("create",), "one writer at a time", scope="own"),
    Permission("coordination.k8s.io", "leases", ("get", "update"), "one writer at a time", scope="own", named=True),
)
"""All that the operator may do. Order is that of the generated rules."""


def allows(verb: str, group: str, resource: str, *, permissions: Iterable[Permission] = PERMISSIONS) -> bool:
    """Whether the table lets the operator ``verb`` the ``resource`` of ``group``, in any scope.

    ``resource`` is the plural as in a request path, ``trainingjobs/status`` for a subresource.
    """
    return any(p.group == group and p.resource == resource and verb in p.verbs for p in permissions)


_HEAD: Final = """\
{{- /*
Generated by `make crds` from the operator's table of permissions: change that table, not this file.
*/ -}}
{{- if .Values.rbac.create }}
"""

_ROLE: Final = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: %(kind)s
metadata:
  name: {{ include "berth.fullname" . }}
%(namespace)s  labels:
    {{- include "berth.labels" . | nindent 4 }}
rules:
%(rules)s---
apiVersion: rbac.authorization.k8s.io/v1
kind: %(kind)sBinding
metadata:
  name: {{ include "berth.fullname" . }}
%(namespace)s  labels:
    {{- include "berth.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: %(kind)s
  name: {{ include "berth.fullname" . }}
subjects:
  - kind: ServiceAccount
    name: {{ include "berth.serviceAccountName" . }}
    namespace: {{ .Release.Namespace }}
"""

_OWN_NAMESPACE: Final = "  namespace: {{ .Release.Namespace }}\n"


def render(permissions: Sequence[Permission] = PERMISSIONS) -> str:
    """The chart's template: a ClusterRole and, in the release's namespace, a Role, each bound to the operator."""
    cluster, own = ([p for p in permissions if p.scope == scope] for scope in ("cluster", "own"))
    documents = [
        _ROLE % {"kind": "ClusterRole", "namespace": "", "rules": "".join(map(_rule, cluster))},
        _ROLE % {"kind": "Role", "namespace": _OWN_NAMESPACE, "rules": "".join(map(_rule, own))},
    ]
    return _HEAD + "---\n".join(documents) + "{{- end }}\n"


def _rule(permission: Permission) -> str:
    lines = [
        f"  # {permission.why}",
        f'  - apiGroups: ["{permission.group}"]',
        f'    resources: ["{permission.resource}"]',
        "    verbs: [" + ", ".join(f'"{verb}"' for verb in permission.verbs) + "]",
    ]
    if permission.named:
        lines.append('    resourceNames: ["{{ include "berth.leaseName" . }}"]')
    if permission.value:
        lines = [f"  {{{{- if .Values.{permission.value} }}}}", *lines, "  {{- end }}"]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the template, or compare it (exit status 1 when it is stale)."""
    parser = argparse.ArgumentParser(prog="python -m berth.controllers.permissions", description=main.__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the chart's template")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    options = parser.parse_args(arguments)
    path: Path = options.out
    text = render()
    if not options.check:
        path.write_text(text, encoding="utf-8")
        return 0
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return 0
    print(f"{path} is not what the table of permissions says; run: make crds", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
