"""Which tests ask for what the operator's roles allow: accesses, or parts of their names."""

from __future__ import annotations

AFTER_TROUBLE = frozenset({
    "get core/pods", "get core/services", "get berth.dev/trainingjobs", "get scheduling.k8s.io/podgroups",
    "create scheduling.k8s.io/podgroups", "delete scheduling.k8s.io/podgroups", "patch events.k8s.io/events",
})  # fmt: skip
"""A look at what is there already, after a crash or an edit; native gangs; an event that repeats for minutes. Tests of
the roles alone cause them, each by the part of the operator that asks."""
BY_SERVICES = frozenset({
    "apps/deployments", "policy/poddisruptionbudgets", "gateway.networking.k8s.io/", "patch core/services",
    "list core/services", "watch core/services", "patch core/pods", "patch core/nodes",
    "patch berth.dev/inferenceservices/status",
})  # fmt: skip
"""What only an InferenceService needs."""
